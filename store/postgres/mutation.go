package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/law/search"
	"github.com/keep-run/keep/store/internal/stored"
)

var insertMove = insertInto("mutation_history",
	`workflow text, mutation bigint, n bigint, at bigint, who text, from_state text, to_state text, evidence text, detail text`, "")

// writeMove appends to the history of a record.
func (t *tx) writeMove(m commit.Move) error {
	t.add(&insertMove, text(string(t.workflow)), m.Mutation.N, t.next(), millis(m.At), text(m.By), text(string(m.From)), text(string(m.To)),
		text(m.Evidence), text(m.Detail))
	return nil
}

const mutationSpec = `run text, connector text, level text, target text, subkey text, payload_hash text, token text, title text,
	state text, warning text, attempts bigint, reconcile_attempts bigint, next_reconcile_at bigint, call_deadline bigint,
	settle_after bigint, can_reconcile boolean, resolved_by text, rev bigint, created_at bigint, updated_at bigint,
	pin_hash text, doubted boolean, error text?, identity bytea?, payload bytea?, result bytea?, sent_as bytea?, words words?`

var (
	insertMutation = insertInto("mutation", `workflow text, tool text, n bigint, key text, item text, attempt bigint, `+mutationSpec, "")
	updateMutation = updateOf("mutation", `workflow text, tool text, n bigint`, mutationSpec)
)

// writeMutation writes a row of a plan.
func (t *tx) writeMutation(f *commit.Mutation) error {
	if f.New {
		f.N = t.next()
	}
	m := f.Put
	failure, err := asText(stored.Failure(m.Error))
	if err != nil {
		return fmt.Errorf("mutation %s: %w", m.Key, err)
	}
	key := []any{text(string(m.Workflow)), text(string(m.Tool)), f.N}
	row := []any{
		text(string(m.Run)), text(m.Connector), text(string(m.Level)), text(m.Target), text(m.Subkey), text(m.PayloadHash), text(m.Token), text(m.Title),
		text(string(m.State)), text(m.Warning), int64(m.Attempts), int64(m.ReconcileAttempts), millis(m.NextReconcileAt), millis(m.CallDeadline),
		int64(m.SettleAfter), m.CanReconcile, text(m.ResolvedBy), int64(m.Rev), millis(m.CreatedAt), millis(m.UpdatedAt),
		text(m.PinHash), m.Doubted, failure, []byte(m.Identity), []byte(m.Payload), []byte(m.Result), []byte(m.Pin), words(search.OfMutation(*m)),
	}
	if f.New {
		t.tally("mutation", string(m.Tool))
		t.add(&insertMutation, append(append(key, text(string(m.Key)), text(m.Item), int64(m.Attempt)), row...)...)
	} else {
		t.add(&updateMutation, append(key, row...)...)
	}
	return nil
}

// Mutation returns the record of that key, or *keep.NotFoundError.
func (db *DB) Mutation(ctx context.Context, key keep.MutationKey) (keep.Mutation, error) {
	return one(ctx, db, "mutation", string(key), scanMutation, `SELECT `+mutationColumns+` FROM mutation WHERE key = $1`, key)
}

// ResultsAfter returns results of applied mutations of w that were made after that
// of key, oldest first. It looks at limit records, all of the same tool.
func (db *DB) ResultsAfter(ctx context.Context, w keep.WorkflowName, key keep.MutationKey, limit, size int) ([]keep.StoredResult, error) {
	return collect(ctx, db, scanResult, `
		SELECT key, payload_hash, result FROM (
			SELECT key, payload_hash, result, state, n FROM mutation
			 WHERE workflow = $1
			   AND tool = (SELECT tool FROM mutation WHERE key = $2 AND workflow = $1)
			   AND n > (SELECT n FROM mutation WHERE key = $2 AND workflow = $1)
			 ORDER BY n LIMIT $3) AS later
		 WHERE state = 'applied' AND coalesce(octet_length(result), 0) <= $4
		 ORDER BY n`, w, key, max(limit, 0), size)
}

func scanResult(row pgx.CollectableRow) (r keep.StoredResult, err error) {
	err = row.Scan(into(&r.Key), into(&r.PayloadHash), (*[]byte)(&r.Result))
	return r, err
}

// History returns every move of a mutation, oldest first.
func (db *DB) History(ctx context.Context, key keep.MutationKey) ([]keep.Move, error) {
	return collect(ctx, db, scanMove, `
		SELECT `+moveColumns+`
		  FROM mutation m JOIN mutation_history h ON h.workflow = m.workflow AND h.mutation = m.n
		 WHERE m.key = $1 ORDER BY h.n`, key)
}

const moveColumns = `h.at, h.who, h.from_state, h.to_state, h.evidence, h.detail`

// scanMove reads moveColumns.
func scanMove(row pgx.CollectableRow) (m keep.Move, err error) {
	var at int64
	err = row.Scan(&at, into(&m.By), into(&m.From), into(&m.To), into(&m.Evidence), into(&m.Detail))
	m.At = moment(at)
	return m, err
}

// Rival returns the oldest record that keeps a commit with u from being made, and whether
// there is one.
func (db *DB) Rival(ctx context.Context, u keep.Unlike) (keep.Mutation, bool, error) {
	list, err := collect(ctx, db, scanMutation, `SELECT `+mutationColumns+` FROM mutation
		 WHERE tool = $1 AND sha256(identity) = $2 AND subkey = $3 AND `+mayRival+` ORDER BY n, workflow`,
		text(string(u.Tool)), identityHash(u.Identity), text(u.Subkey))
	for _, m := range list {
		if m.Key != u.Key && !slices.Contains(u.Except, m.Key) {
			return m, true, err
		}
	}
	return keep.Mutation{}, false, err
}

// mutationColumns end with JSON, which can be long.
const mutationColumns = `mutation.key, mutation.workflow, mutation.run, mutation.item, mutation.attempt, mutation.tool,
	mutation.connector, mutation.level, mutation.target, mutation.subkey, mutation.payload_hash, mutation.token, mutation.title,
	mutation.state, mutation.warning, mutation.attempts, mutation.reconcile_attempts, mutation.next_reconcile_at,
	mutation.call_deadline, mutation.settle_after, mutation.can_reconcile, mutation.resolved_by, mutation.rev,
	mutation.created_at, mutation.updated_at, mutation.pin_hash, mutation.doubted,
	mutation.error, mutation.identity, mutation.payload, mutation.result, mutation.sent_as, mutation.n`

// scanMutation reads mutationColumns.
func scanMutation(row pgx.CollectableRow) (keep.Mutation, error) {
	p, err := scanMutationAt(row)
	return p.what, err
}

// scanMutationAt reads mutationColumns, with the place of the record in lists, and
// the columns after them into more.
func scanMutationAt(row pgx.CollectableRow, more ...any) (p placed[keep.Mutation], err error) {
	var next, deadline, settle, created, updated int64
	var failure []byte
	m := &p.what
	err = row.Scan(append([]any{into(&m.Key), into(&m.Workflow), into(&m.Run), into(&m.Item), &m.Attempt, into(&m.Tool),
		into(&m.Connector), into(&m.Level), into(&m.Target), into(&m.Subkey), into(&m.PayloadHash), into(&m.Token), into(&m.Title),
		into(&m.State), into(&m.Warning), &m.Attempts, &m.ReconcileAttempts, &next,
		&deadline, &settle, &m.CanReconcile, into(&m.ResolvedBy), &m.Rev,
		&created, &updated, into(&m.PinHash), &m.Doubted, &failure, (*[]byte)(&m.Identity), (*[]byte)(&m.Payload),
		(*[]byte)(&m.Result), (*[]byte)(&m.Pin), &p.n}, more...)...)
	if err != nil {
		return p, err
	}
	p.workflow = m.Workflow
	m.NextReconcileAt, m.CallDeadline = moment(next), moment(deadline)
	m.SettleAfter = time.Duration(settle)
	m.CreatedAt, m.UpdatedAt = moment(created), moment(updated)
	if m.Error, err = stored.ParseFailure(failure); err != nil {
		return p, fmt.Errorf("mutation %s: read error: %w", m.Key, err)
	}
	return p, nil
}
