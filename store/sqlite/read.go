package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/keep-run/keep"
)

// A source runs queries: a DB, each in a snapshot of its own, or a view.
type source interface {
	prepare(ctx context.Context, text string) (*sql.Stmt, error)
	named(err error) error
}

// A view is one snapshot for several queries.
type view struct {
	db    *DB
	tx    *sql.Tx
	fresh []string // statements that the pool does not know yet
}

// snapshot calls f with a view of the database as it is now.
func (db *DB) snapshot(ctx context.Context, f func(*view) error) error {
	if db.read == nil || db.over.Load() {
		return ErrClosed
	}
	tx, err := db.read.BeginTx(ctx, nil)
	if err != nil {
		return db.named(err)
	}
	v := &view{db: db, tx: tx}
	err = db.named(f(v))
	_ = tx.Rollback() // nothing was written
	for _, text := range v.fresh {
		if _, prepErr := db.prepare(ctx, text); prepErr != nil {
			break // the next view prepares it for itself again
		}
	}
	return err
}

func (v *view) named(err error) error { return v.db.named(err) }

// named returns err with what to do, if it is of the file or its disk.
func (db *DB) named(err error) error { return named(err, db.path) }

// prepare returns the pool's statement, bound to the view's connection. One that
// the pool does not know yet is prepared on that connection alone: to ask the
// pool for another one while holding this would let all readers wait for each
// other.
func (v *view) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	if stmt, ok := v.db.stmts.Load(text); ok {
		return v.tx.StmtContext(ctx, stmt.(*sql.Stmt)), nil
	}
	v.fresh = append(v.fresh, text)
	return v.tx.PrepareContext(ctx, text)
}

// prepare returns the statement of a text; database/sql prepares it once per
// connection of the pool.
func (db *DB) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	if db.read == nil || db.over.Load() {
		return nil, ErrClosed
	}
	if stmt, ok := db.stmts.Load(text); ok {
		return stmt.(*sql.Stmt), nil
	}
	stmt, err := db.read.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	if first, loaded := db.stmts.LoadOrStore(text, stmt); loaded {
		return first.(*sql.Stmt), stmt.Close()
	}
	return stmt, nil
}

// row scans the first row of a query into dest, or returns sql.ErrNoRows.
func (db *DB) row(ctx context.Context, text string, args []any, dest ...any) error {
	stmt, err := db.prepare(ctx, text)
	if err != nil {
		return db.named(err)
	}
	return db.named(stmt.QueryRowContext(ctx, args...).Scan(dest...))
}

// A scanner is a row that was found.
type scanner interface{ Scan(dest ...any) error }

// wider is a row with more columns than a scan function knows.
type wider struct {
	scanner
	more []any
}

func (w wider) Scan(dest ...any) error { return w.scanner.Scan(append(dest, w.more...)...) }

// rows returns what a query finds.
func rows[T any](ctx context.Context, src source, scan func(scanner) (T, error), text string, args ...any) (list []T, err error) {
	defer func() { err = src.named(err) }()
	stmt, err := src.prepare(ctx, text)
	if err != nil {
		return nil, err
	}
	found, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	for found.Next() {
		v, err := scan(found)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, errors.Join(found.Err(), found.Close())
}

// one returns the one thing that a query finds, or *keep.NotFoundError.
func one[T any](ctx context.Context, src source, what, id string, scan func(scanner) (T, error), text string, args ...any) (T, error) {
	list, err := rows(ctx, src, scan, text, args...)
	if err == nil && len(list) == 0 {
		err = &keep.NotFoundError{What: what, ID: id}
	}
	if err != nil {
		var none T
		return none, err
	}
	return list[0], nil
}
