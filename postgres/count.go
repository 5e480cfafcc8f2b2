package postgres

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
)

// addTally counts rows that were made.
var addTally = statement{`INSERT INTO tally AS t (workflow, noun, name, rows)
	SELECT workflow, noun, name, count(*) FROM unnest($1::text[], $2::text[], $3::text[]) AS v (workflow, noun, name)
	 GROUP BY workflow, noun, name ORDER BY workflow, noun, name
	ON CONFLICT (workflow, noun, name) DO UPDATE SET rows = t.rows + excluded.rows`, []string{"text", "text", "text"}}

// tally counts a row that the commit makes.
func (t *tx) tally(noun, name string) {
	t.add(&addTally, text(string(t.workflow)), noun, text(name))
}

// words returns a title as the index of its words takes it.
func words(title string) *string {
	list := keep.Words(title)
	if len(list) == 0 {
		return nil
	}
	stored := text(strings.Join(list, " "))
	return &stored
}

// has limits q to rows whose titles have the words of a text.
func (q *query) has(table, words string) {
	list := keep.SearchWords(words)
	if len(list) == 0 {
		return
	}
	q.search = true
	// The words have nothing in them that would have to be escaped.
	q.where = append(q.where, table+".words @@ "+q.arg("'"+strings.Join(list, "':* & '")+"':*")+"::tsquery")
}

// look runs a list's statement. The words of titles are found by an index that only
// knows how to look for all of them at once, which other lists must not do.
func look[T any](ctx context.Context, db *DB, q *query, scan func(pgx.CollectableRow) (T, error), sql string) (list []T, err error) {
	if !q.search {
		return collect(ctx, db, scan, sql, q.args...)
	}
	if db.pool == nil || db.over.Load() {
		return nil, ErrClosed
	}
	b := new(pgx.Batch)
	b.Queue(`SELECT set_config('enable_bitmapscan', 'on', true), set_config('enable_indexscan', 'off', true)`)
	b.Queue(sql, values(q.args)...).Query(func(rows pgx.Rows) error {
		list, err = pgx.CollectRows(rows, scan)
		return err
	})
	if err := send(ctx, db.pool, b); err != nil {
		return nil, err
	}
	return list, nil
}

// A census says how to count the rows of a noun by their state.
type census[S ~string] struct {
	noun, state string // the table, and the column that says the state
	workflow    keep.WorkflowName
	name        string // handler or tool; empty: any
	only        S      // the one state that is wanted; empty: all
	usual       S      // the state that is not counted, but left
	few         bool   // the filter selects few rows: look at each
	list        func(*query, cut) string
	unusual     func(*query) string // counts the other states
}

// everything is the cut of a list that is not cut.
var everything = cut{first: true, limit: 1 << 62}

// count counts in one statement: the usual state is what the others leave.
func count[S ~string](ctx context.Context, db *DB, c census[S]) (map[S]int, error) {
	type counted struct {
		state S
		n     int64
	}
	scan := func(row pgx.CollectableRow) (v counted, err error) {
		err = row.Scan(into(&v.state), &v.n)
		return v, err
	}
	q := new(query)
	var sql string
	if c.few {
		sql = `SELECT ` + c.state + `, count(*) FROM (` + c.list(q, everything) + `) AS found GROUP BY 1`
	} else {
		var all query
		all.args = q.args
		and(&all, "tally.workflow", c.workflow)
		and(&all, "tally.name", c.name)
		noun := all.conditions("tally.noun = '" + c.noun + "'")
		q.args = all.args
		sql = c.unusual(q) + ` UNION ALL SELECT '', coalesce(sum(rows), 0)::bigint FROM tally` + noun
	}
	list, err := look(ctx, db, q, scan, sql)
	if err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	counts := make(map[S]int)
	for _, v := range list {
		switch {
		case c.few, v.state != "":
			counts[v.state] += int(v.n)
			if !c.few {
				counts[c.usual] -= int(v.n)
			}
		default:
			counts[c.usual] += int(v.n)
		}
	}
	maps.DeleteFunc(counts, func(s S, n int) bool { return n == 0 || c.only != "" && s != c.only })
	return counts, nil
}

// CountRuns counts the runs that a filter selects, by their status. A status that
// none has is not in the map.
func (db *DB) CountRuns(ctx context.Context, f keep.RunFilter) (map[keep.RunStatus]int, error) {
	return count(ctx, db, census[keep.RunStatus]{
		noun: "run", state: "status", workflow: f.Workflow, name: string(f.Handler), only: f.Status, usual: keep.StatusCommitted,
		few:  f.Open || f.Chain != "" || len(keep.SearchWords(f.Text)) > 0,
		list: func(q *query, c cut) string { return runsSQL(q, f, c, runColumns) },
		unusual: func(q *query) string {
			and(q, "workflow", f.Workflow)
			and(q, "handler", f.Handler)
			return `SELECT status, count(*) FROM run` + q.conditions("status NOT IN ('active', 'committed')") + ` GROUP BY status
				UNION ALL SELECT status, count(*) FROM run` + q.conditions("status = 'active'", "NOT closed") + ` GROUP BY status`
		},
	})
}

// CountMutations counts the records that a filter selects, by their state. A
// state that none has is not in the map.
func (db *DB) CountMutations(ctx context.Context, f keep.MutationFilter) (map[keep.MutationState]int, error) {
	return count(ctx, db, census[keep.MutationState]{
		noun: "mutation", state: "state", workflow: f.Workflow, name: string(f.Tool), only: f.State, usual: keep.Applied,
		few:  f.Run != "" || f.Item != "" || f.Input != "" || len(keep.SearchWords(f.Text)) > 0,
		list: func(q *query, c cut) string { return mutationsSQL(q, f, c, mutationColumns) },
		unusual: func(q *query) string {
			and(q, "workflow", f.Workflow)
			and(q, "tool", f.Tool)
			return `SELECT state, count(*) FROM mutation` + q.conditions("state <> 'applied'") + ` GROUP BY state`
		},
	})
}

// CountInputs counts the inputs that a filter selects, by their status. A status
// that none has is not in the map.
func (db *DB) CountInputs(ctx context.Context, f keep.InputFilter) (map[keep.InputStatus]int, error) {
	return count(ctx, db, census[keep.InputStatus]{
		noun: "input", state: "status", workflow: f.Workflow, only: f.Status, usual: keep.InputDone,
		few:     len(keep.SearchWords(f.Text)) > 0,
		list:    func(q *query, c cut) string { return inputsSQL(q, f, c) },
		unusual: unusualOf("input", f.Workflow, keep.InputStatuses(), keep.InputDone),
	})
}

// CountItems counts the items that a filter selects, by their status. A status
// that none has is not in the map.
func (db *DB) CountItems(ctx context.Context, f keep.ItemFilter) (map[keep.ItemStatus]int, error) {
	return count(ctx, db, census[keep.ItemStatus]{
		noun: "item", state: "status", workflow: f.Workflow, only: f.Status, usual: keep.ItemDone,
		few:     len(keep.SearchWords(f.Text)) > 0,
		list:    func(q *query, c cut) string { return itemsSQL(q, f, c) },
		unusual: unusualOf("item", f.Workflow, keep.ItemStatuses(), keep.ItemDone),
	})
}

// unusualOf counts, by an index on workflow and status, all but the usual one.
func unusualOf[S ~string](table string, w keep.WorkflowName, all []S, usual S) func(*query) string {
	return func(q *query) string {
		and(q, "lease.workflow", w)
		var others []string
		for _, s := range all {
			if s != usual {
				others = append(others, "('"+string(s)+"')")
			}
		}
		return `SELECT s.status, sum(c.n)::bigint FROM (VALUES ` + strings.Join(others, ", ") + `) AS s (status), lease, LATERAL (
				SELECT count(*) AS n FROM ` + table + ` t WHERE t.workflow = lease.workflow AND t.status = s.status) c` +
			q.conditions() + ` GROUP BY s.status`
	}
}

// CountEscalations counts the questions that a filter selects, by their kind. A
// kind that none has is not in the map.
func (db *DB) CountEscalations(ctx context.Context, f keep.EscalationFilter) (map[keep.EscalationKind]int, error) {
	return count(ctx, db, census[keep.EscalationKind]{
		noun: "escalation", state: "kind", few: true,
		list: func(q *query, c cut) string { return escalationsSQL(q, f, c) },
	})
}

// bareOf returns columns without those that may be large, which are named as they
// stand there, each after a comma.
func bareOf(p keep.Page, columns, large string) string {
	if !p.Bare {
		return columns
	}
	return strings.Replace(columns, large, strings.Repeat(", NULL::bytea", strings.Count(large, ",")), 1)
}
