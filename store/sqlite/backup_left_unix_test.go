//go:build unix

package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/store/transfer"
)

// A backup that is stopped leaves nothing, and can be made again.
func TestBackupIsStopped(t *testing.T) {
	dir := t.TempDir()
	db := openDB(t, filepath.Join(dir, "keep.db"), sqlite.Config{Host: true})
	must(t, putItem(t, db, "a"))
	out := t.TempDir()
	to := filepath.Join(out, "backup.db")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(errors.New("SIGTERM"))
	if err := db.Backup(ctx, to, time.UnixMilli(1)); err == nil || !errors.Is(err, context.Cause(ctx)) {
		t.Errorf("Backup = %v, want why it was stopped", err)
	}
	empty(t, out)
	must(t, db.Backup(t.Context(), to, time.UnixMilli(1)))
}

// What backups that were killed have left goes with the next one, and what another one writes stays.
func TestBackupSweepsWhatWasLeft(t *testing.T) {
	dir := t.TempDir()
	db := openDB(t, filepath.Join(dir, "keep.db"), sqlite.Config{Host: true})
	out := t.TempDir()
	left := func(name string, files ...string) string {
		at := filepath.Join(out, name)
		must(t, os.Mkdir(at, 0o700))
		for _, f := range files {
			must(t, os.WriteFile(filepath.Join(at, f), []byte("x"), 0o600))
		}
		return at
	}
	killed, living := left(".keep-backup-1", "lock", "part", "part-journal"), left(".keep-backup-2", "lock", "part")
	begins, other := left(".keep-backup-3", "lock"), left(".keep-backup-4", "part")
	lock := flock.New(filepath.Join(living, "lock"))
	if ok, err := lock.TryLock(); err != nil || !ok {
		t.Fatal(ok, err)
	}
	defer lock.Close()
	must(t, db.Backup(t.Context(), filepath.Join(out, "backup.db"), time.UnixMilli(1)))
	if _, err := os.Stat(killed); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the copy of a backup that was killed is still there: %v", err)
	}
	for _, at := range []string{living, begins, other} {
		if _, err := os.Stat(at); err != nil {
			t.Errorf("what may be of somebody else is gone: %v", err)
		}
	}
}

// A file system without links, as on many sticks, takes a backup, and keeps the file that is there.
func TestBackupWithoutLinks(t *testing.T) {
	dir := t.TempDir()
	db := openDB(t, filepath.Join(dir, "keep.db"), sqlite.Config{Host: true})
	defer sqlite.SetLink(func(from, to string) error {
		if _, err := os.Lstat(to); err == nil {
			return &os.LinkError{Op: "link", Old: from, New: to, Err: syscall.EEXIST}
		}
		return &os.LinkError{Op: "link", Old: from, New: to, Err: syscall.EPERM}
	})()
	out := t.TempDir()
	to := filepath.Join(out, "backup.db")
	must(t, db.Backup(t.Context(), to, time.UnixMilli(1)))
	clean(t, openDB(t, to, sqlite.Config{ReadOnly: true}))
	before, err := os.ReadFile(to)
	must(t, err)
	if err := db.Backup(t.Context(), to, time.UnixMilli(2)); !errors.Is(err, os.ErrExist) {
		t.Errorf("a backup over a file: %v", err)
	}
	if after, err := os.ReadFile(to); err != nil || string(after) != string(before) {
		t.Errorf("a backup replaced a file: %v", err)
	}
}

// A name that is wrong leaves nothing beside it.
func TestRestoreOfNothing(t *testing.T) {
	dir := t.TempDir()
	place := sqlite.At(filepath.Join(dir, "typo.db"))
	if aside, err := place.SetAsideLog(t.Context()); aside != "" || err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("SetAsideLog = %q, %v", aside, err)
	}
	if err := (transfer.Mover{Now: time.UnixMilli(1)}).Restore(t.Context(), place); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Restore of nothing: %v", err)
	}
	empty(t, dir)
}

// empty reports what a directory has.
func empty(t *testing.T, dir string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range list {
		t.Errorf("%s was left", e.Name())
	}
}

// Of two backups that are restored in one place, each beside the log of a file before, both logs stay.
func TestLogsSetAsideStay(t *testing.T) {
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "keep.db"), filepath.Join(dir, "backup.db")
	db := openDB(t, path, sqlite.Config{Host: true})
	must(t, putItem(t, db, "a"))
	must(t, db.Backup(t.Context(), backup, time.UnixMilli(1)))
	must(t, db.Close())
	text, err := os.ReadFile(backup)
	must(t, err)
	asides := make(map[string]string)
	for _, log := range []string{"first", "second"} {
		must(t, os.WriteFile(path, text, 0o600))
		must(t, os.WriteFile(path+"-wal", []byte(log), 0o600))
		aside, err := sqlite.At(path).SetAsideLog(t.Context())
		must(t, err)
		asides[log] = aside
	}
	for log, aside := range asides {
		if got, err := os.ReadFile(aside); err != nil || string(got) != log {
			t.Errorf("%s has %q, %v; want %q", aside, got, err, log)
		}
	}
}
