package postgres

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
	"github.com/keep-run/keep/store/internal/stored"
)

// placed is a row of a list and its place: lists are in falling order of n, then
// of the workflow.
type placed[T any] struct {
	what     T
	n        int64
	workflow keep.WorkflowName
}

// compare says which of two rows was made later: 1 if p was.
func (p placed[T]) compare(other placed[T]) int {
	return cmp.Or(cmp.Compare(p.n, other.n), cmp.Compare(p.workflow, other.workflow))
}

// A query is a list's statement while it is put together. It has a condition for
// each field of a filter that is set, so that the planner sees only those, and a
// statement for each combination.
type query struct {
	where []string
	args  []any

	spanned string // the column of a span, which filter leaves to it

	terms searchTerms // words that records must have
	any   bool        // in any order, of a count that stops early
	limit string      // the placeholder of the limit, once there is one
}

// arg adds an argument and returns its placeholder.
func (q *query) arg(v any) string {
	q.args = append(q.args, v)
	return "$" + strconv.Itoa(len(q.args))
}

// and adds "column = value", unless the value is empty.
func and[T ~string](q *query, column string, value T) {
	if value != "" {
		q.where = append(q.where, column+" = "+q.arg(value))
	}
}

// looksUp reports whether records are looked for by the index of words.
func (q *query) looksUp() bool { return len(q.terms.rare) > 0 }

// conditions returns the WHERE of all conditions.
func (q *query) conditions(more ...string) string {
	all := append(append([]string(nil), q.where...), more...)
	if len(all) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(all, " AND ")
}

// A cut is the part of a list that is wanted: what comes after a place, and limit
// rows of it.
type cut struct {
	first    bool // there is no place: from the start
	n        int64
	workflow keep.WorkflowName
	limit    int

	from, before int64 // numbers from one up to another; both 0: there is no limit
}

// after limits q to what comes after the cut, for a table.
func (q *query) after(table string, c cut) {
	if !c.first {
		q.where = append(q.where, "("+table+".n, "+table+".workflow) < ("+q.arg(c.n)+", "+q.arg(c.workflow)+")")
	}
	if c.before != 0 {
		q.where = append(q.where, table+".n >= "+q.arg(c.from), table+".n < "+q.arg(c.before))
	}
}

// newest returns the order and the limit of a list's statement.
func (q *query) newest(table string, c cut) string {
	if q.limit == "" {
		q.limit = q.arg(c.limit)
	}
	if q.any {
		return " LIMIT " + q.limit
	}
	return " ORDER BY " + table + ".n DESC, " + table + ".workflow DESC LIMIT " + q.limit
}

// filter limits q to the rows that a filter selects and that come after the cut.
func filter[F any, S ~string](q *query, l stored.Selection[F, S], f F, c cut) {
	filter := l.Filter(f)
	for i, column := range l.Columns {
		if column != q.spanned {
			and(q, l.Compared(column), filter.Values[i])
		}
	}
	if filter.Open {
		q.where = append(q.where, l.Open)
	}
	if filter.Closed {
		q.where = append(q.where, l.Closed)
	}
	if only := l.Only(f); filter.Error != "" && only != "" && !slices.Contains(l.Stopped, only) {
		q.where = append(q.where, "FALSE") // no row in that state was stopped by anything
	} else if filter.Error != "" {
		// As JSON the text could not be read if a message has an escaped NUL in it. No text in it has
		// the name of a field between quotes that are not escaped.
		word, _ := json.Marshal(filter.Error) // a string always encodes
		has := func(field string) string {
			return "strpos(" + l.Table + ".error, " + q.arg(`"`+field+`":`+string(word)+`,`) + ") > 0"
		}
		q.where = append(q.where, "("+has("class")+" OR "+has("code")+")")
		if only == "" { // else it is one of them
			q.where = append(q.where, l.Table+"."+l.State+" IN ("+stored.List(l.Stopped...)+")")
		}
	}
	q.made(l.Table, filter)
	q.has(l.Table)
	q.after(l.Table, c)
}

// made limits q to the rows of a table that were made in the period of a filter. One without
// an end has the same statement as one with both.
func (q *query) made(table string, f stored.Filter) {
	if f.Since != 0 || f.Until != 0 {
		q.where = append(q.where, table+".created_at >= "+q.arg(f.Since), table+".created_at < "+q.arg(cmp.Or(f.Until, math.MaxInt64)))
	}
}

// within limits a cut to the rows that were made in the period of a filter, or little before
// or after: filter looks at the time of each.
func within[F any, S ~string](ctx context.Context, db *DB, l lister[F, S], f F, c cut) (cut, error) {
	filter := l.Filter(f)
	first := func(made int64) (int64, error) {
		list, err := collect(ctx, db, pgx.RowTo[int64], stored.FirstMade(l.Table, "n", "$1"), made)
		if err == nil && len(list) != 1 {
			err = fmt.Errorf("%d places of a time", len(list))
		}
		if err != nil {
			return 0, err
		}
		return list[0], nil
	}
	if filter.Since == 0 && filter.Until == 0 {
		return c, nil
	}
	c.before = math.MaxInt64
	var err error
	if filter.Since != 0 {
		if c.from, err = first(filter.Since - stored.Disorder); err != nil {
			return c, err
		}
	}
	if filter.Until != 0 {
		c.before, err = first(filter.Until + stored.Disorder)
	}
	return c, err
}

// A lister is how Postgres finds the rows of a list.
type lister[F any, S ~string] struct {
	stored.Selection[F, S]
	sql func(q *query, f F, c cut, columns string) string

	// unusual counts the rows that are not in the usual state. Nil: an index on the workflow
	// and the status does.
	unusual func(q *query, f F) string
}

// An output is what a list reads of each row: its columns, and what reads these.
type output[T any] struct {
	columns, bare string
	scan          func(pgx.CollectableRow) (placed[T], error)
}

// list reads one page. One row more than the page is read, to know whether there
// is a next one.
func list[T, F any, S ~string](ctx context.Context, db *DB, l lister[F, S], f F, p keep.Page, out output[T]) (list []T, next string, err error) {
	c, err := parseCursor(l.Kind, p)
	if err != nil {
		return nil, "", fmt.Errorf("list: %w", err)
	}
	if c, err = within(ctx, db, l, f, c); err != nil {
		return nil, "", fmt.Errorf("list: %w", err)
	}
	columns := out.columns
	if p.Bare {
		columns = out.bare
	}
	var found []placed[T]
	var end *place
	if words := search.Terms(l.Filter(f).Text); len(words) > 0 {
		s := searcher{db: db, table: l.Table, words: words, sql: func(q *query, c cut, columns string) string { return l.sql(q, f, c, columns) }}
		found, end, err = searched(ctx, s, c, columns, out.scan)
	} else {
		var q query
		sql := l.sql(&q, f, c, columns)
		found, err = collect(ctx, db, out.scan, sql, q.args...)
		found, end = cutOff(found, c)
	}
	if err != nil {
		return nil, "", fmt.Errorf("list: %w", err)
	}
	return unplacedAll(found), cursorOf(l.Kind, end), nil
}

// cutOff takes off the row that was read beyond the page, and returns the place of the last one that is left then; nil: there is no next page.
func cutOff[T any](found []placed[T], c cut) ([]placed[T], *place) {
	if len(found) < c.limit {
		return found, nil
	}
	found = found[:c.limit-1]
	last := found[len(found)-1]
	return found, &place{last.n, last.workflow}
}

// unplacedAll returns rows without their places.
func unplacedAll[T any](found []placed[T]) (list []T) {
	for _, v := range found {
		list = append(list, v.what)
	}
	return list
}

// cursorOf returns the cursor of the page after a place; nil: there is none.
func cursorOf(kind string, end *place) string {
	if end == nil {
		return ""
	}
	return kind + strconv.FormatInt(end.n, 10) + "." + hex.EncodeToString([]byte(end.workflow))
}

// parseCursor reads the cursor that page made.
func parseCursor(kind string, p keep.Page) (cut, error) {
	c := cut{first: p.After == "", limit: p.Size() + 1}
	if c.first {
		return c, nil
	}
	place, ours := strings.CutPrefix(p.After, kind)
	digits, name, dotted := strings.Cut(place, ".")
	n, err := strconv.ParseInt(digits, 10, 64)
	workflow, hexErr := hex.DecodeString(name)
	if !ours || !dotted || err != nil || hexErr != nil || n < 1 {
		return c, fmt.Errorf("cursor %q: %w", p.After, keep.ErrBadCursor)
	}
	c.n, c.workflow = n, keep.WorkflowName(workflow)
	return c, nil
}

var runLists = lister[keep.RunFilter, keep.RunStatus]{stored.SelectRuns, runsSQL, func(q *query, f keep.RunFilter) string {
	and(q, "workflow", f.Workflow)
	and(q, "handler", f.Handler)
	return `SELECT status, count(*) FROM run` + q.conditions("status NOT IN ('active', 'committed')") + ` GROUP BY status
		UNION ALL SELECT status, count(*) FROM run` + q.conditions("status = 'active'", "NOT closed") + ` GROUP BY status`
}}

// Runs returns a page of runs, newest first, and the cursor of the next.
func (db *DB) Runs(ctx context.Context, f keep.RunFilter, p keep.Page) ([]keep.Run, string, error) {
	return list(ctx, db, runLists, f, p, output[keep.Run]{runColumns, bareRuns, scanRunAt})
}

// runsSQL is the statement of Runs.
func runsSQL(q *query, f keep.RunFilter, c cut, columns string) string {
	switch {
	case f.Chain != "" || q.looksUp():
	case f.Status != "" && !f.Open && f.Status != keep.StatusActive && f.Status != keep.StatusCommitted:
		q.spanned = "status"
	case f.Handler != "" && f.Error == "" && !f.Open && f.Status != keep.StatusActive:
		q.spanned = "handler"
	}
	filter(q, stored.SelectRuns, f, c)
	switch {
	case f.Chain != "": // as many as it has attempts
		chain := q.arg(f.Chain)
		return `SELECT * FROM (
			SELECT ` + columns + ` FROM run` + q.conditions("run.id = "+chain, "run.chain = "+chain) + `
			UNION ALL
			SELECT ` + columns + ` FROM run` + q.conditions("run.chain = "+chain, "run.chain <> run.id") + `) run` + q.newest("run", c)
	case f.Error != "" && f.Status == "" && !f.Open && !q.looksUp():
		return perState("run", "status", "run.status NOT IN ('active', 'committed')", stored.SelectRuns.Stopped, columns, q, c)
	case q.spanned == "status":
		q.where = append(q.where, "run.status NOT IN ('active', 'committed')")
		return q.spanOf("run", "status", q.arg(f.Status), columns, c)
	case q.spanned == "handler" && f.Workflow == "":
		handler := q.arg(f.Handler)
		return perWorkflow("run", "handler", handler, handler, columns, q, c)
	case q.spanned == "handler":
		return q.spanOf("run", "handler", q.arg(f.Handler), columns, c)
	case f.Status == keep.StatusActive && !f.Open: // open, by law
		q.where = append(q.where, "NOT run.closed")
	case f.Open || f.Workflow == "" || f.Handler != "" || q.looksUp():
	default:
		return perName("run", "handler", columns, q, "$1", c)
	}
	return `SELECT ` + columns + ` FROM run` + q.conditions() + q.newest("run", c)
}

var mutationLists = lister[keep.MutationFilter, keep.MutationState]{stored.SelectMutations, mutationsSQL, func(q *query, f keep.MutationFilter) string {
	and(q, "workflow", f.Workflow)
	and(q, "tool", f.Tool)
	return `SELECT state, count(*) FROM mutation` + q.conditions("state <> 'applied'") + ` GROUP BY state`
}}

// Mutations returns a page of ledger records, newest first, and the cursor of the next.
func (db *DB) Mutations(ctx context.Context, f keep.MutationFilter, p keep.Page) ([]keep.Mutation, string, error) {
	return list(ctx, db, mutationLists, f, p, output[keep.Mutation]{mutationColumns, bareMutation, scanMutationAt})
}

// mutationsSQL is the statement of Mutations.
func mutationsSQL(q *query, f keep.MutationFilter, c cut, columns string) string {
	few := f.Input != "" || f.Run != "" // as many as its events, or its items, were tried
	if f.Input != "" {
		q.arg(f.Input)
		q.where = append(q.where, "mutation.run IN ("+runsOfInput+")")
	}
	switch {
	case few || q.looksUp():
	case f.Item != "" && f.Workflow != "":
		q.spanned = "item"
	case f.State != "" && f.State != keep.Applied:
		q.spanned = "state"
	case f.Tool != "" && f.Error == "":
		q.spanned = "tool"
	}
	filter(q, stored.SelectMutations, f, c)
	switch {
	case q.spanned == "item":
		q.where = append(q.where, "mutation.item <> ''")
		return q.spanOf("mutation", "item", q.arg(f.Item), columns, c)
	case q.spanned == "state":
		q.where = append(q.where, "mutation.state <> 'applied'")
		return q.spanOf("mutation", "state", q.arg(f.State), columns, c)
	case f.Error != "" && f.State == "" && !few && !q.looksUp():
		return perState("mutation", "state", "mutation.state <> 'applied'", stored.SelectMutations.Stopped, columns, q, c)
	case q.spanned == "tool" && f.Workflow == "":
		tool := q.arg(f.Tool)
		return perWorkflow("mutation", "tool", tool, tool, columns, q, c)
	case q.spanned == "tool":
		return q.spanOf("mutation", "tool", q.arg(f.Tool), columns, c)
	case !few && f.Workflow != "" && f.Error == "" && !q.looksUp():
		return perName("mutation", "tool", columns, q, "$1", c)
	}
	return `SELECT ` + columns + ` FROM mutation` + q.conditions() + q.newest("mutation", c)
}

var eventLists = lister[keep.EventFilter, keep.EventStatus]{stored.SelectEvents, eventsSQL, nil}

// Events returns a page of events, newest first, and the cursor of the next.
func (db *DB) Events(ctx context.Context, f keep.EventFilter, p keep.Page) ([]keep.Event, string, error) {
	return list(ctx, db, eventLists, f, p, output[keep.Event]{eventColumns, bareEvents, scanEventAt})
}

// eventsSQL is the statement of Events.
func eventsSQL(q *query, f keep.EventFilter, c cut, columns string) string {
	if f.Input != "" {
		input := q.arg(f.Input)
		filter(q, stored.SelectEvents, f, c)
		return `SELECT ` + columns + ` FROM input
			  JOIN event_cause c ON c.workflow = input.workflow AND c.input = input.id
			  JOIN event ON event.workflow = c.workflow AND event.topic = c.topic AND event.n = c.event` +
			q.conditions("input.id = "+input) + q.newest("event", c)
	}
	if f.Workflow == "" && f.Topic == "" && (f.Status == "" || f.Status == keep.EventConsumed) || q.looksUp() {
		filter(q, stored.SelectEvents, f, c)
		return `SELECT ` + columns + ` FROM event` + q.conditions() + q.newest("event", c)
	}
	return eventsOfTopics(q, f, c, columns)
}

// eventsOfTopics merges the newest events of each topic. Few are reserved.
func eventsOfTopics(q *query, f keep.EventFilter, c cut, columns string) string {
	var topics query
	q.where = append(q.where, "event.workflow = topic.workflow")
	q.made("event", stored.SelectEvents.Filter(f))
	q.after("event", c)
	topics.args = q.args
	and(&topics, "topic.workflow", f.Workflow)
	and(&topics, "topic.name", f.Topic)
	q.args = topics.args
	if f.Status != "" { // constants, so that the index of that status is found
		q.where = append(q.where, "event.status = '"+string(eventStatus(f.Status))+"'", "event.topic = topic.name")
	}
	var span string
	switch f.Status {
	case keep.EventPending:
		span = q.span("event", "reserved_by", "''", c)
	case keep.EventReserved:
		span = "event.reserved_by > ''"
	default:
		span = q.span("event", "topic", "topic.name", c)
	}
	newest := `SELECT * FROM event` + q.conditions(span) + q.newest("event", c)
	return `SELECT ` + columns + ` FROM topic, LATERAL (` + newest + `) event` + topics.conditions() + q.newest("event", c)
}

// eventStatus returns what is stored of a status that is one, for a statement's text: "none" otherwise.
func eventStatus(s keep.EventStatus) keep.EventStatus {
	if s == keep.EventReserved {
		return keep.EventPending
	}
	for _, known := range keep.EventStatuses() {
		if s == known {
			return known
		}
	}
	return "none"
}

var (
	inputLists = lister[keep.InputFilter, keep.InputStatus]{stored.SelectInputs, inputsSQL, nil}
	itemLists  = lister[keep.ItemFilter, keep.ItemStatus]{stored.SelectItems, itemsSQL, nil}
)

// Inputs returns a page of inputs, newest first, and the cursor of the next.
func (db *DB) Inputs(ctx context.Context, f keep.InputFilter, p keep.Page) ([]keep.Input, string, error) {
	return list(ctx, db, inputLists, f, p, output[keep.Input]{inputColumns, inputColumns, scanInputAt})
}

// inputsSQL is the statement of Inputs.
func inputsSQL(q *query, f keep.InputFilter, c cut, columns string) string {
	return byStatus(stored.SelectInputs, q, f, c, columns)
}

// Items returns a page of items, newest first, and the cursor of the next.
func (db *DB) Items(ctx context.Context, f keep.ItemFilter, p keep.Page) ([]keep.Item, string, error) {
	return list(ctx, db, itemLists, f, p, output[keep.Item]{itemColumns, itemColumns, scanItemAt})
}

// itemsSQL is the statement of Items.
func itemsSQL(q *query, f keep.ItemFilter, c cut, columns string) string {
	return byStatus(stored.SelectItems, q, f, c, columns)
}

// byStatus is the statement of a list of rows that have a status, which may be a rare one.
func byStatus[F any, S ~string](l stored.Selection[F, S], q *query, f F, c cut, columns string) string {
	if l.Only(f) != "" && !q.looksUp() {
		q.spanned = l.State
	}
	filter(q, l, f, c)
	switch {
	case q.spanned != "" && l.Workflow(f) == "":
		return perWorkflow(l.Table, l.State, q.arg(l.Only(f)), "''", columns, q, c)
	case q.spanned != "":
		return q.spanOf(l.Table, l.State, q.arg(l.Only(f)), columns, c)
	case l.Workflow(f) != "" && !q.looksUp():
		return perName(l.Table, l.State, columns, q, "$1", c)
	}
	return `SELECT ` + columns + ` FROM ` + l.Table + q.conditions() + q.newest(l.Table, c)
}

var escalationLists = lister[keep.EscalationFilter, keep.EscalationKind]{stored.SelectEscalations, escalationsSQL, nil}

// Escalations returns a page of questions, newest first, and the cursor of the next.
func (db *DB) Escalations(ctx context.Context, f keep.EscalationFilter, p keep.Page) ([]keep.Escalation, string, error) {
	return list(ctx, db, escalationLists, f, p, output[keep.Escalation]{escalationColumns, escalationColumns, scanEscalationAt})
}

// escalationsSQL is the statement of Escalations.
func escalationsSQL(q *query, f keep.EscalationFilter, c cut, columns string) string {
	switch {
	case f.Workflow == "" || f.Run != "" || f.Open:
	case f.Item != "":
		q.spanned = "item"
	default:
		q.spanned = "workflow"
	}
	filter(q, stored.SelectEscalations, f, c)
	switch q.spanned {
	case "item":
		q.where = append(q.where, "escalation.item <> ''")
		return q.spanOf("escalation", "item", q.arg(f.Item), columns, c)
	case "workflow":
		return q.spanOf("escalation", "workflow", q.arg(f.Workflow), columns, c)
	}
	return `SELECT ` + columns + ` FROM escalation` + q.conditions() + q.newest("escalation", c)
}
