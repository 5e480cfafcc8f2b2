package sqlite_test

import (
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write schema.sql anew")

// A new file is made by schema.sql alone. It is what all migrations make, to the letter.
func TestSchema(t *testing.T) {
	names, err := filepath.Glob("migrations/*.sql")
	must(t, err)
	migrated := memoryFile(t)
	for i, name := range names {
		if want := fmt.Sprintf("%04d_", i+1); !strings.HasPrefix(filepath.Base(name), want) {
			t.Fatalf("%s is at the place of %s: two migrations have one number, or none has", name, want)
		}
		execFile(t, migrated, name)
	}
	want := schemaOf(t, migrated)
	if *update {
		must(t, os.WriteFile("schema.sql", []byte(want), 0o644))
	}
	have, err := os.ReadFile("schema.sql")
	must(t, err)
	if diff := cmp.Diff(want, string(have)); diff != "" {
		t.Fatalf("schema.sql is not what the migrations make; write it with: go test ./store/sqlite -run TestSchema -update\n(-migrations +schema.sql)\n%s", diff)
	}
	made := memoryFile(t)
	execFile(t, made, "schema.sql")
	if diff := cmp.Diff(contentOf(t, migrated), contentOf(t, made)); diff != "" {
		t.Fatalf("a file of schema.sql differs (-migrations +schema.sql)\n%s", diff)
	}
}

// memoryFile opens a database of one connection in memory.
func memoryFile(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", ":memory:")
	must(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execFile(t *testing.T, db *sql.DB, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	if _, err := db.ExecContext(t.Context(), string(text)); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// schemaOf returns what makes the tables, indexes and triggers of a database, and their rows.
// The tables in which a virtual table keeps its content are made with it.
func schemaOf(t *testing.T, db *sql.DB) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("-- Written by go test ./store/sqlite -run TestSchema -update from the migrations. A new file is\n-- made by it; an older one has the migrations that it lacks.\n")
	for _, row := range query(t, db, `SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\_%' ESCAPE '\' AND tbl_name NOT IN
		(SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'shadow') ORDER BY rowid`) {
		fmt.Fprintf(&b, "\n%s;\n", row)
	}
	content := contentOf(t, db)
	for _, table := range query(t, db, `SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name`) {
		for i, row := range content[table] {
			if i == 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "INSERT INTO %s VALUES (%s);\n", table, row)
		}
	}
	return b.String()
}

// contentOf returns the rows of all tables, those of the schema too.
func contentOf(t *testing.T, db *sql.DB) map[string][]string {
	t.Helper()
	all := map[string][]string{"schema": query(t, db, `SELECT format('%s %s %s %s', type, name, tbl_name, sql) FROM sqlite_schema ORDER BY type, name`)}
	for _, table := range query(t, db, `SELECT name FROM pragma_table_list WHERE schema = 'main' AND name NOT LIKE 'sqlite\_schema%' ESCAPE '\' ORDER BY name`) {
		columns := query(t, db, `SELECT 'quote("' || name || '")' FROM pragma_table_info('`+table+`')`)
		all[table] = query(t, db, `SELECT `+strings.Join(columns, ` || ', ' || `)+` FROM "`+table+`" ORDER BY 1`)
	}
	return all
}

func query(t *testing.T, db *sql.DB, sql string) (list []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		must(t, rows.Scan(&s))
		list = append(list, s)
	}
	must(t, rows.Err())
	return list
}
