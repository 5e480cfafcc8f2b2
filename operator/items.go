package operator

import (
	"context"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
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

// CanDoItem returns why an item is in no state for Reprocess, Skip or Unskip. It changes
// nothing, and the item may move before the action is taken.
func (o *Operator) CanDoItem(it keep.Item, action keep.Action) error {
	switch {
	case action == keep.Reprocess && !lifecycle.ItemOver(it) && it.Status != keep.ItemAttention:
		return &ItemError{it.ID, it.Status, action, "its handler runs again anyway, in the same attempt"}
	case action == keep.Skip && lifecycle.ItemOver(it):
		return &ItemError{it.ID, it.Status, action, "nothing is left to skip"}
	case action == keep.Unskip && it.Status != keep.ItemSkipped:
		return &ItemError{it.ID, it.Status, action, "it is not skipped"}
	case action == keep.Unskip && it.Swept >= it.Attempt:
		return &ItemError{it.ID, it.Status, action, "records of its calls were deleted since, or may have been; only reprocess does it again"}
	}
	return nil
}

// ReprocessItem makes a finished item start over as a new attempt, the next time
// that its job comes to it. Everything that the item does is then sent again: the
// mutations of other attempts mean nothing to the new one.
func (o *Operator) ReprocessItem(ctx context.Context, w keep.WorkflowName, id string, d keep.Decision) error {
	it, err := o.store.Item(ctx, w, id)
	if err != nil {
		return err
	}
	d.Action = keep.Reprocess
	if err := o.CanDoItem(it, d.Action); err != nil {
		return err
	}
	if it.Status == keep.ItemAttention {
		return o.decideItem(ctx, it, d)
	}
	d.At = o.now()
	return o.putItem(ctx, lifecycle.Reprocess(it, d.At))
}

// SkipItem leaves an item that is not done: its job passes it over from now on.
func (o *Operator) SkipItem(ctx context.Context, w keep.WorkflowName, id string, d keep.Decision) error {
	it, err := o.store.Item(ctx, w, id)
	if err != nil {
		return err
	}
	d.Action = keep.Skip
	if err := o.CanDoItem(it, d.Action); err != nil {
		return err
	}
	q, err := o.itemQuestion(ctx, it)
	if err != nil {
		return err
	}
	if q != "" {
		return o.Decide(ctx, q, d)
	}
	ms, _, err := o.store.Mutations(ctx, keep.MutationFilter{Workflow: w, Item: id}, keep.Page{Limit: keep.MaxPage})
	if err != nil {
		return err
	}
	for _, m := range ms {
		if lifecycle.Unknown(m.State) {
			return &ItemError{id, it.Status, d.Action, "it is not known yet whether its call happened; the service is being asked"}
		}
	}
	it.Status, it.UpdatedAt = keep.ItemSkipped, o.now()
	return o.putItem(ctx, it)
}

// decideItem answers the open question about an item.
func (o *Operator) decideItem(ctx context.Context, it keep.Item, d keep.Decision) error {
	q, err := o.itemQuestion(ctx, it)
	if err != nil {
		return err
	}
	if q == "" {
		return &ItemError{it.ID, it.Status, d.Action, "its question is answered already"}
	}
	return o.Decide(ctx, q, d)
}

// itemQuestion returns the open question about an item, empty if there is none.
func (o *Operator) itemQuestion(ctx context.Context, it keep.Item) (keep.EscalationID, error) {
	for page := (keep.Page{Limit: keep.MaxPage}); ; {
		qs, next, err := o.store.Escalations(ctx, keep.EscalationFilter{Workflow: it.Workflow, Open: true}, page)
		if err != nil {
			return "", err
		}
		for _, q := range qs {
			if q.Item == it.ID {
				return q.ID, nil
			}
		}
		if page.After = next; next == "" {
			return "", nil
		}
	}
}

func (o *Operator) putItem(ctx context.Context, it keep.Item) error {
	return o.decided(ctx, it.Workflow, it.UpdatedAt, keep.PutItem{Item: it})
}
