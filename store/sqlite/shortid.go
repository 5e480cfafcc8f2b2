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

// EventsWith finds events by how their message ids begin or end.
func (db *DB) EventsWith(ctx context.Context, w keep.WorkflowName, t keep.TopicName, part string, limit int) ([]keep.Place, error) {
	text, args := stored.EventsWith(w, t, partOf(part), limit)
	return rows(ctx, db, scanPlace, strings.ReplaceAll(text, "$", "?"), args...)
}

// ItemsWith finds items by how their ids begin or end.
func (db *DB) ItemsWith(ctx context.Context, w keep.WorkflowName, part string, limit int) ([]keep.Place, error) {
	text, args := stored.ItemsWith(w, partOf(part), limit)
	return rows(ctx, db, scanPlace, strings.ReplaceAll(text, "$", "?"), args...)
}

// partOf compares bytes: the functions of texts stop at a NUL.
func partOf(part string) stored.Part {
	return stored.Part{Text: part, Size: len(part), Is: func(column, text, size string) string {
		return strings.NewReplacer("{c}", column, "{t}", text, "{n}", size).Replace(`(substr(CAST({c} AS BLOB), 1, {n}) = CAST({t} AS BLOB)
		    OR octet_length({c}) >= {n} AND substr(CAST({c} AS BLOB), octet_length({c}) - {n} + 1) = CAST({t} AS BLOB))`)
	}, Order: func(column string) string { return column }}
}

func scanPlace(row scanner) (p keep.Place, err error) {
	return p, row.Scan(&p.Workflow, &p.Topic, &p.ID)
}
