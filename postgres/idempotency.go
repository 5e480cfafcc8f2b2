package postgres

import (
	"context"
	_ "embed" // the schema
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency/key"
)

//go:embed migrations/0002_idempotency.sql
var idempotencySchema string

// Keys keeps the records of idempotency keys. It is an idempotency.Store, and an
// idempotency.TxStore whose transactions are pgx.Tx.
type Keys struct{ pool *pgxpool.Pool }

// NewKeys returns the records in the pool's database. It touches nothing; Migrate
// makes the table.
func NewKeys(pool *pgxpool.Pool) *Keys { return &Keys{pool} }

// migrationLock is the advisory lock under which the schema is changed: "KEEP".
const migrationLock = 0x4b454550

// Migrate makes the table if it is missing. Several processes may call it at once.
func (k *Keys) Migrate(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, k.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, migrationLock); err != nil {
			return err
		}
		var exists bool
		if err := tx.QueryRow(ctx, `SELECT to_regclass('idempotency_key') IS NOT NULL`).Scan(&exists); err != nil || exists {
			return err
		}
		_, err := tx.Exec(ctx, idempotencySchema)
		return err
	})
	if err != nil {
		return fmt.Errorf("migrate idempotency keys: %w", err)
	}
	return nil
}

const keyColumns = `id, key, caller, method, path, fingerprint, state, atomic, token, doubts,
	lease_until, doubt_at, status, resolved_by, created_at, updated_at, expires_at, rev`

// Read returns the record of an id, or the zero Record.
func (k *Keys) Read(ctx context.Context, id key.ID) (key.Record, error) {
	var r key.Record
	err := scanKey(k.pool.QueryRow(ctx, `SELECT `+keyColumns+`, header, body FROM idempotency_key WHERE id = $1`, id[:]),
		&r, &r.Answer.Header, &r.Answer.Body)
	if errors.Is(err, pgx.ErrNoRows) {
		return key.Record{}, nil
	}
	if err != nil {
		return key.Record{}, fmt.Errorf("read %s: %w", id, err)
	}
	return r, nil
}

// scanKey reads the columns of keyColumns into r, and those after them into more.
func scanKey(row pgx.Row, r *key.Record, more ...any) error {
	var id, fingerprint []byte
	var lease, doubt, created, updated, expires int64
	if err := row.Scan(append([]any{&id, &r.Key, &r.Caller, &r.Method, &r.Path, &fingerprint, &r.State, &r.Atomic, &r.Token,
		&r.Doubts, &lease, &doubt, &r.Answer.Status, &r.ResolvedBy, &created, &updated, &expires, &r.Rev}, more...)...); err != nil {
		return err
	}
	copy(r.ID[:], id)
	copy(r.Fingerprint[:], fingerprint)
	r.LeaseUntil, r.DoubtAt = moment(lease), moment(doubt)
	r.CreatedAt, r.UpdatedAt, r.ExpiresAt = moment(created), moment(updated), moment(expires)
	return nil
}

// Write stores r in place of the record with its Rev, or returns keep.ErrStale.
func (k *Keys) Write(ctx context.Context, r key.Record) error { return writeKey(ctx, k.pool, r) }

// An execer runs one statement: the pool, or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func writeKey(ctx context.Context, db execer, r key.Record) error {
	if err := r.Validate(); err != nil {
		return err
	}
	args := []any{r.ID[:], r.Key, r.Caller, r.Method, r.Path, r.Fingerprint[:], string(r.State), r.Atomic, int64(r.Token), r.Doubts,
		millis(r.LeaseUntil), millis(r.DoubtAt), r.Answer.Status, r.ResolvedBy,
		millis(r.CreatedAt), millis(r.UpdatedAt), millis(r.ExpiresAt), orNull(r.Answer.Header), orNull(r.Answer.Body), r.Rev + 1}
	sql := `INSERT INTO idempotency_key (
			id, key, caller, method, path, fingerprint, state, atomic, token, doubts, lease_until, doubt_at, status,
			resolved_by, created_at, updated_at, expires_at, header, body, rev)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
		ON CONFLICT (id) DO NOTHING`
	if r.Rev > 0 {
		sql = `UPDATE idempotency_key SET
			key = $2, caller = $3, method = $4, path = $5, fingerprint = $6, state = $7, atomic = $8, token = $9, doubts = $10,
			lease_until = $11, doubt_at = $12, status = $13, resolved_by = $14, created_at = $15, updated_at = $16,
			expires_at = $17, header = $18, body = $19, rev = $20
		WHERE id = $1 AND rev = $20 - 1`
	}
	tag, err := db.Exec(ctx, sql, args...)
	if err == nil && tag.RowsAffected() == 0 {
		err = keep.ErrStale
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", r.ID, err)
	}
	return nil
}

// Sweep deletes at most limit records that are over at now. Two sweepers do not
// wait for each other.
func (k *Keys) Sweep(ctx context.Context, now time.Time, limit int) (int, error) {
	tag, err := k.pool.Exec(ctx, `DELETE FROM idempotency_key WHERE n IN (
		SELECT n FROM idempotency_key
		WHERE state IN ('done', 'done_without_body', 'released') AND expires_at <= $1
		ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)`, millis(now), limit)
	return int(tag.RowsAffected()), err
}

// List returns a page of the records that f selects, newest first, without their
// headers and bodies.
func (k *Keys) List(ctx context.Context, f key.Filter, p keep.Page) ([]key.Record, string, error) {
	before := int64(1<<63 - 1)
	if p.After != "" {
		n, err := strconv.ParseInt(p.After, 10, 64)
		if err != nil || n < 1 {
			return nil, "", fmt.Errorf("list idempotency keys after %q: %w", p.After, keep.ErrBadCursor)
		}
		before = n
	}
	where := `n < $1 AND ($2 = '' OR state = $2) AND ($3 = '' OR key = $3) AND ($4 = '' OR caller = $4)`
	if f.State == key.InProgress || f.State == key.Unknown {
		where += ` AND state IN ('in_progress', 'unknown')` // as the index has it
	}
	rows, err := k.pool.Query(ctx, `SELECT `+keyColumns+`, n FROM idempotency_key WHERE `+where+` ORDER BY n DESC LIMIT $5`,
		before, string(f.State), f.Key, f.Caller, p.Size()+1)
	if err != nil {
		return nil, "", fmt.Errorf("list idempotency keys: %w", err)
	}
	var list []key.Record
	var last int64
	next := ""
	for rows.Next() && next == "" {
		if len(list) == p.Size() {
			next = strconv.FormatInt(last, 10)
			break
		}
		var r key.Record
		if err := scanKey(rows, &r, &last); err != nil {
			rows.Close()
			return nil, "", fmt.Errorf("list idempotency keys: %w", err)
		}
		list = append(list, r)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, "", fmt.Errorf("list idempotency keys: %w", err)
	}
	return list, next, nil
}

// Begin starts the transaction in which a handler works and its key completes. Its
// handle is a pgx.Tx.
func (k *Keys) Begin(ctx context.Context) (key.Tx, error) {
	tx, err := k.pool.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	return keyTx{tx}, nil
}

type keyTx struct{ tx pgx.Tx }

// Handle returns the pgx.Tx.
func (t keyTx) Handle() any { return t.tx }

// Write puts the record into the transaction.
func (t keyTx) Write(ctx context.Context, r key.Record) error { return writeKey(ctx, t.tx, r) }

// Commit makes the record durable with everything that the handler wrote.
func (t keyTx) Commit(ctx context.Context) error { return t.tx.Commit(ctx) }

// Rollback has no context: it must also work after the request's ended.
func (t keyTx) Rollback() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := t.tx.Rollback(ctx); !errors.Is(err, pgx.ErrTxClosed) {
		return err
	}
	return nil
}

// orNull returns b, or NULL for no bytes.
func orNull(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// millis returns t as it is stored; 0 means not set.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// moment is the opposite of millis.
func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
