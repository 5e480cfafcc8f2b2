package sqlite

import (
	"context"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// Runs returns a page of runs, newest first, and the cursor of the next.
func (db *DB) Runs(ctx context.Context, f keep.RunFilter, p keep.Page) ([]keep.Run, string, error) {
	return page(ctx, db, p, listing[keep.Run]{
		kind: "r",
		rows: `SELECT ` + columnsOf(p, stored.Runs) + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN run ON n = value`,
		scan: scanRun,
		from: func(_ context.Context, _ *view, c cut) ([]stream, error) { return runStreams(f, c), nil },
		text: runSearch(f),
	})
}

// columnsOf returns the columns of a noun that a page has.
func columnsOf[T any](p keep.Page, n stored.Noun[T]) string {
	if p.Bare {
		return n.Bare("", "NULL")
	}
	return n.Columns("")
}

// runRest is what a filter of runs wants beside what its streams look for.
const runRest = `
		   AND (?1 = '' OR workflow = ?1) AND (?2 = '' OR handler = ?2) AND (?3 = '' OR status = ?3)
		   AND (?4 = 0 OR closed = 0) AND n < ?5`

// runArgs are the arguments of the statements about runs.
func runArgs(f keep.RunFilter, c cut) []any {
	return []any{f.Workflow, f.Handler, f.Status, f.Open, c.before, c.limit, f.Chain}
}

// runStreams finds runs by what is most selective: a chain, the few that are open or
// ended badly, then a workflow.
func runStreams(f keep.RunFilter, c cut) []stream {
	const newest = runRest + ` ORDER BY n DESC LIMIT ?6`
	by := func(text string) stream { return stream{text: text, args: runArgs(f, c)} }
	switch {
	case f.Chain != "": // as many as it has attempts
		return []stream{
			by(`SELECT n FROM run WHERE id = ?7 AND chain = ?7 AND ?6 > 0` + runRest),
			by(`SELECT n FROM run INDEXED BY run_by_chain WHERE chain = ?7 AND chain <> id AND ?6 > 0` + runRest),
		}
	case f.Open, f.Status == keep.StatusActive: // at most one of each workflow
		return []stream{by(`SELECT n FROM run INDEXED BY run_open WHERE closed = 0 AND ?6 > 0 AND ?7 = ''` + runRest)}
	case f.Status != "" && f.Status != keep.StatusCommitted:
		return []stream{by(`
			SELECT n FROM run INDEXED BY run_by_status
			 WHERE status = ?3 AND status NOT IN ('active', 'committed') AND ?7 = ''` + newest)}
	case f.Workflow == "":
		return []stream{by(`SELECT n FROM run NOT INDEXED WHERE n > 0 AND ?7 = ''` + newest)}
	}
	s := by(`
		WITH RECURSIVE bucket (b) AS (SELECT ?8 UNION ALL SELECT b + 1 FROM bucket WHERE b < ?9)
		SELECT n FROM bucket CROSS JOIN run INDEXED BY run_by_handler
		 WHERE n >> 9 = b AND workflow = ?1 AND ?6 > 0 AND ?7 = ''` + runRest)
	s.last = `SELECT ifnull(max(n), 0) FROM run`
	return []stream{s}
}

// runSearch returns how to find runs by words, or nil.
func runSearch(f keep.RunFilter) *textSearch {
	return newTextSearch(&searchedRuns, f.Text, textSearch{
		workflow: f.Workflow, name: string(f.Handler), few: f.Chain != "" || f.Open || f.Status == keep.StatusActive,
		list:  func(_ context.Context, _ *view, c cut) ([]stream, error) { return runStreams(f, c), nil },
		where: `?6 > 0 AND (?7 = '' OR chain = ?7)` + runRest, args: runArgs(f, everything),
	})
}

// Mutations returns a page of ledger records, newest first, and the cursor of
// the next.
func (db *DB) Mutations(ctx context.Context, f keep.MutationFilter, p keep.Page) ([]keep.Mutation, string, error) {
	return page(ctx, db, p, listing[keep.Mutation]{
		kind: "m",
		rows: `SELECT ` + columnsOf(p, stored.Mutations) + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN mutation ON n = value`,
		scan: scanMutation,
		from: func(_ context.Context, _ *view, c cut) ([]stream, error) { return mutationStreams(f, c), nil },
		text: mutationSearch(f),
	})
}

// mutationRest is what a filter of records wants beside what its streams look for.
const mutationRest = `
		   AND (?1 = '' OR mutation.workflow = ?1) AND (?2 = '' OR state = ?2) AND (?3 = '' OR tool = ?3)
		   AND (?4 = '' OR mutation.run = ?4) AND (?5 = '' OR item = ?5) AND mutation.n < ?6`

// mutationArgs are the arguments of the statements about records.
func mutationArgs(f keep.MutationFilter, c cut) []any {
	return []any{f.Workflow, f.State, f.Tool, f.Run, f.Item, c.before, c.limit, f.Input}
}

// mutationStreams finds records by what is most selective: an input, a run, an item, a
// state that is not the usual one, then a workflow.
func mutationStreams(f keep.MutationFilter, c cut) []stream {
	const newest = mutationRest + ` ORDER BY n DESC LIMIT ?7`
	by := func(text string) stream { return stream{text: text, args: mutationArgs(f, c)} }
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
		return streams
	case f.Run != "":
		return []stream{by(`SELECT n FROM mutation INDEXED BY mutation_by_run WHERE run = ?4 AND ?8 = ''` + newest)}
	case f.Item != "" && f.Workflow != "":
		return []stream{by(`
			SELECT n FROM mutation INDEXED BY mutation_by_item
			 WHERE workflow = ?1 AND item = ?5 AND item <> '' AND ?8 = ''` + newest)}
	case f.State != "" && f.State != keep.Applied:
		return []stream{by(`
			SELECT n FROM mutation INDEXED BY mutation_by_state
			 WHERE state = ?2 AND state <> 'applied' AND ?8 = ''` + newest)}
	case f.Workflow == "":
		return []stream{by(`SELECT n FROM mutation NOT INDEXED WHERE n > 0 AND ?8 = ''` + newest)}
	}
	s := by(`
		WITH RECURSIVE bucket (b) AS (SELECT ?9 UNION ALL SELECT b + 1 FROM bucket WHERE b < ?10)
		SELECT n FROM bucket CROSS JOIN mutation INDEXED BY mutation_by_tool
		 WHERE n >> 9 = b AND workflow = ?1 AND ?7 > 0 AND ?8 = ''` + mutationRest)
	s.last = `SELECT ifnull(max(n), 0) FROM mutation`
	return []stream{s}
}

// mutationSearch returns how to find records by words, or nil.
func mutationSearch(f keep.MutationFilter) *textSearch {
	return newTextSearch(&searchedMutations, f.Text, textSearch{
		workflow: f.Workflow, name: string(f.Tool), few: f.Input != "" || f.Run != "" || f.Item != "" && f.Workflow != "",
		list:  func(_ context.Context, _ *view, c cut) ([]stream, error) { return mutationStreams(f, c), nil },
		where: `?7 > 0 AND ?8 = ''` + mutationRest, args: mutationArgs(f, everything),
	})
}

// Outputs returns the mutations of the runs that reserved events caused by an
// input, oldest first.
func (db *DB) Outputs(ctx context.Context, id keep.InputID) (keys []keep.MutationKey, err error) {
	err = db.snapshot(ctx, func(v *view) error {
		numbers, err := newest(ctx, v, mutationStreams(keep.MutationFilter{Input: id}, everything), everything)
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

// Events returns a page of events, newest first, and the cursor of the next.
func (db *DB) Events(ctx context.Context, f keep.EventFilter, p keep.Page) ([]keep.Event, string, error) {
	return page(ctx, db, p, listing[keep.Event]{
		kind: "e",
		rows: `SELECT ` + columnsOf(p, stored.Events) + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN event ON seq = value`,
		scan: scanEvent,
		from: func(ctx context.Context, v *view, c cut) ([]stream, error) { return eventStreams(ctx, v, f, c) },
		text: eventSearch(f),
	})
}

// eventRest is what a filter of events wants beside what its streams look for.
const eventRest = `
		   AND (?1 = '' OR workflow = ?1) AND (?2 = '' OR topic = ?2) AND (?3 = '' OR status = ?3) AND seq < ?4`

// eventStreams finds events by their input, by a status that is not the usual
// one, or by their workflow.
func eventStreams(ctx context.Context, v *view, f keep.EventFilter, c cut) ([]stream, error) {
	args := []any{f.Workflow, f.Topic, f.Status, c.before, c.limit}
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

// eventSearch returns how to find events by words, or nil.
func eventSearch(f keep.EventFilter) *textSearch {
	return newTextSearch(&searchedEvents, f.Text, textSearch{
		workflow: f.Workflow, name: string(f.Topic), few: f.Input != "",
		list:  func(ctx context.Context, v *view, c cut) ([]stream, error) { return eventStreams(ctx, v, f, c) },
		where: `?5 > 0` + eventRest, args: []any{f.Workflow, f.Topic, f.Status, everything.before, everything.limit},
	})
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

// Inputs returns a page of inputs, newest first, and the cursor of the next.
func (db *DB) Inputs(ctx context.Context, f keep.InputFilter, p keep.Page) ([]keep.Input, string, error) {
	return pageByStatus(ctx, db, p, "i", inputColumns, scanInput, f.Text, inputsOf(f))
}

// Items returns a page of items, newest first, and the cursor of the next.
func (db *DB) Items(ctx context.Context, f keep.ItemFilter, p keep.Page) ([]keep.Item, string, error) {
	return pageByStatus(ctx, db, p, "t", itemColumns, scanItem, f.Text, itemsOf(f))
}

func inputsOf(f keep.InputFilter) byStatus[keep.InputStatus] {
	return byStatus[keep.InputStatus]{&searchedInputs, f.Workflow, f.Status, keep.InputStatuses()}
}

func itemsOf(f keep.ItemFilter) byStatus[keep.ItemStatus] {
	return byStatus[keep.ItemStatus]{&searchedItems, f.Workflow, f.Status, keep.ItemStatuses()}
}

// byStatus selects rows of a table that has an index by workflow and status.
type byStatus[S ~string] struct {
	noun     *searchedNoun
	workflow keep.WorkflowName
	status   S
	all      []S // every status there is
}

func pageByStatus[T any, S ~string](ctx context.Context, db *DB, p keep.Page, kind, columns string, scan func(scanner) (T, error), text string, f byStatus[S]) ([]T, string, error) {
	return page(ctx, db, p, listing[T]{
		kind: kind,
		rows: `SELECT ` + columns + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN ` + f.noun.table + ` ON n = value`,
		scan: scan,
		from: f.streams,
		text: f.search(text),
	})
}

// workflows returns those that the filter allows and that have rows.
func (f byStatus[S]) workflows(ctx context.Context, v *view) ([]string, error) {
	if f.workflow != "" {
		return []string{string(f.workflow)}, nil
	}
	first := `SELECT min(workflow) FROM ` + f.noun.table + ` INDEXED BY ` + f.noun.table + `_by_status`
	return rows(ctx, v, scanName, `
		WITH RECURSIVE next (name) AS (
			`+first+`
			UNION ALL
			SELECT (`+first+` WHERE workflow > name) FROM next WHERE name IS NOT NULL)
		SELECT name FROM next WHERE name IS NOT NULL`)
}

// streams finds rows by workflow and status.
func (f byStatus[S]) streams(ctx context.Context, v *view, c cut) (list []stream, err error) {
	if f.workflow == "" && f.status == "" {
		return []stream{{text: `SELECT n FROM ` + f.noun.table + ` WHERE n < ? ORDER BY n DESC LIMIT ?`, args: []any{c.before, c.limit}}}, nil
	}
	names, err := f.workflows(ctx, v)
	for _, name := range names {
		for _, s := range f.all {
			if f.status == "" || s == f.status {
				list = append(list, stream{text: `
					SELECT n FROM ` + f.noun.table + ` INDEXED BY ` + f.noun.table + `_by_status
					 WHERE workflow = ? AND status = ? AND n < ? ORDER BY n DESC LIMIT ?`,
					args: []any{name, string(s), c.before, c.limit}})
			}
		}
	}
	return list, err
}

// search returns how to find rows by words, or nil.
func (f byStatus[S]) search(text string) *textSearch {
	return newTextSearch(f.noun, text, textSearch{
		workflow: f.workflow,
		list:     f.streams,
		where:    `(?1 = '' OR workflow = ?1) AND (?2 = '' OR status = ?2) AND n < ?3 AND ?4 > 0`,
		args:     []any{f.workflow, f.status, everything.before, everything.limit},
	})
}

// numbers reads what of the rows in one status.
func (f byStatus[S]) numbers(ctx context.Context, v *view, what string, s S) (all []int64, err error) {
	names, err := f.workflows(ctx, v)
	for _, name := range names {
		found, err := rows(ctx, v, scanNumber, `
			SELECT `+what+` FROM `+f.noun.table+` INDEXED BY `+f.noun.table+`_by_status WHERE workflow = ? AND status = ?`, name, s)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, err
}

// Escalations returns a page of questions, newest first, and the cursor of the
// next.
func (db *DB) Escalations(ctx context.Context, f keep.EscalationFilter, p keep.Page) ([]keep.Escalation, string, error) {
	return page(ctx, db, p, listing[keep.Escalation]{
		kind: "q",
		rows: `SELECT ` + escalationColumns + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN escalation ON n = value`,
		scan: scanEscalation,
		from: func(_ context.Context, _ *view, c cut) ([]stream, error) { return escalationStreams(f, c), nil },
	})
}

// escalationStreams finds questions by their run, the few that are open, or by
// workflow.
func escalationStreams(f keep.EscalationFilter, c cut) []stream {
	const newest = `
		   AND (?1 = '' OR workflow = ?1) AND (?2 = '' OR run = ?2) AND (?3 = 0 OR closed_at = 0) AND n < ?4
		 ORDER BY n DESC LIMIT ?5`
	var text string
	switch {
	case f.Run != "":
		text = `SELECT n FROM escalation INDEXED BY escalation_by_run WHERE run = ?2` + newest
	case f.Open: // few: each one stops something
		text = `SELECT n FROM escalation INDEXED BY escalation_open WHERE closed_at = 0` + newest
	case f.Workflow != "":
		text = `SELECT n FROM escalation INDEXED BY escalation_by_workflow WHERE workflow = ?1` + newest
	default:
		text = `SELECT n FROM escalation NOT INDEXED WHERE n > 0` + newest
	}
	return []stream{{text: text, args: []any{f.Workflow, f.Run, f.Open, c.before, c.limit}}}
}
