package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// within refuses a call for which its budget has no room.
func (t *tx) within(c keep.Within) error {
	since, names, others := t.at.Add(-c.Per), c.Names(), keep.Amount(0)
	for key, m := range t.s.mutations {
		if key != c.Key {
			others = others.Plus(m.v.Counts(names, since))
		}
	}
	if others.Plus(c.Amount) > c.Limit {
		return &keep.OverBudgetError{Key: c.Key, Spent: c.Spent, Others: others}
	}
	return nil
}

// Spent returns what calls count in a budget; see store.Spending.
func (s *Store) Spent(ctx context.Context, names []string, since time.Time, except keep.MutationKey) (sum keep.SpentSum, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for key, row := range s.mutations {
		if key == except {
			continue
		}
		n := row.v.Counts(names, since)
		if sum.All = sum.All.Plus(n); row.v.State.InDoubt() {
			sum.InDoubt = sum.InDoubt.Plus(n)
		}
	}
	return sum, context.Cause(ctx)
}

// Spending returns the records that count in budgets; see store.Spending.
func (s *Store) Spending(ctx context.Context, since time.Time) ([]keep.Mutation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Mutation
	for _, row := range s.mutations {
		if m := row.v; !m.SpentAt.IsZero() && (m.SpentAt.After(since) || m.State.InDoubt()) {
			m.Identity, m.Payload, m.Result, m.Pin = nil, nil, nil, nil
			list = append(list, copyMutation(m))
		}
	}
	slices.SortFunc(list, func(a, b keep.Mutation) int { return cmp.Or(a.SpentAt.Compare(b.SpentAt), cmp.Compare(a.Key, b.Key)) })
	return list, context.Cause(ctx)
}

// budgets checks that no window of a budget has more than was allowed then.
func (c *checker) budgets() {
	for _, key := range sortedKeys(c.s.mutations) {
		m := c.s.mutations[key].v
		if !m.State.Spends() {
			continue
		}
		for _, s := range m.Spent {
			sum, limit, judged := c.spentWith(m, s)
			c.broken(!judged || sum <= limit, "within-budget", "mutation "+string(key),
				"budget %s: %d of %d millionths are spent in its window", s.Budget, sum, limit)
		}
	}
}

// spentWith returns what is spent in the window that ends with m, and the largest limit there. It
// is not judged if a person allowed some of it, or if another window was configured meanwhile. What
// was said not to have happened, and was found later, gave its room back in between.
func (c *checker) spentWith(m keep.Mutation, s keep.Spent) (sum, limit keep.Amount, judged bool) {
	judged = true
	for key, other := range c.s.mutations {
		o := other.v
		found := slices.ContainsFunc(c.s.moves[key], func(v keep.Move) bool { return v.From == keep.Failed && v.To == keep.Applied })
		if found && key != m.Key || !o.State.Spends() || o.SpentAt.After(m.SpentAt) || !o.SpentAt.After(m.SpentAt.Add(-s.Per)) {
			continue
		}
		for _, e := range o.Spent {
			if e.Budget == s.Budget {
				sum, limit, judged = sum.Plus(e.Amount), max(limit, e.Limit), judged && !e.Allowed && e.Per == s.Per
			}
		}
	}
	return sum, limit, judged
}
