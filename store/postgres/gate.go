package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// Gate returns the gate of a connection; see store.Gates.
func (db *DB) Gate(ctx context.Context, connection string) (keep.Gate, error) {
	g, err := one(ctx, db, "gate", connection, scanGate, `SELECT `+gateColumns+` FROM gate WHERE connection = $1`, connection)
	if errors.Is(err, keep.ErrNotFound) {
		return keep.Gate{Connection: connection}, nil
	}
	return g, err
}

// PutGate writes a gate; see store.Gates.
func (db *DB) PutGate(ctx context.Context, g keep.Gate) error {
	err := db.writable()
	if g.Rev++; err == nil {
		err = put(ctx, db.pool, gates, &g, g.Rev == 1)
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

var (
	gateColumns = stored.Gates.Columns("")
	scanGate    = scanOf(stored.Gates)
	gates       = stored.Revise("gate", "$", stored.Gates, []string{"connection"})
)
