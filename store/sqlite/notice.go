package sqlite

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

// writeNotice writes a row of a plan.
func (t *tx) writeNotice(n *commit.Notice) error {
	if n.New {
		changed, err := t.exec(`
			INSERT INTO notice (escalation, sink, status, attempts, next_at, error, updated_at, rev)
			SELECT n, ?, ?, ?, ?, ?, ?, ? FROM escalation WHERE id = ?`,
			n.Sink, n.Status, n.Attempts, n.NextAt, n.Error, n.UpdatedAt, n.Rev, n.Escalation)
		return written("notice of", n.Escalation, changed, err)
	}
	changed, err := t.exec(`
		UPDATE notice SET status = ?, attempts = ?, next_at = ?, error = ?, updated_at = ?, rev = ?
		 WHERE escalation = (SELECT n FROM escalation WHERE id = ?) AND sink = ? AND rev = ?`,
		n.Status, n.Attempts, n.NextAt, n.Error, n.UpdatedAt, n.Rev, n.Escalation, n.Sink, n.Was)
	return written("notice of", n.Escalation, changed, err)
}

// Owed returns up to limit of the open questions that a sink has not taken; see
// store.Notices.
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
			 WHERE sink = ? AND status = 'pending'
			   AND (SELECT closed_at FROM escalation WHERE escalation.n = notice.escalation) = 0
			 ORDER BY next_at, escalation LIMIT ?`, sink, limit-len(owed))
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

// GivenUp returns up to limit of the notices of open questions that are not tried
// again, those of the newest question first, then by sink.
func (db *DB) GivenUp(ctx context.Context, limit int) ([]keep.Notice, error) {
	return rows(ctx, db, scanNotice, `
		SELECT `+noticeColumns+` FROM escalation e INDEXED BY escalation_open CROSS JOIN notice ON notice.escalation = e.n
		 WHERE e.closed_at = 0 AND status = 'given_up' ORDER BY e.n DESC, sink LIMIT ?`, limit)
}

// noticeColumns are those of the table, with the id of the question.
var (
	noticeColumns = `(SELECT id FROM escalation WHERE escalation.n = notice.escalation), ` + stored.Notices.Without("escalation").Columns("notice.")
	scanNotice    = scanOf(stored.Notices)
)
