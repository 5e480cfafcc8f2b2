package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

// What settled calls count is kept in sums (commit.SpansAfter). Only whoever finds many records beside the sums writes
// to them, in a transaction of its own: a commit reads the sums and what is beside them, so it never matters
// whether a record is summed yet.

// inDoubtBefore finds the records in doubt that began to count before a time.
const inDoubtBefore = ` FROM mutation INDEXED BY mutation_by_state
		 WHERE state <> 'applied' AND state IN ('in_flight', 'needs_reconcile', 'indeterminate') AND spent_at <> 0 AND spent_at <= `

// spendingSince finds the records that count in budgets since a time, and those in doubt.
func spendingSince(columns string) string {
	return `SELECT ` + columns + ` FROM mutation INDEXED BY mutation_spent WHERE spent_at > ?1 AND spent_at <> 0
		UNION ALL SELECT ` + columns + inDoubtBefore + `?1`
}

// unsummedSince is spendingSince without what is in sums, or was given back.
const unsummedSince = `SELECT key, state, spent_at, spent FROM mutation INDEXED BY mutation_unsummed WHERE spent_at > ?1 AND ` + stored.Unsummed + `
		UNION ALL SELECT key, state, spent_at, spent` + inDoubtBefore + `?1`

// entries are what a record counts, each in a budget.
const (
	entries   = `json_each(mutation.spent)`
	entryName = `json_extract(json_each.value, '$.budget')`
)

var (
	high = stored.High(`json_extract(json_each.value, '$.amount')`)
	low  = stored.Low(`json_extract(json_each.value, '$.amount')`)
)

// summed adds up what is in the sums of the budget ?1 after ?3, without the record ?2; see sumArgs.
var summed = stored.PiecesOf("?1", func(i int) string { return fmt.Sprint("?", 5+2*i) }, func(i int) string { return fmt.Sprint("?", 6+2*i) }) + `
		UNION ALL SELECT ` + high + `, ` + low + ` FROM mutation INDEXED BY mutation_spent CROSS JOIN ` + entries + `
		 WHERE spent_at > ?3 AND spent_at < ?4 AND spent_at <> 0 AND ` + stored.InSums + ` AND mutation.key <> ?2 AND ` + entryName + ` = ?1
		UNION ALL SELECT -` + high + `, -` + low + ` FROM mutation CROSS JOIN ` + entries + `
		 WHERE mutation.key = ?2 AND spent_at >= ?4 AND ` + stored.InSums + ` AND ` + entryName + ` = ?1`

// sumArgs returns the arguments of summed.
func sumArgs(name string, except keep.MutationKey, since time.Time) []any {
	edge, spans := commit.SpansAfter(millis(since))
	args := []any{name, except, millis(since), edge}
	for _, s := range spans {
		args = append(args, s.From, s.To)
	}
	return args
}

// readSpending reads what counts in budgets. There is one writer, so nobody else spends before
// this commit is written.
func (t *tx) readSpending(s *commit.Snapshot, since time.Time, within []keep.Within) error {
	err := t.each(unsummedSince, []any{since}, func(row []driver.Value) error {
		m := keep.Mutation{Key: name[keep.MutationKey](row[0]), State: name[keep.MutationState](row[1]), SpentAt: moment(row[2].(int64))}
		if err := (stored.JSON{Part: &m.Spent}).Scan(row[3]); err != nil {
			return err
		}
		s.AddSpending(m)
		return nil
	})
	for _, w := range within {
		for _, name := range w.Names() {
			if err != nil {
				return err
			}
			var row []driver.Value
			if row, err = t.row(`SELECT ifnull(sum(high), 0), ifnull(sum(low), 0) FROM (`+summed+`)`, sumArgs(name, w.Key, moment(t.at).Add(-w.Per))...); err == nil {
				s.AddSummed(commit.SummedKey{Key: w.Key, Name: name}, commit.JoinSum(row[0].(int64), row[1].(int64)))
			}
		}
	}
	return err
}

// spent adds up what counts in the budget ?1 after ?3: what is settled, what is in doubt, and how many settled
// records are not in sums.
var spent = `SELECT ifnull(sum(high), 0), ifnull(sum(low), 0), ifnull(sum(high) FILTER (WHERE doubt), 0), ifnull(sum(low) FILTER (WHERE doubt), 0), count(*) FILTER (WHERE beside AND NOT doubt) FROM (
		SELECT high, low, 0 AS doubt, 0 AS beside FROM (` + summed + `)
		UNION ALL SELECT ` + high + `, ` + low + `, state IN ('in_flight', 'needs_reconcile', 'indeterminate'), 1 FROM mutation INDEXED BY mutation_unsummed CROSS JOIN ` + entries + `
		 WHERE spent_at > ?3 AND ` + stored.Unsummed + ` AND mutation.key <> ?2 AND ` + entryName + ` = ?1
		UNION ALL SELECT ` + high + `, ` + low + `, 1, 1 FROM (SELECT key, spent` + inDoubtBefore + `?3) mutation CROSS JOIN ` + entries + `
		 WHERE mutation.key <> ?2 AND ` + entryName + ` = ?1)`

// Spent returns what calls count in a budget; see store.Spending.
func (db *DB) Spent(ctx context.Context, names []string, since time.Time, except keep.MutationKey) (sum keep.SpentSum, err error) {
	beside := 0
	for _, name := range names {
		var high, low, doubtHigh, doubtLow int64
		var n int
		if err := db.row(ctx, spent, sumArgs(name, except, since), &high, &low, &doubtHigh, &doubtLow, &n); err != nil {
			return sum, fmt.Errorf("read what is spent: %w", err)
		}
		sum.All, sum.InDoubt = sum.All.Plus(commit.JoinSum(high, low)), sum.InDoubt.Plus(commit.JoinSum(doubtHigh, doubtLow))
		beside += n
	}
	if beside < stored.FoldAt || db.cfg.ReadOnly {
		return sum, nil
	}
	return sum, db.fold(ctx)
}

// toSums adds records to the sums, or with the sign "-" takes them out of them.
func toSums(sign, of string) string {
	return `INSERT INTO spent_sum (budget, level, piece, high, low)
		SELECT ` + entryName + `, level.value, spent_at >> level.value, ` + sign + high + `, ` + sign + low + `
		  FROM ` + of + ` taken CROSS JOIN json_each(taken.spent) CROSS JOIN json_each('[` + stored.Levels(", ") + `]') level
		 WHERE true
		ON CONFLICT (budget, level, piece) DO UPDATE SET high = high + excluded.high, low = low + excluded.low`
}

const (
	foldable = `(SELECT n, spent_at, spent FROM mutation INDEXED BY mutation_unsummed WHERE spent_at > 0 AND ` + stored.Foldable + ` ORDER BY spent_at LIMIT ?1)`
	emptySum = `DELETE FROM spent_sum INDEXED BY spent_sum_empty WHERE high = 0 AND low = 0`
)

var fold = []string{toSums("", foldable), `UPDATE mutation SET summed_at = spent_at WHERE n IN (SELECT n FROM ` + foldable + `)`}

// fold adds all settled records to the sums, so many in a transaction.
func (db *DB) fold(ctx context.Context) error {
	for {
		var n int64
		err := db.write.do(ctx, func(c *conn) (err error) {
			for _, text := range fold {
				if err == nil {
					n, err = c.exec(text, stored.FoldSize)
				}
			}
			return err
		})
		if err != nil || n < stored.FoldSize {
			return err
		}
	}
}

// unfold takes the records that a condition finds out of the sums, and returns how many they were.
func (t *tx) unfold(where string, arg any) (n int64, err error) {
	if _, err = t.exec(toSums("-", `(SELECT spent_at, spent FROM mutation WHERE `+where+` AND `+stored.InSums+`)`), arg); err == nil {
		n, err = t.exec(`UPDATE mutation SET summed_at = 0 WHERE `+where+` AND summed_at <> 0`, arg)
	}
	if err == nil && n > 0 {
		_, err = t.exec(emptySum)
	}
	return n, err
}

// Spending returns the records that count in budgets; see store.Spending.
func (db *DB) Spending(ctx context.Context, since time.Time) ([]keep.Mutation, error) {
	list, err := rows(ctx, db, scanMutation, spendingSince(bareMutation), millis(since))
	stored.BySpending(list)
	return list, err
}
