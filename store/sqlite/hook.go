package sqlite

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

var (
	hookColumns   = stored.Hooks.Columns("")
	scanHookCount = scanOf(stored.Hooks)

	putHook = stored.Hooks.Insert("hook", "?") + `
		ON CONFLICT (name) DO UPDATE SET
			accepted = accepted + excluded.accepted, repeated = repeated + excluded.repeated, refused = refused + excluded.refused,
			last_at = max(last_at, excluded.last_at),
			last_refusal = CASE WHEN excluded.last_refused_at <> 0 AND excluded.last_refused_at >= last_refused_at
				THEN excluded.last_refusal ELSE last_refusal END,
			last_refused_at = max(last_refused_at, excluded.last_refused_at)`
)

// CountHook adds to the count of a hook; see store.Hooks.
func (db *DB) CountHook(ctx context.Context, c keep.HookCount) error {
	return db.change(ctx, func(conn *conn) error { return countHook(conn, c) })
}

func countHook(conn *conn, c keep.HookCount) error {
	_, _, err := write(conn, putHook, stored.Hooks, &c)
	return err
}

// HookCounts returns the counts of all hooks, sorted by name.
func (db *DB) HookCounts(ctx context.Context) ([]keep.HookCount, error) {
	return rows(ctx, db, scanHookCount, `SELECT `+hookColumns+` FROM hook ORDER BY name`)
}
