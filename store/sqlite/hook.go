package sqlite

import (
	"context"

	"github.com/keep-run/keep"
)

const hookColumns = `name, accepted, repeated, refused, last_at, last_refused_at, last_refusal`

// CountHook adds to the count of a hook; see store.Hooks.
func (db *DB) CountHook(ctx context.Context, c keep.HookCount) error {
	return db.change(ctx, func(conn *conn) error { return countHook(conn, c) })
}

func countHook(conn *conn, c keep.HookCount) error {
	_, err := conn.exec(`
		INSERT INTO hook (`+hookColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (name) DO UPDATE SET
			accepted = accepted + excluded.accepted, repeated = repeated + excluded.repeated, refused = refused + excluded.refused,
			last_at = max(last_at, excluded.last_at),
			last_refusal = CASE WHEN excluded.last_refused_at <> 0 AND excluded.last_refused_at >= last_refused_at
				THEN excluded.last_refusal ELSE last_refusal END,
			last_refused_at = max(last_refused_at, excluded.last_refused_at)`,
		c.Name, c.Accepted, c.Repeated, c.Refused, c.LastAt, c.LastRefusedAt, c.LastRefusal)
	return err
}

// HookCounts returns the counts of all hooks, sorted by name.
func (db *DB) HookCounts(ctx context.Context) ([]keep.HookCount, error) {
	return rows(ctx, db, scanHookCount, `SELECT `+hookColumns+` FROM hook ORDER BY name`)
}

func scanHookCount(row scanner) (c keep.HookCount, err error) {
	var last, refused int64
	err = row.Scan(&c.Name, &c.Accepted, &c.Repeated, &c.Refused, &last, &refused, &c.LastRefusal)
	c.LastAt, c.LastRefusedAt = moment(last), moment(refused)
	return c, err
}
