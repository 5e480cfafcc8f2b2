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
	"github.com/keep-run/keep/connectortest"
)

// TestConformance tries insert on both databases, with and without a ledger
// table. The table allows duplicates where the ledger must prevent them.
func TestConformance(t *testing.T) {
	none := ""
	for name, ledger := range map[string]*string{"with ledger": nil, "without ledger": &none} {
		t.Run(name, func(t *testing.T) {
			t.Run("sqlite", func(t *testing.T) {
				t.Parallel()
				connectortest.Run(t, func(tb testing.TB) *connectortest.Bench { return sqliteBench(tb, ledger) })
			})
			t.Run("postgres", func(t *testing.T) {
				t.Parallel()
				connectortest.Run(t, func(tb testing.TB) *connectortest.Bench {
					b, _ := postgresBench(tb, ledger)
					return b
				})
			})
		})
	}
}

func sqliteBench(tb testing.TB, ledger *string) *connectortest.Bench {
	db := sqliteTarget(tb)
	b := bench(tb, db, db.url, ledger)
	b.Troubles = []connectortest.Trouble{{
		Name: "the file is locked", Want: keep.ClassTransient, Stalls: true,
		Arm: func() { db.exec(tb, "BEGIN IMMEDIATE") },
		End: func() { db.exec(tb, "ROLLBACK") },
	}}
	return b
}

// postgresBench returns a database behind a proxy.
func postgresBench(tb testing.TB, ledger *string) (*connectortest.Bench, *connectortest.Proxy) {
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
	b := bench(tb, db, u.String(), ledger)
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

func bench(tb testing.TB, db target, url string, ledger *string) *connectortest.Bench {
	tb.Helper()
	create := `CREATE TABLE items (id INTEGER, n TEXT)`
	if ledger != nil {
		create = `CREATE TABLE items (id INTEGER PRIMARY KEY, n TEXT)`
	}
	db.exec(tb, create)
	return &connectortest.Bench{
		Connection: open(tb, sqldb.Config{URL: url, LedgerTable: ledger}),
		Tool:       "insert",
		Params: func(n int) json.RawMessage {
			if ledger != nil {
				return json.RawMessage(fmt.Sprintf(`{"table":"items","key":{"id":%d},"row":{"n":"x"}}`, n))
			}
			return json.RawMessage(fmt.Sprintf(`{"table":"items","row":{"id":%d,"n":"x"}}`, n))
		},
		Effects: func(n int) int {
			count, _ := strconv.Atoi(db.one(tb, fmt.Sprint("SELECT count(*) FROM items WHERE id = ", n)))
			return count
		},
		Refused: []json.RawMessage{
			json.RawMessage(`{}`), json.RawMessage(`{"table":"items"}`), json.RawMessage(`{"table":"items","row":[]}`),
			json.RawMessage(`{"table":"items","row":{},"x":1}`), json.RawMessage(`{"table":1,"row":{}}`), json.RawMessage(`[]`),
		},
	}
}

// TestPostgresCutAtEachByte cuts the connection at many bytes of the
// conversation, those around COMMIT among them. Whatever the call says, the
// token tells the truth, and sending again makes it one effect.
func TestPostgresCutAtEachByte(t *testing.T) {
	t.Parallel()
	b, p := postgresBench(t, nil)
	m := tool(t, b.Connection, "insert").(connector.Mutator)
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
			t.Errorf("cut %+v: %v, but there are %d rows", cut, err, effects)
		}
		a, err := reconcile(t, b.Connection, "insert", fmt.Sprint("t", n), string(b.Params(n)))
		if err != nil || (a.Verdict == connector.Happened) != (effects == 1) {
			t.Errorf("cut %+v: reconcile = %q, %v; there are %d rows", cut, a.Verdict, err, effects)
		}
		if c, err := change(n); c != "none" || b.Effects(n) != 1 {
			t.Errorf("cut %+v: sent again: %v, %d rows", cut, err, b.Effects(n))
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
