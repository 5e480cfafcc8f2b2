package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A child between fork and exec holds every file of its parent open. The lock of a host that
// has closed its database is free all the same.
func TestLockIsFreeBesideAFork(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keep.db")
	open := func() *hostLock {
		t.Helper()
		lock, err := lockHost(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := lock.bind(path); err != nil {
			t.Fatal(err)
		}
		return lock
	}
	lock := open()
	child, err := unix.Dup(int(lock.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(child)
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open().Close(); err != nil {
		t.Fatal(err)
	}
}
