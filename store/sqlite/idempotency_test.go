package sqlite_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
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

// What a handler committed is answered as committed, however long others keep the one place to write then.
func TestTxWaitsForNobodyOnceCommitted(t *testing.T) {
	db := openKeys(t, filepath.Join(t.TempDir(), "keep.db"))
	tx, err := db.Keys().Begin(t.Context())
	must(t, err)
	rec, err := key.Apply(key.Record{}, key.Fact{Evidence: key.Begun, Fence: 1, Claim: key.Claim{ID: key.NewID("", "", "a"), Key: "a", Method: "POST", Path: "/", TTL: time.Hour}, Lease: time.Hour}, time.Unix(1, 0))
	must(t, errors.Join(err, tx.Write(t.Context(), rec)))
	free := make(chan struct{})
	db.Occupy(free) // from the commit on
	err = tx.Commit(t.Context())
	close(free)
	must(t, err)
}
