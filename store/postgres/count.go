package postgres

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
)

// addTally counts rows that were made.
var addTally = over(`INSERT INTO tally AS t (workflow, noun, name, rows)
	SELECT workflow, noun, name, count(*) FROM %s
	 GROUP BY workflow, noun, name ORDER BY workflow, noun, name
	ON CONFLICT (workflow, noun, name) DO UPDATE SET rows = t.rows + excluded.rows`,
	`workflow text, noun text, name text`)

// tally counts a row that the commit makes.
func (t *tx) tally(noun, name string) {
	t.add(&addTally, text(string(t.workflow)), noun, text(name))
}

// A census says how to count the rows of a noun by their state.
type census[S ~string] struct {
	noun, state string // the table, and the column that says the state
	text        string // words of records; empty: any
	workflow    keep.WorkflowName
	name        string // handler or tool; empty: any
	only        S      // the one state that is wanted; empty: all
	usual       S      // the state that is not counted, but left
	few         bool   // the filter selects few rows: look at each
	list        func(q *query, c cut, columns string) string
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
	words := search.Terms(c.text)
	switch unusual := c.only != "" && c.only != c.usual; {
	case (c.few || unusual) && len(words) > 0: // go through these rows
		sql = c.list(q, everything, c.noun+"."+c.state+", "+c.noun+".n, "+c.noun+".workflow, "+c.noun+".words")
		sql = `SELECT ` + c.state + ` FROM (` + sql + `) AS found WHERE words @@ ` + q.arg(tsquery(words)) + `::tsquery LIMIT ` + q.arg(search.MaxCount+1)
		sql = `SELECT ` + c.state + `, count(*) FROM (` + sql + `) AS found GROUP BY 1`
	case len(words) > 0: // by the index, in its own order
		q.terms, q.any = searchTerms{rare: words}, true
		some := cut{first: true, limit: search.MaxCount + 1}
		sql = `SELECT ` + c.state + `, count(*) FROM (` + c.list(q, some, c.noun+"."+c.state) + `) AS found GROUP BY 1`
	case c.few:
		sql = `SELECT ` + c.state + `, count(*) FROM (` + c.list(q, everything, c.noun+"."+c.state+", "+c.noun+".n, "+c.noun+".workflow") + `) AS found GROUP BY 1`
	default:
		var all query
		all.args = q.args
		and(&all, "tally.workflow", c.workflow)
		and(&all, "tally.name", c.name)
		noun := all.conditions("tally.noun = '" + c.noun + "'")
		q.args = all.args
		sql = c.unusual(q) + ` UNION ALL SELECT '', coalesce(sum(rows), 0)::bigint FROM tally` + noun
	}
	list, err := look(ctx, db, q, scan, sql, 0)
	if err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	counts := make(map[S]int)
	seen := c.few || len(words) > 0
	for _, v := range list {
		switch {
		case seen, v.state != "":
			counts[v.state] += int(v.n)
			if !seen {
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
		noun: "run", state: "status", text: f.Text, workflow: f.Workflow, name: string(f.Handler), only: f.Status, usual: keep.StatusCommitted,
		few:  f.Open || f.Chain != "",
		list: func(q *query, c cut, columns string) string { return runsSQL(q, f, c, columns) },
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
		noun: "mutation", state: "state", text: f.Text, workflow: f.Workflow, name: string(f.Tool), only: f.State, usual: keep.Applied,
		few:  f.Run != "" || f.Item != "" || f.Input != "",
		list: func(q *query, c cut, columns string) string { return mutationsSQL(q, f, c, columns) },
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
		noun: "input", state: "status", text: f.Text, workflow: f.Workflow, only: f.Status, usual: keep.InputDone,
		list:    func(q *query, c cut, columns string) string { return inputsSQL(q, f, c, columns) },
		unusual: unusualOf("input", f.Workflow, keep.InputStatuses(), keep.InputDone),
	})
}

// CountItems counts the items that a filter selects, by their status. A status
// that none has is not in the map.
func (db *DB) CountItems(ctx context.Context, f keep.ItemFilter) (map[keep.ItemStatus]int, error) {
	return count(ctx, db, census[keep.ItemStatus]{
		noun: "item", state: "status", text: f.Text, workflow: f.Workflow, only: f.Status, usual: keep.ItemDone,
		list:    func(q *query, c cut, columns string) string { return itemsSQL(q, f, c, columns) },
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
		list: func(q *query, c cut, columns string) string { return escalationsSQL(q, f, c, columns) },
	})
}

// pageOf returns the columns that a page has: all, or those of a bare one.
func pageOf(p keep.Page, all, bare string) string {
	if p.Bare {
		return bare
	}
	return all
}
