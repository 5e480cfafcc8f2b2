package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

var (
	counterColumns = stored.Counters.Columns("")
	scanCounter    = scanOf(stored.Counters)
)

var putCounter = stored.Counters.Insert("counter", "$") + ` ON CONFLICT (step, at, workflow) DO UPDATE SET ` + excluded(stored.Counters.Without("step", "at", "workflow"))

// Counters returns counters; see store.Counters.
func (db *DB) Counters(ctx context.Context, step keep.Step, w keep.WorkflowName, from, to time.Time) ([]keep.Counter, error) {
	return collect(ctx, db, scanCounter, `SELECT `+counterColumns+` FROM counter
		 WHERE step = $1 AND at >= $2 AND at < $3 AND ($4 = '' OR workflow = $4) ORDER BY at, workflow`, string(step), millis(from), millis(to), string(w))
}

// endedRuns counts by the index of when runs ended.
var endedRuns = `WITH failed AS (
		SELECT r.workflow, ` + stored.FailedAt + ` AS at FROM run r WHERE r.closed AND r.updated_at >= $1 AND ` + stored.Fails + `
		UNION ALL SELECT r.workflow, ` + stored.FailedAt + ` FROM run r WHERE NOT r.closed AND ` + stored.Fails + `)
	SELECT workflow, minute, ended, count(*) FROM (
		SELECT workflow, updated_at - updated_at % 60000 AS minute, ` + stored.EndedAs("idle") + ` AS ended
		  FROM run WHERE closed AND updated_at >= $1 AND updated_at < $2 AND status = 'committed'
		UNION ALL SELECT workflow, at - at % 60000, -1 FROM failed WHERE at >= $1 AND at < $2) ended
	 GROUP BY minute, workflow, ended ORDER BY minute, workflow, ended`

// Ended counts runs that committed or failed; see store.Counting.
func (db *DB) Ended(ctx context.Context, from, to time.Time) ([]keep.Counter, error) {
	list, err := collect(ctx, db, func(row pgx.CollectableRow) (e stored.Ended, err error) {
		var at int64
		err = row.Scan(into(&e.Workflow), &at, &e.As, &e.N)
		e.At = moment(at)
		return e, err
	}, endedRuns, millis(from), millis(to))
	return stored.EndedCounters(list), err
}

// Standing counts what waits now; see store.Counting.
func (db *DB) Standing(ctx context.Context) ([]keep.Counter, error) {
	list, err := collect(ctx, db, func(row pgx.CollectableRow) (c keep.Counter, err error) {
		err = row.Scan(into(&c.Workflow), &c.Waiting, &c.Asked)
		return c, err
	}, `SELECT workflow, 1::bigint, 0::bigint FROM run WHERE NOT closed AND status <> 'active'
		UNION ALL SELECT workflow, 0, 1 FROM escalation WHERE closed_at = 0 AND workflow <> ''`)
	return stored.StandingCounters(list), err
}

// PutCounters writes counters, and deletes old ones; see store.Counting.
func (db *DB) PutCounters(ctx context.Context, list []keep.Counter, before map[keep.Step]time.Time) error {
	if err := db.writable(); err != nil {
		return err
	}
	b := new(pgx.Batch)
	for _, step := range keep.Steps() { // in one order, so that two hosts do not wait for each other
		if at, some := before[step]; some {
			b.Queue(`DELETE FROM counter WHERE step = $1 AND at < $2`, string(step), millis(at))
		}
	}
	for _, c := range list {
		if err := queueOne(b, putCounter, stored.Counters, &c); err != nil {
			return err
		}
	}
	if err := db.pool.SendBatch(ctx, b).Close(); err != nil { // one implicit transaction
		return fmt.Errorf("write counters: %w", err)
	}
	return nil
}
