package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/keep-run/keep"
)

// Gate returns the gate of a connection; see store.Gates.
func (db *DB) Gate(ctx context.Context, connection string) (keep.Gate, error) {
	g, err := one(ctx, db, "gate", connection, scanGate, `SELECT `+gateColumns+` FROM gate WHERE connection = ?`, connection)
	if errors.Is(err, keep.ErrNotFound) {
		return keep.Gate{Connection: connection}, nil
	}
	return g, err
}

// PutGate writes a gate; see store.Gates.
func (db *DB) PutGate(ctx context.Context, g keep.Gate) error {
	return db.change(ctx, func(conn *conn) error { return putGate(conn, g) })
}

func putGate(conn *conn, g keep.Gate) error {
	if g.Rev == 0 {
		return insertGate(conn, g)
	}
	n, err := conn.exec(`UPDATE gate SET state = ?2, rev = ?3 WHERE connection = ?1 AND rev = ?3 - 1`, g.Connection, string(g.State), g.Rev+1)
	return wroteGate(g, n, err)
}

// insertGate adds a gate, of any revision.
func insertGate(conn *conn, g keep.Gate) error {
	n, err := conn.exec(`INSERT INTO gate (`+gateColumns+`) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, g.Connection, string(g.State), g.Rev+1)
	return wroteGate(g, n, err)
}

// wroteGate returns the error of a statement that is to write a gate.
func wroteGate(g keep.Gate, n int64, err error) error {
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
	return rows(ctx, db, scanGate, `SELECT `+gateColumns+` FROM gate ORDER BY connection`)
}

const gateColumns = `connection, state, rev`

// scanGate reads gateColumns.
func scanGate(row scanner) (g keep.Gate, err error) {
	err = row.Scan(&g.Connection, (*[]byte)(&g.State), &g.Rev)
	return g, err
}
