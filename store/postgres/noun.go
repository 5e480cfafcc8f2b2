package postgres

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
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
		case *int, *int64, *time.Time:
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

// excluded returns the columns of a noun as ON CONFLICT DO UPDATE sets them.
func excluded[T any](n stored.Noun[T]) string {
	set := slices.Clone(n.Names())
	for i, name := range set {
		set[i] = name + " = excluded." + name
	}
	return strings.Join(set, ", ")
}
