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
	must(t, tx.Write(t.Context(), takenKey(t)))
	free := make(chan struct{})
	db.Occupy(free) // from the commit on
	err = tx.Commit(t.Context())
	close(free)
	must(t, err)
}

// takenKey returns the record of a key that is taken by a guard.
func takenKey(t *testing.T) key.Record {
	t.Helper()
	rec, err := key.Apply(key.Record{}, key.Fact{Evidence: key.Begun, Fence: 1, Claim: key.Claim{ID: key.NewID("", "", "a"), Key: "a", Method: "POST", Path: "/", TTL: time.Hour}, Lease: time.Hour}, time.Unix(1, 0))
	must(t, err)
	return rec
}

// A handler that ends its transaction by a statement, and begins another one, is found out: its key does not complete in that one.
func TestTxThatItsHandlerBeganAnew(t *testing.T) {
	for _, end := range []string{`COMMIT`, `ROLLBACK`} {
		db := openKeys(t, filepath.Join(t.TempDir(), "keep.db"))
		tx, err := db.Keys().Begin(t.Context())
		must(t, err)
		for _, statement := range []string{`CREATE TABLE paid (n)`, end, `BEGIN`} {
			_, err := tx.Handle().(*sql.Tx).ExecContext(t.Context(), statement)
			must(t, err)
		}
		if err := tx.Write(t.Context(), takenKey(t)); !errors.Is(err, key.ErrTxEnded) {
			t.Errorf("Write after %s and BEGIN = %v, want ErrTxEnded", end, err)
		}
		must(t, tx.Rollback())
	}
}
