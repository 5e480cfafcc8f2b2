package view

import (
	"context"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/store"
)

// A Budget is how a budget stands.
type Budget struct {
	budget.Rule
	Balance budget.Balance
	RoomAt  time.Time      // when something leaves the window; zero: there is room, or nothing does
	Raise   *budget.Raise  // that holds; nil: none
	Entries []budget.Entry // in its window, or in doubt; oldest first
}

// A Spender is what budgets are read from: what calls count, and what persons decided. It is wide because it
// composes what package store declares.
type Spender interface {
	store.Spending
	store.Limits
	store.Escalations
}

// ReadBudgets returns how budgets stand at now, in their order.
func ReadBudgets(ctx context.Context, s Spender, rules []budget.Rule, now time.Time) ([]Budget, error) {
	var longest time.Duration
	for _, r := range rules {
		longest = max(longest, r.Per)
	}
	if len(rules) == 0 {
		return nil, nil
	}
	records, err := s.Spending(ctx, now.Add(-longest))
	if err != nil {
		return nil, err
	}
	out := make([]Budget, len(rules))
	for i, r := range rules {
		row, err := s.Gate(ctx, keep.BudgetGate(r.Name))
		var state budget.State
		if err == nil {
			state, err = budget.Read(row, func(id keep.EscalationID) (keep.Escalation, error) { return s.Escalation(ctx, id) })
		}
		if err != nil {
			return nil, err
		}
		out[i] = budgetOf(r, state, records, now)
	}
	return out, nil
}

func budgetOf(r budget.Rule, s budget.State, records []keep.Mutation, now time.Time) Budget {
	b := Budget{Rule: r, Balance: r.BalanceOf(s, records, "", now)}
	if s.Raise != nil && r.LimitAt(s, now) == s.Raise.Limit {
		b.Raise = s.Raise
	}
	if b.Balance.Left() == 0 {
		b.RoomAt = r.RoomAt(s, records, "", 1, now)
	}
	for _, e := range r.EntriesOf(records) {
		if e.State == budget.InDoubt || e.At.After(now.Add(-r.Per)) {
			b.Entries = append(b.Entries, e)
		}
	}
	return b
}
