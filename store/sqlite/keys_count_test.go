package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/sqlite"
)

// takeKey takes a key, as a guard does before it executes a request.
func takeKey(t *testing.T, db *sqlite.DB, name string) {
	t.Helper()
	rec, err := key.Apply(key.Record{}, key.Fact{Evidence: key.Begun, Fence: 1, Claim: key.Claim{ID: key.NewID("", "", name), Key: name, Method: "POST", Path: "/", TTL: time.Hour}, Lease: time.Hour}, time.Unix(1, 0))
	must(t, err)
	must(t, db.Keys().Write(context.WithoutCancel(t.Context()), rec))
}

// Who takes keys serves, whatever its Config says: a file that is gone, or older, is noticed at the next start, since what it has
// would be executed again.
func TestTakenKeysAreMissed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.db")
	db := openDB(t, path, sqlite.Config{})
	takeKey(t, db, "a")
	must(t, db.Close())
	older, err := os.ReadFile(path)
	must(t, err)
	db = openDB(t, path, sqlite.Config{})
	takeKey(t, db, "b")
	must(t, db.Close())

	must(t, os.WriteFile(path, older, 0o600))
	if err := sqlite.New(path, sqlite.Config{}).Open(t.Context()); !errors.Is(err, keep.ErrOlderCopy) {
		t.Errorf("Open of an older copy = %v, want ErrOlderCopy", err)
	}
	must(t, os.Remove(path))
	if err := sqlite.New(path, sqlite.Config{}).Open(t.Context()); !errors.Is(err, keep.ErrGone) {
		t.Errorf("Open where the file was = %v, want ErrGone", err)
	}
}

// A command that only looks at keys, or decides about one, counts nothing.
func TestCommandsCountNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.db")
	must(t, openDB(t, path, sqlite.Config{Counts: true}).Close())
	before, err := os.ReadFile(path + ".lock")
	must(t, err)
	db := openDB(t, path, sqlite.Config{})
	rec, err := key.Apply(key.Record{}, key.Fact{Evidence: key.Begun, Fence: 1, Claim: key.Claim{ID: key.NewID("", "", "a"), Key: "a", Method: "POST", Path: "/", TTL: time.Hour}, Lease: time.Hour}, time.Unix(1, 0))
	must(t, err)
	rec, err = key.Apply(rec, key.Fact{Evidence: key.Unsure, Fence: 1}, time.Unix(1, 0))
	must(t, err)
	must(t, db.Keys().Write(t.Context(), rec))
	must(t, db.Close())
	if after, err := os.ReadFile(path + ".lock"); err != nil || string(after) != string(before) {
		t.Errorf("the lock says %q, before %q, %v", after, before, err)
	}
}
