package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
)

// Repair returns a repair; see store.Repairs.
func (db *DB) Repair(ctx context.Context, id string) (keep.Repair, error) {
	return one(ctx, db, "repair", id, scanRepair, `SELECT `+repairColumns+` FROM repair WHERE id = $1`, id)
}

// Repairs returns the repairs of a workflow, or of all; see store.Repairs.
func (db *DB) Repairs(ctx context.Context, w keep.WorkflowName, since time.Time) ([]keep.Repair, error) {
	if w == "" {
		return collect(ctx, db, scanRepair, `SELECT `+repairColumns+` FROM repair WHERE created_at >= $1 ORDER BY created_at DESC, id DESC`, millis(since))
	}
	return collect(ctx, db, scanRepair, `SELECT `+repairColumns+` FROM repair WHERE workflow = $1 AND created_at >= $2 ORDER BY created_at DESC, id DESC`, string(w), millis(since))
}

const (
	insertRepair = `INSERT INTO repair (` + repairColumns + `) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`
	updateRepair = `UPDATE repair SET state = $5, rev = $4 WHERE id = $1 AND rev = $4 - 1 AND $2::text IS NOT NULL AND $3::bigint IS NOT NULL`
)

func repairArgs(r keep.Repair) []any {
	return []any{r.ID, string(r.Workflow), millis(r.CreatedAt), int64(r.Rev) + 1, string(r.State)}
}

// PutRepair writes a repair; see store.Repairs.
func (db *DB) PutRepair(ctx context.Context, r keep.Repair) error {
	if err := r.Validate(); err != nil {
		return err
	}
	query := updateRepair
	if r.Rev == 0 {
		query = insertRepair
	}
	n, err := db.exec(ctx, query, repairArgs(r)...)
	if err == nil && n == 0 {
		err = keep.ErrStale
	}
	if err != nil {
		return fmt.Errorf("repair %s: %w", r.ID, err)
	}
	return nil
}

const repairColumns = `id, workflow, created_at, rev, state`

// scanRepair reads repairColumns.
func scanRepair(row pgx.CollectableRow) (r keep.Repair, err error) {
	var at int64
	var state string
	err = row.Scan(into(&r.ID), into(&r.Workflow), &at, &r.Rev, &state)
	r.CreatedAt, r.State = moment(at), []byte(state)
	return r, err
}
