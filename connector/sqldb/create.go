package sqldb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/native"
)

// createParams are the params of createTable.
type createParams struct {
	Table      string            `json:"table"`
	Columns    map[string]string `json:"columns"` // type by name
	PrimaryKey []string          `json:"primary_key"`
}

// types are the types of columns that scripts may ask for, as each engine names them.
var types = map[string]struct{ sqlite, postgres string }{
	"text": {"TEXT", "text"}, "integer": {"INTEGER", "int8"}, "number": {"REAL", "float8"}, "decimal": {"NUMERIC", "numeric"},
	"boolean": {"BOOLEAN", "bool"}, "time": {"TEXT", "timestamptz"}, "json": {"JSON", "jsonb"}, "bytes": {"BLOB", "bytea"},
}

// createTool makes the tool createTable.
func (db *database) createTool(cfg Config) connector.Tool {
	spec := connector.Spec{
		Name: "createTable", Effect: connector.Mutate,
		Description: "Makes a table if there is none of that name; one that is there must have these columns and this primary key. Says whether it was made.",
		Params: native.Object(`"table","columns","primary_key"`, tableSchema+`,
			"columns":{"type":"object","minProperties":1,"additionalProperties":{"enum":["text","integer","number","decimal","boolean","time","json","bytes"]}},
			"primary_key":{"type":"array","items":{"type":"string"},"minItems":1,"uniqueItems":true}`),
		Result:  json.RawMessage(`{"type":"object","required":["created"],"properties":{"created":{"type":"boolean"}}}`),
		Timeout: time.Duration(cfg.Timeout), Identity: []string{"table"}, Level: keep.LevelKey, Marked: true, VerifyByHand: "Look for the table in the database.",
	}
	if db.ledger == "" {
		spec.Level, spec.ByTarget, spec.Marked, spec.SettleAfter = keep.LevelWitness, true, false, DefaultSettle
		if cfg.SettleAfter != nil {
			spec.SettleAfter = time.Duration(*cfg.SettleAfter)
		}
	}
	return &creator{mutator{Change: native.Change{Tool: spec}, db: db}}
}

// A creator is the tool createTable.
type creator struct{ mutator }

// params reads what to make.
func (c *creator) params(raw json.RawMessage) (p createParams, err error) {
	if err = native.Decode(raw, &p); err != nil {
		return p, err
	}
	switch {
	case p.Table == "" || strings.ContainsRune(p.Table, 0):
		return p, errors.New("table is required")
	case len(p.Columns) == 0 || len(p.PrimaryKey) == 0:
		return p, errors.New("columns and primary_key are required")
	}
	for name, kind := range p.Columns {
		if _, ok := types[kind]; !ok {
			return p, fmt.Errorf("columns: %q is no type; it is one of %s", kind, strings.Join(slices.Sorted(maps.Keys(types)), ", "))
		}
		if name == "" || strings.ContainsRune(name, 0) {
			return p, errors.New("columns: a name is empty")
		}
	}
	for _, name := range p.PrimaryKey {
		if _, ok := p.Columns[name]; !ok {
			return p, fmt.Errorf("primary_key: %q is not in columns", name)
		}
	}
	return p, nil
}

// Mutate makes the table, in one transaction with the token.
func (c *creator) Mutate(ctx context.Context, mut keep.Mutation) (connector.Receipt, error) {
	p, err := c.params(mut.Payload)
	if err != nil {
		return connector.Receipt{}, c.db.bad(c.Tool.Name, err)
	}
	if err := c.db.prepareLedger(ctx, c.Tool.Name); err != nil {
		return connector.Receipt{}, err
	}
	var r connector.Receipt
	err = c.db.in(ctx, c.Tool.Name, true, func(s session) error {
		done, stored, err := c.db.claim(ctx, c.Tool.Name, s, mut.Token)
		if err != nil || done {
			r = stored
			return err
		}
		created, err := c.make(ctx, s, p)
		if err != nil {
			return err
		}
		r.Result = json.RawMessage(fmt.Sprintf(`{"created":%t}`, created))
		if err := c.db.store(ctx, s, mut.Token, r); err != nil {
			return err
		}
		return s.commit(ctx)
	})
	if err != nil {
		return connector.Receipt{}, err
	}
	return r, nil
}

// make makes the table if it is missing, and reports whether it did.
func (c *creator) make(ctx context.Context, s session, p createParams) (bool, error) {
	if !c.db.allows(p.Table) {
		return false, c.db.failf(c.Tool.Name, keep.ClassPermission, "table-not-allowed", "the connection does not allow the table %q", p.Table)
	}
	t, err := s.describe(ctx, p.Table)
	if err != nil {
		return false, err
	}
	if t != nil {
		if err := c.same(t, p); err != nil {
			return false, c.db.failf(c.Tool.Name, keep.ClassLogic, "another-table", "there is a table %s already, and %v", t.quoted, err)
		}
		return false, nil
	}
	quoted := quote(p.Table)
	if schema, name, ok := strings.Cut(p.Table, "."); ok && c.db.engine.schemas() {
		quoted = quote(schema) + "." + quote(name)
	}
	var columns []string
	for _, name := range slices.Sorted(maps.Keys(p.Columns)) {
		columns = append(columns, quote(name)+" "+c.db.engine.columnType(p.Columns[name]))
	}
	var key []string
	for _, name := range p.PrimaryKey {
		key = append(key, quote(name))
	}
	_, err = s.exec(ctx, "CREATE TABLE "+quoted+" ("+strings.Join(columns, ", ")+", PRIMARY KEY ("+strings.Join(key, ", ")+"))")
	return err == nil, err
}

// same reports how a table differs from what is asked for. More columns are fine.
func (c *creator) same(t *table, p createParams) error {
	for _, name := range slices.Sorted(maps.Keys(p.Columns)) {
		column, err := t.column(name)
		if err != nil {
			return err
		}
		if want := c.db.engine.columnType(p.Columns[name]); column.kind != want {
			return fmt.Errorf("its column %q is %s, not %s", name, column.kind, want)
		}
	}
	if !slices.Equal(t.primary, p.PrimaryKey) {
		return fmt.Errorf("its primary key is %v, not %v", t.primary, p.PrimaryKey)
	}
	return nil
}

// Target names the table.
func (c *creator) Target(params json.RawMessage) string {
	var p createParams
	if json.Unmarshal(params, &p) != nil || p.Table == "" {
		return c.Tool.Name
	}
	target := []rune(strings.ToValidUTF8("the table "+p.Table, ""))
	return string(target[:min(len(target), 120)])
}

// Reconcile looks for the token, or without a ledger table for the table.
func (c *creator) Reconcile(ctx context.Context, mut keep.Mutation) (connector.Answer, error) {
	p, err := c.params(mut.Payload)
	if err != nil {
		return connector.Answer{}, c.db.bad(c.Tool.Name, err)
	}
	var a connector.Answer
	err = c.db.in(ctx, c.Tool.Name, c.db.ledger != "", func(s session) (err error) {
		if c.db.ledger != "" {
			a, err = (&reconciler{mutator: c.mutator}).ask(ctx, s, mut)
			return err
		}
		t, err := s.describe(ctx, p.Table)
		switch {
		case err != nil:
			return err
		case t == nil:
			a = connector.Answer{Verdict: connector.Absent, Detail: "there is no such table"}
		case c.same(t, p) != nil:
			a = connector.Answer{Verdict: connector.Retry, Detail: "there is another table of that name"}
		default:
			a = connector.Answer{Verdict: connector.Happened, Receipt: connector.Receipt{Result: json.RawMessage(`{"created":true}`)}, Detail: "the table is there"}
		}
		return nil
	})
	return a, err
}
