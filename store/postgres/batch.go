package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// MutationsByKey returns records without what may be large.
func (db *DB) MutationsByKey(ctx context.Context, keys []keep.MutationKey) ([]keep.Mutation, error) {
	return collect(ctx, db, scanMutation, `SELECT `+bareMutation+` FROM mutation WHERE key = ANY($1)`, texts(keys))
}

// A pair is a row and what it belongs to.
type pair[ID ~string, T any] struct {
	id  ID
	row T
}

// grouped puts rows that belong together into one list, in the order of rows.
func grouped[ID ~string, T any](rows []pair[ID, T], err error) (map[ID][]T, error) {
	all := make(map[ID][]T)
	for _, r := range rows {
		all[r.id] = append(all[r.id], r.row)
	}
	return all, err
}

// Histories returns every move of each mutation, oldest first.
func (db *DB) Histories(ctx context.Context, keys []keep.MutationKey) (map[keep.MutationKey][]keep.Move, error) {
	return grouped(collect(ctx, db, func(row pgx.CollectableRow) (p pair[keep.MutationKey, keep.Move], err error) {
		var at int64
		m := &p.row
		err = row.Scan(into(&p.id), &at, into(&m.By), into(&m.From), into(&m.To), into(&m.Evidence), into(&m.Detail))
		m.At = moment(at)
		return p, err
	}, `
		SELECT v.key, h.at, h.who, h.from_state, h.to_state, h.evidence, h.detail FROM unnest($1::text[]) AS v (key), LATERAL (
			SELECT h.* FROM mutation m JOIN mutation_history h ON h.workflow = m.workflow AND h.mutation = m.n
			 WHERE m.key = v.key ORDER BY h.n) h`, texts(stored.Distinct(keys))))
}

// LastApplied returns the newest applied record of each tool: that of each workflow
// is at the end of an index.
func (db *DB) LastApplied(ctx context.Context, tools []keep.ToolName) (map[keep.ToolName]keep.Mutation, error) {
	list, err := collect(ctx, db, scanMutation, `
		SELECT `+bareMutation+` FROM unnest($1::text[]) AS v (tool), lease, LATERAL (
			SELECT * FROM mutation WHERE workflow = lease.workflow AND tool = v.tool AND state = 'applied'
			 ORDER BY n DESC LIMIT 1) mutation`, texts(tools))
	last := make(map[keep.ToolName]keep.Mutation)
	for _, m := range list {
		if !m.CreatedAt.Before(last[m.Tool].CreatedAt) {
			last[m.Tool] = m
		}
	}
	return last, err
}

// RunsOf returns up to limit of the runs that tried events caused by an input, newest
// first.
func (db *DB) RunsOf(ctx context.Context, id keep.InputID, limit int) ([]keep.Run, error) {
	return collect(ctx, db, scanRun, `
		SELECT `+bareRuns+` FROM run WHERE id IN (`+runsOfInput+`) ORDER BY n DESC LIMIT $2`, id, limit)
}

// RunsOfEvent returns up to limit of the runs that tried an event, newest first.
func (db *DB) RunsOfEvent(ctx context.Context, w keep.WorkflowName, t keep.TopicName, id keep.MessageID, limit int) ([]keep.Run, error) {
	e, err := db.Event(ctx, w, t, id)
	if err != nil {
		return nil, err
	}
	return collect(ctx, db, scanRun, `
		WITH c AS (SELECT chain FROM event_tried WHERE workflow = $1 AND topic = $2 AND event = $3 UNION SELECT $4::text WHERE $4::text <> '')
		SELECT `+bareRuns+` FROM run WHERE id IN (
			SELECT run.id FROM c JOIN run ON run.id = c.chain AND run.chain = c.chain
			UNION ALL SELECT run.id FROM c JOIN run ON run.chain = c.chain AND run.chain <> run.id)
		 ORDER BY n DESC LIMIT $5`, w, t, e.Seq, e.ReservedBy, limit)
}

// ItemCalls returns the keys of the records of each item, newest first.
func (db *DB) ItemCalls(ctx context.Context, items []keep.ItemRef, limit int) (map[keep.ItemRef][]keep.MutationKey, error) {
	var workflows, ids []string
	for _, it := range stored.Distinct(items) {
		workflows, ids = append(workflows, text(string(it.Workflow))), append(ids, text(it.ID))
	}
	all := make(map[keep.ItemRef][]keep.MutationKey)
	_, err := collect(ctx, db, func(row pgx.CollectableRow) (key keep.MutationKey, err error) {
		var it keep.ItemRef
		err = row.Scan(into(&it.Workflow), into(&it.ID), into(&key))
		all[it] = append(all[it], key)
		return key, err
	}, `
		SELECT v.workflow, v.item, m.key FROM unnest($1::text[], $2::text[]) AS v (workflow, item), LATERAL (
			SELECT key FROM mutation WHERE workflow = v.workflow AND item = v.item AND item <> ''
			 ORDER BY n DESC LIMIT $3) m`, workflows, ids, limit)
	return all, err
}

// InputsByID returns inputs, in no order.
func (db *DB) InputsByID(ctx context.Context, ids []keep.InputID) ([]keep.Input, error) {
	return collect(ctx, db, scanInput, `SELECT `+inputColumns+` FROM input WHERE id = ANY($1)`, texts(ids))
}

// Progress returns how far each input came. The three statements are no snapshot: an
// input may have moved between them.
func (db *DB) Progress(ctx context.Context, ids []keep.InputID, events, outputs int) (map[keep.InputID]keep.Progress, error) {
	ids = stored.Distinct(ids)
	known, err := db.InputsByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	all := make(map[keep.InputID]keep.Progress, len(known))
	for _, in := range known {
		all[in.ID] = keep.Progress{}
	}
	found, totals, err := db.outputsOf(ctx, ids, outputs)
	if err != nil {
		return nil, fmt.Errorf("outputs of inputs: %w", err)
	}
	caused, err := db.eventsOf(ctx, ids, events)
	if err != nil {
		return nil, fmt.Errorf("events of inputs: %w", err)
	}
	for id := range all {
		all[id] = keep.Progress{Events: caused[id], Outputs: found[id], Total: totals[id]}
	}
	return all, nil
}

// RunsByID returns runs without what may be large.
func (db *DB) RunsByID(ctx context.Context, ids []keep.RunID) ([]keep.Run, error) {
	return collect(ctx, db, scanRun, `SELECT `+bareRuns+` FROM run WHERE id = ANY($1)`, texts(ids))
}

// outputsOf reads the newest outputs of inputs, and counts all.
func (db *DB) outputsOf(ctx context.Context, ids []keep.InputID, limit int) (map[keep.InputID][]keep.Mutation, map[keep.InputID]int, error) {
	totals := make(map[keep.InputID]int)
	found, err := grouped(collect(ctx, db, func(row pgx.CollectableRow) (p pair[keep.InputID, keep.Mutation], err error) {
		var total int
		p.row, err = scanMutation(wider{row, []any{into(&p.id), &total}})
		totals[p.id] = total
		return p, err
	}, `
		SELECT `+bareMutation+`, v.id, mutation.total FROM unnest($1::text[]) AS v (id), LATERAL (
			SELECT *, count(*) OVER () AS total FROM mutation WHERE run IN (`+strings.ReplaceAll(runsOfInput, "$1", "v.id")+`)
			 ORDER BY n DESC LIMIT $2) mutation`, texts(ids), max(limit, 1)))
	if limit <= 0 {
		found = nil
	}
	return found, totals, err
}

// eventsOf reads the newest events of inputs.
func (db *DB) eventsOf(ctx context.Context, ids []keep.InputID, limit int) (map[keep.InputID][]keep.Event, error) {
	if limit <= 0 {
		return nil, nil
	}
	return grouped(collect(ctx, db, func(row pgx.CollectableRow) (p pair[keep.InputID, keep.Event], err error) {
		p.row, err = scanEvent(row, into(&p.id))
		return p, err
	}, `
		SELECT `+bareEvents+`, v.id FROM unnest($1::text[]) AS v (id), LATERAL (
			SELECT event.* FROM input
			  JOIN event_cause c ON c.workflow = input.workflow AND c.input = input.id
			  JOIN event ON event.workflow = c.workflow AND event.topic = c.topic AND event.n = c.event
			 WHERE input.id = v.id ORDER BY event.n DESC LIMIT $2) event`, texts(ids), limit))
}

// Attempts returns how many runs each chain has.
func (db *DB) Attempts(ctx context.Context, chains []keep.RunID) (map[keep.RunID]int, error) {
	counts := make(map[keep.RunID]int)
	_, err := collect(ctx, db, func(row pgx.CollectableRow) (none struct{}, err error) {
		var id keep.RunID
		var n int
		err = row.Scan(into(&id), &n)
		if n > 0 {
			counts[id] = n
		}
		return none, err
	}, `
		SELECT v.id, (SELECT count(*) FROM run WHERE run.id = v.id AND run.chain = v.id)
		     + (SELECT count(*) FROM run WHERE run.chain = v.id AND run.chain <> run.id)
		  FROM unnest($1::text[]) AS v (id)`, texts(chains))
	return counts, err
}

// CausesOf returns what Causes does, for each chain.
func (db *DB) CausesOf(ctx context.Context, chains []keep.RunID) (map[keep.RunID][]keep.InputID, error) {
	lists, err := grouped(collect(ctx, db, func(row pgx.CollectableRow) (p pair[keep.RunID, []keep.InputID], err error) {
		var stored string
		if err := row.Scan(into(&p.id), &stored); err != nil {
			return p, err
		}
		p.row, err = decodeCauses(stored)
		return p, err
	}, `SELECT reserved_by, caused_by FROM event WHERE reserved_by = ANY($1) AND reserved_by <> ''
		UNION ALL SELECT l.chain, e.caused_by FROM event_tried l `+joinTried+` WHERE l.chain = ANY($1)`, texts(chains)))
	if err != nil {
		return nil, fmt.Errorf("read causes of chains: %w", err)
	}
	all := make(map[keep.RunID][]keep.InputID)
	for chain, causes := range lists {
		ids := slices.Concat(causes...)
		slices.Sort(ids)
		if ids = slices.Compact(ids); len(ids) > 0 {
			all[chain] = ids
		}
	}
	return all, nil
}

// runsOfChain finds the runs of the chain $1.
const runsOfChain = `
	SELECT id FROM run WHERE id = $1 AND chain = $1
	UNION ALL SELECT id FROM run WHERE chain = $1 AND chain <> id`

// Calls returns up to limit of the mutations of the runs of a chain, newest first.
func (db *DB) Calls(ctx context.Context, chain keep.RunID, limit int) ([]keep.Mutation, error) {
	return collect(ctx, db, scanMutation, `
		SELECT `+bareMutation+` FROM mutation WHERE run IN (`+runsOfChain+`) ORDER BY n DESC LIMIT $2`, chain, limit)
}

// EscalationsOf returns up to limit of the questions about the runs of a chain, newest first.
func (db *DB) EscalationsOf(ctx context.Context, chain keep.RunID, limit int) ([]keep.Escalation, error) {
	return collect(ctx, db, scanEscalation, `
		SELECT `+escalationColumns+` FROM escalation WHERE run IN (`+runsOfChain+`) ORDER BY n DESC LIMIT $2`, chain, limit)
}

// UsedTools returns the tools of which each workflow has records, as they are counted.
func (db *DB) UsedTools(ctx context.Context) (map[keep.WorkflowName][]keep.ToolName, error) {
	list, err := collect(ctx, db, func(row pgx.CollectableRow) (u keep.Mutation, err error) {
		return u, row.Scan(into(&u.Workflow), into(&u.Tool))
	}, `SELECT workflow, name FROM tally WHERE noun = 'mutation' AND rows > 0 ORDER BY workflow COLLATE "C", name COLLATE "C"`)
	all := make(map[keep.WorkflowName][]keep.ToolName)
	for _, u := range list {
		all[u.Workflow] = append(all[u.Workflow], u.Tool)
	}
	return all, err
}
