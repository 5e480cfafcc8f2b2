package postgres

import (
	"context"
	"encoding/json"

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

// runColumns end with the place of the run in lists.
var (
	runColumns = stored.Runs.Columns("run.") + ", run.n"
	bareRuns   = stored.Runs.Bare("run.", "NULL::bytea") + ", run.n"
	scanRunAt  = placedOf(stored.Runs)
	scanRun    = unplaced(scanRunAt)

	logColumns = stored.LogLines.Columns("l.")
	scanLog    = scanOf(stored.LogLines)
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
