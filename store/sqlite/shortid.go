package sqlite

import (
	"context"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// IDsWith finds ids of a noun by how they begin or end.
func (db *DB) IDsWith(ctx context.Context, n keep.Noun, part string, limit int) ([]string, error) {
	text, args, err := stored.IDsWith(n, part, limit)
	if err != nil {
		return nil, err
	}
	return rows(ctx, db, func(row scanner) (id string, err error) { return id, row.Scan(&id) }, strings.ReplaceAll(text, "$", "?"), args...)
}
