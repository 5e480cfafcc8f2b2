package sqlite

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// The reads of this file are of several things at once. A statement costs little
// here, where no network is in between: most of them are one for each thing.

// bareMutation are the columns of a record without what may be large.
var bareMutation = stored.Mutations.Bare("", "NULL")

// MutationsByKey returns records without what may be large.
func (db *DB) MutationsByKey(ctx context.Context, keys []keep.MutationKey) ([]keep.Mutation, error) {
	names, err := json.Marshal(stored.Distinct(keys))
	if err != nil {
		return nil, err
	}
	return rows(ctx, db, scanMutation, `SELECT `+bareMutation+` FROM (SELECT value FROM json_each(?)) CROSS JOIN mutation ON key = value`, string(names))
}

// Histories returns every move of each mutation, oldest first.
func (db *DB) Histories(ctx context.Context, keys []keep.MutationKey) (map[keep.MutationKey][]keep.Move, error) {
	return batch(ctx, keys, db.History)
}

// LastApplied returns the newest applied record of each tool. It looks workflow by
// workflow: the index of tools begins with them, and they are few.
func (db *DB) LastApplied(ctx context.Context, tools []keep.ToolName) (map[keep.ToolName]keep.Mutation, error) {
	workflows, err := db.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	last := make(map[keep.ToolName]keep.Mutation)
	for _, tool := range tools {
		for _, w := range workflows {
			f := keep.MutationFilter{Workflow: w.Name, Tool: tool, State: keep.Applied}
			ms, _, err := db.Mutations(ctx, f, keep.Page{Limit: 1, Bare: true})
			if err != nil {
				return nil, err
			}
			if len(ms) > 0 && !ms[0].CreatedAt.Before(last[tool].CreatedAt) {
				last[tool] = ms[0]
			}
		}
	}
	return last, nil
}

// RunsOf returns up to limit of the runs that tried events caused by an input, newest
// first.
func (db *DB) RunsOf(ctx context.Context, id keep.InputID, limit int) ([]keep.Run, error) {
	return newestOf(ctx, db, string(id), limit, scanRun, runsOfChains(triedFor("?1")), bareRun)
}

var (
	// bareRuns are the columns of a run without what may be large.
	bareRuns = stored.Runs.Bare("", "NULL")

	bareRun = `SELECT ` + bareRuns + ` FROM run WHERE n = ?`
)

// A tried finds chains that worked on events: tables to read from, the column of the
// chain, and which rows count.
type tried struct{ from, chain, where string }

// triedFor finds the chains that have, finished or gave back what an input caused.
func triedFor(input string) []tried {
	return []tried{
		{`event_cause CROSS JOIN event ON seq = event_cause.event`, `reserved_by`, `input = ` + input + ` AND reserved_by <> ''`},
		{`event_cause CROSS JOIN event_tried ON event_tried.event = event_cause.event`, `event_tried.chain`, `input = ` + input},
	}
}

// runs returns how to find the runs of these chains: the first of each by its id, the
// retries by their chain.
func (t tried) runs() []string {
	return []string{
		t.from + ` CROSS JOIN run ON run.id = ` + t.chain + ` AND run.chain = ` + t.chain,
		t.from + ` CROSS JOIN run INDEXED BY run_by_chain ON run.chain = ` + t.chain + ` AND run.chain <> run.id`,
	}
}

// runsOfChains returns the query for the runs of chains.
func runsOfChains(list []tried) string {
	var all []string
	for _, t := range list {
		for _, from := range t.runs() {
			all = append(all, `SELECT run.n FROM `+from+` WHERE `+t.where)
		}
	}
	return strings.Join(all, ` UNION ALL `)
}

// RunsOfEvent returns up to limit of the runs that tried an event, newest first.
func (db *DB) RunsOfEvent(ctx context.Context, w keep.WorkflowName, t keep.TopicName, id keep.MessageID, limit int) ([]keep.Run, error) {
	e, err := db.Event(ctx, w, t, id)
	if err != nil {
		return nil, err
	}
	return newestOf(ctx, db, e.Seq, limit, scanRun, runsOfChains([]tried{
		{`event`, `reserved_by`, `seq = ?1 AND reserved_by <> ''`},
		{`event_tried`, `event_tried.chain`, `event = ?1`},
	}), bareRun)
}

// ItemCalls returns the keys of the records of each item, newest first.
func (db *DB) ItemCalls(ctx context.Context, items []keep.ItemRef, limit int) (map[keep.ItemRef][]keep.MutationKey, error) {
	return batch(ctx, items, func(ctx context.Context, it keep.ItemRef) (keys []keep.MutationKey, err error) {
		names, err := rows(ctx, db, scanName, `
			SELECT key FROM mutation INDEXED BY mutation_by_item
			 WHERE workflow = ? AND item = ? AND item <> '' ORDER BY n DESC LIMIT ?`, it.Workflow, it.ID, limit)
		for _, name := range names {
			keys = append(keys, keep.MutationKey(name))
		}
		return keys, err
	})
}

// InputsByID returns inputs, in no order.
func (db *DB) InputsByID(ctx context.Context, ids []keep.InputID) ([]keep.Input, error) {
	names, err := json.Marshal(stored.Distinct(ids))
	if err != nil {
		return nil, err
	}
	return rows(ctx, db, scanInput, `SELECT `+inputColumns+` FROM (SELECT value FROM json_each(?)) CROSS JOIN input ON id = value`, string(names))
}

// Progress returns how far each input came.
func (db *DB) Progress(ctx context.Context, ids []keep.InputID, events, outputs int) (map[keep.InputID]keep.Progress, error) {
	known, err := db.InputsByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	all := make(map[keep.InputID]keep.Progress, len(known))
	for _, in := range known {
		var p keep.Progress
		if err := db.outputs(ctx, in.ID, &p, outputs); err != nil {
			return nil, err
		}
		if events > 0 {
			page := keep.Page{Limit: events, Bare: true}
			if p.Events, _, err = db.Events(ctx, keep.EventFilter{Input: in.ID}, page); err != nil {
				return nil, err
			}
		}
		all[in.ID] = p
	}
	return all, nil
}

// RunsByID returns runs without what may be large.
func (db *DB) RunsByID(ctx context.Context, ids []keep.RunID) ([]keep.Run, error) {
	names, err := json.Marshal(stored.Distinct(ids))
	if err != nil {
		return nil, err
	}
	return rows(ctx, db, scanRun, `SELECT `+bareRuns+` FROM (SELECT value FROM json_each(?)) CROSS JOIN run ON id = value`, string(names))
}

// outputs reads the newest outputs of an input, and counts all.
func (db *DB) outputs(ctx context.Context, id keep.InputID, p *keep.Progress, limit int) error {
	next := "none was read"
	var err error
	if limit > 0 {
		p.Outputs, next, err = db.Mutations(ctx, keep.MutationFilter{Input: id}, keep.Page{Limit: limit, Bare: true})
	}
	if p.Total = len(p.Outputs); next == "" || err != nil {
		return err
	}
	keys, err := db.Outputs(ctx, id)
	p.Total = len(keys)
	return err
}

// Attempts returns how many runs each chain has.
func (db *DB) Attempts(ctx context.Context, chains []keep.RunID) (map[keep.RunID]int, error) {
	counts := make(map[keep.RunID]int, len(chains))
	for _, chain := range chains {
		n, err := one(ctx, db, "chain", string(chain), scanNumber, `
			SELECT (SELECT count(*) FROM run WHERE id = ?1 AND chain = ?1)
			     + (SELECT count(*) FROM run INDEXED BY run_by_chain WHERE chain = ?1 AND chain <> id)`, chain)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			counts[chain] = int(n)
		}
	}
	return counts, nil
}

// CausesOf returns what Causes does, for each chain.
func (db *DB) CausesOf(ctx context.Context, chains []keep.RunID) (map[keep.RunID][]keep.InputID, error) {
	return batch(ctx, chains, db.Causes)
}

// runsOfChain finds the runs of the chain ?1.
const runsOfChain = `
	SELECT id FROM run WHERE id = ?1 AND chain = ?1
	UNION ALL SELECT id FROM run INDEXED BY run_by_chain WHERE chain = ?1 AND chain <> id`

// Calls returns up to limit of the mutations of the runs of a chain, newest first.
func (db *DB) Calls(ctx context.Context, chain keep.RunID, limit int) ([]keep.Mutation, error) {
	return newestOf(ctx, db, string(chain), limit, scanMutation,
		`SELECT n FROM (`+runsOfChain+`) r CROSS JOIN mutation INDEXED BY mutation_by_run ON mutation.run = r.id`,
		`SELECT `+bareMutation+` FROM mutation WHERE n = ?`)
}

// EscalationsOf returns up to limit of the questions about the runs of a chain, newest first.
func (db *DB) EscalationsOf(ctx context.Context, chain keep.RunID, limit int) ([]keep.Escalation, error) {
	return newestOf(ctx, db, string(chain), limit, scanEscalation,
		`SELECT n FROM (`+runsOfChain+`) r CROSS JOIN escalation INDEXED BY escalation_by_run ON escalation.run = r.id`,
		`SELECT `+escalationColumns+` FROM escalation WHERE n = ?`)
}

// newestOf returns the newest rows whose numbers a statement finds of an id.
func newestOf[T any](ctx context.Context, db *DB, id any, limit int, scan func(scanner) (T, error), find, read string) (list []T, err error) {
	err = db.snapshot(ctx, func(v *view) error {
		numbers, err := newest(ctx, v, []stream{{text: find, args: []any{id}}}, cut{limit: limit})
		for _, n := range numbers {
			row, err := one(ctx, v, "row", "", scan, read, n)
			if err != nil {
				return err
			}
			list = append(list, row)
		}
		return err
	})
	return list, err
}

// batch reads a list for each id, and leaves out those that have none.
func batch[ID comparable, T any](ctx context.Context, ids []ID, read func(context.Context, ID) ([]T, error)) (map[ID][]T, error) {
	all := make(map[ID][]T, len(ids))
	for _, id := range ids {
		list, err := read(ctx, id)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			all[id] = list
		}
	}
	return all, nil
}

// UsedTools returns the tools of which each workflow has records, as they are counted.
func (db *DB) UsedTools(ctx context.Context) (map[keep.WorkflowName][]keep.ToolName, error) {
	list, err := rows(ctx, db, func(row scanner) (u keep.Mutation, err error) {
		return u, row.Scan(&u.Workflow, &u.Tool)
	}, `SELECT workflow, name FROM tally WHERE noun = 'mutation' AND rows > 0 ORDER BY workflow, name`)
	all := make(map[keep.WorkflowName][]keep.ToolName)
	for _, u := range list {
		all[u.Workflow] = append(all[u.Workflow], u.Tool)
	}
	return all, err
}
