package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
)

// writeEscalation writes a row of a plan, which asks a question, or ends one, or both.
func (t *tx) writeEscalation(put *commit.Escalation) error {
	e := put.Put
	if put.New {
		choices, err := encodeList(e.Choices)
		if err != nil {
			return fmt.Errorf("escalation %s: %w", e.ID, err)
		}
		n, err := t.exec(`
			INSERT INTO escalation (id, kind, workflow, run, mutation, item, title, question, attempted, why,
				can_verify, verify_by_hand, choices, payload_hash, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			e.ID, e.Kind, e.Workflow, e.Run, e.Mutation, e.Item, e.Title, e.Question, e.Attempted, e.Why,
			e.CanVerify, e.VerifyByHand, choices, e.PayloadHash, e.CreatedAt)
		if err := written("escalation", e.ID, n, err); err != nil || !put.Closed {
			return err
		}
	}
	d := put.Decision
	n, err := t.exec(`
		UPDATE escalation
		   SET closed_at = ?, decision = ?, decided_by = ?, decided_from = ?, decision_note = ?, decided_at = ?
		 WHERE id = ? AND closed_at = 0`,
		t.at, d.Action, d.By, d.From, d.Note, d.At, e.ID)
	return written("escalation", e.ID, n, err)
}

// Escalation returns a question, or *keep.NotFoundError.
func (db *DB) Escalation(ctx context.Context, id keep.EscalationID) (keep.Escalation, error) {
	return one(ctx, db, "escalation", string(id), scanEscalation,
		`SELECT `+escalationColumns+` FROM escalation WHERE id = ?`, id)
}

// escalationColumns end with the decision, whose columns are empty without one.
const escalationColumns = `id, kind, workflow, run, mutation, item, title, question, attempted, why,
	can_verify, verify_by_hand, choices, payload_hash, created_at,
	closed_at, decision, decided_by, decided_from, decision_note, decided_at`

// scanEscalation reads escalationColumns.
func scanEscalation(row scanner) (e keep.Escalation, err error) {
	var created, closed, decided int64
	var choices []byte
	var d keep.Decision
	err = row.Scan(&e.ID, &e.Kind, &e.Workflow, &e.Run, &e.Mutation, &e.Item, &e.Title, &e.Question, &e.Attempted, &e.Why,
		&e.CanVerify, &e.VerifyByHand, &choices, &e.PayloadHash, &created,
		&closed, &d.Action, &d.By, &d.From, &d.Note, &decided)
	if err != nil {
		return e, err
	}
	e.CreatedAt, e.ClosedAt, d.At = moment(created), moment(closed), moment(decided)
	if d.Action != "" {
		e.Decision = &d
	}
	if choices != nil {
		if err := json.Unmarshal(choices, &e.Choices); err != nil {
			return e, fmt.Errorf("escalation %s: read choices: %w", e.ID, err)
		}
	}
	return e, nil
}
