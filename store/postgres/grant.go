package postgres

import (
	"context"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

var (
	grantColumns = stored.Grants.Columns("")
	scanGrant    = scanOf(stored.Grants)
	insertGrant  = insertInto("granted", specOf(stored.Grants), "")
)

// writeGrant adds a grant.
func (t *tx) writeGrant(g keep.Grant) error {
	if err := write(&t.writes, &insertGrant, stored.Grants, &g); err != nil {
		return fmt.Errorf("grant %s: %w", g.ID(), err)
	}
	return nil
}

// Grant returns the grant of a workflow that holds; see store.Grants.
func (db *DB) Grant(ctx context.Context, w keep.WorkflowName) (keep.Grant, error) {
	return one(ctx, db, "grant of workflow", string(w), scanGrant,
		`SELECT `+grantColumns+` FROM granted WHERE workflow = $1 ORDER BY n DESC LIMIT 1`, w)
}

// Grants returns the grant of each workflow that holds; see store.Grants.
func (db *DB) Grants(ctx context.Context) ([]keep.Grant, error) {
	return collect(ctx, db, scanGrant, `SELECT `+stored.Grants.Columns("g.")+`
		FROM workflow JOIN granted g ON g.workflow = workflow.name AND g.n = workflow.granted ORDER BY workflow.name`)
}

// GrantsBefore returns every grant that a workflow ever had; see store.Grants.
func (db *DB) GrantsBefore(ctx context.Context, w keep.WorkflowName) ([]keep.Grant, error) {
	return collect(ctx, db, scanGrant, `SELECT `+grantColumns+` FROM granted WHERE workflow = $1 ORDER BY n DESC`, w)
}
