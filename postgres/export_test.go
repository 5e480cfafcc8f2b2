package postgres

import (
	"context"
	"time"
)

// URL returns what the database was opened with.
func (db *DB) URL() string { return db.url }

// Age moves what hosts have written into the past.
func (db *DB) Age(ctx context.Context, d time.Duration) error {
	_, err := db.pool.Exec(ctx, `UPDATE host SET until = until - $1, started_at = started_at - $1`, d.Milliseconds())
	return err
}

// Terminate ends the connections of this schema whose last query is like that.
func (db *DB) Terminate(ctx context.Context, query string) error {
	_, err := db.pool.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE query LIKE $1 AND query LIKE '%' || (SELECT value FROM meta WHERE name = 'id') || '%'`, query)
	return err
}
