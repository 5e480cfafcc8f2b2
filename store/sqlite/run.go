package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

// writeRun writes a row of a plan.
func (t *tx) writeRun(r *commit.Run) error {
	reservations, err := encodeList(r.Put.Reservations)
	if err != nil {
		return fmt.Errorf("run %s: %w", r.Put.ID, err)
	}
	failure, err := asText(stored.Failure(r.Put.Error))
	if err != nil {
		return fmt.Errorf("run %s: %w", r.Put.ID, err)
	}
	var n int64
	if r.New {
		n, err = t.insertRun(r.Put, reservations, failure)
	} else {
		n, err = t.updateRun(r, reservations, failure)
	}
	return written("run", r.Put.ID, n, err)
}

// insertRun adds a run. A unique index refuses an id that exists, and a second open
// run of its lane.
func (t *tx) insertRun(r *keep.Run, reservations, failure any) (int64, error) {
	return t.exec(`
		INSERT INTO run (id, chain, retry_of, workflow, major, minor, handler, kind,
			phase, status, closed, rev, trigger_topic, trigger_message, mutation, title,
			wake_at, seen_seq, retry_at, retries, crashes, created_at, updated_at,
			error, reservations, prepared, lane)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?,
			?, ?, ?, ?, ?, ?, ?, ?,
			?, ?, ?, ?, ?, ?, ?,
			?, ?, ?, ?)`,
		r.ID, r.Chain, r.RetryOf, r.Workflow, r.Version.Major, r.Version.Minor, r.Handler, r.Kind,
		r.Phase, r.Status, r.Closed, r.Rev, r.Trigger.Topic, r.Trigger.MessageID, r.Mutation, r.Title,
		r.WakeAt, r.SeenSeq, r.RetryAt, r.Retries, r.Crashes, r.CreatedAt, r.UpdatedAt,
		failure, reservations, r.Prepared, r.Lane)
}

// updateRun leaves out what never changes: an index is rewritten for each of its
// columns that is set, also to the same value.
func (t *tx) updateRun(put *commit.Run, reservations, failure any) (int64, error) {
	r := put.Put
	return t.exec(`
		UPDATE run
		   SET retry_of = ?, major = ?, minor = ?, phase = ?, status = ?, closed = ?, rev = ?,
		       trigger_topic = ?, trigger_message = ?, mutation = ?, title = ?, wake_at = ?,
		       seen_seq = ?, retry_at = ?, retries = ?, crashes = ?, created_at = ?, updated_at = ?,
		       error = ?, reservations = ?, prepared = ?, lane = ?
		 WHERE id = ? AND rev = ? AND workflow = ? AND chain = ? AND handler = ? AND kind = ?`,
		r.RetryOf, r.Version.Major, r.Version.Minor, r.Phase, r.Status, r.Closed, r.Rev,
		r.Trigger.Topic, r.Trigger.MessageID, r.Mutation, r.Title, r.WakeAt,
		r.SeenSeq, r.RetryAt, r.Retries, r.Crashes, r.CreatedAt, r.UpdatedAt,
		failure, reservations, r.Prepared, r.Lane,
		r.ID, put.Was, r.Workflow, r.Chain, r.Handler, r.Kind)
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

// scanLog reads one line.
func scanLog(row scanner) (l keep.LogLine, err error) {
	var at int64
	err = row.Scan(&l.Run, &at, &l.Level, &l.Text, &l.Where)
	l.At = moment(at)
	return l, err
}

// runColumns are in the order of keep.Run, but for JSON, which comes last as in
// the table: SQLite finds a column by walking over those before it.
const runColumns = `id, chain, retry_of, workflow, major, minor, handler, kind, phase, status, closed, rev,
	trigger_topic, trigger_message, mutation, title, wake_at, seen_seq, retry_at, retries, crashes,
	created_at, updated_at, error, reservations, prepared, lane`

// scanRun reads runColumns.
func scanRun(row scanner) (r keep.Run, err error) {
	var wake, retry, created, updated int64
	var failure, reservations []byte
	err = row.Scan(&r.ID, &r.Chain, &r.RetryOf, &r.Workflow, &r.Version.Major, &r.Version.Minor, &r.Handler, &r.Kind,
		&r.Phase, &r.Status, &r.Closed, &r.Rev, &r.Trigger.Topic, &r.Trigger.MessageID, &r.Mutation, &r.Title,
		&wake, &r.SeenSeq, &retry, &r.Retries, &r.Crashes, &created, &updated,
		&failure, &reservations, (*[]byte)(&r.Prepared), &r.Lane)
	if err != nil {
		return r, err
	}
	r.WakeAt, r.RetryAt, r.CreatedAt, r.UpdatedAt = moment(wake), moment(retry), moment(created), moment(updated)
	if r.Error, err = stored.ParseFailure(failure); err != nil {
		return r, fmt.Errorf("run %s: read error: %w", r.ID, err)
	}
	if reservations != nil {
		if err := json.Unmarshal(reservations, &r.Reservations); err != nil {
			return r, fmt.Errorf("run %s: read reservations: %w", r.ID, err)
		}
	}
	return r, nil
}

// asText returns JSON as a column takes it: as text, and NULL for nil.
func asText(text []byte, err error) (any, error) {
	if text == nil {
		return nil, err
	}
	return string(text), err
}

// encodeList returns a list as JSON text, and nil for nil.
func encodeList[T any](list []T) (any, error) {
	if list == nil {
		return nil, nil
	}
	return asText(json.Marshal(list))
}
