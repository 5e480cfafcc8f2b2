package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/law/search"
	"github.com/keep-run/keep/store/internal/stored"
)

const runSpec = `retry_of text, major bigint, minor bigint, phase text, status text, closed boolean, rev bigint,
	trigger_topic text, trigger_message text, mutation text, title text, wake_at bigint, seen_seq bigint,
	retry_at bigint, retries bigint, crashes bigint, created_at bigint, updated_at bigint,
	error text?, reservations text?, prepared bytea?, lane text, words words?`

var (
	insertRun = insertInto("run", `workflow text, handler text, n bigint, id text, chain text, kind text, `+runSpec, "")
	updateRun = updateOf("run", `workflow text, handler text, n bigint`, runSpec)
)

// writeRun writes a row of a plan. What no history could lead to is in the CHECKs of the
// table.
func (t *tx) writeRun(f *commit.Run) error {
	if f.New {
		f.N = t.next()
	}
	r := f.Put
	failure, err := asText(stored.Failure(r.Error))
	if err != nil {
		return fmt.Errorf("run %s: %w", r.ID, err)
	}
	reservations, err := encodeReservations(r.Reservations)
	if err != nil {
		return fmt.Errorf("run %s: %w", r.ID, err)
	}
	key := []any{text(string(r.Workflow)), text(string(r.Handler)), f.N}
	row := []any{
		text(string(r.RetryOf)), int64(r.Version.Major), int64(r.Version.Minor), string(r.Phase), string(r.Status), r.Closed, int64(r.Rev),
		text(string(r.Trigger.Topic)), text(string(r.Trigger.MessageID)), text(string(r.Mutation)), text(r.Title), millis(r.WakeAt), r.SeenSeq,
		millis(r.RetryAt), int64(r.Retries), int64(r.Crashes), millis(r.CreatedAt), millis(r.UpdatedAt),
		failure, reservations, []byte(r.Prepared), text(string(r.Lane)), words(search.OfRun(*r)),
	}
	if f.New {
		t.tally("run", string(r.Handler))
		t.add(&insertRun, append(append(key, text(string(r.ID)), text(string(r.Chain)), string(r.Kind)), row...)...)
	} else {
		t.add(&updateRun, append(key, row...)...)
	}
	return nil
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

const logColumns = `l.run, l.at, l.level, l.text, l.place`

// scanLog reads logColumns.
func scanLog(row pgx.CollectableRow) (l keep.LogLine, err error) {
	var at int64
	err = row.Scan(into(&l.Run), &at, into(&l.Level), into(&l.Text), into(&l.Where))
	l.At = moment(at)
	return l, err
}

// runColumns are in the order of keep.Run, but for JSON.
const runColumns = `run.id, run.chain, run.retry_of, run.workflow, run.major, run.minor, run.handler, run.kind, run.phase,
	run.status, run.closed, run.rev, run.trigger_topic, run.trigger_message, run.mutation, run.title, run.wake_at, run.seen_seq,
	run.retry_at, run.retries, run.crashes, run.created_at, run.updated_at, run.error, run.reservations, run.prepared, run.lane, run.n`

// scanRun reads runColumns.
func scanRun(row pgx.CollectableRow) (r keep.Run, err error) {
	v, err := scanRunAt(row)
	return v.what, err
}

// scanRunAt reads runColumns, with the place of the run in lists.
func scanRunAt(row pgx.CollectableRow) (p placed[keep.Run], err error) {
	var wake, retry, created, updated int64
	var failure, reservations []byte
	r := &p.what
	err = row.Scan(into(&r.ID), into(&r.Chain), into(&r.RetryOf), into(&r.Workflow), &r.Version.Major, &r.Version.Minor,
		into(&r.Handler), into(&r.Kind), into(&r.Phase), into(&r.Status), &r.Closed, &r.Rev, into(&r.Trigger.Topic),
		into(&r.Trigger.MessageID), into(&r.Mutation), into(&r.Title), &wake, &r.SeenSeq, &retry, &r.Retries, &r.Crashes,
		&created, &updated, &failure, &reservations, (*[]byte)(&r.Prepared), into(&r.Lane), &p.n)
	if err != nil {
		return p, err
	}
	p.workflow = r.Workflow
	r.WakeAt, r.RetryAt, r.CreatedAt, r.UpdatedAt = moment(wake), moment(retry), moment(created), moment(updated)
	if r.Error, err = stored.ParseFailure(failure); err != nil {
		return p, fmt.Errorf("run %s: read error: %w", r.ID, err)
	}
	if r.Reservations, err = decodeReservations(reservations); err != nil {
		return p, fmt.Errorf("run %s: read reservations: %w", r.ID, err)
	}
	return p, nil
}

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
