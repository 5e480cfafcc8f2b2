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
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/connector/internal/native"
)

// changeParams are the params of insert, update and upsert.
type changeParams struct {
	Table string                     `json:"table"`
	Key   map[string]json.RawMessage `json:"key"` // columns of a unique index
	Row   map[string]json.RawMessage `json:"row"` // insert and upsert: the other columns
	Set   map[string]json.RawMessage `json:"set"` // update: the columns to change
}

// A mutator is a tool that changes rows.
type mutator struct {
	native.Change
	db *database

	// build writes the statement that makes the change and returns the row.
	build func(q *statement, p changeParams) error
}

// A reconciler is a mutator whose outcome can be asked for.
type reconciler struct {
	mutator
	complete bool // without a ledger table: a row that is not there was never inserted
}

// insertTool makes the tool insert. Without a ledger table a key is how the row
// is found again.
func (db *database) insertTool(cfg Config) connector.Tool {
	required := `"table","row"`
	if db.ledger == "" && !cfg.KeylessInsert {
		required += `,"key"`
	}
	return db.changeTool(cfg, connector.Spec{
		Name:        "insert",
		Description: "Adds a row and returns it. key holds the columns that identify it, and is part of the row.",
		Params:      native.Object(required, tableSchema+","+keySchema+`,"row":{"type":"object"}`),
	}, buildInsert)
}

// updateTool makes the tool update.
func (db *database) updateTool(cfg Config) connector.Tool {
	return db.changeTool(cfg, connector.Spec{
		Name:        "update",
		Description: "Changes the row with that unique key and returns it.",
		Params:      native.Object(`"table","key","set"`, tableSchema+","+keySchema+`,"set":{"type":"object","minProperties":1}`),
	}, buildUpdate)
}

// upsertTool makes the tool upsert.
func (db *database) upsertTool(cfg Config) connector.Tool {
	return db.changeTool(cfg, connector.Spec{
		Name:        "upsert",
		Description: "Adds the row with that unique key, or changes it if it is there, and returns it.",
		Params:      native.Object(`"table","key","row"`, tableSchema+","+keySchema+`,"row":{"type":"object"}`),
	}, buildUpsert)
}

// changeTool completes the spec. Without a ledger table the row itself is the
// only witness, and an insert without a key has none.
func (db *database) changeTool(cfg Config, spec connector.Spec, build func(*statement, changeParams) error) connector.Tool {
	spec.Effect = connector.Mutate
	spec.Timeout = time.Duration(cfg.Timeout)
	spec.Identity = []string{"table", "key"}
	spec.Result = rowOrNull
	values := "row"
	if spec.Name != "insert" {
		spec.Now = "getByUniqueKey"
	}
	if spec.Name == "update" {
		values = "set"
	}
	spec.View = keep.View{Kind: keep.ViewRow, Parts: []keep.ViewPart{{Role: "table", Param: "table"}, {Role: "key", Param: "key"}, {Role: "values", Param: values}}}
	spec.VerifyByHand = "Look for the row in the database."
	switch {
	case db.ledger != "":
		spec.Level, spec.Marked = keep.LevelKey, true
		spec.VerifyByHand = "Look for the token in the table " + db.ledger + "."
	case cfg.KeylessInsert && spec.Name == "insert":
		spec.Level = keep.LevelNone
		return &mutator{native.Change{Tool: spec}, db, build}
	default:
		spec.Level, spec.ByTarget = keep.LevelWitness, true
		spec.SettleAfter = DefaultSettle
		if cfg.SettleAfter != nil {
			spec.SettleAfter = time.Duration(*cfg.SettleAfter)
		}
	}
	return &reconciler{mutator{native.Change{Tool: spec}, db, build}, cfg.Complete}
}

// Target returns the table and the key, such as "invoices id=17".
func (m *mutator) Target(params json.RawMessage) string {
	var p changeParams
	if json.Unmarshal(params, &p) != nil {
		return m.Tool.Name
	}
	parts := []string{p.Table}
	for _, name := range slices.Sorted(maps.Keys(p.Key)) {
		value := string(p.Key[name])
		var s string
		if json.Unmarshal(p.Key[name], &s) == nil {
			value = s
		}
		parts = append(parts, name+"="+value)
	}
	return native.Target(strings.Join(parts, " "))
}

// Mutate makes the change, unless mut's token has made it already.
func (m *mutator) Mutate(ctx context.Context, mut keep.Mutation) (connector.Receipt, error) {
	var p changeParams
	if err := native.Decode(mut.Payload, &p); err != nil {
		return connector.Receipt{}, m.db.bad(m.Tool.Name, err)
	}
	if err := m.db.prepareLedger(ctx, m.Tool.Name); err != nil {
		return connector.Receipt{}, err
	}
	var r connector.Receipt
	err := m.db.in(ctx, m.Tool.Name, true, func(s session) error {
		done, stored, err := m.db.claim(ctx, m.Tool.Name, s, mut.Token)
		if err != nil || done {
			r = stored
			return err
		}
		if r, err = m.change(ctx, s, p); err != nil {
			return err
		}
		if err := m.db.store(ctx, s, mut.Token, r); err != nil {
			return err
		}
		return s.commit(ctx)
	})
	if err != nil {
		return connector.Receipt{}, err
	}
	return r, nil
}

// change runs the statement.
func (m *mutator) change(ctx context.Context, s session, p changeParams) (connector.Receipt, error) {
	t, err := m.db.called(ctx, m.Tool.Name, s, p.Table)
	if err != nil {
		return connector.Receipt{}, err
	}
	q := &statement{engine: m.db.engine, table: t}
	if m.Tool.Level == keep.LevelWitness && p.Key == nil {
		return connector.Receipt{}, m.db.bad(m.Tool.Name, errors.New("key is required: without a ledger table it is how the row is found"))
	}
	if err := m.build(q, p); err != nil {
		return connector.Receipt{}, m.db.bad(m.Tool.Name, err)
	}
	q.add(" RETURNING ").selected(t.columns)
	rows, err := m.db.rows(ctx, m.Tool.Name, s, q, t.columns)
	var f *keep.Failure
	large := errors.As(err, &f) && f.Code == "answer-too-large"
	switch {
	case len(rows) > 1, large && len(rows) > 0:
		return connector.Receipt{}, m.db.severalRows(m.Tool.Name, t)
	case large:
		return connector.Receipt{Warning: "the row is over 1 MiB; the result is null"}, nil
	case err != nil:
		return connector.Receipt{}, err
	case len(rows) == 0:
		return connector.Receipt{}, m.db.failf(m.Tool.Name, keep.ClassLogic, "no-row", "no row of %s has that key", t.quoted)
	}
	return connector.Receipt{Result: rows[0]}, nil
}

// merge returns key and values together. A column must not be in both, since
// one of them would be ignored.
func merge(key, values map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	all := maps.Clone(values)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	for name, value := range key {
		if other, ok := all[name]; ok && !jsonval.Equal(other, value) {
			return nil, fmt.Errorf("column %q has one value in key and another beside it", name)
		}
		all[name] = value
	}
	return all, nil
}

// insertInto writes INSERT without an end.
func insertInto(q *statement, values map[string]json.RawMessage) error {
	if len(values) == 0 {
		q.add("INSERT INTO ", q.table.quoted, " DEFAULT VALUES")
		return nil
	}
	names := slices.Sorted(maps.Keys(values))
	q.add("INSERT INTO ", q.table.quoted, " (")
	for i, name := range names {
		if i > 0 {
			q.add(", ")
		}
		q.add(quote(name))
	}
	q.add(") VALUES (")
	if err := q.pairs(values, ", ", func(_, value string) string { return value }); err != nil {
		return err
	}
	q.add(")")
	return nil
}

// buildInsert writes INSERT.
func buildInsert(q *statement, p changeParams) error {
	if p.Key != nil {
		if err := q.table.identifies(p.Key, false); err != nil {
			return err
		}
	}
	values, err := merge(p.Key, p.Row)
	if p.Row == nil {
		err = errors.New("row is required")
	}
	if err != nil {
		return err
	}
	return insertInto(q, values)
}

// buildUpdate writes UPDATE for one row.
func buildUpdate(q *statement, p changeParams) error {
	if err := q.table.identifies(p.Key, false); err != nil {
		return err
	}
	if len(p.Set) == 0 {
		return errors.New("set names no column")
	}
	for name := range p.Key {
		if _, both := p.Set[name]; both {
			return fmt.Errorf("set must not change the key column %q: afterwards nobody could tell whether it happened", name)
		}
	}
	q.add("UPDATE ", q.table.quoted, " SET ")
	if err := q.pairs(p.Set, ", ", equals); err != nil {
		return err
	}
	q.add(" WHERE ")
	return q.pairs(p.Key, " AND ", equals)
}

// buildUpsert writes INSERT … ON CONFLICT for a key that is exactly an index.
func buildUpsert(q *statement, p changeParams) error {
	if err := q.table.identifies(p.Key, true); err != nil {
		return err
	}
	values, err := merge(p.Key, p.Row)
	if p.Row == nil {
		err = errors.New("row is required")
	}
	if err != nil {
		return err
	}
	if err := insertInto(q, values); err != nil {
		return err
	}
	q.add(" ON CONFLICT (")
	keys := slices.Sorted(maps.Keys(p.Key))
	for i, name := range keys {
		if i > 0 {
			q.add(", ")
		}
		q.add(quote(name))
	}
	q.add(") DO UPDATE SET ")
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(values)), func(n string) bool { return slices.Contains(keys, n) })
	if len(others) == 0 {
		others = keys[:1] // nothing to change, but the row must be returned
	}
	for i, name := range others {
		if i > 0 {
			q.add(", ")
		}
		q.add(quote(name), " = excluded.", quote(name))
	}
	return nil
}

// Pin implements connector.Pinner.
func (m *mutator) Pin() json.RawMessage {
	text, _ := json.Marshal(map[string]string{"url": m.db.where, "ledger_table": m.db.ledger}) // strings can be written
	return text
}
