package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
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
