package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/keep-run/keep"
)

// putNotice writes a notice if its stored revision is the one that was read.
func (t *tx) putNotice(n keep.Notice) error {
	var changed int64
	var err error
	if n.Rev == 0 {
		changed, err = t.exec(`
			INSERT INTO notice (escalation, sink, status, attempts, next_at, error, updated_at, rev)
			SELECT n, ?, ?, ?, ?, ?, ?, 1 FROM escalation WHERE id = ? AND workflow = ? AND closed_at = 0`,
			n.Sink, n.Status, n.Attempts, n.NextAt, n.Error, n.UpdatedAt, n.Escalation, t.workflow)
	} else {
		changed, err = t.exec(`
			UPDATE notice SET status = ?, attempts = ?, next_at = ?, error = ?, updated_at = ?, rev = rev + 1
			 WHERE escalation = (SELECT n FROM escalation WHERE id = ? AND workflow = ?) AND sink = ? AND rev = ?`,
			n.Status, n.Attempts, n.NextAt, n.Error, n.UpdatedAt, n.Escalation, t.workflow, n.Sink, n.Rev)
	}
	switch {
	case isUnique(err):
		err = keep.ErrStale
	case err == nil && changed == 0:
		err = t.whyNoNotice(n)
	}
	if err != nil {
		return fmt.Errorf("notice of %s to %s: %w", n.Escalation, n.Sink, err)
	}
	return nil
}

// whyNoNotice returns why a notice was not written.
func (t *tx) whyNoNotice(n keep.Notice) error {
	known, err := t.exists(`SELECT 1 FROM escalation WHERE id = ? AND workflow = ?`, n.Escalation, t.workflow)
	switch {
	case err != nil:
		return err
	case !known:
		return &keep.NotFoundError{What: "escalation", ID: string(n.Escalation)}
	case n.Rev != 0:
		return keep.ErrStale
	}
	tried, err := t.exists(`
		SELECT 1 FROM notice WHERE escalation = (SELECT n FROM escalation WHERE id = ?) AND sink = ?`, n.Escalation, n.Sink)
	if err == nil && tried {
		return keep.ErrStale
	}
	if err == nil {
		err = keep.ErrDecided
	}
	return err
}

// makeMoot ends the pending notices of a question that is closed now.
func (t *tx) makeMoot(id keep.EscalationID) error {
	_, err := t.exec(`
		UPDATE notice SET status = 'moot', next_at = 0, updated_at = ?, rev = rev + 1
		 WHERE escalation = (SELECT n FROM escalation WHERE id = ?) AND status = 'pending'`, t.at, id)
	if err != nil {
		return fmt.Errorf("notices of %s: %w", id, err)
	}
	return nil
}

// Owed returns up to limit of the open questions that a sink has not taken; see
// notify.Store.
func (db *DB) Owed(ctx context.Context, sink keep.Sink, limit int) (owed []keep.Owed, err error) {
	err = db.snapshot(ctx, func(v *view) error {
		fresh, err := rows(ctx, v, scanEscalation, `
			SELECT `+escalationColumns+` FROM escalation INDEXED BY escalation_open
			 WHERE closed_at = 0
			   AND NOT EXISTS (SELECT 1 FROM notice WHERE notice.escalation = escalation.n AND notice.sink = ?)
			 ORDER BY n LIMIT ?`, sink, limit)
		if err != nil {
			return err
		}
		for _, e := range fresh {
			owed = append(owed, keep.Owed{Escalation: e, Notice: keep.Notice{Escalation: e.ID, Sink: sink}})
		}
		pending, err := rows(ctx, v, scanNotice, `
			SELECT `+noticeColumns+` FROM notice INDEXED BY notice_pending
			 WHERE sink = ? AND status = 'pending' ORDER BY next_at, escalation LIMIT ?`, sink, limit-len(owed))
		if err != nil {
			return err
		}
		for _, n := range pending {
			e, err := one(ctx, v, "escalation", string(n.Escalation), scanEscalation,
				`SELECT `+escalationColumns+` FROM escalation WHERE id = ?`, n.Escalation)
			if err != nil {
				return err
			}
			owed = append(owed, keep.Owed{Escalation: e, Notice: n})
		}
		return nil
	})
	return owed, err
}

// Notices returns what became of telling people of a question, sorted by sink.
func (db *DB) Notices(ctx context.Context, id keep.EscalationID) ([]keep.Notice, error) {
	return rows(ctx, db, scanNotice, `
		SELECT `+noticeColumns+` FROM notice
		 WHERE escalation = (SELECT n FROM escalation WHERE id = ?) ORDER BY sink`, id)
}

// noticeColumns are those of the table, with the id of the question.
const noticeColumns = `(SELECT id FROM escalation WHERE escalation.n = notice.escalation), sink, status, attempts, next_at, error, updated_at, rev`

// scanNotice reads noticeColumns.
func scanNotice(row *sql.Rows) (n keep.Notice, err error) {
	var next, updated int64
	err = row.Scan(&n.Escalation, &n.Sink, &n.Status, &n.Attempts, &next, &n.Error, &updated, &n.Rev)
	n.NextAt, n.UpdatedAt = moment(next), moment(updated)
	return n, err
}
