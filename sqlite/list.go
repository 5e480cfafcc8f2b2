package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// Runs returns a page of runs, newest first, and the cursor of the next.
func (db *DB) Runs(ctx context.Context, f keep.RunFilter, p keep.Page) ([]keep.Run, string, error) {
	return page(ctx, db, p, listing[keep.Run]{
		kind: "r",
		rows: `SELECT ` + bare(p, runColumns, "prepared") + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN run ON n = value`,
		scan: scanRun,
		from: func(ctx context.Context, v *view, c cut) ([]stream, error) { return runStreams(ctx, v, f, c) },
	})
}

// bare returns columns, with NULL for those that a bare page leaves out: SQLite
// then doesn't read them.
func bare(p keep.Page, columns string, large ...string) string {
	if p.Bare {
		for _, name := range large {
			columns = strings.Replace(columns, ", "+name, ", NULL", 1)
		}
	}
	return columns
}

// runStreams finds runs by what is most selective: words, a chain, the few that
// are open or ended badly, then a workflow.
func runStreams(ctx context.Context, v *view, f keep.RunFilter, c cut) ([]stream, error) {
	const rest = `
		   AND (?1 = '' OR workflow = ?1) AND (?2 = '' OR handler = ?2) AND (?3 = '' OR status = ?3)
		   AND (?4 = 0 OR closed = 0) AND n < ?5`
	const newest = rest + ` ORDER BY n DESC LIMIT ?6`
	by := func(text string) stream {
		return stream{text: text, args: []any{f.Workflow, f.Handler, f.Status, f.Open, c.before, c.limit, f.Chain}}
	}
	switch {
	case len(keep.SearchWords(f.Text)) > 0:
		s := search{table: "run", text: f.Text, workflow: string(f.Workflow), name: string(f.Handler),
			where: `?6 > 0 AND (?7 = '' OR chain = ?7)` + rest, args: by("").args}
		if rareRuns(f) {
			s.rare = func(c cut) ([]stream, error) { f.Text = ""; return runStreams(ctx, v, f, c) }
		}
		return []stream{s.stream(c)}, nil
	case f.Chain != "": // as many as it has attempts
		return []stream{
			by(`SELECT n FROM run WHERE id = ?7 AND chain = ?7 AND ?6 > 0` + rest),
			by(`SELECT n FROM run INDEXED BY run_by_chain WHERE chain = ?7 AND chain <> id AND ?6 > 0` + rest),
		}, nil
	case f.Open, f.Status == keep.StatusActive: // at most one of each workflow
		return []stream{by(`SELECT n FROM run INDEXED BY run_open WHERE closed = 0 AND ?6 > 0 AND ?7 = ''` + rest)}, nil
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
		 WHERE n >> 9 = b AND workflow = ?1 AND ?6 > 0 AND ?7 = ''` + rest)
	s.last = `SELECT ifnull(max(n), 0) FROM run`
	return []stream{s}, nil
}

// rareRuns reports whether a filter selects few of all runs.
func rareRuns(f keep.RunFilter) bool {
	return f.Chain != "" || f.Open || f.Status != "" && f.Status != keep.StatusCommitted
}

// Mutations returns a page of ledger records, newest first, and the cursor of
// the next.
func (db *DB) Mutations(ctx context.Context, f keep.MutationFilter, p keep.Page) ([]keep.Mutation, string, error) {
	return page(ctx, db, p, listing[keep.Mutation]{
		kind: "m",
		rows: `SELECT ` + bare(p, mutationColumns, "identity", "payload", "result") + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN mutation ON n = value`,
		scan: scanMutation,
		from: func(ctx context.Context, v *view, c cut) ([]stream, error) { return mutationStreams(ctx, v, f, c) },
	})
}

// mutationStreams finds records by what is most selective: words, an input, a
// run, an item, a state that is not the usual one, then a workflow.
func mutationStreams(ctx context.Context, v *view, f keep.MutationFilter, c cut) ([]stream, error) {
	const rest = `
		   AND (?1 = '' OR mutation.workflow = ?1) AND (?2 = '' OR state = ?2) AND (?3 = '' OR tool = ?3)
		   AND (?4 = '' OR mutation.run = ?4) AND (?5 = '' OR item = ?5) AND mutation.n < ?6`
	const newest = rest + ` ORDER BY n DESC LIMIT ?7`
	by := func(text string) stream {
		return stream{text: text, args: []any{f.Workflow, f.State, f.Tool, f.Run, f.Item, c.before, c.limit, f.Input}}
	}
	switch {
	case len(keep.SearchWords(f.Text)) > 0:
		s := search{table: "mutation", text: f.Text, workflow: string(f.Workflow), name: string(f.Tool),
			where: `?7 > 0 AND ?8 = ''` + rest, args: by("").args}
		if rareMutations(f) {
			s.rare = func(c cut) ([]stream, error) { f.Text = ""; return mutationStreams(ctx, v, f, c) }
		}
		return []stream{s.stream(c)}, nil
	case f.Input != "": // as many as its events were tried
		return []stream{
			by(`SELECT mutation.n FROM event_cause CROSS JOIN event ON seq = event
				  CROSS JOIN run ON run.id = reserved_by AND chain = reserved_by
				  CROSS JOIN mutation INDEXED BY mutation_by_run ON mutation.run = run.id
				 WHERE input = ?8 AND reserved_by <> '' AND ?7 > 0` + rest),
			by(`SELECT mutation.n FROM event_cause CROSS JOIN event ON seq = event
				  CROSS JOIN run INDEXED BY run_by_chain ON chain = reserved_by AND chain <> run.id
				  CROSS JOIN mutation INDEXED BY mutation_by_run ON mutation.run = run.id
				 WHERE input = ?8 AND reserved_by <> '' AND ?7 > 0` + rest),
		}, nil
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
		 WHERE n >> 9 = b AND workflow = ?1 AND ?7 > 0 AND ?8 = ''` + rest)
	s.last = `SELECT ifnull(max(n), 0) FROM mutation`
	return []stream{s}, nil
}

// rareMutations reports whether a filter selects few of all records.
func rareMutations(f keep.MutationFilter) bool {
	return f.Input != "" || f.Run != "" || f.Item != "" && f.Workflow != "" || f.State != "" && f.State != keep.Applied
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

// Events returns a page of events, newest first, and the cursor of the next.
func (db *DB) Events(ctx context.Context, f keep.EventFilter, p keep.Page) ([]keep.Event, string, error) {
	return page(ctx, db, p, listing[keep.Event]{
		kind: "e",
		rows: `SELECT ` + bare(p, eventColumns, "payload") + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN event ON seq = value`,
		scan: scanEvent,
		from: func(ctx context.Context, v *view, c cut) ([]stream, error) { return eventStreams(ctx, v, f, c) },
	})
}

// eventStreams finds events by their input, by a status that is not the usual
// one, or by their workflow.
func eventStreams(ctx context.Context, v *view, f keep.EventFilter, c cut) ([]stream, error) {
	const rest = `
		   AND (?1 = '' OR workflow = ?1) AND (?2 = '' OR topic = ?2) AND (?3 = '' OR status = ?3) AND seq < ?4`
	args := []any{f.Workflow, f.Topic, f.Status, c.before, c.limit}
	switch {
	case f.Input != "":
		return []stream{{text: `
			SELECT seq FROM event_cause CROSS JOIN event ON seq = event
			 WHERE input = ?6 AND event < ?4` + rest + ` ORDER BY event DESC LIMIT ?5`, args: append(args, f.Input)}}, nil
	case f.Status == keep.EventPending || f.Status == keep.EventSkipped:
		return topicStreams(ctx, v, f, args)
	case f.Workflow == "":
		return []stream{{text: `SELECT seq FROM event NOT INDEXED WHERE seq > 0` + rest + ` ORDER BY seq DESC LIMIT ?5`, args: args}}, nil
	}
	return []stream{{text: `
		WITH RECURSIVE bucket (b) AS (SELECT ?6 UNION ALL SELECT b + 1 FROM bucket WHERE b < ?7)
		SELECT seq FROM bucket CROSS JOIN event INDEXED BY event_by_topic
		 WHERE seq >> 9 = b AND workflow = ?1 AND ?5 > 0` + rest,
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
	topics, err := rows(ctx, v, func(row *sql.Rows) (t [2]string, err error) {
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
	return page(ctx, db, p, listing[keep.Input]{
		kind: "i",
		rows: `SELECT ` + inputColumns + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN input ON n = value`,
		scan: scanInput,
		from: func(ctx context.Context, v *view, c cut) ([]stream, error) { return inputStreams(ctx, v, f, c) },
	})
}

// inputWorkflows names the workflows that have inputs.
const inputWorkflows = `
	WITH RECURSIVE next (name) AS (
		SELECT min(workflow) FROM input INDEXED BY input_by_status
		UNION ALL
		SELECT (SELECT min(workflow) FROM input INDEXED BY input_by_status WHERE workflow > name)
		  FROM next WHERE name IS NOT NULL)
	SELECT name FROM next WHERE name IS NOT NULL`

// inputStreams finds inputs by words, or by workflow and status.
func inputStreams(ctx context.Context, v *view, f keep.InputFilter, c cut) (list []stream, err error) {
	args := []any{f.Workflow, f.Status, c.before, c.limit}
	switch {
	case len(keep.SearchWords(f.Text)) > 0:
		s := search{table: "input", text: f.Text, workflow: string(f.Workflow),
			where: `(?1 = '' OR workflow = ?1) AND (?2 = '' OR status = ?2) AND n < ?3 AND ?4 > 0`, args: args}
		if f.Status != "" && f.Status != keep.InputDone {
			s.rare = func(c cut) ([]stream, error) { f.Text = ""; return inputStreams(ctx, v, f, c) }
		}
		return []stream{s.stream(c)}, nil
	case f.Workflow == "" && f.Status == "":
		return []stream{{text: `SELECT n FROM input WHERE n < ? ORDER BY n DESC LIMIT ?`, args: args[2:]}}, nil
	}
	pairs, err := statusPairs(ctx, v, string(f.Workflow), f.Status, keep.InputStatuses(), inputWorkflows)
	for _, p := range pairs {
		list = append(list, stream{text: `
			SELECT n FROM input INDEXED BY input_by_status
			 WHERE workflow = ? AND status = ? AND n < ? ORDER BY n DESC LIMIT ?`,
			args: []any{p[0], p[1], c.before, c.limit}})
	}
	return list, err
}

// Items returns a page of items, newest first, and the cursor of the next.
func (db *DB) Items(ctx context.Context, f keep.ItemFilter, p keep.Page) ([]keep.Item, string, error) {
	return page(ctx, db, p, listing[keep.Item]{
		kind: "t",
		rows: `SELECT ` + itemColumns + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN item ON n = value`,
		scan: scanItem,
		from: func(ctx context.Context, v *view, c cut) ([]stream, error) { return itemStreams(ctx, v, f, c) },
	})
}

// itemWorkflows names the workflows that have items.
const itemWorkflows = `
	WITH RECURSIVE next (name) AS (
		SELECT min(workflow) FROM item INDEXED BY item_by_status
		UNION ALL
		SELECT (SELECT min(workflow) FROM item INDEXED BY item_by_status WHERE workflow > name)
		  FROM next WHERE name IS NOT NULL)
	SELECT name FROM next WHERE name IS NOT NULL`

// itemStreams finds items by words, or by workflow and status.
func itemStreams(ctx context.Context, v *view, f keep.ItemFilter, c cut) (list []stream, err error) {
	args := []any{f.Workflow, f.Status, c.before, c.limit}
	switch {
	case len(keep.SearchWords(f.Text)) > 0:
		s := search{table: "item", text: f.Text, workflow: string(f.Workflow),
			where: `(?1 = '' OR workflow = ?1) AND (?2 = '' OR status = ?2) AND n < ?3 AND ?4 > 0`, args: args}
		if f.Status != "" && f.Status != keep.ItemDone {
			s.rare = func(c cut) ([]stream, error) { f.Text = ""; return itemStreams(ctx, v, f, c) }
		}
		return []stream{s.stream(c)}, nil
	case f.Workflow == "" && f.Status == "":
		return []stream{{text: `SELECT n FROM item WHERE n < ? ORDER BY n DESC LIMIT ?`, args: args[2:]}}, nil
	}
	pairs, err := statusPairs(ctx, v, string(f.Workflow), f.Status, keep.ItemStatuses(), itemWorkflows)
	for _, p := range pairs {
		list = append(list, stream{text: `
			SELECT n FROM item INDEXED BY item_by_status
			 WHERE workflow = ? AND status = ? AND n < ? ORDER BY n DESC LIMIT ?`,
			args: []any{p[0], p[1], c.before, c.limit}})
	}
	return list, err
}

// statusPairs returns the workflows and statuses that a filter allows.
func statusPairs[S ~string](ctx context.Context, v *view, workflow string, status S, all []S, workflows string) (list [][2]string, err error) {
	names := []string{workflow}
	if workflow == "" {
		if names, err = rows(ctx, v, scanName, workflows); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		for _, s := range all {
			if status == "" || s == status {
				list = append(list, [2]string{name, string(s)})
			}
		}
	}
	return list, nil
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
