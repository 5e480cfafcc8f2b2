package operator

import (
	"context"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/store"
)

// SettleRivals lets the runs continue that wait for a person since an equal call of another run may have happened, and of
// which it is known by now that it did not: what the question says is not so any more. They look again before anything is
// sent. A call of an agent continues when the agent makes it again. Any host may do it at any time.
func (o *Operator) SettleRivals(ctx context.Context) error {
	waits := func(r keep.Run) bool {
		return r.Status == keep.StatusPerson && r.Error != nil && r.Error.Code == keep.CodeAlreadyDone && r.Workflow != keep.DirectWorkflow
	}
	for r, err := range store.All(ctx, o.store.Runs, keep.RunFilter{Status: keep.StatusPerson, Open: true}, keep.Page{Limit: 500, Bare: true}) {
		if err != nil {
			return err
		}
		if !waits(r) {
			continue
		}
		still := func(r keep.Run) (bool, error) {
			if !waits(r) {
				return false, nil
			}
			return o.rivalFailed(ctx, r)
		}
		if err := o.continueRun(ctx, r.ID, still); err != nil {
			return fmt.Errorf("continue run %s: %w", r.ID, err)
		}
	}
	return nil
}

// rivalFailed reports whether the call because of which a run asked is known not to have happened, since it asked.
func (o *Operator) rivalFailed(ctx context.Context, r keep.Run) (bool, error) {
	filter := keep.EscalationFilter{Workflow: r.Workflow, Run: r.ID, Open: true}
	for q, err := range store.All(ctx, o.store.Escalations, filter, keep.Page{Limit: keep.MaxPage}) {
		if err != nil {
			return false, err
		}
		if q.Kind != keep.AskAlreadyDone {
			continue
		}
		m, err := o.store.Mutation(ctx, q.Mutation)
		if isNotFound(err) {
			return false, nil
		}
		return err == nil && lifecycle.RivalFailed(q, m, o.now()), err
	}
	return false, nil
}
