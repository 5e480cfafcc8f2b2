package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/store"
)

// decideBudget records the answer to a question about a budget. Stop leaves the question open. A limit is noted
// before its answer, and holds from when that is recorded: no limit of anybody else does, and this one whether the
// process lives or not (budget.Read).
func (o *Operator) decideBudget(ctx context.Context, q keep.Escalation, d keep.Decision) error {
	d.At = o.now()
	switch d.Action {
	case keep.Stop:
		d.Note = cmp.Or(d.Note, "its budget "+q.Budget+" was used up")
		return o.stop(ctx, q.Workflow, d)
	case keep.Raise:
		var err error
		if d.At, err = o.beginRaise(ctx, q, d); err != nil {
			return err
		}
	}
	if err := o.decideRunAt(ctx, q, d); err != nil {
		return err
	}
	if err := o.changeBudget(ctx, q.Budget, func(*budget.State) error { return nil }); err != nil {
		return err
	}
	return o.settleBudgets(ctx, func(context.Context, keep.Run) (bool, error) { return false, nil })
}

// stop pauses a workflow. Of one that is paused already the note says why, and stays.
func (o *Operator) stop(ctx context.Context, name keep.WorkflowName, d keep.Decision) error {
	for {
		err := o.PauseRunning(ctx, name, d)
		if !errors.Is(err, keep.ErrStale) {
			return err
		}
		if w, err := o.store.Workflow(ctx, name); err != nil || w.Paused {
			return err
		}
	}
}

// beginRaise notes in the row of a budget with which limit its question is about to be answered, and returns the time
// of that answer.
func (o *Operator) beginRaise(ctx context.Context, q keep.Escalation, d keep.Decision) (at time.Time, err error) {
	rule, configured := o.budgetRule(q.Budget)
	switch {
	case !configured:
		return at, &ActionError{q.ID, d.Action, "the budget " + q.Budget + " is not configured any more"}
	case d.Limit <= 0 || d.Limit > keep.MaxAmount:
		return at, &LimitError{q.ID, fmt.Sprintf("it needs a limit that is more than 0, and at most %s", keep.MaxAmount)}
	case !d.Until.IsZero() && !d.Until.After(d.At):
		return at, &LimitError{q.ID, "its end is over already"}
	}
	up := budget.Raise{Limit: d.Limit, Over: rule.Limit, Until: d.Until, By: d.By, At: d.At}
	err = o.changeBudget(ctx, q.Budget, func(s *budget.State) error {
		// It is read after the row, which changes before the next question is answered with a limit.
		now, err := o.store.Escalation(ctx, q.ID)
		if err == nil && !now.ClosedAt.IsZero() {
			err = keep.ErrStale
		}
		if held := rule.LimitAt(*s, d.At); err == nil && d.Limit <= held {
			err = &LimitError{q.ID, fmt.Sprintf("the limit of the budget %s is %s, and %s is not more; nothing was changed", q.Budget, held, d.Limit)}
		}
		*s, at = s.With(q.ID, up)
		return err
	})
	return at, err
}

// A LimitError is returned for the raise of a budget whose limit is not higher than the one that
// holds, or none, or whose end is over.
type LimitError struct {
	ID  keep.EscalationID
	Why string
}

// Error names the question and why the limit is refused.
func (e *LimitError) Error() string { return fmt.Sprintf("question %s: raise: %s", e.ID, e.Why) }

// changeBudget changes what is stored of a budget, and writes what its answers say. What is as it was is not written.
func (o *Operator) changeBudget(ctx context.Context, name string, change func(*budget.State) error) error {
	for {
		row, err := o.store.Gate(ctx, keep.BudgetGate(name))
		if err != nil {
			return err
		}
		s, err := budget.Read(row, func(id keep.EscalationID) (keep.Escalation, error) { return o.store.Escalation(ctx, id) })
		if err != nil {
			return err
		}
		if err := change(&s); err != nil {
			return err
		}
		var stored budget.State
		_ = json.Unmarshal(row.State, &stored) // Read took it; empty is the zero State
		if reflect.DeepEqual(s, stored) {
			return nil
		}
		if row.State, err = json.Marshal(s); err != nil {
			return err
		}
		if err := o.store.PutGate(ctx, row); !errors.Is(err, keep.ErrStale) {
			return err
		}
	}
}

// noteAsked notes how many questions about each budget were asked, as those say that exist: a
// host may have died between a question and its note. It comes before a sweep, which may delete
// the question: its id is never one of another.
func (o *Operator) noteAsked(ctx context.Context) error {
	for _, r := range o.cfg.Budgets() {
		err := o.changeBudget(ctx, r.Name, func(s *budget.State) error {
			for {
				_, err := o.store.Escalation(ctx, budget.QuestionID(r.Name, s.Asked+1))
				if errors.Is(err, keep.ErrNotFound) {
					return nil
				}
				if err != nil {
					return err
				}
				s.Asked++
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *Operator) budgetRule(name string) (budget.Rule, bool) {
	for _, r := range o.cfg.Budgets() {
		if r.Name == name {
			return r, true
		}
	}
	return budget.Rule{}, false
}

// SettleBudgets lets the runs continue that wait for a budget about which nothing is asked any
// more: the first of them that finds no room asks anew. Those whose budget has another rule than when they
// found no room look again although something is asked, and so do those for whose call there is room now, since another one is
// known not to have happened. It does what is left to do, so that any host may do it at any time, and several may at once.
func (o *Operator) SettleBudgets(ctx context.Context) error {
	balances := make(map[string]budget.Balance)
	return o.settleBudgets(ctx, func(ctx context.Context, r keep.Run) (bool, error) {
		if !o.executes(r.Workflow) {
			return false, nil
		}
		rule, configured := o.budgetRule(r.Error.Budget)
		if !configured || rule.Mark() != r.Error.BudgetRule {
			return true, nil
		}
		b, known := balances[rule.Name]
		if !known {
			var err error
			if b, err = o.balance(ctx, rule); err != nil {
				return false, err
			}
			balances[rule.Name] = b
		}
		return r.Error.BudgetAmount > 0 && b.Fits(r.Error.BudgetAmount), nil
	})
}

// executes reports whether the host has the workflow. It knows by which rules its calls are judged: another one, or a
// command, may have other files.
func (o *Operator) executes(w keep.WorkflowName) bool {
	if _, nothing := o.cfg.Executor.(nobody); nothing {
		return false
	}
	_, ours := o.cfg.Executor.Epoch(w)
	return ours
}

// balance returns how a budget stands.
func (o *Operator) balance(ctx context.Context, rule budget.Rule) (b budget.Balance, err error) {
	now := o.now()
	row, err := o.store.Gate(ctx, keep.BudgetGate(rule.Name))
	if err != nil {
		return b, err
	}
	s, err := budget.Read(row, func(id keep.EscalationID) (keep.Escalation, error) { return o.store.Escalation(ctx, id) })
	if err != nil {
		return b, err
	}
	spent, err := o.store.Spent(ctx, rule.Names(), now.Add(-rule.Per), "")
	return rule.Standing(s, spent, now), err
}

// settleBudgets is SettleBudgets, by what says that a run looks again although something is asked.
func (o *Operator) settleBudgets(ctx context.Context, looksAgain func(context.Context, keep.Run) (bool, error)) error {
	filter := keep.RunFilter{Status: keep.StatusApproval, Open: true}
	var asked map[string]bool
	for r, err := range store.All(ctx, o.store.Runs, filter, keep.Page{Limit: 500, Bare: true}) {
		if err != nil {
			return err
		}
		if !lifecycle.OverBudget(r) {
			continue
		}
		if asked == nil {
			if asked, err = o.askedBudgets(ctx); err != nil {
				return err
			}
		}
		if asked[r.Error.Budget] {
			again, err := looksAgain(ctx, r)
			if err != nil {
				return err
			}
			if !again {
				continue
			}
		}
		if err := o.continueSpending(ctx, r.ID); err != nil {
			return fmt.Errorf("continue run %s: %w", r.ID, err)
		}
	}
	return nil
}

// askedBudgets returns the budgets about which a question is open.
func (o *Operator) askedBudgets(ctx context.Context) (map[string]bool, error) {
	asked := make(map[string]bool)
	for q, err := range store.All(ctx, o.store.Escalations, keep.EscalationFilter{Open: true}, keep.Page{Limit: 500}) {
		if err != nil {
			return nil, err
		}
		if q.Kind == keep.AskBudget {
			asked[q.Budget] = true
		}
	}
	return asked, nil
}

// continueSpending plans the next attempt of a run that waits for a budget. That somebody else
// did is no error.
func (o *Operator) continueSpending(ctx context.Context, id keep.RunID) error {
	r, err := o.store.Run(ctx, id) // whole: it is written
	now := o.now()
	if err != nil || r.Closed || !lifecycle.OverBudget(r) || !r.RetryAt.IsZero() && !r.RetryAt.After(now) {
		return err
	}
	err = o.decided(ctx, r.Workflow, now, keep.PutRun{Run: lifecycle.Reconnected(r, now)})
	if errors.Is(err, keep.ErrStale) {
		return nil
	}
	return err
}

// longestBudget returns the longest window that is configured.
func (o *Operator) longestBudget() (longest time.Duration) {
	for _, r := range o.cfg.Budgets() {
		longest = max(longest, r.Per)
	}
	return longest
}
