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

// Decided returns decisions; see store.Decisions.
func (db *DB) Decided(ctx context.Context, about keep.Subject) ([]keep.Decided, error) {
	list, err := rows(ctx, db, scanDecision, `SELECT `+decisionColumns+` FROM decision
		 WHERE workflow = ? AND kind = ? AND topic = ? AND id = ? ORDER BY n DESC LIMIT ?`, about.Workflow, about.Kind, about.Topic, about.ID, keep.MaxDecided)
	slices.Reverse(list)
	return list, err
}
