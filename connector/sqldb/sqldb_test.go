package sqldb_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "modernc.org/sqlite"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/sqldb"
	"github.com/keep-run/keep/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// A target is a database under test, with a way in beside the connector.
type target struct {
	url  string
	exec func(t testing.TB, query string)
	one  func(t testing.TB, query string) string // one value as text
}

func sqliteTarget(t testing.TB) target {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a b?c.db")
	db, err := sql.Open("sqlite", "file:"+strings.NewReplacer(" ", "%20", "?", "%3f").Replace(path)+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return target{
		url: "sqlite:" + path,
		exec: func(t testing.TB, query string) {
			t.Helper()
			if _, err := db.Exec(query); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
		},
		one: func(t testing.TB, query string) string {
			t.Helper()
			var s sql.NullString
			if err := db.QueryRow(query).Scan(&s); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			return s.String
		},
	}
}

func postgresTarget(t testing.TB) target {
	t.Helper()
	url := pgtest.SchemaURL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return target{
		url: url,
		exec: func(t testing.TB, query string) {
			t.Helper()
			if _, err := conn.Exec(t.Context(), query); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
		},
		one: func(t testing.TB, query string) string {
			t.Helper()
			var s *string
			if err := conn.QueryRow(t.Context(), "SELECT ("+query+")::text").Scan(&s); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			if s == nil {
				return ""
			}
			return *s
		},
	}
}

// each runs f with both databases.
func each(t *testing.T, f func(t *testing.T, db target)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, sqliteTarget(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, postgresTarget(t)) })
}

func open(t testing.TB, cfg sqldb.Config) *connector.Connection {
	t.Helper()
	conn, err := sqldb.New("db", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func tool(t testing.TB, conn *connector.Connection, name string) connector.Tool {
	t.Helper()
	for _, tool := range conn.Tools {
		if tool.Spec().Name == name {
			return tool
		}
	}
	t.Fatalf("no tool %q", name)
	return nil
}

func read(t testing.TB, conn *connector.Connection, name, params string) (string, error) {
	t.Helper()
	raw, err := tool(t, conn, name).(connector.Reader).Read(t.Context(), json.RawMessage(params))
	return string(raw), err
}

func mutate(t testing.TB, conn *connector.Connection, name, token, params string) (string, error) {
	t.Helper()
	r, err := tool(t, conn, name).(connector.Mutator).Mutate(t.Context(), keep.Mutation{Token: token, Payload: json.RawMessage(params)})
	return string(r.Result), err
}

func reconcile(t testing.TB, conn *connector.Connection, name, token, params string) (connector.Answer, error) {
	t.Helper()
	return tool(t, conn, name).(connector.Reconciler).Reconcile(t.Context(), keep.Mutation{Token: token, Payload: json.RawMessage(params), CreatedAt: time.Now()})
}

// A table of tokens that was dropped, and made again by the next call, says nothing of the calls before. What had happened was called
// absent, and made again. Law: witnessed.
func TestLedgerTableThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db target) {
		db.exec(t, `CREATE TABLE log (id INTEGER, who TEXT)`)
		ask := func(when string, age time.Duration, want connector.Verdict) {
			t.Helper()
			conn := open(t, sqldb.Config{URL: db.url}) // as after a restart
			m := keep.Mutation{Token: "t", Payload: json.RawMessage(`{"table":"log","row":{"id":1}}`), CreatedAt: time.Now().Add(-age)}
			a, err := tool(t, conn, "insert").(connector.Reconciler).Reconcile(t.Context(), m)
			if a.Verdict != want || (want == "") != (class(err) == keep.ClassPrecondition) {
				t.Errorf("%s: %q, %v, want %q", when, a.Verdict, err, want)
			}
		}
		call := func(token string) {
			t.Helper()
			if _, err := mutate(t, open(t, sqldb.Config{URL: db.url}), "insert", token, `{"table":"log","row":{"id":1}}`); err != nil {
				t.Fatal(err)
			}
		}
		call("t")
		ask("the table is there", time.Hour, connector.Happened)
		db.exec(t, `DROP TABLE keep_mutations`)
		ask("the table was dropped", time.Hour, "")
		call("u")
		ask("the next call made it anew", time.Hour, "")
		ask("a call since", 0, connector.Absent)
		db.exec(t, `DELETE FROM keep_mutations WHERE token = 'horizon'`)
		ask("a table as versions of before made it", time.Hour, connector.Absent)
	})
}

// class returns the class of err as the host reads it.
func class(err error) keep.Class {
	var f *keep.Failure
	if errors.As(err, &f) {
		return f.Class
	}
	if err != nil {
		return keep.ClassUnknown
	}
	return "none"
}

const invoices = `CREATE TABLE invoices (id INTEGER PRIMARY KEY, sender TEXT NOT NULL, no TEXT UNIQUE, paid BOOLEAN DEFAULT FALSE, total NUMERIC CHECK (total >= 0))`

func TestReadsAndChanges(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db target) {
		db.exec(t, invoices)
		conn := open(t, sqldb.Config{URL: db.url})
		for i, c := range []struct{ tool, params, want string }{
			{"insert", `{"table":"invoices","row":{"id":1,"sender":"a'b","no":"n1","total":12.5}}`, `{"id":1,"sender":"a'b","no":"n1","paid":false,"total":12.5}`},
			{"insert", `{"table":"invoices","key":{"id":2},"row":{"sender":"c","paid":true}}`, `{"id":2,"sender":"c","no":null,"paid":true,"total":null}`},
			{"update", `{"table":"invoices","key":{"no":"n1"},"set":{"total":3,"paid":true}}`, `{"id":1,"sender":"a'b","no":"n1","paid":true,"total":3}`},
			{"upsert", `{"table":"invoices","key":{"id":2},"row":{"sender":"d"}}`, `{"id":2,"sender":"d","no":null,"paid":true,"total":null}`},
			{"upsert", `{"table":"invoices","key":{"id":3},"row":{"sender":"e"}}`, `{"id":3,"sender":"e","no":null,"paid":false,"total":null}`},
		} {
			token := fmt.Sprint("t", i)
			for range 2 { // the same token has one effect
				if got, err := mutate(t, conn, c.tool, token, c.params); err != nil || got != c.want {
					t.Errorf("%s %s = %s, %v; want %s", c.tool, c.params, got, err, c.want)
				}
			}
			if a, err := reconcile(t, conn, c.tool, token, c.params); err != nil || a.Verdict != connector.Happened || string(a.Result) != c.want {
				t.Errorf("reconcile %s = %+v, %v", c.params, a, err)
			}
			if a, err := reconcile(t, conn, c.tool, "other", c.params); err != nil || a.Verdict != connector.Absent {
				t.Errorf("reconcile of another token = %+v, %v", a, err)
			}
		}
		for _, c := range []struct{ tool, params, want string }{
			{"list", `{"table":"invoices","columns":["id"]}`, `[{"id":1},{"id":2},{"id":3}]`},
			{"list", `{"table":"invoices","columns":["id"],"where":{"paid":false}}`, `[{"id":3}]`},
			{"list", `{"table":"invoices","columns":["id"],"where":{"no":null,"id":{"gt":1,"lte":2}}}`, `[{"id":2}]`},
			{"list", `{"table":"invoices","columns":["id"],"where":{"sender":{"in":["d","e"]}},"order_by":["-id"],"limit":1,"offset":1}`, `[{"id":2}]`},
			{"list", `{"table":"invoices","columns":["id"],"where":{"sender":{"in":[]}}}`, `[]`},
			{"list", `{"table":"invoices","columns":["id"],"where":{"no":{"ne":"n1"}}}`, `[{"id":2},{"id":3}]`},
			{"list", `{"table":"invoices","columns":["id"],"where":{"sender":{"like":"a%"}}}`, `[{"id":1}]`},
			{"getById", `{"table":"invoices","id":2}`, `{"id":2,"sender":"d","no":null,"paid":true,"total":null}`},
			{"getById", `{"table":"invoices","id":9}`, `null`},
			{"getByUniqueKey", `{"table":"invoices","key":{"no":"n1"}}`, `{"id":1,"sender":"a'b","no":"n1","paid":true,"total":3}`},
		} {
			if got, err := read(t, conn, c.tool, c.params); err != nil || got != c.want {
				t.Errorf("%s %s = %s, %v; want %s", c.tool, c.params, got, err, c.want)
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db target) {
		db.exec(t, invoices)
		db.exec(t, `CREATE TABLE other (id INTEGER PRIMARY KEY)`)
		conn := open(t, sqldb.Config{URL: db.url, Tables: []string{"invoices", "missing"}})
		if _, err := mutate(t, conn, "insert", "t0", `{"table":"invoices","row":{"id":1,"sender":"x","no":"n"}}`); err != nil {
			t.Fatal(err)
		}
		for params, want := range map[string]keep.Class{
			`{"table":"invoices","row":{"id":1,"sender":"y"}}`:                    keep.ClassLogic, // primary key
			`{"table":"invoices","row":{"id":2,"sender":"y","no":"n"}}`:           keep.ClassLogic, // unique
			`{"table":"invoices","row":{"id":2}}`:                                 keep.ClassLogic, // not null
			`{"table":"invoices","row":{"id":2,"sender":"y","total":-1}}`:         keep.ClassLogic, // check
			`{"table":"invoices","row":{"id":2,"sender":"y","nope":1}}`:           keep.ClassLogic,
			`{"table":"invoices","row":{"id":2,"sender":"y","a\" , \"b":1}}`:      keep.ClassLogic,
			`{"table":"invoices","row":{"id":99999999999999999999,"sender":"y"}}`: keep.ClassLogic,
			`{"table":"invoices","key":{"sender":"y"},"row":{"id":2}}`:            keep.ClassLogic, // no unique key
			`{"table":"invoices","key":{"id":3},"row":{"id":2,"sender":"y"}}`:     keep.ClassLogic,
			`{"table":"invoices","key":{"id":null},"row":{"sender":"y"}}`:         keep.ClassLogic,
			`{"table":"invoices","rows":{}}`:                                      keep.ClassLogic,
			`[]`:                                                                  keep.ClassLogic,
			`{"table":"missing","row":{"id":2}}`:                                  keep.ClassPrecondition,
			`{"table":"other","row":{"id":2}}`:                                    keep.ClassPermission,
			`{"table":"keep_mutations","row":{"token":"x","tool":"y"}}`:           keep.ClassPermission,
			`{"table":"public.keep_mutations","row":{"token":"x","tool":"y"}}`:    keep.ClassPermission,
			`{"table":"invoices; drop table invoices","row":{"id":2}}`:            keep.ClassPermission,
		} {
			if got, err := mutate(t, conn, "insert", "t1", params); class(err) != want {
				t.Errorf("insert %s = %s, %v; want %s", params, got, err, want)
			}
		}
		if _, err := mutate(t, conn, "update", "t1", `{"table":"invoices","key":{"id":7},"set":{"sender":"z"}}`); class(err) != keep.ClassLogic {
			t.Errorf("update of no row: %v, want logic", err)
		}
		if _, err := mutate(t, conn, "update", "t1", `{"table":"invoices","key":{"id":1},"set":{"id":2}}`); class(err) != keep.ClassLogic {
			t.Errorf("update of the key: %v, want logic", err)
		}
		for _, params := range []string{
			`{"table":"invoices","where":{"x":1}}`, `{"table":"invoices","where":{"id":{"regexp":1}}}`, `{"table":"invoices","where":{"id":{}}}`,
			`{"table":"invoices","order_by":["id; drop"]}`, `{"table":"invoices","limit":-1}`, `{"table":"invoices","columns":["*"]}`,
		} {
			if got, err := read(t, conn, "list", params); class(err) != keep.ClassLogic {
				t.Errorf("list %s = %s, %v; want logic", params, got, err)
			}
		}
		if _, err := read(t, conn, "getByUniqueKey", `{"table":"invoices","key":{"sender":"x"}}`); class(err) != keep.ClassLogic {
			t.Errorf("key that is not unique: %v, want logic", err)
		}
		if got := db.one(t, "SELECT count(*) FROM invoices") + db.one(t, "SELECT count(*) FROM keep_mutations WHERE tool <> ''"); got != "11" {
			t.Errorf("refused calls left rows: %s", got)
		}
		// A refused call can be sent again with its token.
		if _, err := mutate(t, conn, "insert", "t1", `{"table":"invoices","row":{"id":2,"sender":"y"}}`); err != nil {
			t.Error(err)
		}
	})
}

func TestSameTokenAtTheSameTime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db target) {
		db.exec(t, `CREATE TABLE log (id INTEGER, who TEXT)`)
		var wg sync.WaitGroup
		for i := range 24 {
			// Each as from a host of its own.
			conn := open(t, sqldb.Config{URL: db.url})
			wg.Go(func() {
				if _, err := mutate(t, conn, "insert", fmt.Sprint("t", i%6), fmt.Sprintf(`{"table":"log","row":{"id":%d}}`, i%6)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := db.one(t, "SELECT count(*) FROM log"); got != "6" {
			t.Errorf("24 calls with 6 tokens made %s rows", got)
		}
	})
}

func TestWithoutLedger(t *testing.T) {
	t.Parallel()
	none := ""
	each(t, func(t *testing.T, db target) {
		db.exec(t, invoices)
		conn := open(t, sqldb.Config{URL: db.url, LedgerTable: &none, Complete: true})
		keyless := open(t, sqldb.Config{URL: db.url, LedgerTable: &none, KeylessInsert: true})
		const params = `{"table":"invoices","key":{"id":1},"row":{"sender":"x","total":1.50}}`
		ask := func(name, params string) connector.Verdict {
			t.Helper()
			a, err := reconcile(t, conn, name, "t", params)
			if err != nil {
				t.Error(err)
			}
			return a.Verdict
		}
		if v := ask("insert", params); v != connector.Absent {
			t.Errorf("before: %q", v)
		}
		if _, err := mutate(t, conn, "insert", "t", params); err != nil {
			t.Fatal(err)
		}
		if v := ask("insert", params); v != connector.Happened {
			t.Errorf("after: %q", v)
		}
		if v := ask("insert", `{"table":"invoices","key":{"id":1},"row":{"sender":"y"}}`); v != connector.Retry {
			t.Errorf("another row with that key: %q", v)
		}
		if v := ask("update", `{"table":"invoices","key":{"id":1},"set":{"total":1.5}}`); v != connector.Happened {
			t.Errorf("update that is there: %q", v)
		}
		if v := ask("update", `{"table":"invoices","key":{"id":8},"set":{"total":1.5}}`); v != connector.Retry {
			t.Errorf("update of a row that is gone: %q", v)
		}
		if _, err := mutate(t, conn, "insert", "t", `{"table":"invoices","row":{"id":3,"sender":"x"}}`); class(err) != keep.ClassLogic {
			t.Errorf("insert without key: %v, want logic", err)
		}
		if s := tool(t, conn, "insert").Spec(); s.Level != keep.LevelWitness || !s.ByTarget || s.SettleAfter == 0 {
			t.Errorf("insert: %+v", s)
		}
		if _, err := mutate(t, keyless, "insert", "t", `{"table":"invoices","row":{"id":3,"sender":"x"}}`); err != nil {
			t.Errorf("keyless insert: %v", err)
		}
		if _, ok := tool(t, keyless, "insert").(connector.Reconciler); ok || tool(t, keyless, "insert").Spec().Level != keep.LevelNone {
			t.Error("a keyless insert cannot be asked for")
		}
	})
}

// TestRowThatWasTakenAway: without a ledger table a row that is not there may have been inserted and deleted since, as by
// who works a queue off, unless the owner says that nobody does.
func TestRowThatWasTakenAway(t *testing.T) {
	t.Parallel()
	none := ""
	each(t, func(t *testing.T, db target) {
		db.exec(t, invoices)
		const params = `{"table":"invoices","key":{"id":1},"row":{"sender":"x","total":1.50}}`
		for complete, want := range map[bool]connector.Verdict{false: connector.Retry, true: connector.Absent} {
			conn := open(t, sqldb.Config{URL: db.url, LedgerTable: &none, Complete: complete})
			for _, name := range []string{"insert", "upsert"} {
				if _, err := mutate(t, conn, name, "t", params); err != nil {
					t.Fatal(err)
				}
				db.exec(t, "DELETE FROM invoices")
				a, err := reconcile(t, conn, name, "t", params)
				if err != nil || a.Verdict != want {
					t.Errorf("%s, complete %t: %q %s, %v; want %q", name, complete, a.Verdict, a.Detail, err, want)
				}
			}
		}
	})
}

// TestLockedIsTransient holds a lock, so that the call can't begin or commit.
func TestLockedIsTransient(t *testing.T) {
	t.Parallel()
	db := sqliteTarget(t)
	db.exec(t, invoices)
	conn := open(t, sqldb.Config{URL: db.url})
	if _, err := mutate(t, conn, "insert", "t0", `{"table":"invoices","row":{"id":1,"sender":"x"}}`); err != nil {
		t.Fatal(err)
	}
	const params = `{"table":"invoices","row":{"id":2,"sender":"x"}}`
	m := tool(t, conn, "insert").(connector.Mutator)
	other, err := sql.Open("sqlite", "file:"+strings.NewReplacer(" ", "%20", "?", "%3f").Replace(strings.TrimPrefix(db.url, "sqlite:")))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.SetMaxOpenConns(1)
	for _, lock := range []string{"BEGIN IMMEDIATE", "BEGIN; SELECT * FROM invoices"} {
		// The second allows the change to begin, but a reader blocks its COMMIT.
		rows, err := other.Query(lock)
		if err != nil {
			t.Fatal(err)
		}
		rows.Next()
		rows.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err = m.Mutate(ctx, keep.Mutation{Token: "t1", Payload: json.RawMessage(params)})
		cancel()
		if class(err) != keep.ClassTransient {
			t.Errorf("%s: %v, want transient", lock, err)
		}
		if _, err := other.Exec("ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		if n := db.one(t, "SELECT count(*) FROM invoices"); n != "1" {
			t.Errorf("%s: %s rows", lock, n)
		}
	}
	if _, err := mutate(t, conn, "insert", "t1", params); err != nil {
		t.Errorf("after the lock: %v", err)
	}
}

func TestSQLiteValues(t *testing.T) {
	t.Parallel()
	db := sqliteTarget(t)
	db.exec(t, `CREATE TABLE v (id TEXT PRIMARY KEY, any, b BOOLEAN, j JSON, d DATETIME)`)
	conn := open(t, sqldb.Config{URL: db.url})
	for i, c := range []struct{ in, want string }{
		{`{"any":1}`, `"any":1`}, {`{"any":-1.25}`, `"any":-1.25`}, {`{"any":true}`, `"any":1`}, {`{"any":null}`, `"any":null`},
		{`{"any":"x<é>"}`, `"any":"x<é>"`}, {`{"any":{"base64":"/wA="}}`, `"any":{"base64":"/wA="}`},
		{`{"any":[1,2]}`, `"any":"[1,2]"`}, {`{"any":9007199254740993}`, `"any":"9007199254740993"`}, {`{"any":9007199254740991}`, `"any":9007199254740991`},
		{`{"b":true}`, `"b":true`}, {`{"b":7}`, `"b":7`}, {`{"j":{"a":[1,9007199254740993]}}`, `"j":{"a":[1,"9007199254740993"]}`},
		{`{"j":"not json"}`, `"j":"not json"`}, {`{"d":"2026-11-20 10:00:00"}`, `"d":"2026-11-20 10:00:00"`},
	} {
		got, err := mutate(t, conn, "insert", fmt.Sprint(i), fmt.Sprintf(`{"table":"v","key":{"id":"%d"},"row":%s}`, i, c.in))
		if err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s = %s, %v; want %s", c.in, got, err, c.want)
		}
	}
	db.exec(t, `INSERT INTO v (id, any) VALUES (CAST(x'e9' AS TEXT), 'bytes'), (CAST(x'e8' AS TEXT), 'bytes')`)
	if got, err := read(t, conn, "list", `{"table":"v","where":{"any":"bytes"},"columns":["id"]}`); err != nil || got != `[{"id":{"base64":"6A=="}},{"id":{"base64":"6Q=="}}]` {
		t.Errorf("text that is not UTF-8: %s, %v; want two different values", got, err)
	}
}

func TestPostgresValues(t *testing.T) {
	t.Parallel()
	db := postgresTarget(t)
	db.exec(t, `CREATE TYPE mood AS ENUM ('ok', 'bad')`)
	db.exec(t, `CREATE TABLE v (id int PRIMARY KEY, n numeric, i bigint, f float8, b boolean, t text, c varchar(3), ch char(4), j jsonb, a text[], aa int[][], by bytea, ts timestamptz, d date, u uuid, m mood)`)
	conn := open(t, sqldb.Config{URL: db.url})
	for i, c := range []struct{ in, want string }{
		{`{"n":0.10000000000000000001}`, `"n":0.10000000000000000001`}, {`{"n":12345678901234567890}`, `"n":"12345678901234567890"`},
		{`{"i":9007199254740993}`, `"i":"9007199254740993"`}, {`{"i":"42"}`, `"i":42`}, {`{"f":0.1}`, `"f":0.1`}, {`{"b":true}`, `"b":true`},
		{`{"t":"a'b\"<é>"}`, `"t":"a'b\"<é>"`}, {`{"t":5}`, `"t":"5"`}, {`{"c":"abc"}`, `"c":"abc"`}, {`{"ch":"abcd"}`, `"ch":"abcd"`},
		{`{"j":{"x":[1,null]}}`, `"j":{"x":[1,null]}`}, {`{"j":"s"}`, `"j":"s"`}, {`{"j":null}`, `"j":null`},
		{`{"a":["x","y\"z\\",null,"NULL",""]}`, `"a":["x","y\"z\\",null,"NULL",""]`}, {`{"aa":[[1,2],[3,4]]}`, `"aa":[[1,2],[3,4]]`},
		{`{"by":{"base64":"/wA="}}`, `"by":{"base64":"/wA="}`}, {`{"ts":"2026-11-20T11:00:00+01:00"}`, `"ts":"2026-11-20T10:00:00+00:00"`},
		{`{"d":"2026-11-20"}`, `"d":"2026-11-20"`}, {`{"u":"00000000-0000-4000-8000-000000000000"}`, `"u":"00000000-0000-4000-8000-000000000000"`},
		{`{"m":"ok"}`, `"m":"ok"`},
		{`{"c":"abcd"}`, ""}, {`{"i":1.5}`, ""}, {`{"b":"perhaps"}`, ""}, {`{"m":"great"}`, ""}, {`{"t":{"x":1}}`, ""}, {`{"t":"a\u0000b"}`, ""}, {`{"i":99999999999999999999}`, ""},
	} {
		got, err := mutate(t, conn, "insert", fmt.Sprint(i), fmt.Sprintf(`{"table":"v","key":{"id":%d},"row":%s}`, i, c.in))
		if c.want == "" {
			if class(err) != keep.ClassLogic {
				t.Errorf("%s = %s, %v; want logic", c.in, got, err)
			}
		} else if err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s = %s, %v; want %s", c.in, got, err, c.want)
		}
	}
	inSchema := db.one(t, "SELECT current_schema()") + ".v"
	conn = open(t, sqldb.Config{URL: db.url, Tables: []string{inSchema}})
	if got, err := read(t, conn, "list", `{"table":"`+inSchema+`","where":{"by":{"base64":"/wA="}},"columns":["by"]}`); err != nil || got != `[{"by":{"base64":"/wA="}}]` {
		t.Errorf("by bytes in a schema: %s, %v", got, err)
	}
}

// TestPinNamesThePlace: a connection to another schema, host or file of one address reaches other tables, and its ledger
// table knows nothing of the calls of before.
func TestPinNamesThePlace(t *testing.T) {
	t.Parallel()
	pin := func(url string) string {
		conn := open(t, sqldb.Config{URL: url})
		return string(tool(t, conn, "insert").(connector.Pinner).Pin())
	}
	const base = "postgres://ann:s3cr3t@db.example.com/crm"
	seen := map[string]string{}
	for _, url := range []string{
		base, base + "?search_path=a", base + "?search_path=b", base + "?options=-csearch_path%3Dc", base + "?role=r", base + "?dbname=other",
		"postgres:///crm?host=a.example.com", "postgres:///crm?host=b.example.com", "postgres:///crm?host=b.example.com&port=5433",
		"sqlite:/data/a?b.db", "sqlite:/data/a?c.db",
	} {
		text := pin(url)
		if other, twice := seen[text]; twice {
			t.Errorf("%s and %s have the pin %s", url, other, text)
		}
		seen[text] = url
	}
	with := base + "?password=s3cr3t&sslmode=disable&connect_timeout=3"
	if got := pin(with); got != pin(base) || strings.Contains(got, "s3cr3t") {
		t.Errorf("the pin of %s is %s, want that without what leads nowhere else", with, got)
	}
}

// TestPagesOfEqualRows reads a list in pages by a column that many rows have alike, while a row of it is changed.
func TestPagesOfEqualRows(t *testing.T) {
	each(t, func(t *testing.T, db target) {
		db.exec(t, "CREATE TABLE jobs (id integer PRIMARY KEY, day text NOT NULL, note text)")
		for id := 1; id <= 6; id++ {
			db.exec(t, fmt.Sprintf("INSERT INTO jobs VALUES (%d, 'mon', NULL)", id))
		}
		conn, seen := open(t, sqldb.Config{URL: db.url}), map[string]int{}
		for offset := 0; offset < 6; offset += 2 {
			raw, err := read(t, conn, "list", fmt.Sprintf(`{"table":"jobs","columns":["id"],"order_by":["day"],"limit":2,"offset":%d}`, offset))
			if err != nil {
				t.Fatal(err)
			}
			var rows []struct{ ID int }
			if err := json.Unmarshal([]byte(raw), &rows); err != nil {
				t.Fatal(err)
			}
			for _, row := range rows {
				seen[fmt.Sprint(row.ID)]++
			}
			db.exec(t, "UPDATE jobs SET note = 'seen' WHERE id = 1") // Postgres writes it anew, behind the others
		}
		for id := 1; id <= 6; id++ {
			if n := seen[fmt.Sprint(id)]; n != 1 {
				t.Errorf("row %d was listed %d times", id, n)
			}
		}
	})
}

// A server that refuses a COMMIT is believed, in whatever language it says so: nothing was changed, and nobody has to ask.
func TestRefusedCommitInGerman(t *testing.T) {
	for says, refused := range map[*pgconn.PgError]bool{
		{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: "23505"}: true,
		{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: "40003"}: false,
		{Severity: "ERROR", SeverityUnlocalized: "FATAL", Code: "25P03"}:  false, // in a language that has one word for both
	} {
		if sqldb.RefusedCommit(says) != refused {
			t.Errorf("%+v: refused is %t, want %t", says, !refused, refused)
		}
	}
	server := pgtest.StartGerman(t)
	url := server.URL("postgres")
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `CREATE TABLE items (id INTEGER PRIMARY KEY, n INTEGER UNIQUE DEFERRABLE INITIALLY DEFERRED)`); err != nil {
		t.Fatal(err)
	}
	db := open(t, sqldb.Config{URL: url})
	if _, err := mutate(t, db, "insert", "t1", `{"table":"items","key":{"id":1},"row":{"n":7}}`); err != nil {
		t.Fatal(err)
	}
	if _, err := mutate(t, db, "insert", "t2", `{"table":"items","key":{"id":2},"row":{"n":7}}`); class(err) != keep.ClassLogic {
		t.Errorf("a row that the server refuses at COMMIT: %v, want a failure of class %s", err, keep.ClassLogic)
	}
}
