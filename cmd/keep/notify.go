package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/config"
	"github.com/keep-run/keep/notify"
)

// notifyConfig returns how a host tells people of questions: with the object
// that keep inbox --json prints.
func (a *app) notifyConfig(cfg *config.Config, db database) (notify.Config, error) {
	targets, err := cfg.Notify.Targets(a.log)
	return notify.Config{
		Store:   db,
		Targets: targets,
		Encode:  func(q keep.Escalation) (json.RawMessage, error) { return json.Marshal(api.EscalationOf(q)) },
		Retry:   cfg.Notify.Retry,
		Timeout: cfg.Notify.Timeout,
		Logger:  a.log,
	}, err
}

// printTold says who was told of a question, and who was not.
func (a *app) printTold(ctx context.Context, c *api.Client, id keep.EscalationID) error {
	all, err := c.Notices(ctx, id)
	for _, n := range all {
		fmt.Fprintf(a.out, "  %s %s\n", a.outInk.dim("told by "+string(n.Sink)+":"), a.told(n))
	}
	return err
}

// told says how far telling one sink has come.
func (a *app) told(n api.Notice) string {
	switch n.Status {
	case keep.NoticeDelivered:
		return "yes, " + a.at(n.UpdatedAt)
	case keep.NoticeGivenUp:
		return fmt.Sprintf("no, given up after %s: %s", plural(n.Attempts, "attempt"), clean(orEmpty(n.Error)))
	case keep.NoticeMoot:
		return "no, it was closed before"
	}
	if n.Error == nil {
		return "perhaps; if nothing is recorded, again at " + a.maybeAt(n.NextAt)
	}
	return fmt.Sprintf("not yet, again at %s: %s", a.maybeAt(n.NextAt), clean(*n.Error))
}
