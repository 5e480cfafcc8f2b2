package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
)

// A noticeFact is what is known of a notice, and what is to be written of it.
type noticeFact struct {
	keep.Notice
	dirty bool
}

const noticeColumns = `e.id, notice.sink, notice.status, notice.attempts, notice.next_at, notice.error, notice.updated_at, notice.rev`

const noticeFacts = `SELECT ` + noticeColumns + ` FROM escalation e
	  JOIN notice ON notice.workflow = e.workflow AND notice.escalation = e.n WHERE e.id = ANY($1)`

func (k *known) scanNotice(row pgx.CollectableRow) error {
	n, err := scanNotice(row)
	if k.notices[n.Escalation] == nil {
		k.notices[n.Escalation] = make(map[keep.Sink]*noticeFact)
	}
	if k.notices[n.Escalation][n.Sink] == nil {
		k.notices[n.Escalation][n.Sink] = &noticeFact{Notice: n}
	}
	return err
}

// putNotice writes a notice if its stored revision is the one that was read. What
// makes it unsound is in the CHECKs of the table.
func (t *tx) putNotice(n keep.Notice) error {
	e := t.escalations[n.Escalation]
	if e == nil || e.workflow != t.workflow {
		return &keep.NotFoundError{What: "escalation", ID: string(n.Escalation)}
	}
	old := t.notices[n.Escalation][n.Sink]
	switch {
	case (old != nil) != (n.Rev != 0), old != nil && old.Rev != n.Rev:
		return fmt.Errorf("notice of %s to %s: %w", n.Escalation, n.Sink, keep.ErrStale)
	case old == nil && !e.open:
		return fmt.Errorf("notice of %s to %s: %w", n.Escalation, n.Sink, keep.ErrDecided)
	case old == nil:
		old = new(noticeFact)
		if t.notices[n.Escalation] == nil {
			t.notices[n.Escalation] = make(map[keep.Sink]*noticeFact)
		}
		t.notices[n.Escalation][n.Sink] = old
	}
	n.Rev++
	old.Notice = n
	changed(&t.noticeWrites, old, &old.dirty)
	return nil
}

// makeMoot ends the pending notices of a question that is closed now.
func (t *tx) makeMoot(id keep.EscalationID) {
	for _, n := range t.notices[id] {
		if n.Status == keep.NoticePending {
			n.Status, n.NextAt, n.UpdatedAt = keep.NoticeMoot, time.Time{}, moment(t.at)
			n.Rev++
			changed(&t.noticeWrites, n, &n.dirty)
		}
	}
}

var putNotices = insertInto("notice", `workflow text, escalation bigint, sink text, status text, attempts bigint, next_at bigint,
		error text, updated_at bigint, rev bigint`,
	`ON CONFLICT (workflow, escalation, sink) DO UPDATE SET status = excluded.status, attempts = excluded.attempts,
		next_at = excluded.next_at, error = excluded.error, updated_at = excluded.updated_at, rev = excluded.rev`)

func (t *tx) writeNotice(f *noticeFact) {
	n := f.Notice
	t.add(&putNotices, text(string(t.workflow)), t.escalations[n.Escalation].n, text(string(n.Sink)), text(string(n.Status)), int64(n.Attempts),
		millis(n.NextAt), text(n.Error), millis(n.UpdatedAt), int64(n.Rev))
}

// Owed returns up to limit of the open questions that a sink has not taken; see
// notify.Store.
func (db *DB) Owed(ctx context.Context, sink keep.Sink, limit int) ([]keep.Owed, error) {
	fresh, err := collect(ctx, db, scanEscalation, `
		SELECT `+escalationColumns+` FROM escalation
		 WHERE closed_at = 0 AND NOT EXISTS (
			SELECT 1 FROM notice WHERE notice.workflow = escalation.workflow AND notice.escalation = escalation.n AND sink = $1)
		 ORDER BY n, workflow LIMIT $2`, sink, limit)
	if err != nil {
		return nil, err
	}
	owed := make([]keep.Owed, 0, len(fresh))
	for _, e := range fresh {
		owed = append(owed, keep.Owed{Escalation: e, Notice: keep.Notice{Escalation: e.ID, Sink: sink}})
	}
	pending, err := collect(ctx, db, scanNotice, `
		SELECT `+noticeColumns+` FROM notice JOIN escalation e ON e.workflow = notice.workflow AND e.n = notice.escalation
		 WHERE sink = $1 AND notice.status = 'pending' ORDER BY next_at, notice.escalation LIMIT $2`, sink, limit-len(owed))
	if err != nil {
		return nil, err
	}
	for _, n := range pending {
		e, err := db.Escalation(ctx, n.Escalation)
		if err != nil {
			return nil, err
		}
		owed = append(owed, keep.Owed{Escalation: e, Notice: n})
	}
	return owed, nil
}

// Notices returns what became of telling people of a question, sorted by sink.
func (db *DB) Notices(ctx context.Context, id keep.EscalationID) ([]keep.Notice, error) {
	return collect(ctx, db, scanNotice, `
		SELECT `+noticeColumns+` FROM escalation e JOIN notice ON notice.workflow = e.workflow AND notice.escalation = e.n
		 WHERE e.id = $1 ORDER BY sink`, id)
}

// scanNotice reads noticeColumns.
func scanNotice(row pgx.CollectableRow) (n keep.Notice, err error) {
	var next, updated int64
	err = row.Scan(into(&n.Escalation), into(&n.Sink), into(&n.Status), &n.Attempts, &next, into(&n.Error), &updated, &n.Rev)
	n.NextAt, n.UpdatedAt = moment(next), moment(updated)
	return n, err
}
