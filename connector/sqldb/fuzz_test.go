package sqldb_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/sqldb"
)

// FuzzList checks that no params of a script become SQL: what the connector
// doesn't refuse, SQLite understands.
func FuzzList(f *testing.F) {
	f.Add(`{"table":"t","where":{"id":1,"n":{"like":"a%","ne":null}},"order_by":["-id"],"limit":2,"offset":1}`)
	f.Add(`{"table":"t","where":{"n":{"in":[1,"a",null,{"base64":"AA=="}]}},"columns":["a \" b"]}`)
	f.Add(`{"table":"t\"; drop table t; --"}`)
	db := sqliteTarget(f)
	db.exec(f, `CREATE TABLE t (id INTEGER PRIMARY KEY, n TEXT, "a "" b" TEXT)`)
	db.exec(f, `INSERT INTO t VALUES (1, 'x', 'y')`)
	list := tool(f, open(f, sqldb.Config{URL: db.url}), "list").(connector.Reader)
	f.Fuzz(func(t *testing.T, params string) {
		raw, err := list.Read(t.Context(), json.RawMessage(params))
		if err == nil && !json.Valid(raw) {
			t.Errorf("list %s = %s", params, raw)
		}
		if c := class(err); c != "none" && c != keep.ClassLogic && c != keep.ClassPrecondition || err != nil && strings.Contains(err.Error(), "syntax") {
			t.Errorf("list %s: %v", params, err)
		}
	})
}
