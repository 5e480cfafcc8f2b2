package sqlite

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// scanOf returns a function that reads the columns of a noun.
func scanOf[T any](n stored.Noun[T]) func(scanner) (T, error) {
	return func(row scanner) (v T, err error) {
		parts := n.Parts(&v)
		for i, part := range parts {
			parts[i] = column(part)
		}
		err = row.Scan(parts...)
		return v, err
	}
}

// column returns what reads a column into a part of a noun.
func column(part any) any {
	switch p := part.(type) {
	case *string, *int, *int64, *bool, *[]byte:
		return p
	case *json.RawMessage:
		return (*[]byte)(p)
	case *time.Time:
		return (*momentTo)(p)
	case *time.Duration:
		return (*durationTo)(p)
	case *[]keep.InputID:
		return (*causesTo)(p)
	}
	return stored.JSON{Part: part}
}

// momentTo reads a time; see sql.Scanner.
type momentTo time.Time

func (t *momentTo) Scan(column any) error {
	ms, ok := column.(int64)
	if !ok {
		return fmt.Errorf("a time is stored as %T", column)
	}
	*t = momentTo(moment(ms))
	return nil
}

// durationTo reads a number of milliseconds; see sql.Scanner.
type durationTo time.Duration

func (d *durationTo) Scan(column any) error {
	ms, ok := column.(int64)
	if !ok {
		return fmt.Errorf("a duration is stored as %T", column)
	}
	*d = durationTo(ms) * durationTo(time.Millisecond)
	return nil
}

// causesTo reads the inputs that an event comes from; see sql.Scanner.
type causesTo []keep.InputID

func (c *causesTo) Scan(column any) (err error) {
	text, ok := column.(string)
	if !ok {
		return fmt.Errorf("causes are stored as %T", column)
	}
	*c, err = decodeCauses(text)
	return err
}

// args returns what the columns of a noun have of v, and then more, as arguments.
func args[T any](n stored.Noun[T], v *T, more ...any) ([]any, error) {
	list := n.Parts(v)
	for i, part := range list {
		switch p := part.(type) {
		case *string:
			list[i] = *p
		case *int:
			list[i] = int64(*p)
		case *int64:
			list[i] = *p
		case *bool:
			list[i] = *p
		case *[]byte:
			list[i] = *p
		case *json.RawMessage:
			list[i] = *p
		case *time.Time:
			list[i] = millis(*p)
		case *time.Duration:
			list[i] = p.Milliseconds()
		case *[]keep.InputID:
			list[i] = encodeCauses(*p)
		default:
			text, err := stored.Encode(part)
			if err != nil {
				return nil, fmt.Errorf("encode %s: %w", n.Names()[i], err)
			}
			if list[i] = nil; text != nil {
				list[i] = string(text)
			}
		}
	}
	return append(list, more...), nil
}

// set returns the columns of a noun as UPDATE sets them.
func set[T any](n stored.Noun[T]) string { return ` SET ` + strings.Join(n.Names(), ` = ?, `) + ` = ?` }

// write runs a statement whose arguments are what the columns of a noun have of v, and
// then more. It returns how many rows it changed, and the key of one that it added.
func write[T any](c *conn, statement string, n stored.Noun[T], v *T, more ...any) (changed, added int64, err error) {
	list, err := args(n, v, more...)
	if err != nil {
		return 0, 0, err
	}
	return c.insert(statement, list...)
}

// put writes a row of a noun that counts its revisions, which v has as it is to be.
func put[T any](c *conn, r stored.Revised[T], v *T, first bool) error {
	statement, n := r.Write(first)
	changed, _, err := write(c, statement, n, v)
	if err == nil && changed == 0 {
		err = keep.ErrStale
	}
	return err
}
