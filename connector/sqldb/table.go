package sqldb

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/connector/internal/native"
)

// A table is what the catalog says about one.
type table struct {
	quoted  string // for SQL, with its schema
	short   string // the name without its schema, if that means this table, too; empty: it is what was asked for, or another table
	columns []column
	primary []string   // columns of the primary key; empty: none
	unique  [][]string // columns of each unique index, the primary key included
}

// A column is what the catalog says about one.
type column struct {
	name string
	kind string // SQLite: declared type in upper case; Postgres: quoted type
	form form
}

// A form says how values of a column look in JSON.
type form int

const (
	plain     form = iota // as the database gives it
	boolForm              // SQLite: 0 and 1 are false and true
	jsonForm              // text that holds JSON
	bytesForm             // {"base64": …}; only Postgres has columns of it
	arrayForm             // Postgres only
)

// quote makes an identifier of a name.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// table looks up the table of a call or a record.
func (db *database) table(ctx context.Context, tool string, s session, name string) (*table, error) {
	switch {
	case name == "" || strings.ContainsRune(name, 0):
		return nil, db.failf(tool, keep.ClassLogic, "bad-params", "table is required")
	case !db.allows(name):
		return nil, db.failf(tool, keep.ClassPermission, "table-not-allowed", "the connection does not allow the table %q", name)
	}
	t, err := s.describe(ctx, name)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, db.failf(tool, keep.ClassPrecondition, "no-table", "there is no table %q", name)
	}
	return t, nil
}

// called looks up what a script calls. A condition of a grant or an approval compares names, so a table has one: the short one, but
// for what the configuration lists.
func (db *database) called(ctx context.Context, tool string, s session, name string) (*table, error) {
	t, err := db.table(ctx, tool, s, name)
	if err == nil && t.short != "" && !slices.Contains(db.tables, name) {
		return nil, db.failf(tool, keep.ClassLogic, "table-name", "the table %q: call it %q, its name without the schema, by which conditions know it; or list it in tables of the connection", name, t.short)
	}
	return t, err
}

// allows reports whether scripts may use a table.
func (db *database) allows(name string) bool {
	if db.ledger != "" && bare(name) == bare(db.ledger) {
		return false
	}
	return len(db.tables) == 0 || slices.Contains(db.tables, name)
}

// bare returns a table's name without its schema.
func bare(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// column returns the column of that name.
func (t *table) column(name string) (column, error) {
	for _, c := range t.columns {
		if c.name == name {
			return c, nil
		}
	}
	return column{}, fmt.Errorf("%s has no column %q", t.quoted, name)
}

// identifies returns an error unless key holds the columns of a unique index.
// Exactly asks for those columns and no others.
func (t *table) identifies(key map[string]json.RawMessage, exactly bool) error {
	for name, value := range key {
		if isNull(value) {
			return fmt.Errorf("key.%s must not be null", name)
		}
		if _, err := t.column(name); err != nil {
			return err
		}
	}
	for _, columns := range t.unique {
		missing := slices.ContainsFunc(columns, func(c string) bool { _, ok := key[c]; return !ok })
		if !missing && (!exactly || len(columns) == len(key)) {
			return nil
		}
	}
	return fmt.Errorf("key must be the columns of a primary key or unique index of %s: %v", t.quoted, t.unique)
}

// isNull reports whether raw is null or missing.
func isNull(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || string(raw) == "null"
}

// A statement is SQL under construction.
type statement struct {
	engine engine
	table  *table
	sql    strings.Builder
	args   []any
}

// add writes SQL. Values never come here; they go through bind.
func (s *statement) add(parts ...string) *statement {
	for _, p := range parts {
		s.sql.WriteString(p)
	}
	return s
}

// bind returns SQL for a value of the column.
func (s *statement) bind(c column, raw json.RawMessage) (string, error) {
	expr, arg, err := s.engine.value(c, raw, len(s.args)+1)
	if err != nil {
		return "", fmt.Errorf("column %q: %w", c.name, err)
	}
	s.args = append(s.args, arg)
	return expr, nil
}

// selected adds the columns that rows decodes.
func (s *statement) selected(columns []column) *statement {
	for i, c := range columns {
		if i > 0 {
			s.add(", ")
		}
		s.add(s.engine.selected(c))
	}
	return s
}

// pairs adds "column op value" for each entry, in the order of the names.
func (s *statement) pairs(values map[string]json.RawMessage, between string, op func(column, value string) string) error {
	for i, name := range slices.Sorted(maps.Keys(values)) {
		c, err := s.table.column(name)
		if err != nil {
			return err
		}
		expr, err := s.bind(c, values[name])
		if err != nil {
			return err
		}
		if i > 0 {
			s.add(between)
		}
		s.add(op(quote(name), expr))
	}
	return nil
}

// equals is the usual operator of pairs.
func equals(column, value string) string { return column + " = " + value }

// rows runs a statement that selects the columns, and returns a JSON object for
// each row. It stops with a failure when the rows outgrow a result.
func (db *database) rows(ctx context.Context, tool string, s session, q *statement, columns []column) ([]json.RawMessage, error) {
	out, size := []json.RawMessage{}, 0
	err := s.query(ctx, q.sql.String(), q.args, func(values []any) error {
		row, err := db.row(columns, values)
		if err != nil {
			return err
		}
		if size += len(row) + 1; size > native.MaxResult {
			return db.failf(tool, keep.ClassLogic, "answer-too-large", "the rows are over %d bytes; ask for fewer, or for fewer columns", native.MaxResult)
		}
		out = append(out, row)
		return nil
	})
	return out, err
}

// row makes a JSON object of the values, in the order of the columns.
func (db *database) row(columns []column, values []any) (json.RawMessage, error) {
	b := []byte{'{'}
	for i, c := range columns {
		value, err := db.engine.decode(c, values[i])
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", c.name, err)
		}
		if i > 0 {
			b = append(b, ',')
		}
		name, err := jsonval.Encode(c.name)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}

// operators of where, and the SQL for them.
var operators = map[string]string{"gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "like": "LIKE"}

// where adds the conditions of a list, joined by AND.
func (s *statement) where(conditions map[string]json.RawMessage) error {
	for i, name := range slices.Sorted(maps.Keys(conditions)) {
		c, err := s.table.column(name)
		if err != nil {
			return fmt.Errorf("where: %w", err)
		}
		between := " AND "
		if i == 0 {
			between = " WHERE "
		}
		s.add(between)
		if err := s.condition(c, conditions[name]); err != nil {
			return fmt.Errorf("where.%s: %w", name, err)
		}
	}
	return nil
}

// condition adds what one entry of where asks for. An object holds operators,
// but for the object that stands for bytes.
func (s *statement) condition(c column, raw json.RawMessage) error {
	raw = bytes.TrimSpace(raw)
	ops, err := jsonval.Fields(raw)
	if _, isBytes := ops["base64"]; err != nil || isBytes || isNull(raw) {
		return s.compare(c, raw)
	}
	if len(ops) == 0 {
		return fmt.Errorf("an object must hold operators: gt, gte, lt, lte, ne, in, like")
	}
	for i, op := range slices.Sorted(maps.Keys(ops)) {
		if i > 0 {
			s.add(" AND ")
		}
		if err := s.operator(c, op, ops[op]); err != nil {
			return err
		}
	}
	return nil
}

// compare adds equality, or IS NULL.
func (s *statement) compare(c column, raw json.RawMessage) error {
	if isNull(raw) {
		s.add(quote(c.name), " IS NULL")
		return nil
	}
	expr, err := s.bind(c, raw)
	s.add(equals(quote(c.name), expr))
	return err
}

// operator adds one operator of a condition.
func (s *statement) operator(c column, op string, raw json.RawMessage) error {
	switch {
	case op == "ne":
		expr, err := s.bind(c, raw)
		s.add("NOT (", s.engine.same(quote(c.name), expr), ")")
		return err
	case op == "in":
		return s.oneOf(c, raw)
	case operators[op] == "":
		return fmt.Errorf("%q is no operator; use gt, gte, lt, lte, ne, in, like", op)
	}
	expr, err := s.bind(c, raw)
	s.add(quote(c.name), " ", operators[op], " ", expr)
	return err
}

// oneOf adds "in". An empty list fits nothing, and null in it fits null.
func (s *statement) oneOf(c column, raw json.RawMessage) error {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("in must be a list")
	}
	s.add("(1 = 0")
	for _, v := range list {
		s.add(" OR ")
		if err := s.compare(c, v); err != nil {
			return err
		}
	}
	s.add(")")
	return nil
}

// order adds ORDER BY; a name with a minus before it is descending. Rows that it has alike come in the order of the
// primary key: else a database may give them in another order to the next page.
func (s *statement) order(by []string) error {
	for i, name := range slices.Concat(by, s.table.primary) {
		plain, descending := strings.CutPrefix(name, "-")
		if _, err := s.table.column(plain); err != nil {
			return fmt.Errorf("order_by: %w", err)
		}
		between := ", "
		if i == 0 {
			between = " ORDER BY "
		}
		s.add(between, quote(plain))
		if descending {
			s.add(" DESC")
		}
	}
	return nil
}

// limit adds a page; both are integers, so they need no binding.
func (s *statement) limit(limit, offset int) {
	s.add(" LIMIT ", strconv.Itoa(limit), " OFFSET ", strconv.Itoa(offset))
}
