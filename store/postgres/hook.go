package postgres

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

var (
	hookColumns   = stored.Hooks.Columns("")
	scanHookCount = scanOf(stored.Hooks)
)

var countHook = stored.Hooks.Insert("hook AS h", "$") + `
	ON CONFLICT (name) DO UPDATE SET
		accepted = h.accepted + excluded.accepted, repeated = h.repeated + excluded.repeated, refused = h.refused + excluded.refused,
		last_at = greatest(h.last_at, excluded.last_at),
		last_refusal = CASE WHEN excluded.last_refused_at <> 0 AND excluded.last_refused_at >= h.last_refused_at
			THEN excluded.last_refusal ELSE h.last_refusal END,
		last_refused_at = greatest(h.last_refused_at, excluded.last_refused_at)`

// CountHook adds to the count of a hook; see store.Hooks.
func (db *DB) CountHook(ctx context.Context, c keep.HookCount) error {
	if err := db.writable(); err != nil {
		return err
	}
	_, err := writeOne(ctx, db.pool, countHook, stored.Hooks, &c)
	return err
}

// HookCounts returns the counts of all hooks, sorted by name.
func (db *DB) HookCounts(ctx context.Context) ([]keep.HookCount, error) {
	return collect(ctx, db, scanHookCount, `SELECT `+hookColumns+` FROM hook ORDER BY name`)
}
