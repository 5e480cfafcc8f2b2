package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

// A question is asked with some of its columns, and ended with the others.
var (
	ending = stored.Escalations.Only("closed_at", "decision", "decided_by", "decided_from", "decision_note", "decided_at", "decided_result")
	asking = stored.Escalations.Without(ending.Names()...)

	insertEscalation = insertInto("escalation", specOf(asking)+`, n bigint`, "")
	closeEscalations = updateOf("escalation", `id text`, specOf(ending))
)

// writeEscalation writes a row of a plan, which asks a question, or ends one, or both.
func (t *tx) writeEscalation(f *commit.Escalation) error {
	row := &stored.Escalation{Escalation: f.Put, Decided: f.Decision}
	if f.New {
		f.N = t.next()
		if err := write(&t.writes, &insertEscalation, asking, row, f.N); err != nil {
			return err
		}
	}
	if !f.Closed {
		return nil
	}
	row.ClosedAt = moment(t.at)
	return update(&t.writes, &closeEscalations, []any{text(string(row.ID))}, ending, row)
}

// Escalation returns a question, or *keep.NotFoundError.
func (db *DB) Escalation(ctx context.Context, id keep.EscalationID) (keep.Escalation, error) {
	return one(ctx, db, "escalation", string(id), scanEscalation,
		`SELECT `+escalationColumns+` FROM escalation WHERE id = $1`, id)
}

// SaidDone returns what persons said of calls of an item that were done already, newest first.
func (db *DB) SaidDone(ctx context.Context, w keep.WorkflowName, item string) ([]keep.Escalation, error) {
	return collect(ctx, db, scanEscalation, `SELECT `+escalationColumns+` FROM escalation
		 WHERE decision IN ('treat-as-done', 'do-again') AND kind IN ('approval', 'already_done') AND workflow = $1 AND item = $2 ORDER BY n DESC`, w, item)
}

// escalationColumns end with the place of the question in lists.
var (
	escalationColumns = stored.Escalations.Columns("escalation.") + ", escalation.n"
	scanQuestionAt    = placedOf(stored.Escalations)
	scanEscalation    = unplaced(scanEscalationAt)
)

// scanEscalationAt reads escalationColumns. A decision that has no action is none.
func scanEscalationAt(row pgx.CollectableRow) (placed[keep.Escalation], error) {
	p, err := scanQuestionAt(row)
	return placed[keep.Escalation]{p.what.Plain(), p.n, p.workflow}, err
}
