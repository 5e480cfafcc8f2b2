package sqlite

import (
	"context"
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
		kind:   l.Kind,
		rows:   `SELECT ` + columns + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN ` + l.Table + ` ON ` + numberOf(l.Table) + ` = value`,
		scan:   scan,
		from:   func(ctx context.Context, v *view, c cut) ([]stream, error) { return l.streams(ctx, v, f, c) },
		text:   l.search(f),
		within: func(ctx context.Context, v *view, c cut) (cut, error) { return l.within(ctx, v, f, c) },
	})
}

// within limits a cut to the rows that were made in the period of a filter, or little before
// or after: restOf looks at the time of each.
func (l lister[F, S]) within(ctx context.Context, v *view, f F, c cut) (cut, error) {
	filter := l.Filter(f)
	first := func(made int64) (int64, error) {
		return one(ctx, v, "row", "", scanNumber, stored.FirstMade(l.Table, numberOf(l.Table), "?1"), made)
	}
	if filter.Since != 0 {
		n, err := first(filter.Since - stored.Disorder)
		if err != nil {
			return c, err
		}
		c.from = n
	}
	if filter.Until != 0 {
		n, err := first(filter.Until + stored.Disorder)
		if err != nil {
			return c, err
		}
		c.before = min(c.before, n)
	}
	return c, nil
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

// restOf returns the conditions of a filter and a cut, for rows that a stream found by one
// of them. Their arguments are the first of a statement: see filterArgs.
func restOf[F any, S ~string](l stored.Selection[F, S]) string {
	var b strings.Builder
	n := 0
	and := func(condition string) { // ?1 in it is the next argument
		n++
		b.WriteString("\n\t\t   AND " + strings.ReplaceAll(condition, "?1", "?"+strconv.Itoa(n)))
	}
	for _, column := range l.Columns {
		and("(?1 = '' OR " + l.Compared(column) + " = ?1)")
	}
	if l.Open != "" {
		and("(?1 = 0 OR " + l.Open + ")")
	}
	if l.Closed != "" {
		and("(?1 = 0 OR " + l.Closed + ")")
	}
	if l.Stopped != nil {
		of := l.Table + ".error, '$."
		and("(?1 = '' OR " + l.Table + "." + l.State + " IN (" + stored.List(l.Stopped...) + ") AND ?1 IN (json_extract(" + of + "class'), json_extract(" + of + "code')))")
	}
	and("(?1 = 0 OR " + l.Table + ".created_at >= ?1)")
	and("(?1 = 0 OR " + l.Table + ".created_at < ?1)")
	and(l.Table + "." + numberOf(l.Table) + " >= ?1")
	and(l.Table + "." + numberOf(l.Table) + " < ?1")
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
	if l.Closed != "" {
		args = append(args, filter.Closed)
	}
	if l.Stopped != nil {
		args = append(args, filter.Error)
	}
	args = append(args, filter.Since, filter.Until, c.from, c.before, c.limit)
	return append(args, more...)
}

// namesOf names the arguments of statements, each after a space: the columns of a selection, :limit, and :a, :b
// and :c for those that are more.
func namesOf[F any, S ~string](l stored.Selection[F, S]) *strings.Replacer {
	var pairs []string
	for i, column := range l.Columns {
		pairs = append(pairs, " :"+column, " ?"+strconv.Itoa(i+1))
	}
	limit := len(filterArgs(l, *new(F), everything))
	for i, name := range []string{" :limit", " :a", " :b", " :c"} { // and not what is in the name of a state, as in 'paused:approval'
		pairs = append(pairs, name, " ?"+strconv.Itoa(limit+i))
	}
	return strings.NewReplacer(pairs...)
}

// stoppedStreams are those of an error: of each state that a filter allows and in which rows
// have one, by of the filter with that state.
func stoppedStreams[F any, S ~string](l stored.Selection[F, S], f F, by func(S) stream) (list []stream) {
	for _, s := range l.Stopped {
		if only := l.Only(f); only == "" || only == s {
			list = append(list, by(s))
		}
	}
	return list
}

var (
	runRest  = restOf(stored.SelectRuns)
	runNames = namesOf(stored.SelectRuns)
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
	newest := runRest + ` ORDER BY n DESC LIMIT :limit`
	by := func(text string) stream {
		return stream{text: runNames.Replace(text), args: filterArgs(stored.SelectRuns, f, c, f.Chain)}
	}
	stopped := func(s keep.RunStatus) stream {
		f.Status = s
		return by(`
			SELECT n FROM run INDEXED BY run_by_status
			 WHERE status = :status AND status NOT IN ('active', 'committed') AND :a = ''` + newest)
	}
	switch {
	case f.Chain != "": // as many as it has attempts
		return []stream{
			by(`SELECT n FROM run WHERE id = :a AND chain = :a AND :limit > 0` + runRest),
			by(`SELECT n FROM run INDEXED BY run_by_chain WHERE chain = :a AND chain <> id AND :limit > 0` + runRest),
		}, nil
	case f.Open, f.Status == keep.StatusActive: // at most one of each workflow
		return []stream{by(`SELECT n FROM run INDEXED BY run_open WHERE closed = 0 AND :limit > 0 AND :a = ''` + runRest)}, nil
	case f.Error != "":
		return stoppedStreams(stored.SelectRuns, f, stopped), nil
	case f.Status != "" && f.Status != keep.StatusCommitted:
		return []stream{stopped(f.Status)}, nil
	case f.Workflow == "":
		return []stream{by(`SELECT n FROM run NOT INDEXED WHERE :a = ''` + newest)}, nil
	}
	s := by(`
		WITH RECURSIVE bucket (b) AS (SELECT :b UNION ALL SELECT b + 1 FROM bucket WHERE b < :c)
		SELECT n FROM bucket CROSS JOIN run INDEXED BY run_by_handler
		 WHERE n >> 9 = b AND workflow = :workflow AND :limit > 0 AND :a = ''` + runRest)
	s.last = `SELECT ifnull(max(n), 0) FROM run`
	return []stream{s}, nil
}

var (
	mutationRest  = restOf(stored.SelectMutations)
	mutationNames = namesOf(stored.SelectMutations)
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
	newest := mutationRest + ` ORDER BY n DESC LIMIT :limit`
	by := func(text string) stream {
		return stream{text: mutationNames.Replace(text), args: filterArgs(stored.SelectMutations, f, c, f.Input)}
	}
	stopped := func(s keep.MutationState) stream {
		f.State = s
		return by(`
			SELECT n FROM mutation INDEXED BY mutation_by_state
			 WHERE state = :state AND state <> 'applied' AND :a = ''` + newest)
	}
	switch {
	case f.Input != "": // as many as its events were tried
		var streams []stream
		for _, t := range triedFor(":a") {
			for _, from := range t.runs() {
				streams = append(streams, by(`SELECT mutation.n FROM `+from+`
				  CROSS JOIN mutation INDEXED BY mutation_by_run ON mutation.run = run.id
				 WHERE `+t.where+` AND :limit > 0`+mutationRest))
			}
		}
		return streams, nil
	case f.Run != "":
		return []stream{by(`SELECT n FROM mutation INDEXED BY mutation_by_run WHERE run = :run AND :a = ''` + newest)}, nil
	case f.Item != "" && f.Workflow != "":
		return []stream{by(`
			SELECT n FROM mutation INDEXED BY mutation_by_item
			 WHERE workflow = :workflow AND item = :item AND item <> '' AND :a = ''` + newest)}, nil
	case f.Error != "":
		return stoppedStreams(stored.SelectMutations, f, stopped), nil
	case f.State != "" && f.State != keep.Applied:
		return []stream{stopped(f.State)}, nil
	case f.Workflow == "":
		return []stream{by(`SELECT n FROM mutation NOT INDEXED WHERE :a = ''` + newest)}, nil
	}
	s := by(`
		WITH RECURSIVE bucket (b) AS (SELECT :b UNION ALL SELECT b + 1 FROM bucket WHERE b < :c)
		SELECT n FROM bucket CROSS JOIN mutation INDEXED BY mutation_by_tool
		 WHERE n >> 9 = b AND workflow = :workflow AND :limit > 0 AND :a = ''` + mutationRest)
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
	eventNames = namesOf(stored.SelectEvents)
	eventLists = lister[keep.EventFilter, keep.EventStatus]{stored.SelectEvents, eventStreams, &searchedEvents, nil}
)

// Events returns a page of events, newest first, and the cursor of the next.
func (db *DB) Events(ctx context.Context, f keep.EventFilter, p keep.Page) ([]keep.Event, string, error) {
	return list(ctx, db, eventLists, f, p, stored.Events, scanEvent)
}

// eventStreams finds events by their input, by a status that is not the usual
// one, or by their workflow.
func eventStreams(ctx context.Context, v *view, f keep.EventFilter, c cut) ([]stream, error) {
	by := func(text string, more ...any) stream {
		return stream{text: eventNames.Replace(text), args: filterArgs(stored.SelectEvents, f, c, more...)}
	}
	switch {
	case f.Input != "":
		return []stream{by(`
			SELECT seq FROM event_cause CROSS JOIN event ON seq = event
			 WHERE input = :a`+eventRest+` ORDER BY event DESC LIMIT :limit`, f.Input)}, nil
	case f.Status != "" && f.Status != keep.EventConsumed:
		return topicStreams(ctx, v, f, by)
	case f.Workflow == "":
		return []stream{by(`SELECT seq FROM event NOT INDEXED WHERE TRUE` + eventRest + ` ORDER BY seq DESC LIMIT :limit`)}, nil
	}
	s := by(`
		WITH RECURSIVE bucket (b) AS (SELECT :a UNION ALL SELECT b + 1 FROM bucket WHERE b < :b)
		SELECT seq FROM bucket CROSS JOIN event INDEXED BY event_by_topic
		 WHERE seq >> 9 = b AND workflow = :workflow AND :limit > 0` + eventRest)
	s.last = `SELECT ifnull(max(seq), 0) FROM event`
	return []stream{s}, nil
}

// topicStreams finds events that are not consumed, topic by topic. Reserved events are
// few: one run of each workflow holds them.
func topicStreams(ctx context.Context, v *view, f keep.EventFilter, by func(text string, more ...any) stream) ([]stream, error) {
	statuses := map[keep.EventStatus]string{
		keep.EventPending: `SELECT seq FROM event INDEXED BY event_free
			 WHERE workflow = :a AND topic = :b AND reserved_by = '' AND status = 'pending'` + eventRest + `
			 ORDER BY seq DESC LIMIT :limit`,
		keep.EventReserved: `SELECT seq FROM event INDEXED BY event_reserved
			 WHERE workflow = :a AND topic = :b AND reserved_by <> '' AND status = 'pending' AND :limit > 0` + eventRest,
		keep.EventSkipped: `SELECT seq FROM event INDEXED BY event_skipped
			 WHERE workflow = :a AND topic = :b AND status = 'skipped'` + eventRest + `
			 ORDER BY seq DESC LIMIT :limit`,
	}
	topics, err := rows(ctx, v, func(row scanner) (t [2]string, err error) {
		err = row.Scan(&t[0], &t[1])
		return t, err
	}, `SELECT workflow, name FROM topic WHERE (?1 = '' OR workflow = ?1) AND (?2 = '' OR name = ?2)`, f.Workflow, f.Topic)
	var list []stream
	for _, t := range topics {
		if text, known := statuses[f.Status]; known {
			list = append(list, by(text, t[0], t[1]))
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
	names, rest := namesOf(l), restOf(l)
	all := names.Replace(`SELECT n FROM ` + l.Table + ` NOT INDEXED WHERE TRUE` + rest + ` ORDER BY n DESC LIMIT :limit`)
	one := names.Replace(`
		SELECT n FROM ` + l.Table + ` INDEXED BY ` + l.Table + `_by_status
		 WHERE workflow = :a AND status = :b` + rest + ` ORDER BY n DESC LIMIT :limit`)
	return func(ctx context.Context, v *view, f F, c cut) (list []stream, err error) {
		only := l.Only(f)
		if l.Workflow(f) == "" && only == "" {
			return []stream{{text: all, args: filterArgs(l, f, c)}}, nil
		}
		workflows, err := workflowsOf(ctx, v, l.Table, l.Workflow(f))
		for _, name := range workflows {
			for _, s := range l.States {
				if only == "" || s == only {
					list = append(list, stream{text: one, args: filterArgs(l, f, c, name, string(s))})
				}
			}
		}
		return list, err
	}
}

var (
	escalationRest  = restOf(stored.SelectEscalations)
	escalationNames = namesOf(stored.SelectEscalations)
	escalationLists = lister[keep.EscalationFilter, keep.EscalationKind]{stored.SelectEscalations, escalationStreams, nil,
		func(keep.EscalationKind) string { return "escalation_by_kind WHERE kind = ?3" }}
)

// Escalations returns a page of questions, newest first, and the cursor of the next.
func (db *DB) Escalations(ctx context.Context, f keep.EscalationFilter, p keep.Page) ([]keep.Escalation, string, error) {
	return list(ctx, db, escalationLists, f, p, stored.Escalations, scanEscalation)
}

// escalationStreams finds questions by their run, the few that are open, by item or by
// workflow.
func escalationStreams(_ context.Context, _ *view, f keep.EscalationFilter, c cut) ([]stream, error) {
	var by string
	switch {
	case f.Run != "":
		by = `INDEXED BY escalation_by_run WHERE run = :run`
	case f.Open: // few: each one stops something
		by = `INDEXED BY escalation_open WHERE closed_at = 0`
	case f.Item != "" && f.Workflow != "":
		by = `INDEXED BY escalation_by_item WHERE workflow = :workflow AND item = :item AND item <> ''`
	case f.Workflow != "":
		by = `INDEXED BY escalation_by_workflow WHERE workflow = :workflow`
	default:
		by = `NOT INDEXED WHERE TRUE`
	}
	return []stream{{
		text: escalationNames.Replace(`SELECT n FROM escalation ` + by + escalationRest + ` ORDER BY n DESC LIMIT :limit`),
		args: filterArgs(stored.SelectEscalations, f, c),
	}}, nil
}
