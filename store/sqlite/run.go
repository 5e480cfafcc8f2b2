package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

// runChanges are the columns of a run that change. The others are left out of updates: an
// index is rewritten for each of its columns that is set, also to the same value.
var runChanges = stored.Runs.Without("id", "chain", "workflow", "handler", "kind")

var (
	// insertRun is refused by a unique index if the id exists, and if the lane has an open run.
	insertRun = stored.Runs.Insert("run", "?")

	updateRun = `UPDATE run` + set(runChanges) + ` WHERE id = ? AND rev = ? AND workflow = ? AND chain = ? AND handler = ? AND kind = ?`
)

// writeRun writes a row of a plan.
func (t *tx) writeRun(put *commit.Run) (err error) {
	r := put.Put
	var n int64
	if put.New {
		t.newRun = r.ID
		n, t.newRunN, err = write(t.conn, insertRun, stored.Runs, r)
	} else {
		n, _, err = write(t.conn, updateRun, runChanges, r, r.ID, put.Was, r.Workflow, r.Chain, r.Handler, r.Kind)
	}
	return written("run", r.ID, n, err)
}

// writeLog adds a line after those that the run has.
func (t *tx) writeLog(l keep.LogLine) error {
	_, err := t.exec(`
		INSERT INTO run_log (run, line, at, level, text, place)
		VALUES (?1, (SELECT ifnull(max(line), 0) + 1 FROM run_log WHERE run = ?1), ?2, ?3, ?4, ?5)`,
		l.Run, l.At, l.Level, l.Text, l.Where)
	if err != nil {
		return fmt.Errorf("log of run %s: %w", l.Run, err)
	}
	return nil
}

// writeTrace adds a part after those that the run has.
func (t *tx) writeTrace(p keep.TracePart) (err error) {
	if p.Run == t.newRun { // looking for its n would cost a third as much again
		_, err = t.exec(`INSERT INTO run_trace (run, at, data) VALUES (?, ?, ?)`, t.newRunN, p.At, p.Data)
	} else {
		_, err = t.exec(`INSERT INTO run_trace (run, at, data) VALUES ((SELECT n FROM run WHERE id = ?), ?, ?)`, p.Run, p.At, p.Data)
	}
	if err != nil {
		return fmt.Errorf("trace of run %s: %w", p.Run, err)
	}
	return nil
}

// OpenRuns returns the runs of w that are not closed, oldest first.
func (db *DB) OpenRuns(ctx context.Context, w keep.WorkflowName) ([]keep.Run, error) {
	runs, err := rows(ctx, db, scanRun, `SELECT `+runColumns+` FROM run WHERE workflow = ? AND closed = 0`, w)
	slices.SortFunc(runs, func(a, b keep.Run) int { return cmp.Compare(a.ID, b.ID) })
	return runs, err
}

// Run returns a run, or *keep.NotFoundError.
func (db *DB) Run(ctx context.Context, id keep.RunID) (keep.Run, error) {
	return one(ctx, db, "run", string(id), scanRun, `SELECT `+runColumns+` FROM run WHERE id = ?`, id)
}

// Logs returns every line that a run wrote, oldest first.
func (db *DB) Logs(ctx context.Context, run keep.RunID) ([]keep.LogLine, error) {
	return rows(ctx, db, scanLog, `SELECT run, at, level, text, place FROM run_log WHERE run = ? ORDER BY line`, run)
}

// Trace returns the parts of a run's trace, oldest first.
func (db *DB) Trace(ctx context.Context, run keep.RunID) ([]keep.TracePart, error) {
	return rows(ctx, db, scanTrace, `SELECT r.id, p.at, p.data FROM run r CROSS JOIN run_trace p ON p.run = r.n WHERE r.id = ? ORDER BY p.n`, run)
}

// OldTraces counts old parts; see store.Sweeper.
func (db *DB) OldTraces(ctx context.Context, before time.Time) (n int, err error) {
	end, err := db.partsUntil(ctx, before)
	if err == nil {
		err = db.row(ctx, `SELECT count(*) FROM run_trace WHERE n < ? AND at < ?`, []any{end, millis(before)}, &n)
	}
	return n, err
}

// ForgetTraces deletes old parts; see store.Sweeper.
func (db *DB) ForgetTraces(ctx context.Context, before time.Time, limit int) (int, error) {
	if db.write == nil {
		return 0, ErrReadOnly
	}
	end, err := db.partsUntil(ctx, before)
	if err != nil {
		return 0, err
	}
	var gone int64
	err = db.write.do(ctx, func(conn *conn) (err error) {
		gone, err = conn.exec(`DELETE FROM run_trace WHERE n IN (SELECT n FROM run_trace WHERE n < ? AND at < ? ORDER BY n LIMIT ?)`, end, before, limit)
		return err
	})
	return int(gone), err
}

// partsUntil returns the number of the first part that was written at a time or later, or one above
// all. It looks for it by halves: parts are numbered in the order of time. After a clock was set
// back it may be that of an earlier one, until the time has passed again.
func (db *DB) partsUntil(ctx context.Context, at time.Time) (int64, error) {
	var from, to int64 // it is one of these, or between
	err := db.row(ctx, `SELECT ifnull((SELECT min(n) FROM run_trace), 1), ifnull((SELECT max(n) FROM run_trace), 0) + 1`, nil, &from, &to)
	for from < to && err == nil {
		var n, written int64
		mid := from + (to-from)/2
		err = db.row(ctx, `SELECT n, at FROM run_trace WHERE n >= ? ORDER BY n LIMIT 1`, []any{mid}, &n, &written)
		if written >= millis(at) {
			to = mid
		} else {
			from = n + 1
		}
	}
	return to, err
}

var (
	runColumns = stored.Runs.Columns("")
	scanRun    = scanOf(stored.Runs)
	scanLog    = scanOf(stored.LogLines)
	scanTrace  = scanOf(stored.TraceParts)
)
