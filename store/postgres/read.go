package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
)

// collect returns what a query finds. Each query is one statement, and so one
// snapshot; none waits for a commit.
func collect[T any](ctx context.Context, db *DB, scan func(pgx.CollectableRow) (T, error), sql string, args ...any) ([]T, error) {
	if db.pool == nil || db.over.Load() {
		return nil, ErrClosed
	}
	found, err := db.pool.Query(ctx, sql, values(args)...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var list []T
	for found.Next() {
		v, err := scan(found)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, found.Err()
}

// one returns the one thing that a query finds, or *keep.NotFoundError.
func one[T any](ctx context.Context, db *DB, what, id string, scan func(pgx.CollectableRow) (T, error), sql string, args ...any) (T, error) {
	list, err := collect(ctx, db, scan, sql, args...)
	if err == nil && len(list) == 0 {
		err = &keep.NotFoundError{What: what, ID: id}
	}
	if err != nil {
		var none T
		return none, err
	}
	return list[0], nil
}

// scanNumber reads a number.
func scanNumber(row pgx.CollectableRow) (n int64, err error) {
	err = row.Scan(&n)
	return n, err
}
