package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/outcome"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
)

// What calls may spend is decided here in order to ask a person, and by the commit that
// records a call in order to hold to it (keep.Within; law: within-budget): two hosts that find
// room at the same moment do not both take it. What was taken stands in the record of the call
// and in nothing else.

// SetBudgets replaces the budgets. They count for the next call, and runs that wait for one look
// again when the operator says so.
func (e *Engine) SetBudgets(rules []budget.Rule) {
	rules = slices.Clone(rules)
	e.budgets.Store(&rules)
}

// Budgets returns the budgets that are configured.
func (e *Engine) Budgets() []budget.Rule {
	if rules := e.budgets.Load(); rules != nil {
		return *rules
	}
	return nil
}

// An overBudgetError ends a phase at a call for which a budget has no room.
type overBudgetError struct {
	call    ledger.Call
	rule    budget.Rule
	balance budget.Balance // without the call
	amount  keep.Amount
	roomAt  time.Time // zero: never by itself
}

// Error says how much is spent, and how much the call would be.
func (e *overBudgetError) Error() string {
	doubt := ""
	if e.balance.InDoubt > 0 {
		doubt = fmt.Sprintf(", %s of it in doubt", e.balance.InDoubt)
	}
	return fmt.Sprintf("budget %s, %s within %s, of which %s is spent%s, has no room for %s",
		e.rule.Name, e.balance.Limit, e.rule.Window(), e.balance.Spent, doubt, e.amount)
}

// spend returns what a call counts in budgets, each under its limit. The error is a failure if
// that is not known, and an *overBudgetError if a person must decide first.
func (x *execution) spend(ctx context.Context, call *takenCall, c ledger.Call) ([]keep.Spent, error) {
	now := x.e.Now()
	var spent []keep.Spent
	x.spent = limitsOf{rules: x.e.budgets.Load()}
	for _, r := range *x.spent.rules {
		if !r.Covers(x.a.name, call.tool.name) {
			continue
		}
		amount, err := r.AmountOf(call.params)
		if err != nil {
			return nil, &keep.Failure{Class: keep.ClassPermission, Code: keep.CodeBudgetAmount, Tool: call.tool.name, At: call.at,
				Message: fmt.Sprintf("what the call counts in the budget %s (%s) is not known: %v; nothing was sent", r.Name, r.Sum, err)}
		}
		s, _, err := x.e.budgetState(ctx, r.Name)
		if err != nil {
			return nil, &storeError{err}
		}
		others := func(since time.Time) (keep.SpentSum, error) { return x.e.store.Spent(ctx, r.Names(), since, c.Key) }
		sum, err := others(now.Add(-r.Per))
		if err != nil {
			return nil, &storeError{err}
		}
		b := r.Standing(s, sum, now)
		x.spent.until(r, s, now)
		took := keep.Spent{Budget: r.Name, Was: r.Was, Amount: amount, Limit: b.Limit, Per: r.Per}
		if !b.Fits(amount) {
			if took.Allowed, err = x.allowedBeside(ctx, call, c, amount, r.Names()); err != nil {
				return nil, &storeError{err}
			}
			if !took.Allowed {
				roomAt, err := r.FindRoom(s, amount, now, others)
				if err != nil {
					return nil, &storeError{err}
				}
				return nil, &overBudgetError{c, r, b, amount, roomAt}
			}
		}
		spent = append(spent, took)
	}
	return spent, nil
}

// limitsOf are the limits by which it was found that there is room for a call. It may wait after that.
type limitsOf struct {
	rules *[]budget.Rule
	ends  time.Time // when a limit that a person gave ends first; zero: never
}

// until notes when the limit of a budget that holds now ends.
func (l *limitsOf) until(r budget.Rule, s budget.State, now time.Time) {
	if up := s.Raise; up != nil && up.Over == r.Limit && up.Until.After(now) && (l.ends.IsZero() || up.Until.Before(l.ends)) {
		l.ends = up.Until
	}
}

// isOver reports whether the limits are others at now.
func (l limitsOf) isOver(rules *[]budget.Rule, now time.Time) bool {
	return l.rules != rules || !l.ends.IsZero() && !now.Before(l.ends)
}

// allowedHash is what the question about a call beside the limit of a budget is about: this very call, where and how it is
// sent, by its tool, and what it counts.
func allowedHash(c ledger.Call, tool keep.ToolName, amount keep.Amount) string {
	return ledger.Hash(fmt.Appendf(nil, "%s:%s:%s:%s:%d", c.Key, c.PayloadHash, c.PinHash, tool, amount))
}

// allowedBeside reports whether a person allowed this very call beside the limit of a budget. A tool may have had another
// name then.
func (x *execution) allowedBeside(ctx context.Context, call *takenCall, c ledger.Call, amount keep.Amount, names []string) (bool, error) {
	answers, err := outcome.Answers(ctx, x.e.store, x.run.Chain, x.before(), keep.AskBudget)
	return slices.ContainsFunc(answers, func(q keep.Escalation) bool {
		return slices.Contains(names, q.Budget) && q.Decision.Action == keep.Allow &&
			slices.ContainsFunc(call.tool.names, func(t keep.ToolName) bool { return q.PayloadHash == allowedHash(c, t, amount) })
	}), err
}

// budgetState reads what is stored of a budget beside the ledger, and its row.
func (e *Engine) budgetState(ctx context.Context, name string) (s budget.State, row keep.Gate, err error) {
	if row, err = e.store.Gate(ctx, keep.BudgetGate(name)); err == nil {
		s, err = budget.Read(row, func(id keep.EscalationID) (keep.Escalation, error) { return e.store.Escalation(ctx, id) })
	}
	return s, row, err
}

// askBudget pauses the run at a call until its budget has room, or a person has decided. Nothing
// was sent, and nothing was taken. There is one question about a budget, whatever the number of
// runs that wait for it; the others wait for its end.
func (x *execution) askBudget(ctx context.Context, e *overBudgetError) error {
	now := x.e.Now()
	f := &keep.Failure{Class: keep.ClassPermission, Code: keep.CodeBudget, Tool: e.call.Tool, At: x.callAt, Message: e.Error(),
		Budget: e.rule.Name, BudgetRule: e.rule.Mark(), BudgetAmount: e.amount}
	v := lifecycle.Consequence{Status: keep.StatusApproval, Retry: !e.roomAt.IsZero()}
	if !e.roomAt.IsZero() && !e.roomAt.After(now) {
		e.roomAt = now.Add(time.Second) // another budget had no room
	}
	n, open, s, err := x.nextBudgetQuestion(ctx, e.rule.Name)
	if err != nil {
		return err
	}
	switch {
	case open:
		return x.stop(ctx, f, v, e.roomAt)
	case e.rule.LimitAt(s, now) != e.balance.Limit: // the question before was answered meanwhile
		v.Retry = true
		return x.stop(ctx, f, v, now)
	}
	if err := x.stop(ctx, f, v, e.roomAt, keep.OpenEscalation{Escalation: x.budgetQuestion(e, n, now)}); err != nil {
		return err
	}
	return x.e.noteAsked(ctx, e.rule.Name, n)
}

// nextBudgetQuestion returns the number of the question about a budget that is open, or of the
// next one, and what is stored of the budget then. One that this very run
// closes, since it continues, is not open any more. The row says how many were asked, which may
// have been swept, and it is behind by one if a process died after it asked.
func (x *execution) nextBudgetQuestion(ctx context.Context, name string) (n int, open bool, s budget.State, err error) {
	if s, _, err = x.e.budgetState(ctx, name); err != nil {
		return 0, false, s, err
	}
	for n = max(s.Asked, 1); ; n++ {
		q, err := x.e.store.Escalation(ctx, budget.QuestionID(name, n))
		switch {
		case isNotFound(err) && n > s.Asked:
			s, _, err = x.e.budgetState(ctx, name) // after the question before was seen to be over: its answer counts
			return n, false, s, err
		case isNotFound(err): // it was swept
		case err != nil:
			return 0, false, s, err
		case q.ClosedAt.IsZero() && !slices.Contains(x.questions, q.ID):
			return n, true, s, nil
		}
	}
}

// noteAsked notes in the row of a budget that its nth question was asked.
func (e *Engine) noteAsked(ctx context.Context, name string, n int) error {
	for {
		s, row, err := e.budgetState(ctx, name)
		if err != nil || s.Asked >= n {
			return err
		}
		s.Asked = n
		row.State = marshal(s)
		if err := e.store.PutGate(ctx, row); !errors.Is(err, keep.ErrStale) {
			return err
		}
	}
}

// budgetQuestion returns what a person is asked.
func (x *execution) budgetQuestion(e *overBudgetError, n int, now time.Time) keep.Escalation {
	c := e.call
	q := keep.Escalation{
		ID: budget.QuestionID(e.rule.Name, n), Kind: keep.AskBudget, Budget: e.rule.Name, Workflow: x.a.name, Run: x.run.ID,
		Item: c.Item, Title: c.Title, PayloadHash: allowedHash(c, c.Tool, e.amount), CreatedAt: now,
		Question: fmt.Sprintf("The budget %s is spent: may %s call %s on %s nevertheless, which counts %s?",
			e.rule.Name, x.caller(c), c.Tool, c.Target, e.amount),
		// Whole: nothing is allowed that a person cannot see all of.
		Attempted: fmt.Sprintf("%s on %s with %s", c.Tool, c.Target, c.Payload),
		Why:       e.Error() + "; nothing was sent. Whatever else waits for this budget waits for this answer, too.",
		Choices: []keep.Choice{
			{Action: keep.Allow, Label: "Allow this one", Effect: "makes this very call once; it counts, also beyond the limit; a call that differs asks again"},
			{Action: keep.Raise, Label: "Raise the limit", Effect: "gives the budget a higher limit, for all calls, until a time or without an end; needs the role admin"},
			{Action: keep.Skip, Label: "Skip", Effect: x.rejectEffect()},
			{Action: keep.Stop, Label: "Stop", Effect: fmt.Sprintf("pauses workflow %s; the question stays", x.a.name)},
		},
	}
	if !e.roomAt.IsZero() {
		q.Why += fmt.Sprintf(" There is room at %s if nothing else is spent; the run then continues by itself.", e.roomAt.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	return q
}
