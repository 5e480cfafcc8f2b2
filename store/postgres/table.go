package postgres

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// A statement writes up to atOnce rows: each column is one array, which the server
// joins row by row. So a group of commits costs one statement for each table, whatever
// its size.
//
// Its text is put together when it is needed first, not at the start of each command.
type statement struct {
	parts func() (sql string, types []string)
}

// literal returns a statement that is written out, with the types of its arrays.
func literal(sql string, types ...string) statement {
	return statement{func() (string, []string) { return sql, types }}
}

// fieldsOf splits "name type, name type, …". A type that ends in ? may be NULL.
// Words are a text that becomes a tsvector.
func fieldsOf(spec string) (names, types []string) {
	for _, column := range strings.Split(spec, ",") {
		words := strings.Fields(column)
		names, types = append(names, words[0]), append(types, words[1])
	}
	return names, types
}

// atOnce is how many rows a statement writes at most. Its arrays are walked from
// their start to each element.
const atOnce = 256

// elementsOf returns the table expression of arrays of up to atOnce elements. It
// looks each of them up where it is wanted: unnest would make a table of each array
// first, and a statement has up to 31.
func elementsOf(names, types []string) string {
	columns := make([]string, len(names))
	for i, t := range types {
		columns[i] = "(" + parameter(i, t) + ")[i] AS " + names[i]
	}
	return "(SELECT " + strings.Join(columns, ", ") + " FROM generate_series(1, cardinality(" + parameter(0, types[0]) + ")) AS i) AS v"
}

// elements is elementsOf columns that are written as fieldsOf reads them.
func elements(spec string) string { return elementsOf(fieldsOf(spec)) }

// parameter returns the array of a column.
func parameter(i int, typ string) string {
	return "$" + strconv.Itoa(i+1) + "::" + strings.Replace(strings.TrimSuffix(typ, "?"), "words", "text", 1) + "[]"
}

// valueOf returns a column of a statement's arrays as the table has it.
func valueOf(name, typ string) string {
	if typ == "words?" { // with a space between
		return "array_to_tsvector(string_to_array(" + name + ", ' '))"
	}
	return name
}

// over returns a statement of some columns, in which %s stands for their rows.
func over(sql, spec string) statement {
	return statement{sync.OnceValues(func() (string, []string) {
		_, types := fieldsOf(spec)
		return strings.Replace(sql, "%s", elements(spec), 1), types
	})}
}

// insertInto returns the statement that adds rows to a table; more is what
// follows, such as ON CONFLICT.
func insertInto(table, spec, more string) statement {
	return statement{sync.OnceValues(func() (string, []string) {
		names, types := fieldsOf(spec)
		var values []string
		for i, name := range names {
			values = append(values, valueOf(name, types[i]))
		}
		return "INSERT INTO " + table + " AS t (" + strings.Join(names, ", ") + ") SELECT " + strings.Join(values, ", ") + " FROM " + elementsOf(names, types) + " " + more, types
	})}
}

// updateOf returns the statement that sets columns of the rows that keys name.
func updateOf(table, keys, spec string) statement {
	return statement{sync.OnceValues(func() (string, []string) {
		names, types := fieldsOf(keys)
		var where, set []string
		for _, name := range names {
			where = append(where, "t."+name+" = v."+name)
		}
		names2, types2 := fieldsOf(spec)
		for i, name := range names2 {
			set = append(set, name+" = "+valueOf("v."+name, types2[i]))
		}
		names, types = append(names, names2...), append(types, types2...)
		return "UPDATE " + table + " AS t SET " + strings.Join(set, ", ") + " FROM " + elementsOf(names, types) +
			" WHERE " + strings.Join(where, " AND "), types
	})}
}

// A change is rows for a statement.
type change struct {
	statement *statement
	rows      [][]any
}

// arguments turns rows into columns.
func (c change) arguments() []any {
	_, types := c.statement.parts()
	args := make([]any, len(types))
	for i, t := range types {
		switch t {
		case "text":
			args[i] = column(c.rows, i, func(v any) string { return v.(string) })
		case "text?", "words?":
			args[i] = column(c.rows, i, func(v any) *string { return v.(*string) })
		case "bigint":
			args[i] = column(c.rows, i, func(v any) int64 { return v.(int64) })
		case "boolean":
			args[i] = column(c.rows, i, func(v any) bool { return v.(bool) })
		case "bytea", "bytea?":
			args[i] = column(c.rows, i, func(v any) []byte { return v.([]byte) })
		default:
			panic("unknown column type " + t)
		}
	}
	return args
}

func column[T any](rows [][]any, i int, value func(any) T) []T {
	out := make([]T, len(rows))
	for j, row := range rows {
		out[j] = value(row[i])
	}
	return out
}

// writes are what a commit changes, in the order of the statements.
type writes struct{ changes []change }

// add adds a row. Its values are of the Go types that the columns have.
func (w *writes) add(s *statement, row ...any) {
	for i := range w.changes {
		if w.changes[i].statement == s {
			w.changes[i].rows = append(w.changes[i].rows, row)
			return
		}
	}
	w.changes = append(w.changes, change{s, [][]any{row}})
}

// join adds all rows of other.
func (w *writes) join(other *writes) {
	for _, c := range other.changes {
		for _, row := range c.rows {
			w.add(c.statement, row...)
		}
	}
}

// queue puts the statements into a batch, in the order of order, which has each of them.
func (w *writes) queue(b *pgx.Batch, order []*statement) {
	queued := 0
	for _, s := range order {
		for _, c := range w.changes {
			if c.statement == s {
				queued++
				for rows := range slices.Chunk(c.rows, atOnce) {
					sql, _ := s.parts()
					b.Queue(sql, change{s, rows}.arguments()...)
				}
			}
		}
	}
	if queued < len(w.changes) {
		panic("postgres: a statement has no place in the order, and would not be sent")
	}
}
