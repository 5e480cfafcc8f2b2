package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/keep-run/keep"
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
	return db.change(ctx, func(conn *conn) error { return putRepair(conn, r) })
}

func putRepair(conn *conn, r keep.Repair) error {
	if r.Rev == 0 {
		return insertRepair(conn, r)
	}
	n, err := conn.exec(`UPDATE repair SET state = ?2, rev = ?3 WHERE id = ?1 AND rev = ?3 - 1`, r.ID, string(r.State), r.Rev+1)
	return wroteRepair(r, n, err)
}

// insertRepair adds a repair, of any revision.
func insertRepair(conn *conn, r keep.Repair) error {
	n, err := conn.exec(`INSERT INTO repair (`+repairColumns+`) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		r.ID, r.Workflow, r.CreatedAt, r.Rev+1, string(r.State))
	return wroteRepair(r, n, err)
}

// wroteRepair returns the error of a statement that is to write a repair.
func wroteRepair(r keep.Repair, n int64, err error) error {
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
func scanRepair(row scanner) (r keep.Repair, err error) {
	var at int64
	err = row.Scan(&r.ID, &r.Workflow, &at, &r.Rev, (*[]byte)(&r.State))
	r.CreatedAt = moment(at)
	return r, err
}
