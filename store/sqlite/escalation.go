package sqlite

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

// A question is asked with some of its columns, and ended with the others.
var (
	ending = stored.Escalations.Only("closed_at", "decision", "decided_by", "decided_from", "decision_note", "decided_at", "decided_result")
	asking = stored.Escalations.Without(ending.Names()...)

	insertEscalation = asking.Insert("escalation", "?")
	closeEscalation  = `UPDATE escalation` + set(ending) + ` WHERE id = ? AND closed_at = 0`
)

// writeEscalation writes a row of a plan, which asks a question, or ends one, or both.
func (t *tx) writeEscalation(put *commit.Escalation) error {
	row := &stored.Escalation{Escalation: put.Put, Decided: put.Decision}
	if put.New {
		n, _, err := write(t.conn, insertEscalation, asking, row)
		if err := written("escalation", row.ID, n, err); err != nil || !put.Closed {
			return err
		}
	}
	row.ClosedAt = moment(t.at)
	n, _, err := write(t.conn, closeEscalation, ending, row, row.ID)
	return written("escalation", row.ID, n, err)
}

// Escalation returns a question, or *keep.NotFoundError.
func (db *DB) Escalation(ctx context.Context, id keep.EscalationID) (keep.Escalation, error) {
	return one(ctx, db, "escalation", string(id), scanEscalation,
		`SELECT `+escalationColumns+` FROM escalation WHERE id = ?`, id)
}

// SaidDone returns what persons said of calls of an item that were done already, newest first.
func (db *DB) SaidDone(ctx context.Context, w keep.WorkflowName, item string) ([]keep.Escalation, error) {
	return rows(ctx, db, scanEscalation, `SELECT `+escalationColumns+` FROM escalation INDEXED BY escalation_said_done
		 WHERE decision IN ('treat-as-done', 'do-again') AND kind IN ('approval', 'already_done') AND workflow = ? AND item = ? ORDER BY n DESC`, w, item)
}

var (
	escalationColumns = stored.Escalations.Columns("")
	scanRowOfQuestion = scanOf(stored.Escalations)
)

// scanEscalation reads escalationColumns.
func scanEscalation(row scanner) (keep.Escalation, error) {
	e, err := scanRowOfQuestion(row)
	return e.Plain(), err
}
