package main

import (
	"context"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// printTold says who was notified of a question, and who was not.
func (a *app) printTold(ctx context.Context, c *api.Client, id keep.EscalationID) error {
	all, err := c.Notices(ctx, id)
	for _, n := range all {
		fmt.Fprintf(a.Out, "  %s %s\n", a.OutInk.Dim("told by "+string(n.Sink)+":"), a.told(n))
	}
	return err
}

// told says how far telling one sink has come. "Perhaps" is what may have been sent already:
// what a sink answers is recorded after it answers, so a message may come twice.
func (a *app) told(n api.Notice) string {
	switch n.Status {
	case keep.NoticeDelivered:
		return "yes, " + a.At(n.UpdatedAt)
	case keep.NoticeGivenUp:
		return fmt.Sprintf("no, given up after %s: %s", terminal.Plural(n.Attempts, "attempt"), terminal.Clean(terminal.OrEmpty(n.Error)))
	case keep.NoticeMoot:
		return "no, it was closed before"
	}
	if n.Error == nil {
		return "perhaps; if nothing is recorded, again at " + a.maybeAt(n.NextAt)
	}
	return fmt.Sprintf("not yet, again at %s: %s", a.maybeAt(n.NextAt), terminal.Clean(*n.Error))
}
