package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// The look at the file after a commit keeps the locks by which other processes know that this one has it open.
func TestLookKeepsTheLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keep.db")
	db := New(path, Config{})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	locked := func() int {
		t.Helper()
		err := db.write.do(t.Context(), func(c *conn) error {
			_, err := c.exec(`UPDATE meta SET value = value`)
			return err
		})
		var stat unix.Stat_t
		all, readErr := os.ReadFile("/proc/locks")
		if err := errors.Join(err, unix.Stat(path, &stat), readErr); err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(all), fmt.Sprintf(":%d ", stat.Ino))
	}
	if locked() == 0 {
		t.Skip("/proc/locks does not show the locks of this file system")
	}
	at := time.Now().Add(time.Second)
	if err := os.Chtimes(path, at, at); err != nil { // as a checkpoint does
		t.Fatal(err)
	}
	if locked() == 0 {
		t.Error("the file is not locked any more after a look at it")
	}
	at = at.Add(time.Second)
	for name, cfg := range map[string]Config{"reads": {ReadOnly: true}, "writes": {}, "is the host": {Host: true}} {
		other := New(path, cfg)
		if err := other.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if locked() == 0 {
			t.Errorf("the file is not locked any more by the first while another database of this process %s", name)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		if locked() == 0 {
			t.Errorf("the file is not locked any more when another database of this process was closed that %s", name)
		}
	}
}

// The transaction of a handler that is at work when the database is closed keeps the locks by which other processes know that this one
// has the file open: else one of them would remove the log to which it is committed.
func TestTransactionKeepsTheLocksOfAClosedDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keep.db")
	db := New(path, Config{})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Keys().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	locked := func() int {
		t.Helper()
		var stat unix.Stat_t
		all, err := os.ReadFile("/proc/locks")
		if err := errors.Join(err, unix.Stat(path, &stat)); err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(all), fmt.Sprintf(":%d ", stat.Ino))
	}
	if locked() == 0 {
		t.Skip("/proc/locks does not show the locks of this file system")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if locked() == 0 {
		t.Error("the file is not locked any more while a transaction is open")
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if n := locked(); n > 0 {
		t.Errorf("the file has %d locks after all", n)
	}
}
