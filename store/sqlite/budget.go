package sqlite

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

// spendingSince finds the records that count in budgets since a time, and those in doubt.
func spendingSince(columns string) string {
	return `SELECT ` + columns + ` FROM mutation INDEXED BY mutation_spent WHERE spent_at > ?1 AND spent_at <> 0
		UNION ALL SELECT ` + columns + ` FROM mutation INDEXED BY mutation_by_state
		 WHERE state <> 'applied' AND state IN ('in_flight', 'needs_reconcile', 'indeterminate') AND spent_at <> 0 AND spent_at <= ?1`
}

// readSpending reads what counts in budgets. There is one writer, so nobody else spends before
// this commit is written.
func (t *tx) readSpending(s *commit.Snapshot, since time.Time) error {
	return t.each(spendingSince(`key, state, spent_at, spent`), []any{since}, func(row []driver.Value) error {
		m := keep.Mutation{Key: name[keep.MutationKey](row[0]), State: name[keep.MutationState](row[1]), SpentAt: moment(row[2].(int64))}
		if err := (stored.JSON{Part: &m.Spent}).Scan(row[3]); err != nil {
			return err
		}
		s.AddSpending(m)
		return nil
	})
}

// Spending returns the records that count in budgets; see store.Spending.
func (db *DB) Spending(ctx context.Context, since time.Time) ([]keep.Mutation, error) {
	list, err := rows(ctx, db, scanMutation, spendingSince(bareMutation), millis(since))
	stored.BySpending(list)
	return list, err
}
