package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/key"
)

// Keys keeps the records of idempotency keys in the database. It is an
// idempotency.Store, and an idempotency.TxStore whose transactions are *sql.Tx.
// Its writes share transactions, and so fsyncs, with all others.
type Keys struct{ db *DB }

// Keys returns the database's idempotency keys. It needs an open database.
func (db *DB) Keys() *Keys { return &Keys{db} }

// keyColumns are the columns of a record without its answer's bytes.
const keyColumns = `id, version, alias, host, key, caller, method, path, fingerprint, state, atomic, token, doubts,
	lease_until, doubt_at, status, resolved_by, created_at, updated_at, expires_at, rev`

// Read returns the record of an id, or the zero Record.
func (k *Keys) Read(ctx context.Context, id key.ID) (key.Record, error) {
	stmt, err := k.db.prepare(ctx, `SELECT `+keyColumns+`, header, body FROM idempotency_key WHERE id = ?`)
	if err != nil {
		return key.Record{}, fmt.Errorf("read %s: %w", id, k.db.named(err))
	}
	var r key.Record
	var header, body []byte
	err = scanKey(stmt.QueryRowContext(ctx, id[:]), &r, &header, &body)
	if errors.Is(err, sql.ErrNoRows) {
		return key.Record{}, nil
	}
	if err != nil {
		return key.Record{}, fmt.Errorf("read %s: %w", id, k.db.named(err))
	}
	r.Answer.Header, r.Answer.Body = header, body
	return r, nil
}

// scanKey reads the columns of keyColumns into r, and those after them into more.
func scanKey(row scanner, r *key.Record, more ...any) error {
	var id, alias, fingerprint []byte
	var lease, doubt, created, updated, expires int64
	dest := append([]any{&id, &r.Version, &alias, &r.Host, &r.Key, &r.Caller, &r.Method, &r.Path, &fingerprint, &r.State, &r.Atomic, &r.Fence, &r.Doubts,
		&lease, &doubt, &r.Answer.Status, &r.ResolvedBy, &created, &updated, &expires, &r.Rev}, more...)
	if err := row.Scan(dest...); err != nil {
		return err
	}
	copy(r.ID[:], id)
	copy(r.Alias[:], alias)
	copy(r.Fingerprint[:], fingerprint)
	r.LeaseUntil, r.DoubtAt = moment(lease), moment(doubt)
	r.CreatedAt, r.UpdatedAt, r.ExpiresAt = moment(created), moment(updated), moment(expires)
	return nil
}

// ReadAlias returns the live record of an alias at now, or the zero Record.
func (k *Keys) ReadAlias(ctx context.Context, alias key.ID, now time.Time) (key.Record, error) {
	list, err := rows(ctx, k.db, func(row scanner) (r key.Record, err error) { return r, scanKey(row, &r) },
		`SELECT `+keyColumns+` FROM idempotency_key WHERE alias = ? AND (state IN ('in_progress', 'unknown') OR expires_at > ?)`,
		alias[:], millis(now))
	if err != nil {
		return key.Record{}, fmt.Errorf("read the key of alias %s: %w", alias, err)
	}
	if len(list) == 0 {
		return key.Record{}, nil
	}
	return list[0], nil
}

// Write stores r in place of the record with its Rev, or returns keep.ErrStale.
func (k *Keys) Write(ctx context.Context, r key.Record) error {
	if err := r.Validate(); err != nil {
		return err
	}
	err := ErrReadOnly
	if k.db.write != nil {
		err = k.db.write.do(ctx, func(conn *conn) error {
			err := writeKey(conn.exec, r)
			if err == nil && r.State == key.InProgress { // only a guard takes a key, and executes what it is of
				k.db.write.counts.serve()
			}
			return err
		})
	}
	if err = movedAway(err); err != nil {
		return fmt.Errorf("write %s: %w", r.ID, err)
	}
	return nil
}

// movedAway returns err as keep.ErrReplaced, too, if the fence of a database that was moved refused a key: what is executed all the
// same would be executed again by who works on the other one.
func movedAway(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code() == sqlite3.SQLITE_CONSTRAINT_TRIGGER { // no table of keys has another trigger
		return fmt.Errorf("%w: %w", keep.ErrReplaced, err)
	}
	return err
}

// writeKey inserts or updates one record with a function that runs a statement
// and returns how many rows it changed.
func writeKey(exec func(string, ...any) (int64, error), r key.Record) error {
	if err := freeAlias(exec, r); err != nil {
		return err
	}
	if r.Rev == 0 {
		return insertKey(exec, r)
	}
	n, err := exec(`UPDATE idempotency_key SET
		version = ?, alias = ?, host = ?, key = ?, caller = ?, method = ?, path = ?, fingerprint = ?, state = ?, atomic = ?,
		token = ?, doubts = ?, lease_until = ?, doubt_at = ?, status = ?, resolved_by = ?, created_at = ?, updated_at = ?,
		expires_at = ?, rev = ?, header = ?, body = ?
		WHERE id = ? AND rev = ? AND `+noFormer, append(keyArgs(r), r.Rev, r.Former[:], millis(r.UpdatedAt))...)
	return staleKey(n, err)
}

// noFormer says that no record of version 1 is live, given its id and the time.
const noFormer = `NOT EXISTS (SELECT 1 FROM idempotency_key
	WHERE id = ? AND (state IN ('in_progress', 'unknown') OR state <> 'released' AND expires_at > ?))`

// insertKey adds a record.
func insertKey(exec func(string, ...any) (int64, error), r key.Record) error {
	n, err := exec(`INSERT INTO idempotency_key (
		version, alias, host, key, caller, method, path, fingerprint, state, atomic, token, doubts, lease_until, doubt_at,
		status, resolved_by, created_at, updated_at, expires_at, rev, header, body, id)
		SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
		WHERE `+noFormer, append(keyArgs(r), r.Former[:], millis(r.UpdatedAt))...)
	return staleKey(n, err)
}

// keyArgs are the values of a record that is written once more.
func keyArgs(r key.Record) []any {
	return []any{r.Version, aliasOf(r), r.Host, r.Key, r.Caller, r.Method, r.Path, r.Fingerprint[:], string(r.State), r.Atomic,
		int64(r.Fence), r.Doubts, millis(r.LeaseUntil), millis(r.DoubtAt), r.Answer.Status, r.ResolvedBy,
		millis(r.CreatedAt), millis(r.UpdatedAt), millis(r.ExpiresAt), r.Rev + 1, orNull(r.Answer.Header), orNull(r.Answer.Body), r.ID[:]}
}

// staleKey returns the error of a statement that is to write one record.
func staleKey(n int64, err error) error {
	if isUnique(err) || err == nil && n == 0 {
		return keep.ErrStale
	}
	return err
}

// freeAlias takes r's alias from a record that is over: an index makes sure that
// one record has it.
func freeAlias(exec func(string, ...any) (int64, error), r key.Record) error {
	if r.Alias == (key.ID{}) || r.State != key.InProgress {
		return nil
	}
	_, err := exec(`UPDATE idempotency_key SET alias = NULL
		WHERE alias = ? AND state IN ('done', 'done_without_body') AND expires_at <= ?`, r.Alias[:], millis(r.UpdatedAt))
	return err
}

// aliasOf returns r's alias, or NULL for none.
func aliasOf(r key.Record) any {
	if r.Alias == (key.ID{}) {
		return nil
	}
	return r.Alias[:]
}

// orNull returns b, or NULL for no bytes.
func orNull(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

// Sweep deletes at most limit records that are over at now.
func (k *Keys) Sweep(ctx context.Context, now time.Time, limit int) (int, error) {
	if k.db.write == nil {
		return 0, ErrReadOnly
	}
	var deleted int64
	err := k.db.write.do(ctx, func(conn *conn) (err error) {
		deleted, err = conn.exec(`DELETE FROM idempotency_key WHERE n IN (
			SELECT n FROM idempotency_key
			WHERE state IN ('done', 'done_without_body', 'released') AND expires_at <= ?
			ORDER BY expires_at LIMIT ?)`, now, limit)
		return err
	})
	return int(deleted), movedAway(err)
}

// List returns a page of the records that f selects, newest first, without their
// headers and bodies.
func (k *Keys) List(ctx context.Context, f key.Filter, p keep.Page) ([]key.Record, string, error) {
	c, err := parseCursor("k", p)
	if err != nil {
		return nil, "", fmt.Errorf("list idempotency keys: %w", err)
	}
	where, args := []string{"n < ?"}, []any{c.before}
	add := func(column, value string) {
		if value != "" {
			where, args = append(where, column+" = ?"), append(args, value)
		}
	}
	add("state", string(f.State))
	if f.State == key.InProgress || f.State == key.Unknown {
		where = append(where, "state IN ('in_progress', 'unknown')") // as the index has it
	}
	add("key", f.Key)
	add("caller", f.Caller)
	type numbered struct {
		n int64
		r key.Record
	}
	list, err := rows(ctx, k.db, func(row scanner) (v numbered, err error) {
		err = scanKey(row, &v.r, &v.n)
		return v, err
	}, `SELECT `+keyColumns+`, n FROM idempotency_key WHERE `+strings.Join(where, " AND ")+
		` ORDER BY n DESC LIMIT ?`, append(args, c.limit)...)
	if err != nil {
		return nil, "", fmt.Errorf("list idempotency keys: %w", err)
	}
	next := ""
	if len(list) == c.limit { // one more than the page holds
		list = list[:c.limit-1]
		next = "k" + strconv.FormatInt(list[len(list)-1].n, 10)
	}
	var records []key.Record
	for _, v := range list {
		records = append(records, v.r)
	}
	return records, next, nil
}
