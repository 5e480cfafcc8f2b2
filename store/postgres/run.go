package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/law/search"
	"github.com/keep-run/keep/store/internal/stored"
)

// runChanges are the columns of a run that change.
var runChanges = stored.Runs.Without("id", "chain", "workflow", "handler", "kind")

var (
	insertRun = insertInto("run", specOf(stored.Runs)+`, n bigint, words words?`, "")
	updateRun = updateOf("run", `workflow text, handler text, n bigint`, specOf(runChanges)+`, words words?`)
)

// writeRun writes a row of a plan. What no history could lead to is in the CHECKs of the
// table.
func (t *tx) writeRun(f *commit.Run) error {
	if !f.New {
		return update(&t.writes, &updateRun, []any{text(string(f.Put.Workflow)), text(string(f.Put.Handler)), f.N}, runChanges, f.Put, words(search.OfRun(*f.Put)))
	}
	f.N = t.next()
	t.tally("run", string(f.Put.Handler))
	return write(&t.writes, &insertRun, stored.Runs, f.Put, f.N, words(search.OfRun(*f.Put)))
}

var insertLog = insertInto("run_log", `workflow text, run text, n bigint, at bigint, level text, text text, place text`, "")

// writeLog adds a line after those that the run has.
func (t *tx) writeLog(l keep.LogLine) error {
	t.add(&insertLog, text(string(t.workflow)), text(string(l.Run)), t.next(), millis(l.At), text(l.Level), text(l.Text), text(l.Where))
	return nil
}

var insertTrace = insertInto("run_trace", `workflow text, run text, n bigint, at bigint, data bytea`, "")

// writeTrace adds a part after those that the run has.
func (t *tx) writeTrace(p keep.TracePart) error {
	t.add(&insertTrace, text(string(t.workflow)), text(string(p.Run)), t.next(), millis(p.At), p.Data)
	return nil
}

// OpenRuns returns the runs of w that are not closed, oldest first.
func (db *DB) OpenRuns(ctx context.Context, w keep.WorkflowName) ([]keep.Run, error) {
	return collect(ctx, db, scanRun, `SELECT `+runColumns+` FROM run WHERE workflow = $1 AND NOT closed ORDER BY id COLLATE "C"`, w)
}

// Run returns a run, or *keep.NotFoundError.
func (db *DB) Run(ctx context.Context, id keep.RunID) (keep.Run, error) {
	return one(ctx, db, "run", string(id), scanRun, `SELECT `+runColumns+` FROM run WHERE id = $1`, id)
}

// Logs returns every line that a run wrote, oldest first.
func (db *DB) Logs(ctx context.Context, run keep.RunID) ([]keep.LogLine, error) {
	return collect(ctx, db, scanLog, `SELECT `+logColumns+`
		  FROM run JOIN run_log l ON l.workflow = run.workflow AND l.run = run.id
		 WHERE run.id = $1 ORDER BY l.n`, run)
}

// Trace returns the parts of a run's trace, oldest first.
func (db *DB) Trace(ctx context.Context, run keep.RunID) ([]keep.TracePart, error) {
	return collect(ctx, db, scanTrace, `SELECT `+traceColumns+`
		  FROM run JOIN run_trace p ON p.workflow = run.workflow AND p.run = run.id
		 WHERE run.id = $1 ORDER BY p.n`, run)
}

// OldTraces counts old parts; see store.Sweeper.
func (db *DB) OldTraces(ctx context.Context, before time.Time) (int, error) {
	n, err := one(ctx, db, "count", "", scanNumber, `SELECT count(*) FROM run_trace WHERE at < $1`, before)
	return int(n), err
}

// ForgetTraces deletes old parts; see store.Sweeper. Two sweepers do not wait for each other.
func (db *DB) ForgetTraces(ctx context.Context, before time.Time, limit int) (int, error) {
	n, err := db.exec(ctx, `DELETE FROM run_trace WHERE (workflow, run, n) IN (
		SELECT workflow, run, n FROM run_trace WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)`, before, limit)
	return int(n), err
}

// runColumns end with the place of the run in lists.
var (
	runColumns = stored.Runs.Columns("run.") + ", run.n"
	bareRuns   = stored.Runs.Bare("run.", "NULL::bytea") + ", run.n"
	scanRunAt  = placedOf(stored.Runs)
	scanRun    = unplaced(scanRunAt)

	logColumns = stored.LogLines.Columns("l.")
	scanLog    = scanOf(stored.LogLines)

	traceColumns = stored.TraceParts.Columns("p.")
	scanTrace    = scanOf(stored.TraceParts)
)

// encodeReservations returns JSON whose texts are as columns have them, so that
// Check can compare them.
func encodeReservations(list []keep.Reservation) (*string, error) {
	if list == nil {
		return nil, nil
	}
	stored := make([]keep.Reservation, len(list))
	for i, r := range list {
		stored[i].Topic = keep.TopicName(text(string(r.Topic)))
		if r.IDs != nil {
			stored[i].IDs = make([]keep.MessageID, len(r.IDs))
		}
		for j, id := range r.IDs {
			stored[i].IDs[j] = keep.MessageID(text(string(id)))
		}
		stored[i].Attempts = r.Attempts
	}
	return encode(stored)
}

// decodeReservations is the opposite of encodeReservations.
func decodeReservations(stored []byte) (list []keep.Reservation, err error) {
	if stored == nil {
		return nil, nil
	}
	err = json.Unmarshal(stored, &list)
	for i, r := range list {
		list[i].Topic = keep.TopicName(plain(string(r.Topic)))
		for j, id := range r.IDs {
			r.IDs[j] = keep.MessageID(plain(string(id)))
		}
	}
	return list, err
}

// encodeRedone returns how often an event was redone as JSON with texts as columns have
// them; NULL for never.
func encodeRedone(list []keep.Redo) (*string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	stored := make([]keep.Redo, len(list))
	for i, d := range list {
		stored[i] = keep.Redo{At: d.At, By: text(d.By), From: text(d.From), Note: text(d.Note), Chain: keep.RunID(text(string(d.Chain)))}
	}
	return encode(stored)
}

// redoneTo reads what encodeRedone wrote.
type redoneTo []keep.Redo

// ScanText is how pgx hands a text over.
func (r *redoneTo) ScanText(v pgtype.Text) error {
	if !v.Valid {
		return nil
	}
	err := json.Unmarshal([]byte(v.String), (*[]keep.Redo)(r))
	for i, d := range *r {
		(*r)[i] = keep.Redo{At: d.At, By: plain(d.By), From: plain(d.From), Note: plain(d.Note), Chain: keep.RunID(plain(string(d.Chain)))}
	}
	return err
}

// asText returns JSON as a column takes it: as text, and NULL for nil.
func asText(b []byte, err error) (*string, error) {
	if b == nil {
		return nil, err
	}
	text := string(b)
	return &text, err
}

// encode returns v as JSON text.
func encode(v any) (*string, error) { return asText(json.Marshal(v)) }
