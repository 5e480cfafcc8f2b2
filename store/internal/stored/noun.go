package stored

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// A Noun is how a table keeps values of T: its columns, and which part of a T each of them
// has. A column that is added to a noun is written and read by both stores; only its
// migration is left to do.
//
// A store says itself how a value looks in a column: how a time, a text or JSON is kept.
type Noun[T any] struct {
	names  []string
	parts  func(*T) []any // pointers, one for each name of the whole noun
	large  []string       // columns that lists leave out
	chosen []int          // of the parts; nil: all
}

// newNoun returns a noun. names are those of its columns, in the order of parts, with a
// star before those that may be large.
func newNoun[T any](names string, parts func(*T) []any) Noun[T] {
	n := Noun[T]{parts: parts}
	for name := range strings.FieldsSeq(names) {
		name, large := strings.CutPrefix(name, "*")
		if n.names = append(n.names, name); large {
			n.large = append(n.large, name)
		}
	}
	if got := len(parts(new(T))); got != len(n.names) {
		panic(fmt.Sprintf("a noun has %d columns and %d parts: %s", len(n.names), got, names))
	}
	return n
}

// Only returns the noun with these columns alone, in this order.
func (n Noun[T]) Only(names ...string) Noun[T] {
	some := Noun[T]{names: names, parts: n.parts, large: n.large}
	for _, name := range names {
		i := slices.Index(n.names, name)
		if i < 0 {
			panic("a noun has no column " + name)
		}
		if n.chosen != nil {
			i = n.chosen[i]
		}
		some.chosen = append(some.chosen, i)
	}
	return some
}

// Without returns the noun without some columns.
func (n Noun[T]) Without(names ...string) Noun[T] {
	return n.Only(slices.DeleteFunc(slices.Clone(n.names), func(name string) bool { return slices.Contains(names, name) })...)
}

// Names returns the names of the columns.
func (n Noun[T]) Names() []string { return n.names }

// Parts returns pointers to what the columns have of v, in the order of Names: to a string,
// an int, int64, bool, []byte, json.RawMessage, time.Time or time.Duration (in milliseconds), or to what
// Encode knows.
func (n Noun[T]) Parts(v *T) []any {
	all := n.parts(v)
	if n.chosen == nil {
		return all
	}
	some := make([]any, len(n.chosen))
	for i, at := range n.chosen {
		some[i] = all[at]
	}
	return some
}

// Columns returns the columns as SELECT has them. prefix stands before each name, such as
// "run.".
func (n Noun[T]) Columns(prefix string) string { return prefix + strings.Join(n.names, ", "+prefix) }

// Bare returns Columns, with null in the place of those that may be large: a database then
// does not read them.
func (n Noun[T]) Bare(prefix, null string) string {
	columns := make([]string, len(n.names))
	for i, name := range n.names {
		if columns[i] = prefix + name; slices.Contains(n.large, name) {
			columns[i] = null
		}
	}
	return strings.Join(columns, ", ")
}

// Insert returns the statement that adds a row to a table. Mark is what stands before the number of an argument.
func (n Noun[T]) Insert(table, mark string) string {
	values := make([]string, len(n.names))
	for i := range values {
		values[i] = fmt.Sprint(mark, i+1)
	}
	return "INSERT INTO " + table + " (" + n.Columns("") + ") VALUES (" + strings.Join(values, ", ") + ")"
}

// A Text is JSON that a column has as text, as it is.
type Text []byte

// Encode returns a part of a noun as JSON, nil for one that is not set. Parts that are
// stored in another way are none of its business.
func Encode(part any) ([]byte, error) {
	switch p := part.(type) {
	case **keep.Failure:
		return Failure(*p)
	case **keep.Approval:
		return encodeApproval(*p)
	case *Text:
		return *p, nil
	case *[]keep.Refresh:
		return encode(refreshes(*p))
	case *[]keep.Reservation, *[]keep.Redo, *[]keep.Choice, *[]keep.GrantedTool, *[]keep.Spent, *[]int, *[]string, *keep.Definition:
		return encode(p)
	}
	return nil, fmt.Errorf("no column has a %T", part)
}

// encode returns v as JSON, nil for a list that is.
func encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if string(text) == "null" {
		return nil, err
	}
	return text, err
}

// encodeApproval keeps what is sent as it is, to the byte.
func encodeApproval(a *keep.Approval) ([]byte, error) {
	if a == nil {
		return nil, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(a)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// JSON reads a column into a part that Encode knows.
type JSON struct{ Part any }

// Scan reads what Encode wrote; see sql.Scanner.
func (j JSON) Scan(column any) (err error) {
	var text []byte
	switch column := column.(type) {
	case nil:
		return nil
	case string:
		text = []byte(column)
	case []byte:
		text = column
	}
	switch p := j.Part.(type) {
	case **keep.Failure:
		*p, err = ParseFailure(text)
		return err
	case *Text:
		*p = slices.Clone(text)
		return nil
	}
	return json.Unmarshal(text, j.Part)
}
