package sqldb_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/sqldb"
)

// Law once: a change of "the row" with a key changes one row, or none. An index may know two values apart that the column takes for
// one, and a table may have others below it.
func TestKeyOfSeveralRows(t *testing.T) {
	const people = `CREATE TABLE people (name TEXT, n TEXT)`
	for engine, c := range map[string]struct {
		target func(testing.TB) target
		tables []string
		key    string
	}{
		"sqlite": {sqliteTarget, []string{strings.Replace(people, "name TEXT", "name TEXT COLLATE NOCASE", 1), `CREATE UNIQUE INDEX one ON people (name COLLATE BINARY)`,
			`INSERT INTO people VALUES ('Ann', 'old'), ('ann', 'old')`}, "ann"},
		"postgres": {postgresTarget, []string{people, `CREATE UNIQUE INDEX one ON people (name)`, `CREATE TABLE guests () INHERITS (people)`,
			`INSERT INTO people VALUES ('ann', 'old')`, `INSERT INTO guests VALUES ('ann', 'old')`}, "ann"},
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			db := c.target(t)
			for _, query := range c.tables {
				db.exec(t, query)
			}
			conn := open(t, sqldb.Config{URL: db.url})
			out, err := mutate(t, conn, "update", "t1", `{"table":"people","key":{"name":"`+c.key+`"},"set":{"n":"new"}}`)
			if n := db.one(t, "SELECT count(*) FROM people WHERE n = 'new'"); class(err) != keep.ClassLogic || n != "0" {
				t.Errorf("%s rows were changed: %s, %v", n, out, err)
			}
			if out, err := read(t, conn, "getByUniqueKey", `{"table":"people","key":{"name":"`+c.key+`"}}`); class(err) != keep.ClassLogic {
				t.Errorf("one of several rows: %s, %v", out, err)
			}
		})
	}
}

// Law nothing-lost: a file that is replaced by another, as by a job that makes it anew each night, is the one that is changed and read
// from then on. A change of the one that is gone would be confirmed, and be nowhere.
func TestReplacedFile(t *testing.T) {
	for _, journal := range []string{"WAL", "DELETE"} {
		t.Run(journal, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, next := filepath.Join(dir, "a.db"), filepath.Join(dir, "next.db")
			exec := func(file string, queries ...string) {
				t.Helper()
				db, err := sql.Open("sqlite", "file:"+file)
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				for _, q := range queries {
					if _, err := db.Exec(q); err != nil {
						t.Fatalf("%s: %v", q, err)
					}
				}
			}
			exec(path, "PRAGMA journal_mode = "+journal, "CREATE TABLE items (id INTEGER PRIMARY KEY, n TEXT)")
			conn := open(t, sqldb.Config{URL: "sqlite:" + path})
			if _, err := mutate(t, conn, "insert", "t1", `{"table":"items","key":{"id":1},"row":{"n":"x"}}`); err != nil {
				t.Fatal(err)
			}
			exec(next, "PRAGMA journal_mode = "+journal, "CREATE TABLE items (id INTEGER PRIMARY KEY, n TEXT)")
			for _, name := range []string{path + "-wal", path + "-shm"} {
				if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
			if err := os.Rename(next, path); err != nil {
				t.Skip("this system replaces no file that is open: ", err)
			}
			_, err := mutate(t, conn, "insert", "t2", `{"table":"items","key":{"id":2},"row":{"n":"x"}}`)
			out, err2 := read(t, conn, "list", `{"table":"items"}`)
			if err != nil || err2 != nil || out != `[{"id":2,"n":"x"}]` {
				t.Errorf("%v; the table has %s, %v", err, out, err2)
			}
			if a, err := reconcile(t, conn, "insert", "t2", `{"table":"items","key":{"id":2},"row":{"n":"x"}}`); err != nil || a.Verdict != "happened" {
				t.Errorf("the lookup says %+v, %v", a, err)
			}
			db, err := sql.Open("sqlite", "file:"+path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			var n int
			if err := db.QueryRow("SELECT count(*) FROM items WHERE id = 2").Scan(&n); err != nil || n != 1 {
				t.Errorf("the file has %d of the rows, %v", n, err)
			}
			// One that is taken away is missed, and not written to.
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if _, err := mutate(t, conn, "insert", "t3", `{"table":"items","key":{"id":3},"row":{"n":"x"}}`); class(err) != keep.ClassPrecondition {
				t.Errorf("the file is gone, and a change says %v", err)
			}
		})
	}
}
