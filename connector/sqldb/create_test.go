package sqldb_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/sqldb"
	"github.com/keep-run/keep/testkit/connectortest"
)

// TestCreateConformance holds createTable to the promises of a mutate tool.
func TestCreateConformance(t *testing.T) {
	none := ""
	for name, ledger := range map[string]*string{"with ledger": nil, "without ledger": &none} {
		for engine, target := range map[string]func(testing.TB) target{"sqlite": sqliteTarget, "postgres": postgresTarget} {
			t.Run(engine+" "+name, func(t *testing.T) {
				t.Parallel()
				connectortest.Run(t, func(tb testing.TB) *connectortest.Bench {
					db := target(tb)
					db.exec(tb, "CREATE TABLE already_there (id INTEGER)") // the file is there
					return &connectortest.Bench{
						Connection: open(tb, sqldb.Config{URL: db.url, LedgerTable: ledger, Create: true}), Tool: "createTable", NoMore: true,
						Again: func(tb testing.TB) *connector.Connection {
							return open(tb, sqldb.Config{URL: db.url, LedgerTable: ledger, Create: true})
						},
						Params: func(n int) json.RawMessage {
							return json.RawMessage(fmt.Sprintf(`{"table":"made_%d","columns":{"id":"text","n":"integer","at":"time","x":"json","ok":"boolean"},"primary_key":["id"]}`, n))
						},
						Effects: func(n int) int {
							table := fmt.Sprintf("made_%d", n)
							query := "SELECT count(*) FROM sqlite_schema WHERE name = '" + table + "'"
							if engine == "postgres" {
								query = "SELECT count(*)::text FROM pg_class WHERE oid = to_regclass('" + table + "')"
							}
							count, _ := strconv.Atoi(db.one(tb, query))
							return count
						},
						Refused: []json.RawMessage{json.RawMessage(`{}`), json.RawMessage(`{"table":"x","columns":{},"primary_key":["id"]}`),
							json.RawMessage(`{"table":"x","columns":{"id":"text; drop"},"primary_key":["id"]}`), json.RawMessage(`{"table":"x","columns":{"id":"text"},"primary_key":[]}`)},
					}
				})
			})
		}
	}
}

// TestCreate uses a table that it made, in a file that was missing, and refuses another.
func TestCreate(t *testing.T) {
	conn := open(t, sqldb.Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "new.db"), Create: true, Tables: []string{"orders"}})
	mutate := func(name, token, params string) (connector.Receipt, error) {
		m := tool(t, conn, name).(connector.Mutator)
		if err := m.(connector.Starter).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		return m.Mutate(t.Context(), keep.Mutation{Token: token, Payload: json.RawMessage(params)})
	}
	const orders = `{"table":"orders","columns":{"id":"text","total":"decimal","paid":"boolean"},"primary_key":["id"]}`
	for token, want := range map[string]string{"t1": `{"created":true}`} {
		for range 2 { // the second time it is told what it was told
			if r, err := mutate("createTable", token, orders); err != nil || string(r.Result) != want {
				t.Errorf("%s: %s, %v", token, r.Result, err)
			}
		}
	}
	if r, err := mutate("createTable", "t2", orders); err != nil || string(r.Result) != `{"created":false}` {
		t.Errorf("again: %s, %v", r.Result, err)
	}
	if _, err := mutate("insert", "t3", `{"table":"orders","key":{"id":"a"},"row":{"total":1.5,"paid":true}}`); err != nil {
		t.Error(err)
	}
	for params, want := range map[string]keep.Class{
		`{"table":"orders","columns":{"id":"text","more":"text"},"primary_key":["id"]}`:        keep.ClassLogic,
		`{"table":"orders","columns":{"id":"integer"},"primary_key":["id"]}`:                   keep.ClassLogic,
		`{"table":"orders","columns":{"id":"text","total":"decimal"},"primary_key":["total"]}`: keep.ClassLogic,
		`{"table":"others","columns":{"id":"text"},"primary_key":["id"]}`:                      keep.ClassPermission,
		`{"table":"keep_mutations","columns":{"id":"text"},"primary_key":["id"]}`:              keep.ClassPermission,
	} {
		if _, err := mutate("createTable", "x"+params, params); class(err) != want {
			t.Errorf("%s: %v, want %s", params, err, want)
		}
	}
}
