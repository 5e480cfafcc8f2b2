package sqlite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

// mutationChanges are the columns of a record that change while it stays with its run; see
// runChanges.
var mutationChanges = stored.Mutations.Without("key", "workflow", "run", "item", "attempt", "tool")

var (
	// insertMutation is refused by a unique index if the key was used (law: once).
	insertMutation = stored.Mutations.Insert("mutation", "?")

	updateMutation = `UPDATE mutation` + set(mutationChanges) + ` WHERE key = ? AND rev = ? AND run = ? AND workflow = ? AND tool = ? AND item = ? AND attempt = ? AND summed_at = 0`
)

// writeMutation writes a row of a plan.
func (t *tx) writeMutation(put *commit.Mutation) (err error) {
	var n int64
	if put.New {
		n, put.N, err = write(t.conn, insertMutation, stored.Mutations, put.Put)
	} else {
		n, err = t.updateMutation(put)
		if n == 0 && err == nil {
			n, err = t.unsumMutation(put)
		}
		if n == 0 && err == nil {
			n, err = t.handOver(put)
		}
	}
	return written("mutation", put.Put.Key, n, err)
}

// updateMutation changes a record that stays with its run.
func (t *tx) updateMutation(put *commit.Mutation) (int64, error) {
	m := put.Put
	n, _, err := write(t.conn, updateMutation, mutationChanges, m, m.Key, put.Was, m.Run, m.Workflow, m.Tool, m.Item, m.Attempt)
	return n, err
}

// unsumMutation changes a record that is in the sums of budgets.
func (t *tx) unsumMutation(m *commit.Mutation) (int64, error) {
	n, err := t.unfold(`key = ?1`, m.Put.Key)
	if err != nil || n == 0 {
		return n, err
	}
	return t.updateMutation(m)
}

// handOver gives a record to another run of its chain, then changes it.
func (t *tx) handOver(m *commit.Mutation) (int64, error) {
	n, err := t.exec(`UPDATE mutation SET run = ? WHERE key = ? AND rev = ? AND workflow = ?`, m.Put.Run, m.Put.Key, m.Was, m.Put.Workflow)
	if err != nil || n == 0 {
		return n, err
	}
	return t.updateMutation(m)
}

// writeMove appends to the history of a record.
func (t *tx) writeMove(m commit.Move) (err error) {
	if m.Line > 0 {
		_, err = t.exec(`
			INSERT INTO mutation_history (mutation, move, at, who, from_state, to_state, evidence, detail)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			m.Mutation.N, m.Line, m.At, m.By, m.From, m.To, m.Evidence, m.Detail)
	} else {
		_, err = t.exec(`
			INSERT INTO mutation_history (mutation, move, at, who, from_state, to_state, evidence, detail)
			VALUES ((SELECT n FROM mutation WHERE key = ?1),
				(SELECT ifnull(max(move), 0) + 1 FROM mutation_history
				  WHERE mutation = (SELECT n FROM mutation WHERE key = ?1)),
				?2, ?3, ?4, ?5, ?6, ?7)`,
			m.Mutation.Put.Key, m.At, m.By, m.From, m.To, m.Evidence, m.Detail)
	}
	if err != nil {
		return fmt.Errorf("history of mutation %s: %w", m.Mutation.Put.Key, err)
	}
	return nil
}

// Mutation returns the record of that key, or *keep.NotFoundError.
func (db *DB) Mutation(ctx context.Context, key keep.MutationKey) (keep.Mutation, error) {
	return one(ctx, db, "mutation", string(key), scanMutation,
		`SELECT `+mutationColumns+` FROM mutation WHERE key = ?`, key)
}

// ItemDoubts implements store.Doubts. The index has these calls and no others.
func (db *DB) ItemDoubts(ctx context.Context, w keep.WorkflowName) ([]keep.Mutation, error) {
	return rows(ctx, db, scanMutation, `
		SELECT `+mutationColumns+` FROM mutation INDEXED BY mutation_item_doubt
		 WHERE workflow = ? AND item <> '' AND state IN ('needs_reconcile', 'indeterminate')
		 ORDER BY state DESC, n DESC`, w)
}

// ResultsAfter returns results of applied mutations of w that were made after that
// of key, oldest first. It looks at limit records, of whatever workflow.
func (db *DB) ResultsAfter(ctx context.Context, w keep.WorkflowName, key keep.MutationKey, limit, size int) ([]keep.StoredResult, error) {
	return rows(ctx, db, scanResult, `
		SELECT key, payload_hash, result FROM mutation
		 WHERE n > (SELECT n FROM mutation WHERE key = ?1 AND workflow = ?3)
		   AND n <= (SELECT n FROM mutation WHERE key = ?1 AND workflow = ?3) + ?2 AND +workflow = ?3
		   AND state = 'applied' AND ifnull(octet_length(result), 0) <= ?4
		 ORDER BY n`, key, limit, w, size)
}

func scanResult(row scanner) (r keep.StoredResult, err error) {
	err = row.Scan(&r.Key, &r.PayloadHash, (*[]byte)(&r.Result))
	return r, err
}

// History returns every move of a mutation, oldest first.
func (db *DB) History(ctx context.Context, key keep.MutationKey) ([]keep.Move, error) {
	return rows(ctx, db, scanMove, `
		SELECT `+moveColumns+`
		  FROM mutation m JOIN mutation_history h ON h.mutation = m.n
		 WHERE m.key = ? ORDER BY h.move`, key)
}

var (
	moveColumns = stored.Moves.Columns("h.")
	scanMove    = scanOf(stored.Moves)
)

// Rival returns the oldest record that keeps a commit with u from being made, and whether
// there is one.
func (db *DB) Rival(ctx context.Context, u keep.Unlike) (oldest keep.Mutation, found bool, err error) {
	var first int64
	for _, tool := range u.Tools {
		list, err := rows(ctx, db, func(row scanner) (p numbered, err error) {
			p.m, err = scanMutation(wider{row, []any{&p.n}})
			return p, err
		}, `SELECT `+mutationColumns+`, n`+sameIdentity, tool, string(u.Identity), u.Subkey)
		if err != nil {
			return keep.Mutation{}, false, err
		}
		i := slices.IndexFunc(list, func(p numbered) bool { return p.m.Key != u.Key && !slices.Contains(u.Except, p.m.Key) })
		if i >= 0 && (!found || list[i].n < first) { // by their numbers, since a clock may be set back
			oldest, first, found = list[i].m, list[i].n, true
		}
	}
	return oldest, found, nil
}

// numbered is a record and its number.
type numbered struct {
	m keep.Mutation
	n int64
}

// Barring returns a record that keeps a commit with s at a time from being made, and whether there is one.
func (db *DB) Barring(ctx context.Context, s keep.Setting, at time.Time) (keep.Mutation, bool, error) {
	var all []keep.Mutation
	for _, tool := range s.Tools {
		list, err := rows(ctx, db, scanMutation, `SELECT `+mutationColumns+mayBar, tool, string(s.Identity), millis(s.Since), millis(at))
		if err != nil {
			return keep.Mutation{}, false, err
		}
		all = append(all, list...)
	}
	m, found := s.Barring(all, at)
	return m, found, nil
}

var (
	mutationColumns = stored.Mutations.Columns("")
	scanMutation    = scanOf(stored.Mutations)
)
