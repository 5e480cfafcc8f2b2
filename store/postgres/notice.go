package postgres

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

var (
	noticeColumns = `e.id, ` + noticeRow.Columns("notice.")
	scanNotice    = scanOf(stored.Notices)

	noticeRow  = stored.Notices.Without("escalation")
	putNotices = insertInto("notice", specOf(noticeRow)+`, workflow text, escalation bigint`,
		`ON CONFLICT (workflow, escalation, sink) DO UPDATE SET `+excluded(noticeRow.Without("sink")))
)

// writeNotice writes a row of a plan.
func (t *tx) writeNotice(n *commit.Notice) error {
	return write(&t.writes, &putNotices, noticeRow, &n.Notice, text(string(t.workflow)), t.s.Escalations.Get(n.Escalation).N)
}

// Owed returns up to limit of the open questions that a sink has not taken; see
// store.Notices.
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
		 WHERE sink = $1 AND notice.status = 'pending' AND e.closed_at = 0 ORDER BY next_at, notice.escalation LIMIT $2`, sink, limit-len(owed))
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

// GivenUp returns up to limit of the notices of open questions that are not tried
// again, those of the newest question first, then by sink.
func (db *DB) GivenUp(ctx context.Context, limit int) ([]keep.Notice, error) {
	return collect(ctx, db, scanNotice, `
		SELECT `+noticeColumns+` FROM escalation e JOIN notice ON notice.workflow = e.workflow AND notice.escalation = e.n
		 WHERE e.closed_at = 0 AND notice.status = 'given_up' ORDER BY e.n DESC, e.workflow DESC, sink LIMIT $1`, limit)
}
