package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/keep-run/keep/law/key"
)

// Begin starts the transaction in which a handler works and its key completes.
// Its handle is a *sql.Tx.
//
// SQLite has one place to write, and this takes it: every other commit, of this
// process and of others, waits for the end, and fails after Config.BusyTimeout.
// It has a connection of its own, since a handler can't be run again when a group
// of commits has to be.
func (k *Keys) Begin(ctx context.Context) (key.Tx, error) {
	if k.db.cfg.ReadOnly {
		return nil, ErrReadOnly
	}
	if k.db.over.Load() {
		return nil, ErrClosed
	}
	file, err := openFiles.use(k.db.path) // until its end, which may come after DB.Close
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	t := &keyTx{db: k.db, file: file}
	if t.pool, err = sql.Open("sqlite", k.db.dsn(false)+"&_txlock=immediate"); err == nil {
		t.tx, err = t.pool.BeginTx(ctx, nil)
	}
	if err == nil {
		_, err = t.tx.ExecContext(ctx, `SAVEPOINT `+txMark)
	}
	if err != nil {
		err = fmt.Errorf("begin: %w", err)
		if t.tx != nil {
			err = errors.Join(err, t.tx.Rollback())
		}
		return nil, errors.Join(err, t.end())
	}
	return t, nil
}

// txMark is a savepoint that a transaction of a handler has for as long as it is the one that was begun: it goes with it, also if the
// handler ends that by a statement and begins another one.
const txMark = `keep_transaction_of_a_key`

// A keyTx is a transaction with a connection of its own.
type keyTx struct {
	db    *DB
	file  *openFile
	pool  *sql.DB
	tx    *sql.Tx
	said  *signature // what the lock is to say when it is on disk; nil: nothing is counted
	ended sync.Once
}

// end closes the connection; twice is fine.
func (t *keyTx) end() error {
	var errs []error
	t.ended.Do(func() {
		if t.pool != nil {
			errs = append(errs, t.pool.Close())
		}
		errs = append(errs, openFiles.done(t.file))
	})
	return errors.Join(errs...)
}

// A txConn executes statements in a transaction as a conn does.
type txConn struct {
	ctx context.Context // of the call
	tx  *sql.Tx
}

func (c txConn) exec(text string, args ...any) (int64, error) {
	result, err := c.tx.ExecContext(c.ctx, text, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (c txConn) row(text string, args ...any) ([]driver.Value, error) {
	rows, err := c.tx.QueryContext(c.ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		return nil, errors.Join(err, rows.Err())
	}
	values, dest := make([]driver.Value, len(columns)), make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	return values, rows.Scan(dest...)
}

// Handle returns the *sql.Tx.
func (t *keyTx) Handle() any { return t.tx }

// Write is the store's Write, as a part of the transaction.
func (t *keyTx) Write(ctx context.Context, r key.Record) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if err := t.open(ctx); err != nil {
		return fmt.Errorf("write %s: %w", r.ID, err)
	}
	c := txConn{ctx, t.tx}
	err := writeKey(c.exec, r)
	if err == nil && t.said == nil && t.db.write.counts.on.Load() { // each one, since it may take longer than the second in which others are counted
		t.said = new(signature)
		*t.said, err = sign(c)
	}
	if err = movedAway(err); err != nil {
		return fmt.Errorf("write %s: %w", r.ID, err)
	}
	return nil
}

// open returns nil if the transaction is still the one that was begun, and key.ErrTxEnded if it ended under its handler: by a
// statement of that, or since SQLite rolls all of it back when a statement that writes is interrupted, or finds no space. What is executed
// after that is there at once, or in another one.
func (t *keyTx) open(ctx context.Context) error {
	_, err := t.tx.ExecContext(ctx, `RELEASE `+txMark)
	switch {
	case err == nil:
		_, err = t.tx.ExecContext(ctx, `SAVEPOINT `+txMark)
	case errors.Is(err, sql.ErrTxDone), strings.Contains(err.Error(), "no such savepoint"):
		return key.ErrTxEnded
	}
	return err
}

// Commit makes everything durable and gives the connection back. What is committed stays so, whatever else it waits for:
// so it waits for nothing, and only looks whether the file is still the one that was opened.
func (t *keyTx) Commit(context.Context) error {
	err := t.tx.Commit()
	closed := t.end() // it says nothing about what is committed
	if err != nil {
		return errors.Join(err, closed)
	}
	if err := t.db.write.identity.check(); err != nil {
		return err
	}
	if t.said != nil {
		t.said.pid = readSignature(t.db.path).pid // this one may be the host no more
		t.said.write(t.db.path)
	}
	return nil
}

// Rollback undoes everything. After Commit it does nothing.
func (t *keyTx) Rollback() error {
	err := t.tx.Rollback()
	if errors.Is(err, sql.ErrTxDone) || err != nil && strings.Contains(err.Error(), "no transaction is active") { // see open
		err = nil
	}
	return errors.Join(err, t.end())
}
