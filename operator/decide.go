package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/outcome"
	"github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/law/approval"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
)

// An ActionError is returned when a question does not offer an action, or its
// subject is no longer in the state that the action needs.
type ActionError struct {
	ID     keep.EscalationID
	Action keep.Action
	Why    string
}

// Error names the question, the action and why it is refused.
func (e *ActionError) Error() string {
	return fmt.Sprintf("question %s: %s: %s", e.ID, e.Action, e.Why)
}

// Decide records a person's answer to a question, once: the second answer is
// keep.ErrDecided.
func (o *Operator) Decide(ctx context.Context, id keep.EscalationID, d keep.Decision) error {
	const tries = 10 // what the question is about may move meanwhile; it rarely does twice
	for n := 1; ; n++ {
		err := o.decide(ctx, id, d)
		_, refused := errors.AsType[*ActionError](err)
		_, needsResult := errors.AsType[*ResultError](err)
		_, needsLimit := errors.AsType[*LimitError](err)
		refused = refused || needsResult || needsLimit || errors.Is(err, keep.ErrDecided)
		stale := errors.Is(err, keep.ErrStale)
		if !refused && !stale {
			return err
		}
		// Perhaps somebody answered after we had read the question.
		if q, readErr := o.store.Escalation(ctx, id); readErr == nil && !q.ClosedAt.IsZero() {
			return o.mayAnswer(ctx, q)
		}
		if refused || n == tries {
			return err
		}
	}
}

func (o *Operator) decide(ctx context.Context, id keep.EscalationID, d keep.Decision) error {
	q, err := o.store.Escalation(ctx, id)
	if err != nil {
		return err
	}
	if err := o.mayAnswer(ctx, q); err != nil {
		return err
	}
	if why := approval.NotByLink(q, d.Action, o.now()); why != "" && d.From == approval.FromLink {
		return &ActionError{id, d.Action, why}
	}
	switch {
	case !q.Allows(d.Action):
		return &ActionError{id, d.Action, "it is not among the choices"}
	case q.Kind == keep.AskConnection:
		return o.tryNow(ctx, q, d)
	case account.IsUserQuestion(q):
		return o.decideUser(ctx, q, d)
	}
	switch q.Kind {
	case keep.AskGrant, keep.AskProposal:
		return o.settleProposal(ctx, q, d)
	case keep.AskBudget:
		return o.decideBudget(ctx, q, d)
	case keep.AskBreaker:
		return o.closeBreaker(ctx, q, d)
	case keep.AskToolChanged:
		return o.settleTool(ctx, q, d)
	}
	return o.decideRun(ctx, q, d)
}

// decideRun records the answer to a question about a run.
func (o *Operator) decideRun(ctx context.Context, q keep.Escalation, d keep.Decision) error {
	d.At = o.now()
	return o.decideRunAt(ctx, q, d)
}

// decideRunAt is decideRun of an answer that has its time.
func (o *Operator) decideRunAt(ctx context.Context, q keep.Escalation, d keep.Decision) error {
	id := q.ID
	run, err := o.store.Run(ctx, q.Run)
	if err != nil {
		return err
	}
	if run.Closed && !lifecycle.Detached(q, run) {
		return &ActionError{id, d.Action, "the run is over"}
	}
	changes, err := o.effect(ctx, q, run, d)
	if err != nil {
		return err
	}
	if d.Action != keep.TreatAsDone || q.Kind != keep.AskApproval {
		d.Result = nil // it is with the mutation
	}
	changes = append(changes, keep.CloseEscalation{ID: id, Decision: &d})
	return o.decided(ctx, q.Workflow, d.At, changes...)
}

// An AnsweredError is returned when a question does not wait for an answer any more: it has
// one, or it ended, or it was about another version. It is keep.ErrDecided.
type AnsweredError struct {
	Question keep.Escalation
	Why      string
}

// Error names the question, and who answered it or why nobody can.
func (e *AnsweredError) Error() string { return fmt.Sprintf("question %s: %s", e.Question.ID, e.Why) }

// Is makes it a keep.ErrDecided.
func (e *AnsweredError) Is(target error) bool { return target == keep.ErrDecided }

// mayAnswer returns why q cannot be answered, nil if it can.
func (o *Operator) mayAnswer(ctx context.Context, q keep.Escalation) error {
	var current keep.Version
	if q.Approval != nil {
		w, err := o.store.Workflow(ctx, q.Workflow)
		if err != nil {
			return err
		}
		current = w.Version
	}
	if why := approval.Closed(q, current, o.now()); why != "" {
		return &AnsweredError{q, why}
	}
	return nil
}

// effect returns the changes that an action causes.
func (o *Operator) effect(ctx context.Context, q keep.Escalation, run keep.Run, d keep.Decision) ([]keep.Change, error) {
	if lifecycle.Detached(q, run) {
		return o.resolveDetached(ctx, q, run, d)
	}
	m, err := outcome.Of(ctx, o.store, run)
	if err != nil {
		return nil, err
	}
	if q.AboutDoubt() {
		return o.resolve(ctx, q, run, m, d)
	}
	switch d.Action {
	case keep.TreatAsDone:
		if q.Kind == keep.AskApproval {
			return o.doneOutside(q, run, m, d)
		}
		return o.settleRival(ctx, q, run, d)
	case keep.DoAgain:
		return o.settleRival(ctx, q, run, d)
	case keep.Retry:
		if lifecycle.Unknown(m.State) {
			return nil, &ActionError{q.ID, d.Action, "a retry never unblocks an unknown outcome"}
		}
		run.RetryAt, run.UpdatedAt = d.At, d.At
		return []keep.Change{keep.PutRun{Run: run}}, nil
	case keep.Approve, keep.Allow, keep.Raise:
		run.RetryAt, run.UpdatedAt = d.At, d.At
		return []keep.Change{keep.PutRun{Run: run}}, nil
	case keep.Reprocess:
		item, err := o.itemToDecide(ctx, q, d)
		if err != nil {
			return nil, err
		}
		run.RetryAt, run.UpdatedAt = d.At, d.At
		return []keep.Change{keep.PutRun{Run: run}, keep.PutItem{Item: lifecycle.Reprocess(item, d.At)}}, nil
	case keep.Skip, keep.Reject:
		if q.Item != "" {
			return o.skipItem(ctx, q, run, d)
		}
		return o.abort(ctx, q, run, m, d)
	}
	return nil, &ActionError{q.ID, d.Action, "not for a question of kind " + string(q.Kind)}
}

// doneOutside lets a run continue whose call a person says was done already, outside of what the
// ledger knows: with the result that he says.
func (o *Operator) doneOutside(q keep.Escalation, run keep.Run, m keep.Mutation, d keep.Decision) ([]keep.Change, error) {
	if run.Kind == keep.Consumer && m.Key != "" && !lifecycle.Resends(m) {
		return nil, &ActionError{q.ID, d.Action, "the mutation is " + string(m.State) + "; only the way forward is left"}
	}
	if err := o.checkSaid(q, d); err != nil {
		return nil, err
	}
	return []keep.Change{keep.PutRun{Run: lifecycle.DoneAlready(run, d.At)}}, nil
}

// settleRival lets a run continue whose call another record made, or may have made: with
// the call, or with that record's result.
func (o *Operator) settleRival(ctx context.Context, q keep.Escalation, run keep.Run, d keep.Decision) ([]keep.Change, error) {
	if d.Action == keep.TreatAsDone {
		rival, err := o.store.Mutation(ctx, q.Mutation)
		switch {
		case isNotFound(err):
			return nil, &ActionError{q.ID, d.Action, "the record of the earlier call was deleted; its result is not known any more"}
		case err != nil:
			return nil, err
		case !rival.State.Happened():
			return nil, &ActionError{q.ID, d.Action, "the earlier call " + string(q.Mutation) + " is " + string(rival.State) +
				"; only one that is known to have happened can stand for another"}
		}
		return []keep.Change{keep.PutRun{Run: lifecycle.DoneAlready(run, d.At)}}, nil
	}
	run.RetryAt, run.UpdatedAt = d.At, d.At
	return []keep.Change{keep.PutRun{Run: run}}, nil
}

// resolve ends, or renews, the doubt about a mutation.
func (o *Operator) resolve(ctx context.Context, q keep.Escalation, run keep.Run, m keep.Mutation, d keep.Decision) ([]keep.Change, error) {
	changes, err := o.learn(ctx, q, m, d)
	if err != nil {
		return nil, err
	}
	if d.Action != keep.CheckAgain {
		run.RetryAt = d.At
	}
	run.UpdatedAt = d.At
	return append(changes, keep.PutRun{Run: run}), nil
}

// learn returns the changes that a decision causes to a mutation in doubt and its
// item.
func (o *Operator) learn(ctx context.Context, q keep.Escalation, m keep.Mutation, d keep.Decision) (changes []keep.Change, err error) {
	evidence := map[keep.Action]ledger.Evidence{
		keep.CheckAgain: ledger.CheckAgain, keep.DidNotHappen: ledger.DidNotHappen,
		keep.Happened: ledger.PersonHappened, keep.Skip: ledger.Skip,
	}[d.Action]
	if d.Action == keep.Happened {
		if d.Result, err = o.resultOf(ctx, q, m, d); err != nil {
			return nil, err
		}
	}
	moved, move, err := ledger.Apply(m, ledger.Fact{Evidence: evidence, By: d.By, Detail: d.Note, Result: d.Result}, d.At)
	if err != nil {
		return nil, &ActionError{q.ID, d.Action, err.Error()}
	}
	changes = []keep.Change{keep.PutMutation{Mutation: moved, Moves: []keep.Move{move}}}
	if d.Action == keep.Skip && m.Item != "" {
		item, err := o.itemSkipped(ctx, m.Workflow, m.Item, d.At)
		if err != nil {
			return nil, err
		}
		changes = append(changes, item)
	}
	return changes, nil
}

// skipItem leaves an item undone, and lets its job continue with the others.
func (o *Operator) skipItem(ctx context.Context, q keep.Escalation, run keep.Run, d keep.Decision) ([]keep.Change, error) {
	if _, err := o.itemToDecide(ctx, q, d); err != nil {
		return nil, err
	}
	item, err := o.itemSkipped(ctx, run.Workflow, q.Item, d.At)
	if err != nil {
		return nil, err
	}
	run.RetryAt, run.UpdatedAt = d.At, d.At
	return []keep.Change{keep.PutRun{Run: run}, item}, nil
}

// itemToDecide returns the item of a question that is not about a doubt, or *ItemError while another call of the item is in doubt.
func (o *Operator) itemToDecide(ctx context.Context, q keep.Escalation, d keep.Decision) (keep.Item, error) {
	item, err := o.store.Item(ctx, q.Workflow, q.Item)
	if err == nil {
		err = o.inDoubt(ctx, item, d.Action)
	}
	return item, err
}

func (o *Operator) itemSkipped(ctx context.Context, w keep.WorkflowName, id string, now time.Time) (keep.Change, error) {
	item, err := o.store.Item(ctx, w, id)
	if err != nil {
		return nil, err
	}
	item.Status, item.UpdatedAt = keep.ItemSkipped, now
	return keep.PutItem{Item: item}, nil
}

// abort ends a run before its mutation: what it reserved, or else its trigger,
// is skipped. What it gave back is skipped as far as no other run took it, and nobody had it done again since.
func (o *Operator) abort(ctx context.Context, q keep.Escalation, run keep.Run, m keep.Mutation, d keep.Decision) ([]keep.Change, error) {
	if settled := lifecycle.Settled(m.State) && run.Kind == keep.Consumer; settled || lifecycle.Unknown(m.State) {
		return nil, &ActionError{q.ID, d.Action, "the mutation is " + string(m.State) + "; only the way forward is left"}
	}
	changes := []keep.Change{keep.PutRun{Run: lifecycle.Abort(run, d.At)}}
	tried := run.Reservations
	switch {
	case len(tried) > 0 && !lifecycle.Released(run, m):
		return append(changes, keep.Finish{Chain: run.Chain, Status: keep.EventSkipped}), nil
	case len(tried) == 0 && !run.Trigger.IsZero():
		tried = []keep.Reservation{{Topic: run.Trigger.Topic, IDs: []keep.MessageID{run.Trigger.MessageID}}}
	}
	for _, r := range tried {
		events, err := o.store.EventsByID(ctx, run.Workflow, r.Topic, r.IDs)
		if err != nil {
			return nil, err
		}
		var free []keep.MessageID
		for _, ev := range events {
			if ev.Free() && ev.AttemptOf(run) == ev.Attempt() {
				free = append(free, ev.MessageID)
			}
		}
		if len(free) > 0 {
			changes = append(changes, keep.SkipEvents{Topic: r.Topic, IDs: free})
		}
	}
	return changes, nil
}

// resolveDetached ends, or renews, the doubt about a call whose run is over. Its job
// is due when the outcome is known, under the name that it has now, and also if a run of it is
// under way: that one may have passed the item over.
func (o *Operator) resolveDetached(ctx context.Context, q keep.Escalation, run keep.Run, d keep.Decision) ([]keep.Change, error) {
	m, err := o.store.Mutation(ctx, q.Mutation)
	if err != nil {
		return nil, err
	}
	changes, err := o.learn(ctx, q, m, d)
	if err != nil || d.Action == keep.CheckAgain {
		return changes, err
	}
	was, err := o.store.Deployment(ctx, run.Workflow, run.Version)
	if err != nil {
		return nil, err
	}
	items := string(run.Handler) // of an attempt of a version that calls the job otherwise
	if h, ok := was.Definition.Handler(run.Handler); ok {
		items = h.ItemsOf()
	}
	due, err := o.lookAgain(ctx, run.Workflow, func(now keep.Handler) bool { return now.Kind == keep.Job && now.ItemsOf() == items })
	return append(changes, due...), err
}
