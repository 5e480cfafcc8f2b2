package stored

import (
	"fmt"
	"slices"
	"strings"
)

// A Revised is a noun whose rows count their revisions in a column rev, and are written one at a time, beside commits.
type Revised[T any] struct {
	Noun[T]
	changed        Noun[T]
	insert, update string
}

// Revise returns a noun as the rows of a table. Key names the columns that say which row it is, and fixed those that a row keeps as it
// was made. Mark is what stands before the number of an argument.
func Revise[T any](table, mark string, n Noun[T], key []string, fixed ...string) Revised[T] {
	changed := n.Without(fixed...)
	var set, where []string
	for i, name := range changed.names {
		is := fmt.Sprintf("%s = %s%d", name, mark, i+1)
		if slices.Contains(key, name) {
			where = append(where, is)
			continue
		}
		if set = append(set, is); name == "rev" {
			where = append(where, is+" - 1")
		}
	}
	update := "UPDATE " + table + " SET " + strings.Join(set, ", ") + " WHERE " + strings.Join(where, " AND ")
	return Revised[T]{n, changed, n.Insert(table, mark) + " ON CONFLICT DO NOTHING", update}
}

// Write returns the statement that writes a row, and the noun whose columns it takes. First says that it is a new row; otherwise one
// of the revision before is there. A row that is not written was there, or has another revision.
func (r Revised[T]) Write(first bool) (statement string, n Noun[T]) {
	if first {
		return r.insert, r.Noun
	}
	return r.update, r.changed
}
