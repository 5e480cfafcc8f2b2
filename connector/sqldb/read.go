package sqldb

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/native"
)

// Schemas of params.
const (
	tableSchema = `"table":{"type":"string","minLength":1}`
	keySchema   = `"key":{"type":"object","minProperties":1,"description":"the columns of a primary key or unique index"}`
)

// rowOrNull is the schema of one row that may be missing.
var rowOrNull = json.RawMessage(`{"type":["object","null"]}`)

// tools returns the tools that cfg allows.
func (db *database) tools(cfg Config) []connector.Tool {
	timeout := time.Duration(cfg.Timeout)
	tools := []connector.Tool{
		&reader{db, connector.Spec{
			Name: "list", Effect: connector.List, Timeout: timeout,
			Description: "Lists rows of a table: those that fit where, in the order of order_by (\"-column\" is descending), 100 if no limit is given.",
			Params: native.Object(`"table"`, tableSchema+`,
				"where":{"type":"object","description":"column: value, or column: {gt, gte, lt, lte, ne, in, like}"},
				"columns":{"type":"array","items":{"type":"string"},"minItems":1,"uniqueItems":true},
				"order_by":{"type":"array","items":{"type":"string"}},
				"limit":{"type":"integer","minimum":1,"maximum":10000},
				"offset":{"type":"integer","minimum":0}`),
			Result: json.RawMessage(`{"type":"array","items":{"type":"object"}}`),
		}, db.list},
		&reader{db, connector.Spec{
			Name: "getById", Effect: connector.Get, Timeout: timeout,
			Description: "Reads the row with that primary key; null if there is none.",
			Params:      native.Object(`"table","id"`, tableSchema+`,"id":{"type":["string","number","boolean"]}`),
			Result:      rowOrNull,
		}, db.getByID},
		&reader{db, connector.Spec{
			Name: "getByUniqueKey", Effect: connector.Get, Timeout: timeout,
			Description: "Reads the row with that unique key; null if there is none.",
			Params:      native.Object(`"table","key"`, tableSchema+","+keySchema),
			Result:      rowOrNull,
		}, db.getByKey},
	}
	if cfg.ReadOnly {
		return tools
	}
	for _, build := range []func(Config) connector.Tool{db.insertTool, db.updateTool, db.upsertTool} {
		tools = append(tools, build(cfg))
	}
	if cfg.Create {
		tools = append(tools, db.createTool(cfg))
	}
	return tools
}

// A reader is a tool that reads.
type reader struct {
	db   *database
	spec connector.Spec
	read func(context.Context, session, readParams) (json.RawMessage, error)
}

// readParams are the params of all reads; each schema allows its own.
type readParams struct {
	Table   string                     `json:"table"`
	ID      json.RawMessage            `json:"id"`
	Key     map[string]json.RawMessage `json:"key"`   // by column
	Where   map[string]json.RawMessage `json:"where"` // value or operators by column
	Columns []string                   `json:"columns"`
	OrderBy []string                   `json:"order_by"` // with a minus: descending
	Limit   int                        `json:"limit"`    // 0: defaultLimit
	Offset  int                        `json:"offset"`
}

// Spec returns the description of the tool.
func (r *reader) Spec() connector.Spec { return r.spec }

// Read performs the call.
func (r *reader) Read(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	var p readParams
	if err := native.Decode(params, &p); err != nil {
		return nil, r.db.bad(r.spec.Name, err)
	}
	var out json.RawMessage
	err := r.db.in(ctx, r.spec.Name, false, func(s session) (err error) {
		out, err = r.read(ctx, s, p)
		return err
	})
	return out, err
}

// bad is the failure of a call that the script must change.
func (db *database) bad(tool string, err error) *keep.Failure {
	return db.failf(tool, keep.ClassLogic, "bad-params", "%v", err)
}

// list returns an array of rows.
func (db *database) list(ctx context.Context, s session, p readParams) (json.RawMessage, error) {
	t, err := db.called(ctx, "list", s, p.Table)
	if err != nil {
		return nil, err
	}
	q := &statement{engine: db.engine, table: t}
	columns, err := db.buildList(q, p)
	if err != nil {
		return nil, db.bad("list", err)
	}
	rows, err := db.rows(ctx, "list", s, q, columns)
	if err != nil {
		return nil, err
	}
	return append(append([]byte{'['}, bytes.Join(asBytes(rows), []byte{','})...), ']'), nil
}

// asBytes is what bytes.Join takes.
func asBytes(rows []json.RawMessage) [][]byte {
	out := make([][]byte, len(rows))
	for i := range rows {
		out[i] = rows[i]
	}
	return out
}

// buildList writes the SELECT and returns the columns that it selects.
func (db *database) buildList(q *statement, p readParams) ([]column, error) {
	columns := q.table.columns
	if len(p.Columns) > 0 {
		columns = nil
		for _, name := range p.Columns {
			c, err := q.table.column(name)
			if err != nil {
				return nil, fmt.Errorf("columns: %w", err)
			}
			columns = append(columns, c)
		}
	}
	p.Limit = cmp.Or(p.Limit, defaultLimit)
	if p.Limit < 0 || p.Limit > maxLimit || p.Offset < 0 {
		return nil, fmt.Errorf("limit must be 1 to %d, and offset not negative", maxLimit)
	}
	q.add("SELECT ").selected(columns).add(" FROM ", q.table.quoted)
	if err := q.where(p.Where); err != nil {
		return nil, err
	}
	if err := q.order(p.OrderBy); err != nil {
		return nil, err
	}
	q.limit(p.Limit, p.Offset)
	return columns, nil
}

// getByID reads by the primary key, which must be one column.
func (db *database) getByID(ctx context.Context, s session, p readParams) (json.RawMessage, error) {
	t, err := db.called(ctx, "getById", s, p.Table)
	if err != nil {
		return nil, err
	}
	if len(t.primary) != 1 {
		return nil, db.bad("getById", fmt.Errorf("the primary key of %s is not one column; use getByUniqueKey", t.quoted))
	}
	return db.one(ctx, "getById", s, t, map[string]json.RawMessage{t.primary[0]: p.ID})
}

// getByKey reads by any unique key.
func (db *database) getByKey(ctx context.Context, s session, p readParams) (json.RawMessage, error) {
	t, err := db.called(ctx, "getByUniqueKey", s, p.Table)
	if err != nil {
		return nil, err
	}
	return db.one(ctx, "getByUniqueKey", s, t, p.Key)
}

// one returns the row with that key, or null.
func (db *database) one(ctx context.Context, tool string, s session, t *table, key map[string]json.RawMessage) (json.RawMessage, error) {
	if err := t.identifies(key, false); err != nil {
		return nil, db.bad(tool, err)
	}
	q := &statement{engine: db.engine, table: t}
	q.add("SELECT ").selected(t.columns).add(" FROM ", t.quoted, " WHERE ")
	if err := q.pairs(key, " AND ", equals); err != nil {
		return nil, db.bad(tool, err)
	}
	rows, err := db.rows(ctx, tool, s, q, t.columns)
	if len(rows) > 1 {
		return nil, db.severalRows(tool, t)
	}
	if err != nil || len(rows) == 0 {
		return json.RawMessage("null"), err
	}
	return rows[0], nil
}

// severalRows is the failure of a call for one row where a key has several: its index tells values apart that its column does not, or
// tables that inherit from this one have the key, too.
func (db *database) severalRows(tool string, t *table) *keep.Failure {
	return db.failf(tool, keep.ClassLogic, "several-rows", "%s has several rows of that key, and nothing was changed: compare the collations of the column and of its unique index, and look for tables that inherit from this one", t.quoted)
}
