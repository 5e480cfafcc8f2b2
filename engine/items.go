package engine

import (
	"context"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/lifecycle"
)

// An ItemError is returned when an item is not in a state that the action needs.
type ItemError struct {
	Item   string
	Status keep.ItemStatus
	Action keep.Action
	Why    string
}

// Error names the item, the action and why it is refused.
func (e *ItemError) Error() string {
	return fmt.Sprintf("item %q is %s: %s: %s", e.Item, e.Status, e.Action, e.Why)
}

// CanDoItem returns why an item is in no state for Reprocess or Skip. It changes
// nothing, and the item may move before the action is taken.
func (e *Engine) CanDoItem(it keep.Item, action keep.Action) error {
	switch {
	case action == keep.Reprocess && !over(it) && it.Status != keep.ItemAttention:
		return &ItemError{it.ID, it.Status, action, "its handler runs again anyway, in the same attempt"}
	case action == keep.Skip && over(it):
		return &ItemError{it.ID, it.Status, action, "nothing is left to skip"}
	}
	return nil
}

// ReprocessItem makes a finished item start over as a new attempt, the next time
// that its job comes to it. Everything that the item does is then sent again: the
// mutations of other attempts mean nothing to the new one (S0 §14.3).
func (e *Engine) ReprocessItem(ctx context.Context, w keep.WorkflowName, id string, d keep.Decision) error {
	it, err := e.store.Item(ctx, w, id)
	if err != nil {
		return err
	}
	d.Action = keep.Reprocess
	if err := e.CanDoItem(it, d.Action); err != nil {
		return err
	}
	if it.Status == keep.ItemAttention {
		return e.decideItem(ctx, it, d)
	}
	d.At = e.now()
	return e.putItem(ctx, lifecycle.Reprocess(it, d.At))
}

// SkipItem leaves an item that is not done: its job passes it over from now on.
func (e *Engine) SkipItem(ctx context.Context, w keep.WorkflowName, id string, d keep.Decision) error {
	it, err := e.store.Item(ctx, w, id)
	if err != nil {
		return err
	}
	d.Action = keep.Skip
	if err := e.CanDoItem(it, d.Action); err != nil {
		return err
	}
	q, err := e.itemQuestion(ctx, it)
	if err != nil {
		return err
	}
	if q != "" {
		return e.Decide(ctx, q, d)
	}
	ms, _, err := e.store.Mutations(ctx, keep.MutationFilter{Workflow: w, Item: id}, keep.Page{Limit: keep.MaxPage})
	if err != nil {
		return err
	}
	for _, m := range ms {
		if lifecycle.Unknown(m.State) {
			return &ItemError{id, it.Status, d.Action, "it is not known yet whether its call happened; the service is being asked"}
		}
	}
	it.Status, it.UpdatedAt = keep.ItemSkipped, e.now()
	return e.putItem(ctx, it)
}

// decideItem answers the open question about an item.
func (e *Engine) decideItem(ctx context.Context, it keep.Item, d keep.Decision) error {
	q, err := e.itemQuestion(ctx, it)
	if err != nil {
		return err
	}
	if q == "" {
		return &ItemError{it.ID, it.Status, d.Action, "its question is answered already"}
	}
	return e.Decide(ctx, q, d)
}

// itemQuestion returns the open question about an item, empty if there is none.
func (e *Engine) itemQuestion(ctx context.Context, it keep.Item) (keep.EscalationID, error) {
	qs, _, err := e.store.Escalations(ctx, keep.EscalationFilter{Workflow: it.Workflow, Open: true}, keep.Page{Limit: keep.MaxPage})
	if err != nil {
		return "", err
	}
	for _, q := range qs {
		if q.Item == it.ID {
			return q.ID, nil
		}
	}
	return "", nil
}

func (e *Engine) putItem(ctx context.Context, it keep.Item) error {
	if err := e.commit(ctx, it.Workflow, 0, it.UpdatedAt, keep.PutItem{Item: it}); err != nil {
		return err
	}
	e.wake(it.Workflow)
	return nil
}
