package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
)

// MigrationLock is the lock under which the schema is changed.
const MigrationLock = migrationLock

// IdentityLock is the lock of an identity of a tool.
func IdentityLock(tool keep.ToolName, u keep.Unlike) int64 { return identityLock(tool, u) }

// SettingLock is the lock of an identity of a tool that sets something.
func SettingLock(tool keep.ToolName, s keep.Setting) int64 { return settingLock(tool, s) }

// SumsLock is the lock under which sums of budgets are written, for SQL.
const SumsLock = sumsLock

// TookLong reports whether the server gave a statement up.
func TookLong(err error) bool { return tookLong(err) }

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

// CheckPlans returns how the server would execute those statements of Check that look for the events of all runs, by their text.
func (db *DB) CheckPlans(ctx context.Context) (map[string]string, error) {
	plans := make(map[string]string)
	for _, c := range checks {
		if !strings.Contains(c.text, attempted+") r JOIN event") {
			continue
		}
		rows, err := db.pool.Query(ctx, "EXPLAIN (COSTS OFF) "+c.text, pgx.QueryExecModeExec)
		if err != nil {
			return nil, err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, err
		}
		plans[c.text] = strings.Join(lines, "\n")
	}
	return plans, nil
}

// Plans returns how every statement that the pool's connections have prepared is
// executed, as JSON, by its text.
func (db *DB) Plans(ctx context.Context) (map[string]string, error) {
	plans := make(map[string]string)
	conns := db.pool.AcquireAllIdle(ctx)
	defer func() {
		for _, conn := range conns {
			conn.Release()
		}
	}()
	for _, conn := range conns {
		rows, err := conn.Query(ctx, `SELECT name, statement, cardinality(parameter_types) FROM pg_prepared_statements
			WHERE statement ~ '^\s*(SELECT|INSERT|UPDATE|DELETE|WITH)' AND statement !~ 'pg_prepared_statements|pg_notify'`)
		if err != nil {
			return nil, err
		}
		type prepared struct {
			Name, Text string
			Params     int
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[prepared])
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			args := strings.TrimSuffix(strings.Repeat("NULL, ", p.Params), ", ")
			if args != "" {
				args = "(" + args + ")"
			}
			var plan string
			err := conn.QueryRow(ctx, `EXPLAIN (FORMAT JSON, COSTS OFF) EXECUTE `+pgx.Identifier{p.Name}.Sanitize()+args,
				pgx.QueryExecModeSimpleProtocol).Scan(&plan)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.Text, err)
			}
			plans[p.Text] = plan
		}
	}
	return plans, nil
}

// Groups returns how many groups of commits are under way.
func (db *DB) Groups() int {
	db.commit.mu.Lock()
	defer db.commit.mu.Unlock()
	return db.commit.leaders
}

// Queued returns how many commits nobody has taken yet.
func (db *DB) Queued() int {
	db.commit.mu.Lock()
	defer db.commit.mu.Unlock()
	return len(db.commit.queue)
}

// Exec runs a statement, as no commit would, however long it takes.
func (db *DB) Exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, db.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// LeaveBehind does what comes before a migration that asks for that number.
func (db *DB) LeaveBehind(ctx context.Context, oldest int) error {
	return pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
		if err := beginMigration(ctx, tx, db.schema); err != nil {
			return late(err)
		}
		return leaveBehind(ctx, tx, oldest, db.schema+1)
	})
}

// PulseBlocks returns how many blocks of tables and indexes a look of a host touches.
func (db *DB) PulseBlocks(ctx context.Context, host string) (n int, err error) {
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	for range 2 { // the first one also reads what it needs to know of the tables
		err = db.pool.QueryRow(ctx, `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+leaseStatus, host).Scan(&plans)
		if err != nil {
			return 0, err
		}
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read, nil
}

// SearchByIndex makes searches ask the index after one row of the list.
func (db *DB) SearchByIndex() { db.walk = 1 }

// Judge does what comes after a connection seemed to lack commits.
func (db *DB) Judge(ctx context.Context) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return db.stop(ctx, conn.Conn(), db.record.all())
}
