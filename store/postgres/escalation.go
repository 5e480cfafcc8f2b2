package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
)

var insertEscalation = insertInto("escalation", `workflow text, id text, n bigint, kind text, run text, mutation text, item text, title text,
	question text, attempted text, why text, can_verify boolean, verify_by_hand text, choices text?, payload_hash text, created_at bigint`, "")

var closeEscalations = updateOf("escalation", `id text`,
	`closed_at bigint, decision text, decided_by text, decided_from text, decision_note text, decided_at bigint`)

// writeEscalation writes a row of a plan, which asks a question, or ends one, or both.
func (t *tx) writeEscalation(f *commit.Escalation) error {
	e := f.Put
	if f.New {
		var choices *string
		if e.Choices != nil {
			var err error
			if choices, err = encode(e.Choices); err != nil {
				return fmt.Errorf("escalation %s: %w", e.ID, err)
			}
		}
		f.N = t.next()
		t.add(&insertEscalation, text(string(e.Workflow)), text(string(e.ID)), f.N, text(string(e.Kind)), text(string(e.Run)), text(string(e.Mutation)),
			text(e.Item), text(e.Title), text(e.Question), text(e.Attempted), text(e.Why), e.CanVerify, text(e.VerifyByHand), choices,
			text(e.PayloadHash), millis(e.CreatedAt))
	}
	if f.Closed {
		d := f.Decision
		t.add(&closeEscalations, text(string(e.ID)), t.at, text(string(d.Action)), text(d.By), text(d.From), text(d.Note), millis(d.At))
	}
	return nil
}

// Escalation returns a question, or *keep.NotFoundError.
func (db *DB) Escalation(ctx context.Context, id keep.EscalationID) (keep.Escalation, error) {
	return one(ctx, db, "escalation", string(id), scanEscalation,
		`SELECT `+escalationColumns+` FROM escalation WHERE id = $1`, id)
}

// escalationColumns end with the decision, whose columns are empty without one.
const escalationColumns = `escalation.id, escalation.kind, escalation.workflow, escalation.run, escalation.mutation, escalation.item,
	escalation.title, escalation.question, escalation.attempted, escalation.why, escalation.can_verify, escalation.verify_by_hand,
	escalation.choices, escalation.payload_hash, escalation.created_at, escalation.closed_at, escalation.decision,
	escalation.decided_by, escalation.decided_from, escalation.decision_note, escalation.decided_at, escalation.n`

// scanEscalation reads escalationColumns.
func scanEscalation(row pgx.CollectableRow) (keep.Escalation, error) {
	p, err := scanEscalationAt(row)
	return p.what, err
}

// scanEscalationAt reads escalationColumns, with the place of the question in lists.
func scanEscalationAt(row pgx.CollectableRow) (p placed[keep.Escalation], err error) {
	var created, closed, decided int64
	var choices []byte
	var d keep.Decision
	e := &p.what
	err = row.Scan(into(&e.ID), into(&e.Kind), into(&e.Workflow), into(&e.Run), into(&e.Mutation), into(&e.Item),
		into(&e.Title), into(&e.Question), into(&e.Attempted), into(&e.Why), &e.CanVerify, into(&e.VerifyByHand),
		&choices, into(&e.PayloadHash), &created, &closed, into(&d.Action),
		into(&d.By), into(&d.From), into(&d.Note), &decided, &p.n)
	if err != nil {
		return p, err
	}
	p.workflow = e.Workflow
	e.CreatedAt, e.ClosedAt, d.At = moment(created), moment(closed), moment(decided)
	if d.Action != "" {
		e.Decision = &d
	}
	if choices != nil {
		if err := json.Unmarshal(choices, &e.Choices); err != nil {
			return p, fmt.Errorf("escalation %s: read choices: %w", e.ID, err)
		}
	}
	return p, nil
}
