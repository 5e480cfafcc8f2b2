package engine

import (
	"context"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/commitlog"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/law/schedule"
)

// A doubt about a call in an item is detached when it is not that of an open
// run. Its item is blocked, and nothing else (docs/design/0003-blocked-items.md).

// maxDetached is how many detached doubts a workflow may have (law: bounded).
const maxDetached = 100

// mayDetach reports whether one more doubt may be detached.
func (a *actor) mayDetach() bool {
	return a.e.policy.OnItemBlocked == policy.Continue && len(a.detached) < maxDetached
}

// loadDetached reads the detached doubts of the workflow. There are maxDetached, among as many of open runs.
func (a *actor) loadDetached(ctx context.Context) error {
	doubts, err := a.e.store.ItemDoubts(ctx, a.name)
	if err != nil {
		return err
	}
	a.detached = nil
	for _, m := range doubts {
		if ofOpen := slices.ContainsFunc(a.open, func(o schedule.Open) bool { return o.Run.Mutation == m.Key }); !ofOpen {
			a.detached = append(a.detached, a.e.dueByTool(m))
			a.e.meetKey(m)
		}
	}
	return nil
}

// blocked returns the detached doubt about an item.
func (a *actor) blocked(id string, attempt int) (keep.Mutation, bool) {
	for _, m := range a.detached {
		if m.Item == id && m.Attempt == attempt {
			return m, true
		}
	}
	return keep.Mutation{}, false
}

// detach lets an open run continue without the item whose call is in doubt.
func (a *actor) detach(ctx context.Context, o schedule.Open, now time.Time) error {
	run := o.Run
	run.Mutation, run.UpdatedAt = "", now
	run.RetryAt = now.Add(a.e.policy.Retry.Delay(0, 0, a.e.jitter()))
	changes := []keep.Change{keep.PutRun{Run: run}}
	item, err := a.e.store.Item(ctx, a.name, o.Doubt.Item)
	if err != nil {
		return err
	}
	if item.Status == keep.ItemProcessing { // the host died in it
		item.Status, item.UpdatedAt = keep.ItemFailed, now
		changes = append(changes, keep.PutItem{Item: item})
	}
	if err := a.commit(ctx, now, changes...); err != nil {
		return err
	}
	a.log.WarnContext(ctx, "item blocked", commitlog.Attrs(run.ID, run.Handler, o.Doubt.Key, "item", item.ID)...)
	a.loaded = false
	return nil
}

// askDetached asks what became of a call whose run is over.
func (a *actor) askDetached(ctx context.Context, key keep.MutationKey) error {
	m, err := a.e.store.Mutation(ctx, key)
	if err != nil {
		return err
	}
	run, err := a.e.store.Run(ctx, m.Run)
	if err != nil {
		return err
	}
	m, fact, until, err := a.find(ctx, m)
	switch {
	case err != nil:
		return err
	case !until.IsZero():
		for i := range a.detached {
			if a.detached[i].Key == key {
				a.detached[i].NextReconcileAt = until
			}
		}
		return nil
	}
	now := a.e.Now()
	m, move, err := ledger.AfterLookup(m, fact, a.e.askLimit(m, fact, now), now)
	if err != nil {
		return err
	}
	changes := []keep.Change{keep.PutMutation{Mutation: m, Moves: []keep.Move{move}}}
	switch {
	case m.State == keep.Indeterminate:
		x := a.execution(a.current, keep.Handler{Name: run.Handler, Kind: run.Kind}, run)
		x.mut, x.run.Mutation, x.run.Title = m, m.Key, m.Title
		f := x.callFailure()
		stopped, err := x.trip(ctx, f, true)
		if err != nil {
			return err
		}
		changes = append(changes, keep.OpenEscalation{Escalation: x.question(ctx, lifecycle.DoubtKind(m), f, now, []keep.Move{move})})
		changes = append(changes, stopped...)
	case !lifecycle.Unknown(m.State):
		due, err := a.dueAgain(ctx, run, m, now)
		if err != nil {
			return err
		}
		changes = append(changes, due...)
	}
	if err := a.commit(ctx, now, changes...); err != nil {
		return err
	}
	a.loaded = false
	return nil
}

// dueAgain returns the changes that make the job of a run due because the outcome
// of m is known now. A call that has to be made again, and was made as often as
// the policy retries one, waits for the schedule.
func (a *actor) dueAgain(ctx context.Context, run keep.Run, m keep.Mutation, now time.Time) ([]keep.Change, error) {
	h, declared, err := a.successor(ctx, run)
	if !declared || err != nil {
		return nil, err
	}
	if m.State == keep.Failed && m.ResolvedBy == "reconcile" && a.e.policy.Retry.Exhausted(m.Attempts-1) {
		return nil, nil
	}
	states, err := a.e.store.Handlers(ctx, run.Workflow)
	if err != nil {
		return nil, err
	}
	if s, ok := schedule.BringForward(states, h.Name, now); ok {
		return []keep.Change{keep.PutHandler{State: s}}, nil
	}
	return nil, nil
}
