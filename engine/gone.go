package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/schedule"
)

// handlerGone has an open run wait for a person, or for another version: the current one has not its handler, and
// the version that began it is written in Go and not in this program. Scripts are carried on by the version before,
// which is in the database. The question takes the place of those that were open about the run.
func (a *actor) handlerGone(ctx context.Context, o schedule.Open, now time.Time) error {
	x := a.execution(a.current, a.handlerOf(o.Run), lifecycle.HandlerGone(o.Run, a.current.Version, now))
	x.mut, x.reserved = o.Doubt, true
	var err error
	if x.questions, err = a.openQuestions(ctx, o.Run); err != nil {
		return err
	}
	if err := x.commit(ctx, keep.OpenEscalation{Escalation: x.question(ctx, keep.AskPrecondition, x.run.Error, now, nil)}); err != nil {
		return err
	}
	x.remember(nil)
	a.log.WarnContext(ctx, "run stopped", x.facts("phase", x.run.Phase, "status", x.run.Status, "err", x.run.Error)...)
	return nil
}

// askForHandler asks about a run whose handler is gone, and not about the call that it has: lists would name its tool
// as what is to be mended. What it may be skipped by ends the run, and no item of it.
func (x *execution) askForHandler(q *keep.Escalation) {
	q.Item, q.Mutation, q.Attempted = "", "", x.attempted()
	if x.mut.Key != "" {
		q.Attempted += fmt.Sprintf("; its call %s on %s is %s", x.mut.Tool, x.mut.Target, x.mut.State)
	}
	q.Question = fmt.Sprintf("Version %s of workflow %s has no %s %s, and run %s of it is open. Deploy a program that has the handler by this name, or says that another one was it (Was): "+
		"the run continues by itself then.", x.a.current.Version, x.a.name, x.run.Kind, x.run.Handler, x.run.ID)
	q.Choices = append(q.Choices, keep.Choice{Action: keep.Retry, Label: "Retry", Effect: "looks for the handler again; nothing is done without it"})
	skip := keep.Choice{Action: keep.Skip, Label: "Skip", Effect: "ends this run; its items stay as they are, and nothing is sent"}
	switch {
	case x.run.Kind != keep.Consumer:
	case lifecycle.Settled(x.mut.State):
		return // what follows the call is not given up
	case x.mut.Doubted:
		skip.Effect = "ends this run without another call; its events stay skipped, since its call was in doubt: deploy the handler by this name to have them handled, or keep events redo"
	default:
		skip.Effect = "ends this run without a call; its events are marked skipped, and another consumer handles them after keep events unskip"
	}
	q.Choices = append(q.Choices, skip)
}
