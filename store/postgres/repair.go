package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
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

// PutRepair writes a repair; see store.Repairs.
func (db *DB) PutRepair(ctx context.Context, r keep.Repair) error {
	if err := r.Validate(); err != nil {
		return err
	}
	err := db.writable()
	if r.Rev++; err == nil {
		err = put(ctx, db.pool, repairs, &r, r.Rev == 1)
	}
	if err != nil {
		return fmt.Errorf("repair %s: %w", r.ID, err)
	}
	return nil
}

var (
	repairColumns = stored.Repairs.Columns("")
	scanRepair    = scanOf(stored.Repairs)
	repairs       = stored.Revise("repair", "$", stored.Repairs, []string{"id"}, "workflow", "created_at")
)
