package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

var (
	counterColumns = stored.Counters.Columns("")
	scanCounter    = scanOf(stored.Counters)
	putCounter     = stored.Counters.Insert("counter", "?") + ` ON CONFLICT (step, at, workflow) DO UPDATE SET
		committed = excluded.committed, idle = excluded.idle, failed = excluded.failed, waiting = excluded.waiting, asked = excluded.asked, took = excluded.took`
)

// Counters returns counters; see store.Counters.
func (db *DB) Counters(ctx context.Context, step keep.Step, w keep.WorkflowName, from, to time.Time) ([]keep.Counter, error) {
	return rows(ctx, db, scanCounter, `SELECT `+counterColumns+` FROM counter
		 WHERE step = ?1 AND at >= ?2 AND at < ?3 AND (?4 = '' OR workflow = ?4) ORDER BY at, workflow`, string(step), millis(from), millis(to), string(w))
}

// endedRuns counts by two indexes alone, without a look at what committed: a busy host counts each run ten times.
var endedRuns = `-- of what ended in a few minutes
	WITH failed AS (
		SELECT r.workflow, ` + stored.FailedAt + ` AS at FROM run r INDEXED BY run_failed WHERE r.closed = 1 AND r.updated_at >= ?1 AND ` + stored.Fails + `
		UNION ALL SELECT r.workflow, ` + stored.FailedAt + ` FROM run r INDEXED BY run_open WHERE r.closed = 0 AND ` + stored.Fails + `)
	SELECT workflow, minute, ended, count(*) FROM (
		SELECT workflow, updated_at - updated_at % 60000 AS minute, ` + stored.EndedAs("idle = 1") + ` AS ended
		  FROM run INDEXED BY run_by_end WHERE closed = 1 AND updated_at >= ?1 AND updated_at < ?2 AND status = 'committed'
		UNION ALL SELECT workflow, at - at % 60000, -1 FROM failed WHERE at >= ?1 AND at < ?2)
	 GROUP BY minute, workflow, ended ORDER BY minute, workflow, ended`

// Ended counts runs that committed or failed; see store.Counting.
func (db *DB) Ended(ctx context.Context, from, to time.Time) ([]keep.Counter, error) {
	list, err := rows(ctx, db, func(row scanner) (e stored.Ended, err error) {
		var at int64
		err = row.Scan((*string)(&e.Workflow), &at, &e.As, &e.N)
		e.At = moment(at)
		return e, err
	}, endedRuns, millis(from), millis(to))
	return stored.EndedCounters(list), err
}

// Standing counts what waits now; see store.Counting.
func (db *DB) Standing(ctx context.Context) ([]keep.Counter, error) {
	list, err := rows(ctx, db, func(row scanner) (c keep.Counter, err error) {
		err = row.Scan((*string)(&c.Workflow), &c.Waiting, &c.Asked)
		return c, err
	}, `SELECT workflow, 1, 0 FROM run WHERE closed = 0 AND status <> 'active'
		UNION ALL SELECT workflow, 0, 1 FROM escalation WHERE closed_at = 0 AND workflow <> ''`)
	return stored.StandingCounters(list), err
}

// PutCounters writes counters, and deletes old ones; see store.Counting.
func (db *DB) PutCounters(ctx context.Context, list []keep.Counter, before map[keep.Step]time.Time) error {
	return db.change(ctx, func(conn *conn) error {
		for step, at := range before {
			if _, err := conn.exec(`DELETE FROM counter WHERE step = ? AND at < ?`, string(step), at); err != nil {
				return fmt.Errorf("delete old counters: %w", err)
			}
		}
		for _, c := range list {
			if err := addCounter(conn, c); err != nil {
				return err
			}
		}
		return nil
	})
}

func addCounter(conn *conn, c keep.Counter) error {
	if _, _, err := write(conn, putCounter, stored.Counters, &c); err != nil {
		return fmt.Errorf("counter of %s: %w", c.Workflow, err)
	}
	return nil
}
