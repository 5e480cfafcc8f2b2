package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

var (
	decisionColumns = stored.Decisions.Columns("")
	scanDecision    = scanOf(stored.Decisions)
	insertDecision  = stored.Decisions.Insert("decision", "?")
)

// writeDecision adds a decision after those that there are.
func (t *tx) writeDecision(d keep.Decided) error {
	if _, _, err := write(t.conn, insertDecision, stored.Decisions, &d); err != nil {
		return fmt.Errorf("decision about %s %s: %w", d.About.Kind, d.About.ID, err)
	}
	return nil
}

// writeActs adds decisions that are of no workflow.
func writeActs(conn *conn, acts []keep.Decided) error {
	for _, d := range acts {
		err := stored.CheckAct(d)
		if err == nil {
			_, _, err = write(conn, insertDecision, stored.Decisions, &d)
		}
		if err != nil {
			return fmt.Errorf("decision about %s %s: %w", d.About.Kind, d.About.ID, err)
		}
	}
	return nil
}

// Decisions lists decisions; see store.Decisions.
func (db *DB) Decisions(ctx context.Context, f keep.DecisionFilter, p keep.Page) ([]keep.Decided, string, error) {
	return page(ctx, db, p, listing[keep.Decided]{
		kind: "d",
		rows: `SELECT ` + decisionColumns + ` FROM (SELECT value FROM json_each(?)) CROSS JOIN decision ON n = value`,
		scan: scanDecision,
		from: func(_ context.Context, _ *view, c cut) ([]stream, error) {
			newest := ` ORDER BY n DESC LIMIT ?2`
			switch {
			case f.Workflow != "" && f.Global: // nothing is both
				return nil, nil
			case f.Workflow != "" || f.Global:
				return []stream{{text: `SELECT n FROM decision WHERE n < ?1 AND workflow = ?3` + newest, args: []any{c.before, c.limit, f.Workflow}}}, nil
			}
			return []stream{{text: `SELECT n FROM decision WHERE n < ?1` + newest, args: []any{c.before, c.limit}}}, nil
		},
		within: func(_ context.Context, _ *view, c cut) (cut, error) { return c, nil },
	})
}

// Decided returns decisions; see store.Decisions.
func (db *DB) Decided(ctx context.Context, about keep.Subject) ([]keep.Decided, error) {
	list, err := rows(ctx, db, scanDecision, `SELECT `+decisionColumns+` FROM decision
		 WHERE workflow = ? AND kind = ? AND topic = ? AND id = ? ORDER BY n DESC LIMIT ?`, about.Workflow, about.Kind, about.Topic, about.ID, keep.MaxDecided)
	slices.Reverse(list)
	return list, err
}
