package sqldb_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/sqldb"
)

// A condition of a grant or an approval compares the name of a table, so a table has one: that with its schema, which Postgres takes
// for the same, is refused unless the configuration lists it (law: permitted).
func TestATableHasOneName(t *testing.T) {
	t.Parallel()
	db := postgresTarget(t)
	db.exec(t, `CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner TEXT)`)
	db.exec(t, `INSERT INTO accounts VALUES (1, 'ann')`)
	other := db.one(t, `SELECT current_schema()`)
	conn := open(t, sqldb.Config{URL: db.url})
	for _, call := range []string{
		`{"table":"%s.accounts","key":{"id":1},"set":{"owner":"eve"}}`,
		`{"table":"%s.accounts","key":{"id":1},"row":{"owner":"eve"}}`,
		`{"table":"%s.accounts","key":{"id":2},"row":{"owner":"eve"}}`,
	} {
		name := map[bool]string{true: "update", false: "upsert"}[strings.Contains(call, "set")]
		if _, err := mutate(t, conn, name, "t0", fmt.Sprintf(call, other)); class(err) != keep.ClassLogic || !strings.Contains(err.Error(), `call it "accounts"`) {
			t.Errorf("%s of the same table by another name: %v, want a refusal", name, err)
		}
	}
	if got, err := read(t, conn, "list", fmt.Sprintf(`{"table":"%s.accounts"}`, other)); class(err) != keep.ClassLogic {
		t.Errorf("list of the same table by another name = %s, %v; want a refusal", got, err)
	}
	if got := db.one(t, `SELECT string_agg(owner, ',') FROM accounts`); got != "ann" {
		t.Errorf("accounts of %s, want ann", got)
	}

	listed := open(t, sqldb.Config{URL: db.url, Tables: []string{other + ".accounts"}})
	if _, err := mutate(t, listed, "update", "t1", fmt.Sprintf(`{"table":"%s.accounts","key":{"id":1},"set":{"owner":"bob"}}`, other)); err != nil {
		t.Errorf("update by the name that the configuration lists: %v", err)
	}
}
