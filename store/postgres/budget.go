package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

// Commits of different workflows spend one budget. So whoever is to take some of it locks it
// until his commit is over, as an identity that is to be applied once.

// budgetLock names a budget for pg_advisory_xact_lock.
func budgetLock(name string) int64 {
	sum := sha256.Sum256([]byte("budget\x00" + name))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// addWithin adds what must be locked and read for calls that count in budgets. All commits of a
// group share what is read; each is judged by its own window.
func (r *readSet) addWithin(reads commit.ReadSet, at time.Time) {
	for _, w := range reads.Within {
		for _, name := range w.Names() { // a host with an older configuration has another one
			r.identityLocks = append(r.identityLocks, budgetLock(name))
		}
	}
	since, some := reads.SpentSince(at)
	if !some {
		return
	}
	from := millis(since)
	if len(r.spentSince) > 0 {
		if known, _ := strconv.ParseInt(r.spentSince[0], 10, 64); known <= from {
			return
		}
	}
	r.spentSince = []string{strconv.FormatInt(from, 10)}
}

// spendingSince finds the records that count in budgets since a time, and those in doubt.
func spendingSince(columns, since string) string {
	return `SELECT ` + columns + ` FROM mutation WHERE spent_at > ` + since + ` AND spent_at <> 0
		UNION ALL SELECT ` + columns + ` FROM mutation
		 WHERE state <> 'applied' AND state IN ('in_flight', 'needs_reconcile', 'indeterminate') AND spent_at <> 0 AND spent_at <= ` + since
}

var spendingFacts = spendingSince(`key, state, spent_at, spent`, `($1::text[])[1]::bigint`)

func (s *snapshot) scanSpending(row pgx.CollectableRow) error {
	var m keep.Mutation
	var at int64
	err := row.Scan(into(&m.Key), into(&m.State), &at, stored.JSON{Part: &m.Spent})
	m.SpentAt = moment(at)
	s.AddSpending(m)
	return err
}

// Spending returns the records that count in budgets; see store.Spending.
func (db *DB) Spending(ctx context.Context, since time.Time) ([]keep.Mutation, error) {
	list, err := collect(ctx, db, scanMutation, spendingSince(bareMutation, "$1"), millis(since))
	stored.BySpending(list)
	return list, err
}
