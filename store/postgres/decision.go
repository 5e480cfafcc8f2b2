package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

var (
	decisionColumns = stored.Decisions.Columns("")
	scanDecision    = scanOf(stored.Decisions)
	scanDecisionAt  = placedOf(stored.Decisions)
	insertAct       = `INSERT INTO decision (` + decisionColumns + `, n) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
	insertDecision  = insertInto("decision", specOf(stored.Decisions)+`, n bigint`, "")
)

// writeDecision adds a decision after those that there are.
func (t *tx) writeDecision(d keep.Decided) error {
	return write(&t.writes, &insertDecision, stored.Decisions, &d, t.next())
}

// actsLock is held by whoever records what is of no workflow, for pg_advisory_xact_lock: these rows are numbered by those that there are.
const actsLock = `hashtextextended('keep acts', 0)`

// writeActs adds decisions that are of no workflow.
func writeActs(ctx context.Context, tx pgx.Tx, acts []keep.Decided) error {
	if len(acts) == 0 {
		return nil
	}
	var last int64
	_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(`+actsLock+`)`)
	if err == nil { // a statement of its own, which sees what was recorded until the lock was free
		err = tx.QueryRow(ctx, `SELECT coalesce(max(n), 0) FROM decision WHERE workflow = ''`).Scan(&last)
	}
	for _, d := range acts {
		if err == nil {
			err = stored.CheckAct(d)
		}
		if err != nil {
			return err
		}
		last = numberAfter(last, millis(d.Decision.At))
		row, bad := args(stored.Decisions, &d)
		if err = bad; err == nil {
			_, err = tx.Exec(ctx, insertAct, append(row, last)...)
		}
	}
	return err
}

// Decisions lists decisions; see store.Decisions.
func (db *DB) Decisions(ctx context.Context, f keep.DecisionFilter, p keep.Page) ([]keep.Decided, string, error) {
	c, err := parseCursor("d", p)
	if err != nil {
		return nil, "", fmt.Errorf("list: %w", err)
	}
	var q query
	and(&q, "decision.workflow", f.Workflow)
	if f.Global {
		q.where = append(q.where, "decision.workflow = ''")
	}
	q.after("decision", c)
	found, err := collect(ctx, db, scanDecisionAt, `SELECT `+decisionColumns+`, n FROM decision`+q.conditions()+q.newest("decision", c), q.args...)
	if err != nil {
		return nil, "", fmt.Errorf("list: %w", err)
	}
	found, end := cutOff(found, c)
	return unplacedAll(found), cursorOf("d", end), nil
}

// Decided returns decisions; see store.Decisions.
func (db *DB) Decided(ctx context.Context, about keep.Subject) ([]keep.Decided, error) {
	list, err := collect(ctx, db, scanDecision, `SELECT `+decisionColumns+` FROM decision
		 WHERE workflow = $1 AND kind = $2 AND topic = $3 AND id = $4 ORDER BY n DESC LIMIT $5`,
		about.Workflow, about.Kind, about.Topic, about.ID, keep.MaxDecided)
	slices.Reverse(list)
	return list, err
}
