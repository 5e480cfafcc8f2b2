package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
)

// A runFact is what must be known of a run, and what is to be written of it.
type runFact struct {
	workflow keep.WorkflowName
	chain    keep.RunID
	handler  keep.HandlerName
	kind     keep.Kind
	rev      int
	n        int64
	made     bool // by this commit
	dirty    bool
	put      keep.Run // if dirty
}

const runFacts = `SELECT id, workflow, chain, handler, kind, rev, n FROM run WHERE id = ANY($1)`

func (k *known) scanRun(row pgx.CollectableRow) error {
	var id keep.RunID
	r := new(runFact)
	err := row.Scan(into(&id), into(&r.workflow), into(&r.chain), into(&r.handler), into(&r.kind), &r.rev, &r.n)
	k.runs[id] = r
	return err
}

const openFacts = `SELECT workflow, id FROM run WHERE NOT closed AND workflow = ANY($1)`

func (k *known) scanOpen(row pgx.CollectableRow) error {
	var w keep.WorkflowName
	var id keep.RunID
	err := row.Scan(into(&w), into(&id))
	k.open[w] = id
	return err
}

// putRun writes a run if its stored revision is the one that was read, and keeps
// one run of each workflow open at most. What no history could lead to is in the
// CHECKs of the table.
func (t *tx) putRun(r keep.Run) error {
	if err := t.mine("run", string(r.ID), r.Workflow); err != nil {
		return err
	}
	old := t.runs[r.ID]
	open, isOpen := t.open[t.workflow]
	switch {
	case (old != nil) != (r.Rev != 0), old != nil && old.rev != r.Rev:
		return fmt.Errorf("run %s: %w", r.ID, keep.ErrStale)
	case old != nil && (old.workflow != r.Workflow || old.chain != r.Chain || old.handler != r.Handler || old.kind != r.Kind):
		return fmt.Errorf("run %s: workflow, chain, handler and kind are fixed", r.ID)
	case isOpen && open != r.ID && (old == nil || !r.Closed):
		return fmt.Errorf("run %s: %w: %s", r.ID, keep.ErrRunOpen, open)
	}
	if old == nil {
		old = &runFact{workflow: r.Workflow, chain: r.Chain, handler: r.Handler, kind: r.Kind, n: t.next(), made: true}
		t.runs[r.ID] = old
	}
	old.rev++
	old.put = r
	changed(&t.runWrites, old, &old.dirty)
	if !r.Closed {
		t.open[t.workflow] = r.ID
	} else if open == r.ID {
		delete(t.open, t.workflow)
	}
	return nil
}

const runSpec = `retry_of text, major bigint, minor bigint, phase text, status text, closed boolean, rev bigint,
	trigger_topic text, trigger_message text, mutation text, title text, wake_at bigint, seen_seq bigint,
	retry_at bigint, retries bigint, crashes bigint, created_at bigint, updated_at bigint,
	error text?, reservations text?, prepared bytea?, words words?`

var (
	insertRun = insertInto("run", `workflow text, handler text, n bigint, id text, chain text, kind text, `+runSpec, "")
	updateRun = updateOf("run", `workflow text, handler text, n bigint`, runSpec)
)

func (t *tx) writeRun(f *runFact) error {
	r := f.put
	failure, err := encodeFailure(r.Error)
	if err != nil {
		return fmt.Errorf("run %s: %w", r.ID, err)
	}
	reservations, err := encodeReservations(r.Reservations)
	if err != nil {
		return fmt.Errorf("run %s: %w", r.ID, err)
	}
	key := []any{text(string(r.Workflow)), text(string(r.Handler)), f.n}
	row := []any{
		text(string(r.RetryOf)), int64(r.Version.Major), int64(r.Version.Minor), string(r.Phase), string(r.Status), r.Closed, int64(f.rev),
		text(string(r.Trigger.Topic)), text(string(r.Trigger.MessageID)), text(string(r.Mutation)), text(r.Title), millis(r.WakeAt), r.SeenSeq,
		millis(r.RetryAt), int64(r.Retries), int64(r.Crashes), millis(r.CreatedAt), millis(r.UpdatedAt),
		failure, reservations, []byte(r.Prepared), words(r.Title),
	}
	if f.made {
		t.tally("run", string(r.Handler))
		t.add(&insertRun, append(append(key, text(string(r.ID)), text(string(r.Chain)), string(r.Kind)), row...)...)
	} else {
		t.add(&updateRun, append(key, row...)...)
	}
	return nil
}

var insertLog = insertInto("run_log", `workflow text, run text, n bigint, at bigint, level text, text text, place text`, "")

// appendLogs adds lines after those that the run has.
func (t *tx) appendLogs(lines []keep.LogLine) error {
	for _, l := range lines {
		if r := t.runs[l.Run]; r == nil || r.workflow != t.workflow {
			return &keep.NotFoundError{What: "run", ID: string(l.Run)}
		}
		t.add(&insertLog, text(string(t.workflow)), text(string(l.Run)), t.next(), millis(l.At), text(l.Level), text(l.Text), text(l.Where))
	}
	return nil
}

// OpenRun returns the run of w that is not closed, and whether there is one.
func (db *DB) OpenRun(ctx context.Context, w keep.WorkflowName) (keep.Run, bool, error) {
	list, err := collect(ctx, db, scanRun, `SELECT `+runColumns+` FROM run WHERE workflow = $1 AND NOT closed`, w)
	if err != nil || len(list) == 0 {
		return keep.Run{}, false, err
	}
	return list[0], true, nil
}

// Run returns a run, or *keep.NotFoundError.
func (db *DB) Run(ctx context.Context, id keep.RunID) (keep.Run, error) {
	return one(ctx, db, "run", string(id), scanRun, `SELECT `+runColumns+` FROM run WHERE id = $1`, id)
}

// Logs returns every line that a run wrote, oldest first.
func (db *DB) Logs(ctx context.Context, run keep.RunID) ([]keep.LogLine, error) {
	return collect(ctx, db, func(row pgx.CollectableRow) (l keep.LogLine, err error) {
		var at int64
		err = row.Scan(into(&l.Run), &at, into(&l.Level), into(&l.Text), into(&l.Where))
		l.At = moment(at)
		return l, err
	}, `SELECT l.run, l.at, l.level, l.text, l.place
		  FROM run JOIN run_log l ON l.workflow = run.workflow AND l.run = run.id
		 WHERE run.id = $1 ORDER BY l.n`, run)
}

// runColumns are in the order of keep.Run, but for JSON.
const runColumns = `run.id, run.chain, run.retry_of, run.workflow, run.major, run.minor, run.handler, run.kind, run.phase,
	run.status, run.closed, run.rev, run.trigger_topic, run.trigger_message, run.mutation, run.title, run.wake_at, run.seen_seq,
	run.retry_at, run.retries, run.crashes, run.created_at, run.updated_at, run.error, run.reservations, run.prepared, run.n`

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
		&created, &updated, &failure, &reservations, (*[]byte)(&r.Prepared), &p.n)
	if err != nil {
		return p, err
	}
	p.workflow = r.Workflow
	r.WakeAt, r.RetryAt, r.CreatedAt, r.UpdatedAt = moment(wake), moment(retry), moment(created), moment(updated)
	if r.Error, err = decodeFailure(failure); err != nil {
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

// A failure is keep.Failure as it is stored: with the wait that JSON for people
// leaves out.
type failure struct {
	keep.Failure
	RetryAfter time.Duration `json:"retry_after,omitempty"` // nanoseconds
}

// encodeFailure returns f as JSON text, and nil for nil.
func encodeFailure(f *keep.Failure) (*string, error) {
	if f == nil {
		return nil, nil
	}
	return encode(failure{*f, f.RetryAfter})
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

// encode returns v as JSON text.
func encode(v any) (*string, error) {
	b, err := json.Marshal(v)
	text := string(b)
	return &text, err
}
