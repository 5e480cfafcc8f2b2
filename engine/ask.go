package engine

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/outcome"
	"github.com/keep-run/keep/law/lifecycle"
)

// aboutItem returns f with the item that stopped the run, which a question that is asked later
// is about.
func (x *execution) aboutItem(f *keep.Failure) *keep.Failure {
	if x.item == "" {
		return f
	}
	about := *f
	about.Item = x.item
	return &about
}

// AskAbout asks a person about a run that failed by logic and asked nobody; see Config.Repairs.
// tried says what was done about it meanwhile; empty: nothing. The run must be as the store has
// it, or the error is keep.ErrStale: of two who ask, one does.
func (e *Engine) AskAbout(ctx context.Context, run keep.Run, tried string) error {
	if !lifecycle.NeedsScript(run) {
		return nil
	}
	m, err := outcome.Of(ctx, e.store, run)
	if err != nil {
		return err
	}
	x := &execution{e: e, a: &actor{name: run.Workflow}, run: run, mut: m, item: run.Error.Item}
	now := e.Now()
	q := x.question(ctx, keep.AskLogic, run.Error, now, nil)
	if tried != "" {
		q.Why += "\n" + tried
	}
	run.UpdatedAt = now
	if err := e.commit(ctx, run.Workflow, 0, now, keep.PutRun{Run: run}, keep.OpenEscalation{Escalation: q}); err != nil {
		return err
	}
	e.Wake(run.Workflow)
	return nil
}
