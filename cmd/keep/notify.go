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
func (a *app) printTold(ctx context.Context, db database, id keep.EscalationID) error {
	all, err := db.Notices(ctx, id)
	for _, n := range all {
		fmt.Fprintf(a.out, "  %s %s\n", a.outInk.dim("told by "+string(n.Sink)+":"), a.told(n))
	}
	return err
}

// told says how far telling one sink has come.
func (a *app) told(n keep.Notice) string {
	switch n.Status {
	case keep.NoticeDelivered:
		return "yes, " + a.at(api.Time(n.UpdatedAt))
	case keep.NoticeGivenUp:
		return fmt.Sprintf("no, given up after %s: %s", plural(n.Attempts, "attempt"), clean(n.Error))
	case keep.NoticeMoot:
		return "no, it was closed before"
	}
	if n.Error == "" {
		return "perhaps; if nothing is recorded, again at " + a.at(api.Time(n.NextAt))
	}
	return fmt.Sprintf("not yet, again at %s: %s", a.at(api.Time(n.NextAt)), clean(n.Error))
}

// A notTold is a question of which people could not be told.
type notTold struct {
	Question keep.EscalationID `json:"question"`
	Sink     keep.Sink         `json:"sink"`
	Attempts int               `json:"attempts"`
	Error    string            `json:"error"`
}

// addNotTold adds the open questions of which a sink was given up.
func (s *status) addNotTold(ctx context.Context, db database) error {
	for _, q := range s.NeedsYou {
		all, err := db.Notices(ctx, q.ID)
		if err != nil {
			return err
		}
		for _, n := range all {
			if n.Status == keep.NoticeGivenUp {
				s.NotTold = append(s.NotTold, notTold{q.ID, n.Sink, n.Attempts, n.Error})
			}
		}
	}
	return nil
}
