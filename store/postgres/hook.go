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

var countHook = `
	INSERT INTO hook AS h (` + hookColumns + `) VALUES ($1, $2, $3, $4, $5, $6, $7)
	ON CONFLICT (name) DO UPDATE SET
		accepted = h.accepted + excluded.accepted, repeated = h.repeated + excluded.repeated, refused = h.refused + excluded.refused,
		last_at = greatest(h.last_at, excluded.last_at),
		last_refusal = CASE WHEN excluded.last_refused_at <> 0 AND excluded.last_refused_at >= h.last_refused_at
			THEN excluded.last_refusal ELSE h.last_refusal END,
		last_refused_at = greatest(h.last_refused_at, excluded.last_refused_at)`

func hookArgs(c keep.HookCount) []any {
	return []any{c.Name, c.Accepted, c.Repeated, c.Refused, c.LastAt, c.LastRefusedAt, c.LastRefusal}
}

// CountHook adds to the count of a hook; see store.Hooks.
func (db *DB) CountHook(ctx context.Context, c keep.HookCount) error {
	_, err := db.exec(ctx, countHook, hookArgs(c)...)
	return err
}

// HookCounts returns the counts of all hooks, sorted by name.
func (db *DB) HookCounts(ctx context.Context) ([]keep.HookCount, error) {
	return collect(ctx, db, scanHookCount, `SELECT `+hookColumns+` FROM hook ORDER BY name`)
}
