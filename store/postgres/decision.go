package postgres

import (
	"context"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

var (
	decisionColumns = stored.Decisions.Columns("")
	scanDecision    = scanOf(stored.Decisions)
	insertDecision  = insertInto("decision", specOf(stored.Decisions)+`, n bigint`, "")
)

// writeDecision adds a decision after those that there are.
func (t *tx) writeDecision(d keep.Decided) error {
	return write(&t.writes, &insertDecision, stored.Decisions, &d, t.next())
}

// Decided returns decisions; see store.Decisions.
func (db *DB) Decided(ctx context.Context, about keep.Subject) ([]keep.Decided, error) {
	list, err := collect(ctx, db, scanDecision, `SELECT `+decisionColumns+` FROM decision
		 WHERE workflow = $1 AND kind = $2 AND topic = $3 AND id = $4 ORDER BY n DESC LIMIT $5`,
		about.Workflow, about.Kind, about.Topic, about.ID, keep.MaxDecided)
	slices.Reverse(list)
	return list, err
}
