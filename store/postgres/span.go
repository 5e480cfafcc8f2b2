package postgres

import (
	"math"

	"github.com/keep-run/keep/store/internal/stored"
)

// span returns the condition of the rows of a table that have a value in a column, for an index
// that has the column before n. Its rows say again where they begin and end, in the order of that
// index: the index of all rows by n cannot use this, and so has more rows to go through, for
// the planner, even where it believes that all rows have that value, since it never saw another.
func (q *query) span(table, column, value string, c cut) string {
	last := int64(math.MaxInt64)
	if c.before != 0 {
		last = c.before - 1
	}
	if !c.first {
		last = min(last, c.n) // of another workflow it may be one more: see after
	}
	name := table + "." + column
	row, from, to := "("+name+", "+table+".n)", q.arg(c.from), q.arg(last)
	return name + " = " + value + " AND " + row + " >= (" + value + ", " + from + ") AND " + row + " <= (" + value + ", " + to + ")"
}

// spanOf is the statement of a list by such an index, of one value.
func (q *query) spanOf(table, column, value, columns string, c cut) string {
	condition := q.span(table, column, value, c)
	return `SELECT ` + columns + ` FROM ` + table + q.conditions(condition) + q.newest(table, c)
}

// perName lists the rows of one workflow, whose index has a name before n: the
// newest of each name, merged, are the newest of all. The names are few, and found
// by a step over the index for each.
func perName(table, column, columns string, q *query, w string, c cut) string {
	step := func(more string) string {
		return `(SELECT ` + column + ` FROM ` + table + ` WHERE workflow = ` + w + more + ` ORDER BY workflow, ` + column + ` LIMIT 1)`
	}
	newest := `SELECT * FROM ` + table + q.conditions(q.span(table, column, "name.name", c)) + q.newest(table, c)
	return `WITH RECURSIVE name (name) AS (
			SELECT ` + step("") + `
			UNION ALL
			SELECT ` + step(` AND `+column+` > name.name`) + ` FROM name WHERE name.name IS NOT NULL)
		SELECT ` + columns + ` FROM name, LATERAL (` + newest + `) ` + table + `
		 WHERE name.name IS NOT NULL` + q.newest(table, c)
}

// perState lists rows in any of some states of a noun, which are rare ones: the newest of each,
// merged. only is the condition of the index on the state.
func perState[S ~string](table, state, only string, states []S, columns string, q *query, c cut) string {
	newest := `SELECT * FROM ` + table + q.conditions(q.span(table, state, "one.state", c), only) + q.newest(table, c)
	return `SELECT ` + columns + ` FROM unnest(ARRAY[` + stored.List(states...) + `]) AS one (state), LATERAL (` + newest + `) ` + table + q.newest(table, c)
}

// perWorkflow lists rows of all workflows that have a value in a column, which may be a rare one:
// the newest of each workflow, merged. The tally of the name knows which workflows have some; only
// the places of their rows are read, from the index, and the rows of those that are wanted.
func perWorkflow(table, column, value, name, columns string, q *query, c cut) string {
	newest := `SELECT n, workflow FROM ` + table + q.conditions(table+".workflow = tally.workflow", q.span(table, column, value, c)) + q.newest(table, c)
	return `SELECT ` + columns + ` FROM (
			SELECT ` + table + `.n, ` + table + `.workflow FROM tally, LATERAL (` + newest + `) ` + table + `
			 WHERE tally.noun = '` + table + `' AND tally.name = ` + name + q.newest(table, c) + `) place
		  JOIN ` + table + ` ON ` + table + `.n = place.n AND ` + table + `.workflow = place.workflow` + q.newest(table, c)
}
