package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

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
	pool, err := sql.Open("sqlite", k.db.dsn(false)+"&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("begin: %w", err), pool.Close())
	}
	return &keyTx{k.db, pool, tx}, nil
}

// A keyTx is a transaction with a connection of its own.
type keyTx struct {
	db   *DB
	pool *sql.DB
	tx   *sql.Tx
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
	err := writeKey(func(text string, args ...any) (int64, error) {
		result, err := t.tx.ExecContext(ctx, text, args...)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	}, r)
	if err = movedAway(err); err != nil {
		return fmt.Errorf("write %s: %w", r.ID, err)
	}
	return nil
}

// open returns nil if the transaction is still open, and key.ErrTxEnded if it ended under its handler: SQLite rolls all of it back when a
// statement that writes is interrupted, or finds no space, and what is executed after that is there at once. Whether it is open
// shows in that no other one begins in it.
func (t *keyTx) open(ctx context.Context) error {
	_, err := t.tx.ExecContext(ctx, `BEGIN`)
	switch {
	case err == nil:
		_, err = t.tx.ExecContext(ctx, `ROLLBACK`)
		return errors.Join(key.ErrTxEnded, err)
	case errors.Is(err, sql.ErrTxDone):
		return key.ErrTxEnded
	case strings.Contains(err.Error(), "within a transaction"):
		return nil
	}
	return err
}

// Commit makes everything durable and gives the connection back. What is committed stays so, whatever else it waits for:
// so it waits for nothing, and only looks whether the file is still the one that was opened.
func (t *keyTx) Commit(context.Context) error {
	err := t.tx.Commit()
	closed := t.pool.Close() // it says nothing about what is committed
	if err != nil {
		return errors.Join(err, closed)
	}
	return t.db.write.identity.check()
}

// Rollback undoes everything. After Commit it does nothing.
func (t *keyTx) Rollback() error {
	err := t.tx.Rollback()
	if errors.Is(err, sql.ErrTxDone) || err != nil && strings.Contains(err.Error(), "no transaction is active") { // see open
		err = nil
	}
	return errors.Join(err, t.pool.Close())
}
