package sqldb_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/sqldb"
	"github.com/keep-run/keep/testkit/connectortest"
)

// A changeCase is a mutate tool with the params of a change that can be counted.
type changeCase struct {
	name string
	tool string

	// rows are there before: changes of them, not additions.
	rows bool

	// params returns those of the nth change; keyless if the table has no key.
	params  func(n int, keyless bool) string
	refused []string
}

// changeCases are all tools that change rows, upsert in both of its ways.
var changeCases = []changeCase{
	{name: "insert", tool: "insert", params: func(n int, keyless bool) string {
		if keyless {
			return fmt.Sprintf(`{"table":"items","row":{"id":%d,"n":"x"}}`, n)
		}
		return fmt.Sprintf(`{"table":"items","key":{"id":%d},"row":{"n":"x"}}`, n)
	}, refused: []string{`{}`, `{"table":"items"}`, `{"table":"items","row":[]}`, `{"table":"items","row":{},"x":1}`, `{"table":1,"row":{}}`, `[]`}},
	{name: "update", tool: "update", rows: true, params: func(n int, _ bool) string {
		return fmt.Sprintf(`{"table":"items","key":{"id":%d},"set":{"n":"x"}}`, n)
	}, refused: []string{`{}`, `{"table":"items","set":{"n":"x"}}`, `{"table":"items","key":{"id":1}}`, `{"table":"items","key":{"id":1},"set":{}}`,
		`{"table":"items","key":{"id":1},"set":[]}`, `{"table":"items","key":{"id":1},"set":{"n":"x"},"x":1}`}},
	{name: "upsert of a new row", tool: "upsert", params: upsertParams, refused: upsertRefused},
	{name: "upsert of a row that is there", tool: "upsert", rows: true, params: upsertParams, refused: upsertRefused},
}

func upsertParams(n int, _ bool) string {
	return fmt.Sprintf(`{"table":"items","key":{"id":%d},"row":{"n":"x"}}`, n)
}

var upsertRefused = []string{`{}`, `{"table":"items","row":{"n":"x"}}`, `{"table":"items","key":{"id":1}}`, `{"table":"items","key":{"id":1},"row":[]}`,
	`{"table":"items","key":{"id":1},"row":{},"x":1}`}

// TestConformance tries every change on both databases, with and without a
// ledger table. The table of inserts allows duplicates where the ledger must
// prevent them.
func TestConformance(t *testing.T) {
	none := ""
	for _, c := range changeCases {
		for name, ledger := range map[string]*string{"with ledger": nil, "without ledger": &none} {
			t.Run(c.name+" "+name, func(t *testing.T) {
				t.Run("sqlite", func(t *testing.T) {
					t.Parallel()
					connectortest.Run(t, func(tb testing.TB) *connectortest.Bench { return sqliteBench(tb, c, ledger) })
				})
				t.Run("postgres", func(t *testing.T) {
					t.Parallel()
					connectortest.Run(t, func(tb testing.TB) *connectortest.Bench {
						b, _ := postgresBench(tb, c, ledger)
						return b
					})
				})
			})
		}
	}
}

func sqliteBench(tb testing.TB, c changeCase, ledger *string) *connectortest.Bench {
	db := sqliteTarget(tb)
	db.exec(tb, "CREATE TABLE effects (id INTEGER)")
	b := bench(tb, db, db.url, c, ledger)
	for _, event := range []string{"INSERT", "UPDATE"} {
		db.exec(tb, "CREATE TRIGGER after_"+event+" AFTER "+event+" ON items BEGIN INSERT INTO effects VALUES (new.id); END")
	}
	b.Troubles = []connectortest.Trouble{{
		Name: "the file is locked", Want: keep.ClassTransient, Stalls: true,
		Arm: func() { db.exec(tb, "BEGIN IMMEDIATE") },
		End: func() { db.exec(tb, "ROLLBACK") },
	}}
	return b
}

// postgresBench returns a database behind a proxy.
func postgresBench(tb testing.TB, c changeCase, ledger *string) (*connectortest.Bench, *connectortest.Proxy) {
	db := postgresTarget(tb)
	u, err := url.Parse(db.url)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := connectortest.NewProxy(u.Host)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	u.Host, u.User = p.Addr(), url.UserPassword("keep", "hunter2-hunter2")
	db.exec(tb, "CREATE TABLE effects (id INTEGER)")
	b := bench(tb, db, u.String(), c, ledger)
	db.exec(tb, "CREATE FUNCTION count_effect() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO effects VALUES (NEW.id); RETURN NULL; END'")
	db.exec(tb, "CREATE TRIGGER counted AFTER INSERT OR UPDATE ON items FOR EACH ROW EXECUTE FUNCTION count_effect()")
	b.Secrets = []string{"hunter2-hunter2"}
	pass := func() { p.Always(connectortest.Pass) }
	b.Troubles = []connectortest.Trouble{
		{Name: "a refused connection", Want: keep.ClassTransient, Arm: p.Down, End: func() { p.Up() }},
		{Name: "idle connections that died", Want: "none", Arm: func() { p.Down(); p.Up() }},
		{Name: "silence", Want: keep.ClassTransient, Stalls: true, End: pass,
			Arm: func() {
				p.Down()
				p.Up()
				p.Always(connectortest.Cut{Request: connectortest.All, Response: 700, Stall: true})
			}},
	}
	return b, p
}

// bench returns the bench of a change, and makes its table: one without a key if
// an insert is to be prevented from happening twice by the ledger alone. What
// happened is counted by triggers, in the transaction of the change.
func bench(tb testing.TB, db target, url string, c changeCase, ledger *string) *connectortest.Bench {
	tb.Helper()
	keyless := ledger == nil && c.tool == "insert"
	create := `CREATE TABLE items (id INTEGER PRIMARY KEY, n TEXT)`
	if keyless {
		create = `CREATE TABLE items (id INTEGER, n TEXT)`
	}
	db.exec(tb, create)
	if c.rows {
		db.exec(tb, `INSERT INTO items (id, n) WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i < 999) SELECT i, 'old' FROM c`)
	}
	b := &connectortest.Bench{
		Connection: open(tb, sqldb.Config{URL: url, LedgerTable: ledger, Complete: ledger != nil}),
		Tool:       c.tool,
		// A row that is not what was sent may have been, and was changed since.
		AbsenceIsAgain: ledger != nil && c.rows,
		Params:         func(n int) json.RawMessage { return json.RawMessage(c.params(n, keyless)) },
		Effects: func(n int) int {
			count, _ := strconv.Atoi(db.one(tb, fmt.Sprint("SELECT count(*) FROM effects WHERE id = ", n)))
			return count
		},
	}
	for _, r := range c.refused {
		b.Refused = append(b.Refused, json.RawMessage(r))
	}
	return b
}

// TestPostgresCutAtEachByte cuts the connection at many bytes of the
// conversation, those around COMMIT among them. Whatever the call says, the
// token tells the truth, and sending again makes it one effect.
func TestPostgresCutAtEachByte(t *testing.T) {
	t.Parallel()
	for _, c := range changeCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cutAtEachByte(t, c)
		})
	}
}

func cutAtEachByte(t *testing.T, tried changeCase) {
	b, p := postgresBench(t, tried, nil)
	m := tool(t, b.Connection, tried.tool).(connector.Mutator)
	change := func(n int) (keep.Class, error) {
		_, err := m.Mutate(t.Context(), keep.Mutation{Token: fmt.Sprint("t", n), Payload: b.Params(n)})
		return class(err), err
	}
	if c, err := change(0); c != "none" {
		t.Fatal(err)
	}
	seen, n := map[string]int{}, 0
	try := func(cut connectortest.Cut) keep.Class {
		t.Helper()
		n++
		p.Down()
		if err := p.Up(); err != nil {
			t.Fatal(err)
		}
		p.Always(cut)
		c, err := change(n)
		// The connection would be cut later, if it is left.
		p.Always(connectortest.Pass)
		p.Down()
		if err := p.Up(); err != nil {
			t.Fatal(err)
		}
		effects := b.Effects(n)
		seen[fmt.Sprint(c, effects)]++
		if c != "none" && c != keep.ClassUnknown && effects != 0 || c == "none" && effects != 1 {
			t.Errorf("cut %+v: %v, but there are %d effects", cut, err, effects)
		}
		a, err := reconcile(t, b.Connection, tried.tool, fmt.Sprint("t", n), string(b.Params(n)))
		if err != nil || (a.Verdict == connector.Happened) != (effects == 1) {
			t.Errorf("cut %+v: reconcile = %q, %v; there are %d effects", cut, a.Verdict, err, effects)
		}
		if c, err := change(n); c != "none" || b.Effects(n) != 1 {
			t.Errorf("cut %+v: sent again: %v, %d effects", cut, err, b.Effects(n))
		}
		return c
	}
	for _, cut := range []func(n int) connectortest.Cut{
		func(n int) connectortest.Cut { return connectortest.Cut{Request: n, Response: connectortest.All} },
		func(n int) connectortest.Cut { return connectortest.Cut{Request: connectortest.All, Response: n} },
	} {
		// In great steps to the end of the conversation, where COMMIT is, and
		// then byte by byte through it.
		end := 0
		for end < 20_000 && try(cut(end)) != "none" {
			end += 150
		}
		for at := end - 150; at < end && try(cut(at)) != "none"; at += 4 {
		}
	}
	t.Log(seen)
	if seen["unknown1"] == 0 || seen["transient0"] == 0 {
		t.Errorf("the cuts did not meet the COMMIT: %v", seen)
	}
}
