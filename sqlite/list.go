package sqlite

import (
	"context"
	"database/sql"

	"github.com/keep-run/keep"
)

// Runs returns a page of runs, newest first, and the cursor of the next.
func (db *DB) Runs(ctx context.Context, f keep.RunFilter, p keep.Page) ([]keep.Run, string, error) {
	return page(ctx, db, p, listing[keep.Run]{
		kind: "r",
		rows: `SELECT ` + runColumns + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN run ON n = value`,
		scan: scanRun,
		from: func(v *view, c cut) ([]stream, error) { return runStreams(ctx, v, f, c) },
	})
}

// runStreams finds runs by what is most selective: a chain, the few that are
// open or not committed, then a handler.
func runStreams(ctx context.Context, v *view, f keep.RunFilter, c cut) ([]stream, error) {
	const rest = `
		   AND (?1 = '' OR workflow = ?1) AND (?2 = '' OR handler = ?2) AND (?3 = '' OR status = ?3)
		   AND (?4 = 0 OR closed = 0) AND n < ?5`
	const newest = rest + ` ORDER BY n DESC LIMIT ?6`
	by := func(text string, extra ...any) stream {
		return stream{text, append([]any{f.Workflow, f.Handler, f.Status, f.Open, c.before, c.limit}, extra...)}
	}
	switch {
	case f.Chain != "":
		return []stream{by(`SELECT n FROM run INDEXED BY run_by_chain WHERE chain = ?7`+newest, f.Chain)}, nil
	case f.Open: // at most one of each workflow
		return []stream{by(`SELECT n FROM run INDEXED BY run_open WHERE closed = 0 AND ?6 > 0` + rest)}, nil
	case f.Status != "" && f.Status != keep.StatusCommitted:
		return []stream{by(`SELECT n FROM run INDEXED BY run_by_status WHERE status = ?3 AND status <> 'committed'` + newest)}, nil
	case f.Workflow == "" && f.Handler == "":
		return []stream{by(`SELECT n FROM run NOT INDEXED WHERE n > 0` + newest)}, nil
	}
	const handlers = `
		WITH RECURSIVE next (name) AS (
			SELECT min(handler) FROM run INDEXED BY run_by_handler WHERE workflow = ?1
			UNION ALL
			SELECT (SELECT min(handler) FROM run INDEXED BY run_by_handler WHERE workflow = ?1 AND handler > name)
			  FROM next WHERE name IS NOT NULL)
		SELECT name FROM next WHERE name IS NOT NULL`
	const workflows = `
		WITH RECURSIVE next (name) AS (
			SELECT min(workflow) FROM run INDEXED BY run_by_handler
			UNION ALL
			SELECT (SELECT min(workflow) FROM run INDEXED BY run_by_handler WHERE workflow > name)
			  FROM next WHERE name IS NOT NULL)
		SELECT name FROM next WHERE name IS NOT NULL`
	pairs, err := pairs(ctx, v, string(f.Workflow), string(f.Handler), workflows, handlers)
	var list []stream
	for _, p := range pairs {
		list = append(list, by(`SELECT n FROM run INDEXED BY run_by_handler WHERE workflow = ?7 AND handler = ?8`+newest, p[0], p[1]))
	}
	return list, err
}

// pairs returns the values of an index of two columns that a filter allows. It
// jumps from value to value (a loose index scan), so it costs as many seeks as
// there are pairs.
func pairs(ctx context.Context, v *view, first, second, firsts, seconds string) (list [][2]string, err error) {
	outer := []string{first}
	if first == "" {
		if outer, err = rows(ctx, v, scanName, firsts); err != nil {
			return nil, err
		}
	}
	for _, a := range outer {
		inner := []string{second}
		if second == "" {
			if inner, err = rows(ctx, v, scanName, seconds, a); err != nil {
				return nil, err
			}
		}
		for _, b := range inner {
			list = append(list, [2]string{a, b})
		}
	}
	return list, nil
}

// Mutations returns a page of ledger records, newest first, and the cursor of
// the next.
func (db *DB) Mutations(ctx context.Context, f keep.MutationFilter, p keep.Page) ([]keep.Mutation, string, error) {
	return page(ctx, db, p, listing[keep.Mutation]{
		kind: "m",
		rows: `SELECT ` + mutationColumns + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN mutation ON n = value`,
		scan: scanMutation,
		from: func(v *view, c cut) ([]stream, error) { return mutationStreams(ctx, v, f, c) },
	})
}

// mutationStreams finds records by what is most selective: an input, a run, an
// item, a state that is not the usual one, then a tool.
func mutationStreams(ctx context.Context, v *view, f keep.MutationFilter, c cut) ([]stream, error) {
	const rest = `
		   AND (?1 = '' OR mutation.workflow = ?1) AND (?2 = '' OR state = ?2) AND (?3 = '' OR tool = ?3)
		   AND (?4 = '' OR run = ?4) AND (?5 = '' OR item = ?5) AND mutation.n < ?6`
	const newest = rest + ` ORDER BY n DESC LIMIT ?7`
	by := func(text string, extra ...any) stream {
		return stream{text, append([]any{f.Workflow, f.State, f.Tool, f.Run, f.Item, c.before, c.limit}, extra...)}
	}
	switch {
	case f.Input != "": // as many as its events were tried
		return []stream{by(`
			SELECT mutation.n FROM event_cause CROSS JOIN event ON seq = event
			  CROSS JOIN run INDEXED BY run_by_chain ON chain = reserved_by
			  CROSS JOIN mutation INDEXED BY mutation_by_run ON run = id
			 WHERE input = ?8 AND reserved_by <> '' AND ?7 > 0`+rest, f.Input)}, nil
	case f.Run != "":
		return []stream{by(`SELECT n FROM mutation INDEXED BY mutation_by_run WHERE run = ?4` + newest)}, nil
	case f.Item != "" && f.Workflow != "":
		return []stream{by(`SELECT n FROM mutation INDEXED BY mutation_by_item WHERE workflow = ?1 AND item = ?5 AND item <> ''` + newest)}, nil
	case f.State != "" && f.State != keep.Applied:
		return []stream{by(`SELECT n FROM mutation INDEXED BY mutation_by_state WHERE state = ?2 AND state <> 'applied'` + newest)}, nil
	case f.Workflow == "" && f.Tool == "":
		return []stream{by(`SELECT n FROM mutation NOT INDEXED WHERE n > 0` + newest)}, nil
	}
	const tools = `
		WITH RECURSIVE next (name) AS (
			SELECT min(tool) FROM mutation INDEXED BY mutation_by_tool WHERE workflow = ?1
			UNION ALL
			SELECT (SELECT min(tool) FROM mutation INDEXED BY mutation_by_tool WHERE workflow = ?1 AND tool > name)
			  FROM next WHERE name IS NOT NULL)
		SELECT name FROM next WHERE name IS NOT NULL`
	const workflows = `
		WITH RECURSIVE next (name) AS (
			SELECT min(workflow) FROM mutation INDEXED BY mutation_by_tool
			UNION ALL
			SELECT (SELECT min(workflow) FROM mutation INDEXED BY mutation_by_tool WHERE workflow > name)
			  FROM next WHERE name IS NOT NULL)
		SELECT name FROM next WHERE name IS NOT NULL`
	pairs, err := pairs(ctx, v, string(f.Workflow), string(f.Tool), workflows, tools)
	var list []stream
	for _, p := range pairs {
		list = append(list, by(`SELECT n FROM mutation INDEXED BY mutation_by_tool WHERE workflow = ?8 AND tool = ?9`+newest, p[0], p[1]))
	}
	return list, err
}

// Outputs returns the mutations of the runs that reserved events caused by an
// input, oldest first.
func (db *DB) Outputs(ctx context.Context, id keep.InputID) (keys []keep.MutationKey, err error) {
	err = db.snapshot(ctx, func(v *view) error {
		streams, err := mutationStreams(ctx, v, keep.MutationFilter{Input: id}, cut{1<<63 - 1, 1})
		if err != nil {
			return err
		}
		numbers, err := newest(ctx, v, streams, 1<<63-1)
		if err != nil {
			return err
		}
		for i := len(numbers) - 1; i >= 0; i-- {
			found, err := rows(ctx, v, scanName, `SELECT key FROM mutation WHERE n = ?`, numbers[i])
			if err != nil {
				return err
			}
			keys = append(keys, keep.MutationKey(found[0]))
		}
		return nil
	})
	return keys, err
}

// Events returns a page of events, newest first, and the cursor of the next.
func (db *DB) Events(ctx context.Context, f keep.EventFilter, p keep.Page) ([]keep.Event, string, error) {
	return page(ctx, db, p, listing[keep.Event]{
		kind: "e",
		rows: `SELECT ` + eventColumns + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN event ON seq = value`,
		scan: scanEvent,
		from: func(v *view, c cut) ([]stream, error) { return eventStreams(ctx, v, f, c) },
	})
}

// eventStreams finds events by their input, or topic by topic: those that are
// not consumed have indexes of their own.
func eventStreams(ctx context.Context, v *view, f keep.EventFilter, c cut) ([]stream, error) {
	const rest = `
		   AND (?1 = '' OR workflow = ?1) AND (?2 = '' OR topic = ?2) AND (?3 = '' OR status = ?3) AND seq < ?4`
	const newest = rest + ` ORDER BY seq DESC LIMIT ?5`
	by := func(text string, extra ...any) stream {
		return stream{text, append([]any{f.Workflow, f.Topic, f.Status, c.before, c.limit}, extra...)}
	}
	rare := f.Status == keep.EventPending || f.Status == keep.EventSkipped
	switch {
	case f.Input != "":
		return []stream{by(`
			SELECT seq FROM event_cause CROSS JOIN event ON seq = event
			 WHERE input = ?6 AND event < ?4 AND (?1 = '' OR workflow = ?1) AND (?2 = '' OR topic = ?2)
			   AND (?3 = '' OR status = ?3)
			 ORDER BY event DESC LIMIT ?5`, f.Input)}, nil
	case f.Workflow == "" && f.Topic == "" && !rare:
		return []stream{by(`SELECT seq FROM event NOT INDEXED WHERE seq > 0` + newest)}, nil
	}
	topics, err := rows(ctx, v, func(row *sql.Rows) (t [2]string, err error) {
		err = row.Scan(&t[0], &t[1])
		return t, err
	}, `SELECT workflow, name FROM topic WHERE (?1 = '' OR workflow = ?1) AND (?2 = '' OR name = ?2)`, f.Workflow, f.Topic)
	if err != nil {
		return nil, err
	}
	var list []stream
	for _, t := range topics {
		switch f.Status {
		case keep.EventPending:
			list = append(list,
				by(`SELECT seq FROM event INDEXED BY event_pending
					 WHERE workflow = ?6 AND topic = ?7 AND reserved_by = '' AND status = 'pending'`+newest, t[0], t[1]),
				by(`SELECT seq FROM event INDEXED BY event_pending
					 WHERE workflow = ?6 AND topic = ?7 AND reserved_by > '' AND status = 'pending' AND ?5 > 0`+rest, t[0], t[1]))
		case keep.EventSkipped:
			list = append(list, by(`SELECT seq FROM event INDEXED BY event_skipped
				 WHERE workflow = ?6 AND topic = ?7 AND status = 'skipped'`+newest, t[0], t[1]))
		default:
			list = append(list, by(`SELECT seq FROM event INDEXED BY event_by_topic WHERE workflow = ?6 AND topic = ?7`+newest, t[0], t[1]))
		}
	}
	return list, nil
}

// Inputs returns a page of inputs, newest first, and the cursor of the next.
func (db *DB) Inputs(ctx context.Context, f keep.InputFilter, p keep.Page) ([]keep.Input, string, error) {
	const workflows = `
		WITH RECURSIVE next (name) AS (
			SELECT min(workflow) FROM input INDEXED BY input_by_status
			UNION ALL
			SELECT (SELECT min(workflow) FROM input INDEXED BY input_by_status WHERE workflow > name)
			  FROM next WHERE name IS NOT NULL)
		SELECT name FROM next WHERE name IS NOT NULL`
	return page(ctx, db, p, listing[keep.Input]{
		kind: "i",
		rows: `SELECT ` + inputColumns + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN input ON n = value`,
		scan: scanInput,
		from: func(v *view, c cut) (list []stream, err error) {
			if f.Workflow == "" && f.Status == "" {
				return []stream{{`SELECT n FROM input WHERE n < ? ORDER BY n DESC LIMIT ?`, []any{c.before, c.limit}}}, nil
			}
			pairs, err := statusPairs(ctx, v, string(f.Workflow), f.Status, keep.InputStatuses(), workflows)
			for _, p := range pairs {
				list = append(list, stream{`
					SELECT n FROM input INDEXED BY input_by_status
					 WHERE workflow = ? AND status = ? AND n < ? ORDER BY n DESC LIMIT ?`,
					[]any{p[0], p[1], c.before, c.limit}})
			}
			return list, err
		},
	})
}

// Items returns a page of items, newest first, and the cursor of the next.
func (db *DB) Items(ctx context.Context, f keep.ItemFilter, p keep.Page) ([]keep.Item, string, error) {
	const workflows = `
		WITH RECURSIVE next (name) AS (
			SELECT min(workflow) FROM item INDEXED BY item_by_status
			UNION ALL
			SELECT (SELECT min(workflow) FROM item INDEXED BY item_by_status WHERE workflow > name)
			  FROM next WHERE name IS NOT NULL)
		SELECT name FROM next WHERE name IS NOT NULL`
	return page(ctx, db, p, listing[keep.Item]{
		kind: "t",
		rows: `SELECT ` + itemColumns + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN item ON n = value`,
		scan: scanItem,
		from: func(v *view, c cut) (list []stream, err error) {
			if f.Workflow == "" && f.Status == "" {
				return []stream{{`SELECT n FROM item WHERE n < ? ORDER BY n DESC LIMIT ?`, []any{c.before, c.limit}}}, nil
			}
			pairs, err := statusPairs(ctx, v, string(f.Workflow), f.Status, keep.ItemStatuses(), workflows)
			for _, p := range pairs {
				list = append(list, stream{`
					SELECT n FROM item INDEXED BY item_by_status
					 WHERE workflow = ? AND status = ? AND n < ? ORDER BY n DESC LIMIT ?`,
					[]any{p[0], p[1], c.before, c.limit}})
			}
			return list, err
		},
	})
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
	return page(ctx, db, p, listing[keep.Escalation]{
		kind: "q",
		rows: `SELECT ` + escalationColumns + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN escalation ON n = value`,
		scan: scanEscalation,
		from: func(_ *view, c cut) ([]stream, error) {
			return []stream{{text, []any{f.Workflow, f.Run, f.Open, c.before, c.limit}}}, nil
		},
	})
}
