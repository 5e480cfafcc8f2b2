package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// Repair returns a repair; see store.Repairs.
func (db *DB) Repair(ctx context.Context, id string) (keep.Repair, error) {
	return one(ctx, db, "repair", id, scanRepair, `SELECT `+repairColumns+` FROM repair WHERE id = ?`, id)
}

// Repairs returns the repairs of a workflow, or of all; see store.Repairs.
func (db *DB) Repairs(ctx context.Context, w keep.WorkflowName, since time.Time) ([]keep.Repair, error) {
	if w == "" {
		return rows(ctx, db, scanRepair, `SELECT `+repairColumns+` FROM repair WHERE created_at >= ? ORDER BY created_at DESC, id DESC`, millis(since))
	}
	return rows(ctx, db, scanRepair, `SELECT `+repairColumns+` FROM repair WHERE workflow = ? AND created_at >= ? ORDER BY created_at DESC, id DESC`, w, millis(since))
}

// PutRepair writes a repair; see store.Repairs.
func (db *DB) PutRepair(ctx context.Context, r keep.Repair) error {
	if err := r.Validate(); err != nil {
		return err
	}
	r.Rev++
	err := db.change(ctx, func(conn *conn) error { return put(conn, repairs, &r, r.Rev == 1) })
	if err != nil {
		return fmt.Errorf("repair %s: %w", r.ID, err)
	}
	return nil
}

var (
	repairColumns = stored.Repairs.Columns("")
	scanRepair    = scanOf(stored.Repairs)
	repairs       = stored.Revise("repair", "?", stored.Repairs, []string{"id"}, "workflow", "created_at")
)
