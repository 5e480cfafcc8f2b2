package operator

import (
	"context"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/store"
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
// mutations of other attempts mean nothing to the new one. An item with a call whose outcome
// is not known yet is *ItemError, as it is for SkipItem.
func (o *Operator) ReprocessItem(ctx context.Context, w keep.WorkflowName, id string, d keep.Decision) error {
	return o.reprocess(ctx, w, id, d, func(keep.Item) error { return nil })
}

// ReprocessAttempt is ReprocessItem of an item that is at that attempt, else *ItemError: who decides about what one attempt
// did does not decide about the next one.
func (o *Operator) ReprocessAttempt(ctx context.Context, w keep.WorkflowName, id string, attempt int, d keep.Decision) error {
	return o.reprocess(ctx, w, id, d, func(it keep.Item) error { return isAt(it, attempt, keep.Reprocess) })
}

// isAt returns an *ItemError if an item is at another attempt than was shown.
func isAt(it keep.Item, attempt int, action keep.Action) error {
	if it.Attempt == attempt {
		return nil
	}
	return &ItemError{it.ID, it.Status, action, fmt.Sprintf("it is at attempt %d, and what was shown is attempt %d", it.Attempt, attempt)}
}

// reprocess makes an item that check accepts start over.
func (o *Operator) reprocess(ctx context.Context, w keep.WorkflowName, id string, d keep.Decision, check func(keep.Item) error) error {
	return o.changeItem(ctx, w, id, keep.Reprocess, func(it keep.Item) error {
		if err := check(it); err != nil {
			return err
		}
		d.Action = keep.Reprocess
		if it.Status == keep.ItemAttention {
			return o.decideItem(ctx, it, d)
		}
		if err := o.inDoubt(ctx, it, d.Action); err != nil {
			return err
		}
		return o.putItem(ctx, lifecycle.Reprocess(it, o.now()), keep.Reprocess, d)
	})
}

// SkipItem leaves an item that is not done: its job passes it over from now on.
func (o *Operator) SkipItem(ctx context.Context, w keep.WorkflowName, id string, d keep.Decision) error {
	return o.leaveItem(ctx, w, id, d, func(keep.Item, keep.EscalationID) error { return nil })
}

// SkipAttempt is SkipItem of an item that is at that attempt, else *ItemError.
func (o *Operator) SkipAttempt(ctx context.Context, w keep.WorkflowName, id string, attempt int, d keep.Decision) error {
	return o.leaveItem(ctx, w, id, d, func(it keep.Item, _ keep.EscalationID) error { return isAt(it, attempt, keep.Skip) })
}

// SkipShownItem is SkipItem of an item that is at that attempt, and about which that question is open, or none if it is empty; else
// *ItemError: who leaves what was shown answers no question that was not, and leaves no later attempt.
func (o *Operator) SkipShownItem(ctx context.Context, w keep.WorkflowName, id string, attempt int, question keep.EscalationID, d keep.Decision) error {
	return o.leaveItem(ctx, w, id, d, func(it keep.Item, q keep.EscalationID) error {
		if err := isAt(it, attempt, keep.Skip); err != nil || q == question {
			return err
		}
		return &ItemError{it.ID, it.Status, keep.Skip, "another question about it is open than was shown, or none"}
	})
}

// leaveItem skips an item that check accepts, with the answer to the open question about it that leaves it: of an approval, that is to reject it.
func (o *Operator) leaveItem(ctx context.Context, w keep.WorkflowName, id string, d keep.Decision, check func(keep.Item, keep.EscalationID) error) error {
	return o.changeItem(ctx, w, id, keep.Skip, func(it keep.Item) error {
		d.Action = keep.Skip
		q, err := o.itemQuestion(ctx, it)
		if err == nil {
			err = check(it, q.ID)
		}
		if err != nil {
			return err
		}
		if q.ID != "" {
			if !q.Allows(d.Action) && q.Allows(keep.Reject) {
				d.Action = keep.Reject
			}
			return o.Decide(ctx, q.ID, d)
		}
		if err := o.inDoubt(ctx, it, d.Action); err != nil {
			return err
		}
		it.Status, it.UpdatedAt = keep.ItemSkipped, o.now()
		return o.putItem(ctx, it, keep.Skip, d)
	})
}

// changeItem reads an item, and does with it what a person wants if it is in a state for that.
// A call of it that is recorded meanwhile also changes the item, so that it is read again.
func (o *Operator) changeItem(ctx context.Context, w keep.WorkflowName, id string, action keep.Action, do func(keep.Item) error) error {
	_, err := retryStale(ctx, func() (none struct{}, err error) {
		it, err := o.store.Item(ctx, w, id)
		if err == nil {
			err = o.CanDoItem(it, action)
		}
		if err != nil {
			return none, err
		}
		return none, do(it)
	})
	return err
}

// inDoubt returns an *ItemError if it is not known yet whether a call of the item happened.
func (o *Operator) inDoubt(ctx context.Context, it keep.Item, action keep.Action) error {
	return o.eachCall(ctx, it, func(m keep.Mutation) error {
		if lifecycle.Unknown(m.State) {
			return &ItemError{it.ID, it.Status, action, "it is not known yet whether its call happened; the service is being asked"}
		}
		return nil
	})
}

// eachCall goes through the records of an item, up to the first error.
func (o *Operator) eachCall(ctx context.Context, it keep.Item, look func(keep.Mutation) error) error {
	for m, err := range store.All(ctx, o.store.Mutations, keep.MutationFilter{Workflow: it.Workflow, Item: it.ID}, keep.Page{Limit: keep.MaxPage, Bare: true}) {
		if err != nil {
			return err
		}
		if err := look(m); err != nil {
			return err
		}
	}
	return nil
}

// decideItem answers the open question about an item.
func (o *Operator) decideItem(ctx context.Context, it keep.Item, d keep.Decision) error {
	q, err := o.itemQuestion(ctx, it)
	if err != nil {
		return err
	}
	if q.ID == "" {
		return &ItemError{it.ID, it.Status, d.Action, "its question is answered already"}
	}
	return o.Decide(ctx, q.ID, d)
}

// itemQuestion returns the open question about an item; zero: there is none.
func (o *Operator) itemQuestion(ctx context.Context, it keep.Item) (keep.Escalation, error) {
	for q, err := range store.All(ctx, o.store.Escalations, keep.EscalationFilter{Workflow: it.Workflow, Open: true}, keep.Page{Limit: keep.MaxPage}) {
		if err != nil {
			return keep.Escalation{}, err
		}
		if q.Item == it.ID {
			return q, nil
		}
	}
	return keep.Escalation{}, nil
}

// putItem commits what a person decided about an item of which no question is open.
func (o *Operator) putItem(ctx context.Context, it keep.Item, action keep.Action, d keep.Decision) error {
	about := keep.Subject{Workflow: it.Workflow, Kind: keep.AboutItem, ID: it.ID}
	return o.decided(ctx, it.Workflow, it.UpdatedAt, keep.PutItem{Item: it}, decidedAbout(about, action, d, it.UpdatedAt))
}
