package sqlite

import (
	"context"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

var (
	grantColumns = stored.Grants.Columns("")
	scanGrant    = scanOf(stored.Grants)
	insertGrant  = stored.Grants.Insert("granted", "?")
)

// writeGrant adds a grant.
func (t *tx) writeGrant(g keep.Grant) error {
	_, _, err := write(t.conn, insertGrant, stored.Grants, &g)
	if isUnique(err) {
		err = errUnexpected
	}
	if err != nil {
		return fmt.Errorf("grant %s: %w", g.ID(), err)
	}
	return nil
}

// Grant returns the grant of a workflow that holds; see store.Grants.
func (db *DB) Grant(ctx context.Context, w keep.WorkflowName) (keep.Grant, error) {
	list, err := rows(ctx, db, scanGrant, `SELECT `+grantColumns+` FROM granted WHERE workflow = ? ORDER BY n DESC LIMIT 1`, w)
	if err == nil && len(list) == 0 {
		err = &keep.NotFoundError{What: "grant of workflow", ID: string(w)}
	}
	if err != nil {
		return keep.Grant{}, err
	}
	return list[0], nil
}

// Grants returns the grant of each workflow that holds; see store.Grants.
func (db *DB) Grants(ctx context.Context) ([]keep.Grant, error) {
	return rows(ctx, db, scanGrant, `SELECT `+stored.Grants.Columns("g.")+`
		FROM workflow JOIN granted g ON g.workflow = workflow.name AND g.n = workflow.granted ORDER BY workflow.name`)
}

// GrantsBefore returns every grant that a workflow ever had; see store.Grants.
func (db *DB) GrantsBefore(ctx context.Context, w keep.WorkflowName) ([]keep.Grant, error) {
	return rows(ctx, db, scanGrant, `SELECT `+grantColumns+` FROM granted WHERE workflow = ? ORDER BY n DESC`, w)
}
