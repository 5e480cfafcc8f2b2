package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// scanOf returns a function that reads the columns of a noun.
func scanOf[T any](n stored.Noun[T]) func(pgx.CollectableRow) (T, error) {
	return func(row pgx.CollectableRow) (v T, err error) {
		err = row.Scan(columnsTo(n, &v)...)
		return v, err
	}
}

// placedOf returns a function that reads the columns of a noun, then its n: with the place
// of the row in lists.
func placedOf[T any](n stored.Noun[T]) func(pgx.CollectableRow) (placed[T], error) {
	of := n.Only("workflow")
	return func(row pgx.CollectableRow) (p placed[T], err error) {
		err = row.Scan(append(columnsTo(n, &p.what), &p.n)...)
		p.workflow = keep.WorkflowName(*of.Parts(&p.what)[0].(*string))
		return p, err
	}
}

// unplaced returns a function that reads what scan does, without the place.
func unplaced[T any](scan func(pgx.CollectableRow) (placed[T], error)) func(pgx.CollectableRow) (T, error) {
	return func(row pgx.CollectableRow) (T, error) {
		p, err := scan(row)
		return p.what, err
	}
}

// columnsTo returns what reads the columns of a noun into v.
func columnsTo[T any](n stored.Noun[T], v *T) []any {
	parts := n.Parts(v)
	for i, part := range parts {
		switch p := part.(type) {
		case *string:
			parts[i] = into(p)
		case *json.RawMessage:
			parts[i] = (*[]byte)(p)
		case *time.Time:
			parts[i] = (*momentTo)(p)
		case *time.Duration:
			parts[i] = (*durationTo)(p)
		case *[]keep.InputID:
			parts[i] = (*causesTo)(p)
		case *[]keep.Reservation:
			parts[i] = (*reservationsTo)(p)
		case *[]keep.Redo:
			parts[i] = (*redoneTo)(p)
		case *int, *int64, *bool, *[]byte:
		default:
			parts[i] = stored.JSON{Part: part}
		}
	}
	return parts
}

// momentTo reads a time.
type momentTo time.Time

// ScanInt64 is how pgx hands a number over.
func (t *momentTo) ScanInt64(v pgtype.Int8) error {
	*t = momentTo(moment(v.Int64))
	return nil
}

// durationTo reads a number of milliseconds.
type durationTo time.Duration

// ScanInt64 is how pgx hands a number over.
func (d *durationTo) ScanInt64(v pgtype.Int8) error {
	*d = durationTo(v.Int64) * durationTo(time.Millisecond)
	return nil
}

// causesTo reads the inputs that an event comes from.
type causesTo []keep.InputID

// ScanText is how pgx hands a text over.
func (c *causesTo) ScanText(v pgtype.Text) (err error) {
	*c, err = decodeCauses(v.String)
	return err
}

// reservationsTo reads what a run reserved.
type reservationsTo []keep.Reservation

// ScanText is how pgx hands a text over.
func (r *reservationsTo) ScanText(v pgtype.Text) (err error) {
	if v.Valid {
		*r, err = decodeReservations([]byte(v.String))
	}
	return err
}

// specOf returns the columns of a noun as fieldsOf reads them.
func specOf[T any](n stored.Noun[T]) string {
	spec := make([]string, len(n.Names()))
	for i, part := range n.Parts(new(T)) {
		typ := "text?" // JSON
		switch part.(type) {
		case *string, *[]keep.InputID, *keep.Definition:
			typ = "text"
		case *int, *int64, *time.Time, *time.Duration:
			typ = "bigint"
		case *bool:
			typ = "boolean"
		case *[]byte, *json.RawMessage:
			typ = "bytea?"
		}
		spec[i] = n.Names()[i] + " " + typ
	}
	return strings.Join(spec, ", ")
}

// args returns what the columns of a noun have of v, as a statement takes them.
func args[T any](n stored.Noun[T], v *T) ([]any, error) {
	list := n.Parts(v)
	for i, part := range list {
		var err error
		switch p := part.(type) {
		case *string:
			list[i] = text(*p)
		case *int:
			list[i] = int64(*p)
		case *int64:
			list[i] = *p
		case *bool:
			list[i] = *p
		case *[]byte:
			list[i] = *p
		case *json.RawMessage:
			list[i] = []byte(*p)
		case *time.Time:
			list[i] = millis(*p)
		case *time.Duration:
			list[i] = p.Milliseconds()
		case *[]keep.InputID:
			list[i] = encodeCauses(*p)
		case *[]keep.Reservation:
			list[i], err = encodeReservations(*p)
		case *[]keep.Redo:
			list[i], err = encodeRedone(*p)
		case *keep.Definition:
			var definition []byte
			definition, err = stored.Encode(p)
			list[i] = text(string(definition))
		default:
			list[i], err = asText(stored.Encode(part))
		}
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", n.Names()[i], err)
		}
	}
	return list, nil
}

// write adds a row for a statement: what the columns of a noun have of v, and then more.
func write[T any](w *writes, s *statement, n stored.Noun[T], v *T, more ...any) error {
	row, err := args(n, v)
	if err == nil {
		w.add(s, append(row, more...)...)
	}
	return err
}

// update is write for a statement whose first columns are key.
func update[T any](w *writes, s *statement, key []any, n stored.Noun[T], v *T, more ...any) error {
	row, err := args(n, v)
	if err == nil {
		w.add(s, append(append(key, row...), more...)...)
	}
	return err
}

// An execer is a transaction or a pool.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// writeOne runs a statement that takes what the columns of a noun have of v, and returns how many rows it changed.
func writeOne[T any](ctx context.Context, db execer, sql string, n stored.Noun[T], v *T) (int64, error) {
	row, err := args(n, v)
	if err != nil {
		return 0, err
	}
	tag, err := db.Exec(ctx, sql, row...)
	return tag.RowsAffected(), err
}

// queueOne is writeOne in a batch.
func queueOne[T any](b *pgx.Batch, sql string, n stored.Noun[T], v *T) error {
	row, err := args(n, v)
	if err == nil {
		b.Queue(sql, row...)
	}
	return err
}

// put writes a row of a noun that counts its revisions, which v has as it is to be.
func put[T any](ctx context.Context, db execer, r stored.Revised[T], v *T, first bool) error {
	sql, n := r.Write(first)
	changed, err := writeOne(ctx, db, sql, n, v)
	if err == nil && changed == 0 {
		err = keep.ErrStale
	}
	return err
}

// queueNew is put of a new row in a batch.
func queueNew[T any](b *pgx.Batch, r stored.Revised[T], v *T) error {
	sql, n := r.Write(true)
	return queueOne(b, sql, n, v)
}

// excluded returns the columns of a noun as ON CONFLICT DO UPDATE sets them.
func excluded[T any](n stored.Noun[T]) string {
	set := slices.Clone(n.Names())
	for i, name := range set {
		set[i] = name + " = excluded." + name
	}
	return strings.Join(set, ", ")
}
