package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/testkit/idempotencytest"
)

func openKeys(t testing.TB, path string) *sqlite.DB {
	t.Helper()
	db := sqlite.New(path, sqlite.Config{})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func TestKeys(t *testing.T) {
	idempotencytest.Run(t, func(t testing.TB) idempotency.Store {
		return openKeys(t, filepath.Join(t.TempDir(), "keep.db")).Keys()
	})
}

// openRaw opens the file as another program would.
func openRaw(t testing.TB, path string) *sql.DB {
	t.Helper()
	raw, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	return raw
}
