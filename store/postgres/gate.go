package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
)

// Gate returns the gate of a connection; see store.Gates.
func (db *DB) Gate(ctx context.Context, connection string) (keep.Gate, error) {
	g, err := one(ctx, db, "gate", connection, scanGate, `SELECT `+gateColumns+` FROM gate WHERE connection = $1`, connection)
	if errors.Is(err, keep.ErrNotFound) {
		return keep.Gate{Connection: connection}, nil
	}
	return g, err
}

const (
	insertGate = `INSERT INTO gate (` + gateColumns + `) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
	updateGate = `UPDATE gate SET state = $2, rev = $3 WHERE connection = $1 AND rev = $3 - 1`
)

func gateArgs(g keep.Gate) []any { return []any{g.Connection, string(g.State), int64(g.Rev) + 1} }

// PutGate writes a gate; see store.Gates.
func (db *DB) PutGate(ctx context.Context, g keep.Gate) error {
	query := updateGate
	if g.Rev == 0 {
		query = insertGate
	}
	n, err := db.exec(ctx, query, gateArgs(g)...)
	if err == nil && n == 0 {
		err = keep.ErrStale
	}
	if err != nil {
		return fmt.Errorf("gate of connection %s: %w", g.Connection, err)
	}
	return nil
}

// Gates returns all gates; see store.Gates.
func (db *DB) Gates(ctx context.Context) ([]keep.Gate, error) {
	return collect(ctx, db, scanGate, `SELECT `+gateColumns+` FROM gate ORDER BY connection`)
}

const gateColumns = `connection, state, rev`

// scanGate reads gateColumns.
func scanGate(row pgx.CollectableRow) (g keep.Gate, err error) {
	var state string
	err = row.Scan(into(&g.Connection), &state, &g.Rev)
	g.State = []byte(state)
	return g, err
}
