package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
	"github.com/keep-run/keep/store/internal/stored"
)

// A lister is how SQLite finds the rows of a list.
type lister[F any, S ~string] struct {
	stored.Selection[F, S]
	streams func(context.Context, *view, F, cut) ([]stream, error) // where their numbers come from
	words   *searchedNoun                                          // finds them by words; nil: nothing does

	// state returns the index and the condition that find the rows in one state, ?3, of any
	// workflow. Nil: an index on the workflow and the status does.
	state func(S) string
}

// list reads a page of the rows of a noun.
func list[T, N, F any, S ~string](ctx context.Context, db *DB, l lister[F, S], f F, p keep.Page, n stored.Noun[N], scan func(scanner) (T, error)) ([]T, string, error) {
	columns := n.Columns("")
	if p.Bare {
		columns = n.Bare("", "NULL")
	}
	return page(ctx, db, p, listing[T]{
		kind: l.Kind,
		rows: `SELECT ` + columns + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN ` + l.Table + ` ON ` + numberOf(l.Table) + ` = value`,
		scan: scan,
		from: func(ctx context.Context, v *view, c cut) ([]stream, error) { return l.streams(ctx, v, f, c) },
		text: l.search(f),
	})
}

// search returns how to find rows by words, or nil.
func (l lister[F, S]) search(f F) *textSearch {
	filter := l.Filter(f)
	terms := search.Terms(filter.Text)
	if len(terms) == 0 {
		return nil
	}
	args := filterArgs(l.Selection, f, everything)
	return &textSearch{
		noun: l.words, terms: terms, workflow: l.Workflow(f), name: l.Value(f, l.Name), few: filter.Few,
		list:  func(ctx context.Context, v *view, c cut) ([]stream, error) { return l.streams(ctx, v, f, c) },
		where: `?` + strconv.Itoa(len(args)) + ` > 0` + restOf(l.Selection), args: args,
	}
}

// restOf returns the conditions of the fields of a filter, for rows that a stream found by
// one of them. They and the cut are the first arguments of a statement.
func restOf[F any, S ~string](l stored.Selection[F, S]) string {
	var b strings.Builder
	for i, column := range l.Columns {
		fmt.Fprintf(&b, "\n\t\t   AND (?%[1]d = '' OR %[2]s.%[3]s = ?%[1]d)", i+1, l.Table, column)
	}
	n := len(l.Columns) + 1
	if l.Open != "" {
		fmt.Fprintf(&b, " AND (?%d = 0 OR %s)", n, l.Open)
		n++
	}
	fmt.Fprintf(&b, " AND %s.%s < ?%d", l.Table, numberOf(l.Table), n)
	return b.String()
}

// filterArgs returns the arguments of restOf, the limit, and then more.
func filterArgs[F any, S ~string](l stored.Selection[F, S], f F, c cut, more ...any) (args []any) {
	filter := l.Filter(f)
	for _, v := range filter.Values {
		args = append(args, v)
	}
	if l.Open != "" {
		args = append(args, filter.Open)
	}
	return append(append(args, c.before, c.limit), more...)
}

var (
	runRest  = restOf(stored.SelectRuns)
	runLists = lister[keep.RunFilter, keep.RunStatus]{stored.SelectRuns, runStreams, &searchedRuns, func(s keep.RunStatus) string {
		if s == keep.StatusActive { // of each lane one is, by law
			return "run_open WHERE closed = 0 AND status = ?3"
		}
		return "run_unusual WHERE status = ?3 AND status NOT IN ('active', 'committed')"
	}}
)

// Runs returns a page of runs, newest first, and the cursor of the next.
func (db *DB) Runs(ctx context.Context, f keep.RunFilter, p keep.Page) ([]keep.Run, string, error) {
	return list(ctx, db, runLists, f, p, stored.Runs, scanRun)
}

// runStreams finds runs by what is most selective: a chain, the few that are open or
// ended badly, then a workflow.
func runStreams(_ context.Context, _ *view, f keep.RunFilter, c cut) ([]stream, error) {
	newest := runRest + ` ORDER BY n DESC LIMIT ?6`
	by := func(text string) stream {
		return stream{text: text, args: filterArgs(stored.SelectRuns, f, c, f.Chain)}
	}
	switch {
	case f.Chain != "": // as many as it has attempts
		return []stream{
			by(`SELECT n FROM run WHERE id = ?7 AND chain = ?7 AND ?6 > 0` + runRest),
			by(`SELECT n FROM run INDEXED BY run_by_chain WHERE chain = ?7 AND chain <> id AND ?6 > 0` + runRest),
		}, nil
	case f.Open, f.Status == keep.StatusActive: // at most one of each workflow
		return []stream{by(`SELECT n FROM run INDEXED BY run_open WHERE closed = 0 AND ?6 > 0 AND ?7 = ''` + runRest)}, nil
	case f.Status != "" && f.Status != keep.StatusCommitted:
		return []stream{by(`
			SELECT n FROM run INDEXED BY run_by_status
			 WHERE status = ?3 AND status NOT IN ('active', 'committed') AND ?7 = ''` + newest)}, nil
	case f.Workflow == "":
		return []stream{by(`SELECT n FROM run NOT INDEXED WHERE n > 0 AND ?7 = ''` + newest)}, nil
	}
	s := by(`
		WITH RECURSIVE bucket (b) AS (SELECT ?8 UNION ALL SELECT b + 1 FROM bucket WHERE b < ?9)
		SELECT n FROM bucket CROSS JOIN run INDEXED BY run_by_handler
		 WHERE n >> 9 = b AND workflow = ?1 AND ?6 > 0 AND ?7 = ''` + runRest)
	s.last = `SELECT ifnull(max(n), 0) FROM run`
	return []stream{s}, nil
}

var (
	mutationRest  = restOf(stored.SelectMutations)
	mutationLists = lister[keep.MutationFilter, keep.MutationState]{stored.SelectMutations, mutationStreams, &searchedMutations, func(s keep.MutationState) string {
		if s == keep.InFlight { // few: each one is a call that is out
			return "mutation_by_state WHERE state = ?3 AND state <> 'applied'"
		}
		return "mutation_unusual WHERE state = ?3 AND state NOT IN ('applied', 'in_flight')"
	}}
)

// Mutations returns a page of ledger records, newest first, and the cursor of the next.
func (db *DB) Mutations(ctx context.Context, f keep.MutationFilter, p keep.Page) ([]keep.Mutation, string, error) {
	return list(ctx, db, mutationLists, f, p, stored.Mutations, scanMutation)
}

// mutationStreams finds records by what is most selective: an input, a run, an item, a
// state that is not the usual one, then a workflow.
func mutationStreams(_ context.Context, _ *view, f keep.MutationFilter, c cut) ([]stream, error) {
	newest := mutationRest + ` ORDER BY n DESC LIMIT ?7`
	by := func(text string) stream {
		return stream{text: text, args: filterArgs(stored.SelectMutations, f, c, f.Input)}
	}
	switch {
	case f.Input != "": // as many as its events were tried
		var streams []stream
		for _, t := range triedFor("?8") {
			for _, from := range t.runs() {
				streams = append(streams, by(`SELECT mutation.n FROM `+from+`
				  CROSS JOIN mutation INDEXED BY mutation_by_run ON mutation.run = run.id
				 WHERE `+t.where+` AND ?7 > 0`+mutationRest))
			}
		}
		return streams, nil
	case f.Run != "":
		return []stream{by(`SELECT n FROM mutation INDEXED BY mutation_by_run WHERE run = ?4 AND ?8 = ''` + newest)}, nil
	case f.Item != "" && f.Workflow != "":
		return []stream{by(`
			SELECT n FROM mutation INDEXED BY mutation_by_item
			 WHERE workflow = ?1 AND item = ?5 AND item <> '' AND ?8 = ''` + newest)}, nil
	case f.State != "" && f.State != keep.Applied:
		return []stream{by(`
			SELECT n FROM mutation INDEXED BY mutation_by_state
			 WHERE state = ?2 AND state <> 'applied' AND ?8 = ''` + newest)}, nil
	case f.Workflow == "":
		return []stream{by(`SELECT n FROM mutation NOT INDEXED WHERE n > 0 AND ?8 = ''` + newest)}, nil
	}
	s := by(`
		WITH RECURSIVE bucket (b) AS (SELECT ?9 UNION ALL SELECT b + 1 FROM bucket WHERE b < ?10)
		SELECT n FROM bucket CROSS JOIN mutation INDEXED BY mutation_by_tool
		 WHERE n >> 9 = b AND workflow = ?1 AND ?7 > 0 AND ?8 = ''` + mutationRest)
	s.last = `SELECT ifnull(max(n), 0) FROM mutation`
	return []stream{s}, nil
}

// Outputs returns the mutations of the runs that reserved events caused by an
// input, oldest first.
func (db *DB) Outputs(ctx context.Context, id keep.InputID) (keys []keep.MutationKey, err error) {
	err = db.snapshot(ctx, func(v *view) error {
		streams, err := mutationStreams(ctx, v, keep.MutationFilter{Input: id}, everything)
		if err != nil {
			return err
		}
		numbers, err := newest(ctx, v, streams, everything)
		for _, n := range slices.Backward(numbers) {
			key, err := one(ctx, v, "mutation", "", scanName, `SELECT key FROM mutation WHERE n = ?`, n)
			if err != nil {
				return err
			}
			keys = append(keys, keep.MutationKey(key))
		}
		return err
	})
	return keys, err
}

var (
	eventRest  = restOf(stored.SelectEvents)
	eventLists = lister[keep.EventFilter, keep.EventStatus]{stored.SelectEvents, eventStreams, &searchedEvents, nil}
)

// Events returns a page of events, newest first, and the cursor of the next.
func (db *DB) Events(ctx context.Context, f keep.EventFilter, p keep.Page) ([]keep.Event, string, error) {
	return list(ctx, db, eventLists, f, p, stored.Events, scanEvent)
}

// eventStreams finds events by their input, by a status that is not the usual
// one, or by their workflow.
func eventStreams(ctx context.Context, v *view, f keep.EventFilter, c cut) ([]stream, error) {
	args := filterArgs(stored.SelectEvents, f, c)
	switch {
	case f.Input != "":
		return []stream{{text: `
			SELECT seq FROM event_cause CROSS JOIN event ON seq = event
			 WHERE input = ?6 AND event < ?4` + eventRest + ` ORDER BY event DESC LIMIT ?5`, args: append(args, f.Input)}}, nil
	case f.Status == keep.EventPending || f.Status == keep.EventSkipped:
		return topicStreams(ctx, v, f, args)
	case f.Workflow == "":
		return []stream{{text: `SELECT seq FROM event NOT INDEXED WHERE seq > 0` + eventRest + ` ORDER BY seq DESC LIMIT ?5`, args: args}}, nil
	}
	return []stream{{text: `
		WITH RECURSIVE bucket (b) AS (SELECT ?6 UNION ALL SELECT b + 1 FROM bucket WHERE b < ?7)
		SELECT seq FROM bucket CROSS JOIN event INDEXED BY event_by_topic
		 WHERE seq >> 9 = b AND workflow = ?1 AND ?5 > 0` + eventRest,
		args: args,
		last: `SELECT ifnull(max(seq), 0) FROM event`}}, nil
}

// topicStreams finds pending and skipped events, topic by topic. Reserved events
// are few: one run of each workflow holds them.
func topicStreams(ctx context.Context, v *view, f keep.EventFilter, args []any) ([]stream, error) {
	const (
		free = `SELECT seq FROM event INDEXED BY event_pending
			 WHERE workflow = ?6 AND topic = ?7 AND reserved_by = '' AND status = 'pending' AND status = ?3 AND seq < ?4
			 ORDER BY seq DESC LIMIT ?5`
		reserved = `SELECT seq FROM event INDEXED BY event_pending
			 WHERE workflow = ?6 AND topic = ?7 AND reserved_by > '' AND status = 'pending' AND status = ?3 AND seq < ?4 AND ?5 > 0`
		skipped = `SELECT seq FROM event INDEXED BY event_skipped
			 WHERE workflow = ?6 AND topic = ?7 AND status = 'skipped' AND status = ?3 AND seq < ?4
			 ORDER BY seq DESC LIMIT ?5`
	)
	topics, err := rows(ctx, v, func(row scanner) (t [2]string, err error) {
		err = row.Scan(&t[0], &t[1])
		return t, err
	}, `SELECT workflow, name FROM topic WHERE (?1 = '' OR workflow = ?1) AND (?2 = '' OR name = ?2)`, f.Workflow, f.Topic)
	var list []stream
	for _, t := range topics {
		args := append(slices.Clone(args), t[0], t[1])
		if f.Status == keep.EventSkipped {
			list = append(list, stream{text: skipped, args: args})
		} else {
			list = append(list, stream{text: free, args: args}, stream{text: reserved, args: args})
		}
	}
	return list, err
}

var (
	inputLists = lister[keep.InputFilter, keep.InputStatus]{stored.SelectInputs, byStatus(stored.SelectInputs), &searchedInputs, nil}
	itemLists  = lister[keep.ItemFilter, keep.ItemStatus]{stored.SelectItems, byStatus(stored.SelectItems), &searchedItems, nil}
)

// Inputs returns a page of inputs, newest first, and the cursor of the next.
func (db *DB) Inputs(ctx context.Context, f keep.InputFilter, p keep.Page) ([]keep.Input, string, error) {
	return list(ctx, db, inputLists, f, p, stored.Inputs, scanInput)
}

// Items returns a page of items, newest first, and the cursor of the next.
func (db *DB) Items(ctx context.Context, f keep.ItemFilter, p keep.Page) ([]keep.Item, string, error) {
	return list(ctx, db, itemLists, f, p, stored.Items, scanItem)
}

// workflowsOf returns those that a filter allows and that have rows in a table that has an
// index by workflow and status.
func workflowsOf(ctx context.Context, v *view, table string, only keep.WorkflowName) ([]string, error) {
	if only != "" {
		return []string{string(only)}, nil
	}
	first := `SELECT min(workflow) FROM ` + table + ` INDEXED BY ` + table + `_by_status`
	return rows(ctx, v, scanName, `
		WITH RECURSIVE next (name) AS (
			`+first+`
			UNION ALL
			SELECT (`+first+` WHERE workflow > name) FROM next WHERE name IS NOT NULL)
		SELECT name FROM next WHERE name IS NOT NULL`)
}

// byStatus finds rows by workflow and status.
func byStatus[F any, S ~string](l stored.Selection[F, S]) func(context.Context, *view, F, cut) ([]stream, error) {
	return func(ctx context.Context, v *view, f F, c cut) (list []stream, err error) {
		only := l.Only(f)
		if l.Workflow(f) == "" && only == "" {
			return []stream{{text: `SELECT n FROM ` + l.Table + ` WHERE n < ? ORDER BY n DESC LIMIT ?`, args: []any{c.before, c.limit}}}, nil
		}
		names, err := workflowsOf(ctx, v, l.Table, l.Workflow(f))
		for _, name := range names {
			for _, s := range l.States {
				if only == "" || s == only {
					list = append(list, stream{text: `
					SELECT n FROM ` + l.Table + ` INDEXED BY ` + l.Table + `_by_status
					 WHERE workflow = ? AND status = ? AND n < ? ORDER BY n DESC LIMIT ?`,
						args: []any{name, string(s), c.before, c.limit}})
				}
			}
		}
		return list, err
	}
}

var (
	escalationRest  = restOf(stored.SelectEscalations)
	escalationLists = lister[keep.EscalationFilter, keep.EscalationKind]{stored.SelectEscalations, escalationStreams, nil,
		func(keep.EscalationKind) string { return "escalation_by_kind WHERE kind = ?3" }}
)

// Escalations returns a page of questions, newest first, and the cursor of the next.
func (db *DB) Escalations(ctx context.Context, f keep.EscalationFilter, p keep.Page) ([]keep.Escalation, string, error) {
	return list(ctx, db, escalationLists, f, p, stored.Escalations, scanEscalation)
}

// escalationStreams finds questions by their run, the few that are open, or by
// workflow.
func escalationStreams(_ context.Context, _ *view, f keep.EscalationFilter, c cut) ([]stream, error) {
	var by string
	switch {
	case f.Run != "":
		by = `INDEXED BY escalation_by_run WHERE run = ?2`
	case f.Open: // few: each one stops something
		by = `INDEXED BY escalation_open WHERE closed_at = 0`
	case f.Workflow != "":
		by = `INDEXED BY escalation_by_workflow WHERE workflow = ?1`
	default:
		by = `NOT INDEXED WHERE n > 0`
	}
	return []stream{{
		text: `SELECT n FROM escalation ` + by + escalationRest + ` ORDER BY n DESC LIMIT ?5`,
		args: filterArgs(stored.SelectEscalations, f, c),
	}}, nil
}
