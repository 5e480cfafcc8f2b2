package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/keep-run/keep"
)

// openEscalation asks a question.
func (t *tx) openEscalation(e keep.Escalation) error {
	if err := t.mine("escalation", string(e.ID), e.Workflow); err != nil {
		return err
	}
	if !e.ClosedAt.IsZero() || e.Decision != nil {
		return fmt.Errorf("escalation %s: must be open", e.ID)
	}
	choices, err := encodeList(e.Choices)
	if err == nil {
		_, err = t.exec(`
			INSERT INTO escalation (id, kind, workflow, run, mutation, item, title, question, attempted, why,
				can_verify, verify_by_hand, choices, payload_hash, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			e.ID, e.Kind, e.Workflow, e.Run, e.Mutation, e.Item, e.Title, e.Question, e.Attempted, e.Why,
			e.CanVerify, e.VerifyByHand, choices, e.PayloadHash, e.CreatedAt)
	}
	if isUnique(err) {
		err = keep.ErrStale
	}
	if err != nil {
		return fmt.Errorf("escalation %s: %w", e.ID, err)
	}
	return nil
}

// closeEscalation is a compare-and-set on closed_at, so that of two people who
// decide at once one is told that it was decided.
func (t *tx) closeEscalation(c keep.CloseEscalation) error {
	var d keep.Decision
	if c.Decision != nil {
		if d = *c.Decision; d.Action == "" {
			return errors.New("decision without an action")
		}
	}
	n, err := t.exec(`
		UPDATE escalation
		   SET closed_at = ?, decision = ?, decided_by = ?, decided_from = ?, decision_note = ?, decided_at = ?
		 WHERE id = ? AND workflow = ? AND closed_at = 0`,
		t.at, d.Action, d.By, d.From, d.Note, d.At, c.ID, t.workflow)
	if err == nil && n == 0 {
		var known bool
		known, err = t.exists(`SELECT 1 FROM escalation WHERE id = ? AND workflow = ?`, c.ID, t.workflow)
		switch {
		case known:
			err = keep.ErrDecided
		case err == nil:
			return &keep.NotFoundError{What: "escalation", ID: string(c.ID)}
		}
	}
	if err != nil {
		return fmt.Errorf("escalation %s: %w", c.ID, err)
	}
	return t.makeMoot(c.ID)
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
func scanEscalation(row *sql.Rows) (e keep.Escalation, err error) {
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
