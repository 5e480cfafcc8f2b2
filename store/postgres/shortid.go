package postgres

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// IDsWith finds ids of a noun by how they begin or end.
func (db *DB) IDsWith(ctx context.Context, n keep.Noun, part string, limit int) ([]string, error) {
	text, args, err := stored.IDsWith(n, part, limit)
	if err != nil {
		return nil, err
	}
	return collect(ctx, db, func(row pgx.CollectableRow) (id string, err error) { return id, row.Scan(&id) }, text, args...)
}

// EventsWith finds events by how their message ids begin or end.
func (db *DB) EventsWith(ctx context.Context, w keep.WorkflowName, t keep.TopicName, part string, limit int) ([]keep.Place, error) {
	text, args := stored.EventsWith(w, t, partOf(part), limit)
	return collect(ctx, db, scanPlace, text, args...)
}

// ItemsWith finds items by how their ids begin or end.
func (db *DB) ItemsWith(ctx context.Context, w keep.WorkflowName, part string, limit int) ([]keep.Place, error) {
	text, args := stored.ItemsWith(w, partOf(part), limit)
	return collect(ctx, db, scanPlace, text, args...)
}

// partOf compares stored forms. An ending does not begin within the form of a byte: two digits after an escape.
func partOf(part string) stored.Part {
	return stored.Part{Text: part, Size: utf8.RuneCountInString(text(part)), Is: func(column, text, size string) string {
		return strings.NewReplacer("{c}", column, "{t}", text, "{n}", size).Replace(`(substr({c}, 1, {n}) = {t}
		    OR length({c}) >= {n} AND substr({c}, length({c}) - {n} + 1) = {t}
		   AND strpos(substr({c}, greatest(length({c}) - {n} - 1, 1), least(length({c}) - {n}, 2)), E'\x1a') = 0)`)
	}, Order: sortedAs}
}

// sortedAs orders an id, which is UTF-8, by its own bytes: as it is stored, NUL comes after the characters before the escape.
func sortedAs(column string) string {
	return `replace(replace(replace(` + column + `, E'\x01', E'\x01\x02'), E'\x1a00', E'\x01\x01'), E'\x1a1a', E'\x1a') COLLATE "C"`
}

func scanPlace(row pgx.CollectableRow) (p keep.Place, err error) {
	return p, row.Scan(into(&p.Workflow), into(&p.Topic), into(&p.ID))
}
