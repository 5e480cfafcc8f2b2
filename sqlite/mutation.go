package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/keep-run/keep"
)

// putMutation writes a record if its stored revision is the one that was read,
// then its moves. Validate runs here too: a record that claims a result without
// being applied must not reach the disk by any path.
func (t *tx) putMutation(m keep.Mutation, moves []keep.Move) error {
	if err := t.mine("mutation", string(m.Key), m.Workflow); err != nil {
		return err
	}
	if err := m.Validate(); err != nil {
		return err
	}
	failure, err := encodeFailure(m.Error)
	if err != nil {
		return fmt.Errorf("mutation %s: %w", m.Key, err)
	}
	var changed, n int64
	if m.Rev == 0 {
		changed, n, err = t.insertMutation(m, failure)
	} else {
		changed, err = t.updateMutation(m, failure)
		if changed == 0 && err == nil {
			changed, err = t.handOver(m, failure)
		}
	}
	switch {
	case isUnique(err):
		err = keep.ErrMutationExists
	case err == nil && changed == 0:
		err = t.whyNotMutation(m)
	}
	if err != nil {
		return fmt.Errorf("mutation %s: %w", m.Key, err)
	}
	for i, move := range moves {
		if n > 0 {
			err = t.firstMove(n, i+1, move)
		} else {
			err = t.nextMove(m.Key, move)
		}
		if err != nil {
			return fmt.Errorf("history of mutation %s: %w", m.Key, err)
		}
	}
	return nil
}

// insertMutation adds a record and returns its row, for the history. A unique
// error means that the key was used (law: once).
func (t *tx) insertMutation(m keep.Mutation, failure any) (changed, n int64, err error) {
	return t.insert(`
		INSERT INTO mutation (key, workflow, run, item, attempt, tool, connector, level, target, subkey,
			payload_hash, token, title, state, warning, attempts, reconcile_attempts, next_reconcile_at,
			call_deadline, settle_after, can_reconcile, resolved_by, rev, created_at, updated_at,
			error, identity, payload, result)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
			?, ?, ?, ?, ?, ?, ?, ?,
			?, ?, ?, ?, 1, ?, ?,
			?, ?, ?, ?)`,
		m.Key, m.Workflow, m.Run, m.Item, m.Attempt, m.Tool, m.Connector, m.Level, m.Target, m.Subkey,
		m.PayloadHash, m.Token, m.Title, m.State, m.Warning, m.Attempts, m.ReconcileAttempts, m.NextReconcileAt,
		m.CallDeadline, int64(m.SettleAfter), m.CanReconcile, m.ResolvedBy, m.CreatedAt, m.UpdatedAt,
		failure, m.Identity, m.Payload, m.Result)
}

// updateMutation changes a record that stays with its run. It leaves out what
// never changes, and the run: an index is rewritten for each of its columns that
// is set, also to the same value.
func (t *tx) updateMutation(m keep.Mutation, failure any) (int64, error) {
	return t.exec(`
		UPDATE mutation
		   SET connector = ?, level = ?, target = ?, subkey = ?, payload_hash = ?, token = ?,
		       title = ?, state = ?, warning = ?, attempts = ?, reconcile_attempts = ?,
		       next_reconcile_at = ?, call_deadline = ?, settle_after = ?, can_reconcile = ?,
		       resolved_by = ?, rev = rev + 1, created_at = ?, updated_at = ?,
		       error = ?, identity = ?, payload = ?, result = ?
		 WHERE key = ? AND rev = ? AND run = ? AND workflow = ? AND tool = ? AND item = ? AND attempt = ?`,
		m.Connector, m.Level, m.Target, m.Subkey, m.PayloadHash, m.Token,
		m.Title, m.State, m.Warning, m.Attempts, m.ReconcileAttempts,
		m.NextReconcileAt, m.CallDeadline, int64(m.SettleAfter), m.CanReconcile,
		m.ResolvedBy, m.CreatedAt, m.UpdatedAt,
		failure, m.Identity, m.Payload, m.Result,
		m.Key, m.Rev, m.Run, m.Workflow, m.Tool, m.Item, m.Attempt)
}

// handOver gives a record to another run of its chain, then changes it.
func (t *tx) handOver(m keep.Mutation, failure any) (int64, error) {
	n, err := t.exec(`UPDATE mutation SET run = ? WHERE key = ? AND rev = ? AND workflow = ?`, m.Run, m.Key, m.Rev, m.Workflow)
	if err != nil || n == 0 {
		return n, err
	}
	return t.updateMutation(m, failure)
}

// whyNotMutation explains why a record could not be moved.
func (t *tx) whyNotMutation(m keep.Mutation) error {
	row, err := t.row(`SELECT rev FROM mutation WHERE key = ?`, m.Key)
	if err != nil {
		return err
	}
	if row == nil || row[0] != int64(m.Rev) {
		return keep.ErrStale
	}
	return fmt.Errorf("workflow, tool, item and attempt are fixed")
}

// firstMove writes a line of the history of a new record, whose row is known.
func (t *tx) firstMove(n int64, line int, m keep.Move) error {
	_, err := t.exec(`
		INSERT INTO mutation_history (mutation, move, at, who, from_state, to_state, evidence, detail)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		n, line, m.At, m.By, m.From, m.To, m.Evidence, m.Detail)
	return err
}

// nextMove appends to the history of a record that was there.
func (t *tx) nextMove(key keep.MutationKey, m keep.Move) error {
	_, err := t.exec(`
		INSERT INTO mutation_history (mutation, move, at, who, from_state, to_state, evidence, detail)
		VALUES ((SELECT n FROM mutation WHERE key = ?1),
			(SELECT ifnull(max(move), 0) + 1 FROM mutation_history
			  WHERE mutation = (SELECT n FROM mutation WHERE key = ?1)),
			?2, ?3, ?4, ?5, ?6, ?7)`,
		key, m.At, m.By, m.From, m.To, m.Evidence, m.Detail)
	return err
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

func scanResult(row *sql.Rows) (r keep.StoredResult, err error) {
	err = row.Scan(&r.Key, &r.PayloadHash, (*[]byte)(&r.Result))
	return r, err
}

// History returns every move of a mutation, oldest first.
func (db *DB) History(ctx context.Context, key keep.MutationKey) ([]keep.Move, error) {
	return rows(ctx, db, scanMove, `
		SELECT h.at, h.who, h.from_state, h.to_state, h.evidence, h.detail
		  FROM mutation m JOIN mutation_history h ON h.mutation = m.n
		 WHERE m.key = ? ORDER BY h.move`, key)
}

// scanMove reads one line of history.
func scanMove(row *sql.Rows) (m keep.Move, err error) {
	var at int64
	err = row.Scan(&at, &m.By, &m.From, &m.To, &m.Evidence, &m.Detail)
	m.At = moment(at)
	return m, err
}

// mutationColumns are in the order of the table; JSON, which can be long, is last.
const mutationColumns = `key, workflow, run, item, attempt, tool, connector, level, target, subkey,
	payload_hash, token, title, state, warning, attempts, reconcile_attempts, next_reconcile_at,
	call_deadline, settle_after, can_reconcile, resolved_by, rev, created_at, updated_at,
	error, identity, payload, result`

// scanMutation reads mutationColumns.
func scanMutation(row *sql.Rows) (m keep.Mutation, err error) {
	var next, deadline, settle, created, updated int64
	var failure []byte
	err = row.Scan(&m.Key, &m.Workflow, &m.Run, &m.Item, &m.Attempt, &m.Tool, &m.Connector, &m.Level, &m.Target, &m.Subkey,
		&m.PayloadHash, &m.Token, &m.Title, &m.State, &m.Warning, &m.Attempts, &m.ReconcileAttempts, &next,
		&deadline, &settle, &m.CanReconcile, &m.ResolvedBy, &m.Rev, &created, &updated,
		&failure, (*[]byte)(&m.Identity), (*[]byte)(&m.Payload), (*[]byte)(&m.Result))
	if err != nil {
		return m, err
	}
	m.NextReconcileAt, m.CallDeadline = moment(next), moment(deadline)
	m.SettleAfter = time.Duration(settle)
	m.CreatedAt, m.UpdatedAt = moment(created), moment(updated)
	if m.Error, err = decodeFailure(failure); err != nil {
		return m, fmt.Errorf("mutation %s: read error: %w", m.Key, err)
	}
	return m, nil
}
