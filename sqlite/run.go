package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/keep-run/keep"
)

// putRun writes a run if its stored revision is the one that was read. The unique
// index of open runs decides which of two runs of a workflow may be open; nothing
// is looked up before, since the engine rarely asks for what must be refused.
func (t *tx) putRun(r keep.Run) error {
	if err := t.mine("run", string(r.ID), r.Workflow); err != nil {
		return err
	}
	if r.Rev == 0 && r.Closed {
		// The index of open runs says nothing about a run that is made closed.
		if row, err := t.row(`SELECT id FROM run WHERE workflow = ? AND closed = 0`, r.Workflow); err != nil || row != nil {
			return fmt.Errorf("run %s: %w", r.ID, cmp.Or(err, t.whyNotRun(r)))
		}
	}
	var changed int64
	reservations, err := encodeList(r.Reservations)
	if err != nil {
		return fmt.Errorf("run %s: %w", r.ID, err)
	}
	failure, err := encodeFailure(r.Error)
	if err != nil {
		return fmt.Errorf("run %s: %w", r.ID, err)
	}
	if r.Rev == 0 {
		changed, err = t.insertRun(r, reservations, failure)
	} else {
		changed, err = t.updateRun(r, reservations, failure)
	}
	if changed == 1 && err == nil {
		return nil
	}
	if err == nil || isUnique(err) {
		err = t.whyNotRun(r)
	}
	return fmt.Errorf("run %s: %w", r.ID, err)
}

// insertRun adds a run. A unique error means that its id exists, or that the
// workflow has an open run.
func (t *tx) insertRun(r keep.Run, reservations, failure any) (int64, error) {
	return t.exec(`
		INSERT INTO run (id, chain, retry_of, workflow, major, minor, handler, kind,
			phase, status, closed, rev, trigger_topic, trigger_message, mutation, title,
			wake_at, seen_seq, retry_at, retries, crashes, created_at, updated_at,
			error, reservations, prepared)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?,
			?, ?, ?, 1, ?, ?, ?, ?,
			?, ?, ?, ?, ?, ?, ?,
			?, ?, ?)`,
		r.ID, r.Chain, r.RetryOf, r.Workflow, r.Version.Major, r.Version.Minor, r.Handler, r.Kind,
		r.Phase, r.Status, r.Closed, r.Trigger.Topic, r.Trigger.MessageID, r.Mutation, r.Title,
		r.WakeAt, r.SeenSeq, r.RetryAt, r.Retries, r.Crashes, r.CreatedAt, r.UpdatedAt,
		failure, reservations, r.Prepared)
}

// updateRun leaves out what never changes: an index is rewritten for each of its
// columns that is set, also to the same value.
func (t *tx) updateRun(r keep.Run, reservations, failure any) (int64, error) {
	return t.exec(`
		UPDATE run
		   SET retry_of = ?, major = ?, minor = ?, phase = ?, status = ?, closed = ?, rev = rev + 1,
		       trigger_topic = ?, trigger_message = ?, mutation = ?, title = ?, wake_at = ?,
		       seen_seq = ?, retry_at = ?, retries = ?, crashes = ?, created_at = ?, updated_at = ?,
		       error = ?, reservations = ?, prepared = ?
		 WHERE id = ? AND rev = ? AND workflow = ? AND chain = ? AND handler = ? AND kind = ?`,
		r.RetryOf, r.Version.Major, r.Version.Minor, r.Phase, r.Status, r.Closed,
		r.Trigger.Topic, r.Trigger.MessageID, r.Mutation, r.Title, r.WakeAt,
		r.SeenSeq, r.RetryAt, r.Retries, r.Crashes, r.CreatedAt, r.UpdatedAt,
		failure, reservations, r.Prepared,
		r.ID, r.Rev, r.Workflow, r.Chain, r.Handler, r.Kind)
}

// whyNotRun explains why a run could not be written.
func (t *tx) whyNotRun(r keep.Run) error {
	row, err := t.row(`SELECT rev FROM run WHERE id = ?`, r.ID)
	if err != nil {
		return err
	}
	if (row != nil) != (r.Rev != 0) || row != nil && row[0] != int64(r.Rev) {
		return keep.ErrStale
	}
	row, err = t.row(`SELECT id FROM run WHERE workflow = ? AND closed = 0 AND id <> ?`, r.Workflow, r.ID)
	switch {
	case err != nil:
		return err
	case row != nil && (r.Rev == 0 || !r.Closed):
		return fmt.Errorf("%w: %s", keep.ErrRunOpen, row[0])
	}
	return fmt.Errorf("workflow, chain, handler and kind are fixed")
}

// appendLogs adds lines after those that the run has. A line of an unknown run
// is refused: a foreign key alone would not say which.
func (t *tx) appendLogs(lines []keep.LogLine) error {
	var known keep.RunID
	for _, l := range lines {
		if l.Run != known {
			ok, err := t.exists(`SELECT 1 FROM run WHERE id = ? AND workflow = ?`, l.Run, t.workflow)
			if err != nil {
				return fmt.Errorf("log of run %s: %w", l.Run, err)
			}
			if !ok {
				return &keep.NotFoundError{What: "run", ID: string(l.Run)}
			}
			known = l.Run
		}
		_, err := t.exec(`
			INSERT INTO run_log (run, line, at, level, text, place)
			VALUES (?1, (SELECT ifnull(max(line), 0) + 1 FROM run_log WHERE run = ?1), ?2, ?3, ?4, ?5)`,
			l.Run, l.At, l.Level, l.Text, l.Where)
		if err != nil {
			return fmt.Errorf("log of run %s: %w", l.Run, err)
		}
	}
	return nil
}

// OpenRun returns the run of w that is not closed, and whether there is one.
func (db *DB) OpenRun(ctx context.Context, w keep.WorkflowName) (keep.Run, bool, error) {
	runs, err := rows(ctx, db, scanRun, `SELECT `+runColumns+` FROM run WHERE workflow = ? AND closed = 0`, w)
	if err != nil || len(runs) == 0 {
		return keep.Run{}, false, err
	}
	return runs[0], true, nil
}

// Run returns a run, or *keep.NotFoundError.
func (db *DB) Run(ctx context.Context, id keep.RunID) (keep.Run, error) {
	return one(ctx, db, "run", string(id), scanRun, `SELECT `+runColumns+` FROM run WHERE id = ?`, id)
}

// Logs returns every line that a run wrote, oldest first.
func (db *DB) Logs(ctx context.Context, run keep.RunID) ([]keep.LogLine, error) {
	return rows(ctx, db, scanLog, `SELECT run, at, level, text, place FROM run_log WHERE run = ? ORDER BY line`, run)
}

// scanLog reads one line.
func scanLog(row *sql.Rows) (l keep.LogLine, err error) {
	var at int64
	err = row.Scan(&l.Run, &at, &l.Level, &l.Text, &l.Where)
	l.At = moment(at)
	return l, err
}

// runColumns are in the order of keep.Run, but for JSON, which comes last as in
// the table: SQLite finds a column by walking over those before it.
const runColumns = `id, chain, retry_of, workflow, major, minor, handler, kind, phase, status, closed, rev,
	trigger_topic, trigger_message, mutation, title, wake_at, seen_seq, retry_at, retries, crashes,
	created_at, updated_at, error, reservations, prepared`

// scanRun reads runColumns.
func scanRun(row *sql.Rows) (r keep.Run, err error) {
	var wake, retry, created, updated int64
	var failure, reservations []byte
	err = row.Scan(&r.ID, &r.Chain, &r.RetryOf, &r.Workflow, &r.Version.Major, &r.Version.Minor, &r.Handler, &r.Kind,
		&r.Phase, &r.Status, &r.Closed, &r.Rev, &r.Trigger.Topic, &r.Trigger.MessageID, &r.Mutation, &r.Title,
		&wake, &r.SeenSeq, &retry, &r.Retries, &r.Crashes, &created, &updated,
		&failure, &reservations, (*[]byte)(&r.Prepared))
	if err != nil {
		return r, err
	}
	r.WakeAt, r.RetryAt, r.CreatedAt, r.UpdatedAt = moment(wake), moment(retry), moment(created), moment(updated)
	if r.Error, err = decodeFailure(failure); err != nil {
		return r, fmt.Errorf("run %s: read error: %w", r.ID, err)
	}
	if reservations != nil {
		if err := json.Unmarshal(reservations, &r.Reservations); err != nil {
			return r, fmt.Errorf("run %s: read reservations: %w", r.ID, err)
		}
	}
	return r, nil
}

// A failure is keep.Failure as it is stored: with the wait that JSON for people
// leaves out.
type failure struct {
	keep.Failure
	RetryAfter time.Duration `json:"retry_after,omitempty"` // nanoseconds
}

// encodeFailure returns f as JSON text, and nil for nil.
func encodeFailure(f *keep.Failure) (any, error) {
	if f == nil {
		return nil, nil
	}
	text, err := json.Marshal(failure{*f, f.RetryAfter})
	return string(text), err
}

// decodeFailure is the opposite of encodeFailure.
func decodeFailure(text []byte) (*keep.Failure, error) {
	if text == nil {
		return nil, nil
	}
	var f failure
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	f.Failure.RetryAfter = f.RetryAfter
	return &f.Failure, nil
}

// encodeList returns a list as JSON text, and nil for nil.
func encodeList[T any](list []T) (any, error) {
	if list == nil {
		return nil, nil
	}
	text, err := json.Marshal(list)
	return string(text), err
}
