package database_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
)

// older makes a file that lacks the last migration.
func older(t *testing.T) (path string, version int) {
	t.Helper()
	names, err := filepath.Glob("../../../../store/sqlite/migrations/*.sql")
	if err != nil || len(names) < 2 {
		t.Fatal(names, err)
	}
	names = names[:len(names)-1]
	script := "PRAGMA application_id = 1262830928;"
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		script += string(text) + ";\n"
	}
	path = filepath.Join(t.TempDir(), "keep.db")
	exec(t, path, fmt.Sprintf("%sPRAGMA user_version = %d; INSERT INTO meta VALUES ('id', 'an id');", script, len(names)))
	return path, len(names)
}

func exec(t *testing.T, path, script string) {
	t.Helper()
	file, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.ExecContext(t.Context(), script); err != nil {
		t.Fatal(err)
	}
}

// TestMigrates has a database of an older version migrated by hosts and keep db migrate alone: who upgrades
// has not decided that by looking at it, or by answering a question.
func TestMigrates(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		role     database.Role
		migrates bool
	}{
		"read": {database.ToRead, false}, "decide": {database.ToDecide, false}, "deploy": {database.ToDeploy, false},
		"migrate": {database.ToMigrate, true}, "host": {database.ToHost, true},
	} {
		path, version := older(t)
		db, err := database.Open(t.Context(), &config.Config{DB: path}, tt.role)
		if want := fmt.Sprintf("(its schema is %d, this one needs %d)", version, version+1); !tt.migrates && (!errors.Is(err, keep.ErrOlderDatabase) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
		if tt.migrates && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	db, err := database.Open(t.Context(), &config.Config{DB: filepath.Join(t.TempDir(), "keep.db")}, database.ToDeploy)
	if err != nil {
		t.Fatalf("a deploy where there is no database: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
