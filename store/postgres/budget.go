package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
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
	for _, w := range reads.Within {
		for _, name := range w.Names() {
			r.within.add(name, w.Key, at.Add(-w.Per))
		}
	}
}

// A sumSet names what budgets are to be summed, each without one record and after a time.
type sumSet struct {
	names, keys, since, edges []string
	from, to                  [len(commit.SumLevels)][]string
	earliest                  int64
}

func (s *sumSet) add(name string, except keep.MutationKey, since time.Time) {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	edge, spans := commit.SpansAfter(millis(since))
	if len(s.names) == 0 {
		s.earliest = millis(since)
	}
	s.earliest = min(s.earliest, millis(since))
	s.names, s.keys = append(s.names, text(name)), append(s.keys, text(string(except)))
	s.since, s.edges = append(s.since, number(millis(since))), append(s.edges, number(edge))
	for i, span := range spans {
		s.from[i], s.to[i] = append(s.from[i], number(span.From)), append(s.to[i], number(span.To))
	}
}

// arrays are the arguments of sums, and the earliest time of all.
func (s *sumSet) arrays() [][]string {
	list := [][]string{s.names, s.keys, s.since, s.edges}
	for i := range s.from {
		list = append(list, s.from[i], s.to[i])
	}
	return append(list, slices.Repeat([]string{strconv.FormatInt(s.earliest, 10)}, len(s.names)))
}

// inDoubtBefore finds the records in doubt that began to count before a time.
const inDoubtBefore = ` FROM mutation
		 WHERE state <> 'applied' AND state IN ('in_flight', 'needs_reconcile', 'indeterminate') AND spent_at <> 0 AND spent_at <= `

// spendingSince finds the records that count in budgets since a time, and those in doubt.
func spendingSince(columns, since string) string {
	return `SELECT ` + columns + ` FROM mutation WHERE spent_at > ` + since + ` AND spent_at <> 0
		UNION ALL SELECT ` + columns + inDoubtBefore + since
}

// What settled calls count is kept in sums (commit.SpansAfter). Only whoever finds many records beside the sums writes
// to them, in a transaction of its own: a commit reads the sums and what is beside them in one statement, so it never
// matters whether a record is summed yet.

const entries = `json_to_recordset(mutation.spent::json) AS e (budget TEXT, amount BIGINT)`

var (
	high = stored.High("e.amount")
	low  = stored.Low("e.amount")

	sumsWanted = func() string {
		spec := "name text, key text, since text, edge text"
		for i := range commit.SumLevels {
			spec += fmt.Sprintf(", f%d text, t%d text", i, i)
		}
		return elements(spec + ", earliest text")
	}()

	// summed adds up what is in the sums of the budget v.name after v.since, without the record v.key.
	summed = stored.PiecesOf("v.name", func(i int) string { return fmt.Sprintf("v.f%d::bigint", i) }, func(i int) string { return fmt.Sprintf("v.t%d::bigint", i) }) + `
		UNION ALL SELECT ` + high + `, ` + low + ` FROM mutation, ` + entries + `
		 WHERE spent_at > v.since::bigint AND spent_at < v.edge::bigint AND spent_at <> 0 AND ` + stored.InSums + ` AND mutation.key <> v.key AND e.budget = v.name
		UNION ALL SELECT -` + high + `, -` + low + ` FROM mutation, ` + entries + `
		 WHERE mutation.key = v.key AND spent_at >= v.edge::bigint AND ` + stored.InSums + ` AND e.budget = v.name`

	spendingFacts = `SELECT v.key, v.name, s.high, s.low, NULL AS state, NULL::bigint AS spent_at, NULL AS spent FROM ` + sumsWanted + `,
		LATERAL (SELECT coalesce(sum(high), 0)::bigint AS high, coalesce(sum(low), 0)::bigint AS low FROM (` + summed + `) a) s
		UNION ALL SELECT key, NULL, 0, 0, state, spent_at, spent FROM mutation WHERE spent_at > ` + earliest + ` AND ` + stored.Unsummed + `
		UNION ALL SELECT key, NULL, 0, 0, state, spent_at, spent` + inDoubtBefore + earliest

	// spent adds up what counts in a budget: what is settled, what is in doubt, and how many settled records are not in sums.
	spent = `SELECT s.* FROM ` + sumsWanted + `, LATERAL (
		SELECT coalesce(sum(high), 0)::bigint, coalesce(sum(low), 0)::bigint, coalesce(sum(high) FILTER (WHERE doubt), 0)::bigint,
		       coalesce(sum(low) FILTER (WHERE doubt), 0)::bigint, count(*) FILTER (WHERE beside AND NOT doubt) FROM (
		SELECT high, low, FALSE AS doubt, FALSE AS beside FROM (` + summed + `) p
		UNION ALL SELECT ` + high + `, ` + low + `, state IN ('in_flight', 'needs_reconcile', 'indeterminate'), TRUE FROM mutation, ` + entries + `
		 WHERE spent_at > v.since::bigint AND ` + stored.Unsummed + ` AND mutation.key <> v.key AND e.budget = v.name
		UNION ALL SELECT ` + high + `, ` + low + `, TRUE, TRUE FROM (SELECT key, spent` + inDoubtBefore + `v.since::bigint) mutation, ` + entries + `
		 WHERE mutation.key <> v.key AND e.budget = v.name) a) s`
)

// earliest is the last array of a sumSet.
var earliest = fmt.Sprintf(`($%d::text[])[1]::bigint`, 5+2*len(commit.SumLevels))

func (s *snapshot) scanSpending(row pgx.CollectableRow) error {
	var m keep.Mutation
	var name, state *string
	var at *int64
	var high, low int64
	err := row.Scan(into(&m.Key), &name, &high, &low, &state, &at, stored.JSON{Part: &m.Spent})
	switch {
	case err != nil:
		return err
	case name != nil:
		s.AddSummed(commit.SummedKey{Key: m.Key, Name: plain(*name)}, commit.JoinSum(high, low))
	default:
		m.State, m.SpentAt = keep.MutationState(*state), moment(*at)
		s.AddSpending(m)
	}
	return nil
}

// Spent returns what calls count in a budget; see store.Spending.
func (db *DB) Spent(ctx context.Context, names []string, since time.Time, except keep.MutationKey) (sum keep.SpentSum, err error) {
	var set sumSet
	for _, name := range names {
		set.add(name, except, since)
	}
	args := make([]any, 0, 16)
	for _, array := range set.arrays() {
		args = append(args, array)
	}
	type parts struct {
		all, inDoubt keep.Amount
		beside       int
	}
	list, err := collect(ctx, db, func(row pgx.CollectableRow) (p parts, err error) {
		var high, low, doubtHigh, doubtLow int64
		err = row.Scan(&high, &low, &doubtHigh, &doubtLow, &p.beside)
		p.all, p.inDoubt = commit.JoinSum(high, low), commit.JoinSum(doubtHigh, doubtLow)
		return p, err
	}, spent, args...)
	beside := 0
	for _, p := range list {
		sum.All, sum.InDoubt, beside = sum.All.Plus(p.all), sum.InDoubt.Plus(p.inDoubt), beside+p.beside
	}
	if err != nil || beside < stored.FoldAt || db.cfg.ReadOnly {
		return sum, err
	}
	return sum, db.fold(ctx)
}

// sumsLock is held by whoever writes to sums, for pg_advisory_xact_lock. A commit waits for it before it writes
// anything, and has taken by then whatever else it locks by name, so nobody waits for another in a circle; and what a sweep deletes
// is not summed meanwhile. Who only sums what is there does not wait: another does it, or the next one.
const sumsLock = `((1802724719::bigint << 32) | 'spent_sum'::regclass::oid::bigint)`

var lockSums = literal(`SELECT pg_advisory_xact_lock(`+sumsLock+`) WHERE $1::text[] IS NOT NULL`, "text")

// toSums adds the records that a query finds to the sums, or with the sign "-" takes them out of them.
func toSums(records, sign, summedAt string) string {
	return `WITH taken AS (` + records + `),
		marked AS (UPDATE mutation m SET summed_at = ` + summedAt + ` FROM taken t WHERE m.workflow = t.workflow AND m.tool = t.tool AND m.n = t.n),
		added AS (INSERT INTO spent_sum AS s (budget, level, piece, high, low)
		SELECT e.budget, l.level, mutation.spent_at >> l.level, ` + sign + `sum(` + high + `)::bigint, ` + sign + `sum(` + low + `)::bigint
		  FROM taken mutation, ` + entries + `, unnest(ARRAY[` + stored.Levels(", ") + `]) l (level)
		 GROUP BY e.budget, l.level, mutation.spent_at >> l.level ORDER BY 1, 2, 3
		ON CONFLICT (budget, level, piece) DO UPDATE SET high = s.high + excluded.high, low = s.low + excluded.low)
		SELECT count(*) FROM taken`
}

const toSum = `SELECT mutation.workflow, mutation.tool, mutation.n, mutation.spent_at, mutation.spent FROM `

var (
	fold = toSums(toSum+`mutation WHERE spent_at > 0 AND `+stored.Foldable+` AND (SELECT pg_try_advisory_xact_lock(`+sumsLock+`)) ORDER BY spent_at LIMIT $1 FOR UPDATE SKIP LOCKED`, "", "m.spent_at")

	unfoldMutation = literal(toSums(toSum+`mutation WHERE key = ANY($1::text[]) AND `+stored.InSums+` ORDER BY key FOR UPDATE`, "-", "0"), "text")
	sweepSums      = literal(toSums(toSum+`mutation, `+ofChains+` WHERE mutation.run = o.id AND `+stored.InSums+` ORDER BY key FOR UPDATE OF mutation`, "-", "0"), "text")
	sweepEmptySums = literal(`DELETE FROM spent_sum WHERE high = 0 AND low = 0 AND $1::text[] IS NOT NULL`, "text")
)

// fold adds all settled records to the sums, so many in a transaction.
func (db *DB) fold(ctx context.Context) error {
	for {
		n, err := collect(ctx, db, pgx.RowTo[int], fold, stored.FoldSize)
		if err != nil || n[0] < stored.FoldSize {
			return err
		}
	}
}

// Spending returns the records that count in budgets; see store.Spending.
func (db *DB) Spending(ctx context.Context, since time.Time) ([]keep.Mutation, error) {
	list, err := collect(ctx, db, scanMutation, spendingSince(bareMutation, "$1"), millis(since))
	stored.BySpending(list)
	return list, err
}
