package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/internal/pgtest"
)

// makeOlderFile makes a file as a version left it that lacked the last migrations, and returns the number that it has and the one
// that this version needs. It is called before a test changes its directory.
func makeOlderFile(t *testing.T, path string, lacks int) (has, needs int) {
	t.Helper()
	names, err := filepath.Glob("../../store/sqlite/migrations/*.sql")
	noError(t, err)
	has, needs = len(names)-lacks, len(names)
	script := "PRAGMA application_id = 1262830928;"
	for _, name := range names[:has] {
		text, err := os.ReadFile(name)
		noError(t, err)
		script += string(text) + ";\n"
	}
	file, err := sql.Open("sqlite", path)
	noError(t, err)
	_, err = file.ExecContext(t.Context(), fmt.Sprintf("%sPRAGMA user_version = %d; INSERT INTO meta VALUES ('id', 'an id');", script, has))
	noError(t, err)
	noError(t, file.Close())
	return has, needs
}

// keep db migrate says what it did: that it made the database, how far it brought an older one, or that nothing was to do.
func TestMigrateSaysWhatItDid(t *testing.T) {
	dir := t.TempDir()
	has, needs := makeOlderFile(t, filepath.Join(dir, "older.db"), 2)
	makeOlderFile(t, filepath.Join(dir, "other.db"), 1)
	t.Chdir(dir)
	migrate := func(args ...string) (out, talk string) {
		t.Helper()
		var o, e bytes.Buffer
		if status := run(t.Context(), append([]string{"db", "migrate"}, args...), &o, &e); status != exit.Done {
			t.Fatalf("keep db migrate %v ends with %d: %s", args, status, &e)
		}
		return o.String(), e.String()
	}
	for _, tt := range []struct{ db, want string }{
		{"older.db", fmt.Sprintf("older.db has schema %d now, and had %d: 2 migrations.\n", needs, has)},
		{"older.db", fmt.Sprintf("older.db is up to date, with schema %d.\n", needs)},
		{"new.db", fmt.Sprintf("new.db was made, with schema %d.\n", needs)},
	} {
		if _, talk := migrate("--db", tt.db); talk != tt.want {
			t.Errorf("keep db migrate --db %s says %q, want %q", tt.db, talk, tt.want)
		}
	}
	for _, tt := range []struct{ db, want string }{
		{"other.db", fmt.Sprintf(`"from":%d,"to":%d,"migrations":1`, needs-1, needs)},
		{"other.db", fmt.Sprintf(`"from":%d,"to":%d,"migrations":0`, needs, needs)},
		{"third.db", fmt.Sprintf(`"from":null,"to":%d,"migrations":0`, needs)},
	} {
		out, _ := migrate("--json", "--db", tt.db)
		var small bytes.Buffer
		noError(t, json.Compact(&small, []byte(out)))
		if !strings.Contains(small.String(), tt.want) {
			t.Errorf("keep db migrate --json --db %s prints %s, want %s", tt.db, &small, tt.want)
		}
	}
}

// Before an upgrade there is only the new version: it copies a file of an older one, and doctor says what it sees and what to do. What reads
// records refuses it.
func TestOlderFileIsCopiedAndSaid(t *testing.T) {
	dir := t.TempDir()
	has, needs := makeOlderFile(t, filepath.Join(dir, "keep.db"), 1)
	t.Chdir(dir)
	keep := func(status int, args ...string) (out, talk string) {
		t.Helper()
		var o, e bytes.Buffer
		if got := run(t.Context(), args, &o, &e); got != status {
			t.Errorf("keep %v ends with %d, want %d: %s%s", args, got, status, &o, &e)
		}
		return o.String(), e.String()
	}
	expect := func(what, text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: %q, want %q", what, text, w)
			}
		}
	}
	schemas := fmt.Sprintf("its schema is %d, this one needs %d", has, needs)
	out, _ := keep(exit.Unreachable, "doctor")
	expect("doctor", out, schemas, "keep db backup", "keep db migrate", "records   not checked")
	if strings.Contains(out, "broken laws") {
		t.Errorf("doctor counts broken laws that it did not look for: %s", out)
	}
	out, _ = keep(exit.Unreachable, "doctor", "--json")
	expect("doctor --json", out, `"ok": false`, `"code": "older-database"`)
	_, talk := keep(exit.Unreachable, "db", "check")
	expect("db check", talk, schemas, "keep db backup", "keep db migrate")
	_, talk = keep(exit.Done, "db", "backup", "before.db")
	expect("db backup", talk, fmt.Sprintf("before.db is a copy, with the schema %d of an older version", has), "keep db restored --db before.db")
	keep(exit.Done, "db", "migrate")
	out, _ = keep(exit.Done, "doctor")
	expect("doctor of what was migrated", out, "broken laws  0")
	keep(exit.Unreachable, "db", "migrate", "--db", "before.db") // a backup
	keep(exit.Done, "db", "restored", "--db", "before.db")
	out, _ = keep(exit.Done, "doctor", "--db", "before.db")
	expect("doctor of what was restored", out, "broken laws  0")
}

// So it is on Postgres, of which pg_dump makes the backup.
func TestDoctorOfAnOlderPostgres(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	var out, talk bytes.Buffer
	if status := run(t.Context(), []string{"db", "migrate", "--db", url}, &out, &talk); status != exit.Done {
		t.Fatalf("keep db migrate ends with %d: %s", status, &talk)
	}
	conn, err := pgx.Connect(t.Context(), url)
	noError(t, err)
	_, err = conn.Exec(t.Context(), `UPDATE meta SET value = '47' WHERE name = 'keep_schema'`)
	noError(t, errors.Join(err, conn.Close(t.Context())))
	out.Reset()
	if status := run(t.Context(), []string{"doctor", "--db", url}, &out, &talk); status != exit.Unreachable || !strings.Contains(out.String(), "its schema is 47") || !strings.Contains(out.String(), "not checked") {
		t.Errorf("keep doctor ends with %d: %s%s", status, &out, &talk)
	}
}
