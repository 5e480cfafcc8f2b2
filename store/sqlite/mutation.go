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

// writeMutation writes a row of a plan.
func (t *tx) writeMutation(m *commit.Mutation) error {
	failure, err := asText(stored.Failure(m.Put.Error))
	if err != nil {
		return fmt.Errorf("mutation %s: %w", m.Put.Key, err)
	}
	var n int64
	if m.New {
		n, m.N, err = t.insertMutation(m.Put, failure)
	} else {
		n, err = t.updateMutation(m, failure)
		if n == 0 && err == nil {
			n, err = t.handOver(m, failure)
		}
	}
	return written("mutation", m.Put.Key, n, err)
}

// insertMutation adds a record and returns its row, for the history. The unique index
// refuses a key that was used (law: once).
func (t *tx) insertMutation(m *keep.Mutation, failure any) (changed, n int64, err error) {
	return t.insert(`
		INSERT INTO mutation (key, workflow, run, item, attempt, tool, connector, level, target, subkey,
			payload_hash, token, title, state, warning, attempts, reconcile_attempts, next_reconcile_at,
			call_deadline, settle_after, can_reconcile, resolved_by, rev, created_at, updated_at, pin_hash, doubted,
			error, identity, payload, result, sent_as)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
			?, ?, ?, ?, ?, ?, ?, ?,
			?, ?, ?, ?, ?, ?, ?, ?, ?,
			?, ?, ?, ?, ?)`,
		m.Key, m.Workflow, m.Run, m.Item, m.Attempt, m.Tool, m.Connector, m.Level, m.Target, m.Subkey,
		m.PayloadHash, m.Token, m.Title, m.State, m.Warning, m.Attempts, m.ReconcileAttempts, m.NextReconcileAt,
		m.CallDeadline, int64(m.SettleAfter), m.CanReconcile, m.ResolvedBy, m.Rev, m.CreatedAt, m.UpdatedAt, m.PinHash, m.Doubted,
		failure, m.Identity, m.Payload, m.Result, m.Pin)
}

// updateMutation changes a record that stays with its run. It leaves out what
// never changes, and the run: an index is rewritten for each of its columns that
// is set, also to the same value.
func (t *tx) updateMutation(put *commit.Mutation, failure any) (int64, error) {
	m := put.Put
	return t.exec(`
		UPDATE mutation
		   SET connector = ?, level = ?, target = ?, subkey = ?, payload_hash = ?, token = ?,
		       title = ?, state = ?, warning = ?, attempts = ?, reconcile_attempts = ?,
		       next_reconcile_at = ?, call_deadline = ?, settle_after = ?, can_reconcile = ?,
		       resolved_by = ?, rev = ?, created_at = ?, updated_at = ?, pin_hash = ?, doubted = ?,
		       error = ?, identity = ?, payload = ?, result = ?, sent_as = ?
		 WHERE key = ? AND rev = ? AND run = ? AND workflow = ? AND tool = ? AND item = ? AND attempt = ?`,
		m.Connector, m.Level, m.Target, m.Subkey, m.PayloadHash, m.Token,
		m.Title, m.State, m.Warning, m.Attempts, m.ReconcileAttempts,
		m.NextReconcileAt, m.CallDeadline, int64(m.SettleAfter), m.CanReconcile,
		m.ResolvedBy, m.Rev, m.CreatedAt, m.UpdatedAt, m.PinHash, m.Doubted,
		failure, m.Identity, m.Payload, m.Result, m.Pin,
		m.Key, put.Was, m.Run, m.Workflow, m.Tool, m.Item, m.Attempt)
}

// handOver gives a record to another run of its chain, then changes it.
func (t *tx) handOver(m *commit.Mutation, failure any) (int64, error) {
	n, err := t.exec(`UPDATE mutation SET run = ? WHERE key = ? AND rev = ? AND workflow = ?`, m.Put.Run, m.Put.Key, m.Was, m.Put.Workflow)
	if err != nil || n == 0 {
		return n, err
	}
	return t.updateMutation(m, failure)
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

const moveColumns = `h.at, h.who, h.from_state, h.to_state, h.evidence, h.detail`

// scanMove reads moveColumns.
func scanMove(row scanner) (m keep.Move, err error) {
	var at int64
	err = row.Scan(&at, &m.By, &m.From, &m.To, &m.Evidence, &m.Detail)
	m.At = moment(at)
	return m, err
}

// Rival returns the oldest record that keeps a commit with u from being made, and whether
// there is one.
func (db *DB) Rival(ctx context.Context, u keep.Unlike) (keep.Mutation, bool, error) {
	list, err := rows(ctx, db, scanMutation, `SELECT `+mutationColumns+sameIdentity, u.Tool, string(u.Identity), u.Subkey)
	for _, m := range list {
		if m.Key != u.Key && !slices.Contains(u.Except, m.Key) {
			return m, true, err
		}
	}
	return keep.Mutation{}, false, err
}

// mutationColumns are in the order of the table; JSON, which can be long, is last.
const mutationColumns = `key, workflow, run, item, attempt, tool, connector, level, target, subkey,
	payload_hash, token, title, state, warning, attempts, reconcile_attempts, next_reconcile_at,
	call_deadline, settle_after, can_reconcile, resolved_by, rev, created_at, updated_at, pin_hash, doubted,
	error, identity, payload, result, sent_as`

// scanMutation reads mutationColumns.
func scanMutation(row scanner) (m keep.Mutation, err error) {
	var next, deadline, settle, created, updated int64
	var failure []byte
	err = row.Scan(&m.Key, &m.Workflow, &m.Run, &m.Item, &m.Attempt, &m.Tool, &m.Connector, &m.Level, &m.Target, &m.Subkey,
		&m.PayloadHash, &m.Token, &m.Title, &m.State, &m.Warning, &m.Attempts, &m.ReconcileAttempts, &next,
		&deadline, &settle, &m.CanReconcile, &m.ResolvedBy, &m.Rev, &created, &updated, &m.PinHash, &m.Doubted,
		&failure, (*[]byte)(&m.Identity), (*[]byte)(&m.Payload), (*[]byte)(&m.Result), (*[]byte)(&m.Pin))
	if err != nil {
		return m, err
	}
	m.NextReconcileAt, m.CallDeadline = moment(next), moment(deadline)
	m.SettleAfter = time.Duration(settle)
	m.CreatedAt, m.UpdatedAt = moment(created), moment(updated)
	if m.Error, err = stored.ParseFailure(failure); err != nil {
		return m, fmt.Errorf("mutation %s: read error: %w", m.Key, err)
	}
	return m, nil
}
