package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

// runChanges are the columns of a run that change. The others are left out of updates: an
// index is rewritten for each of its columns that is set, also to the same value.
var runChanges = stored.Runs.Without("id", "chain", "workflow", "handler", "kind")

var (
	// insertRun is refused by a unique index if the id exists, and if the lane has an open run.
	insertRun = insertInto("run", stored.Runs)

	updateRun = `UPDATE run` + set(runChanges) + ` WHERE id = ? AND rev = ? AND workflow = ? AND chain = ? AND handler = ? AND kind = ?`
)

// writeRun writes a row of a plan.
func (t *tx) writeRun(put *commit.Run) (err error) {
	r := put.Put
	var n int64
	if put.New {
		n, _, err = write(t.conn, insertRun, stored.Runs, r)
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

var (
	runColumns = stored.Runs.Columns("")
	scanRun    = scanOf(stored.Runs)
	scanLog    = scanOf(stored.LogLines)
)
