package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
)

const noticeColumns = `e.id, notice.sink, notice.status, notice.attempts, notice.next_at, notice.error, notice.updated_at, notice.rev`

var putNotices = insertInto("notice", `workflow text, escalation bigint, sink text, status text, attempts bigint, next_at bigint,
		error text, updated_at bigint, rev bigint`,
	`ON CONFLICT (workflow, escalation, sink) DO UPDATE SET status = excluded.status, attempts = excluded.attempts,
		next_at = excluded.next_at, error = excluded.error, updated_at = excluded.updated_at, rev = excluded.rev`)

// writeNotice writes a row of a plan.
func (t *tx) writeNotice(n *commit.Notice) error {
	t.add(&putNotices, text(string(t.workflow)), t.s.Escalations.Get(n.Escalation).N, text(string(n.Sink)), text(string(n.Status)), int64(n.Attempts),
		millis(n.NextAt), text(n.Error), millis(n.UpdatedAt), int64(n.Rev))
	return nil
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

// scanNotice reads noticeColumns.
func scanNotice(row pgx.CollectableRow) (n keep.Notice, err error) {
	var next, updated int64
	err = row.Scan(into(&n.Escalation), into(&n.Sink), into(&n.Status), &n.Attempts, &next, into(&n.Error), &updated, &n.Rev)
	n.NextAt, n.UpdatedAt = moment(next), moment(updated)
	return n, err
}
