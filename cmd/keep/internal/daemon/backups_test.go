package daemon

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/web"
)

// There is one copy at a time, beside the database and only while it is read; what a killed
// host left of one is removed, and none is begun that would fill the disk.
func TestBackups(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "keep.db")
	db := sqlite.New(path, sqlite.Config{Host: true})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	now := time.Date(2026, 11, 26, 13, 10, 0, 0, time.UTC)
	b := &Backups{DB: db, Now: func() time.Time { return now }}
	refused := func(want string) {
		t.Helper()
		_, err := b.Make(t.Context())
		if e, ok := errors.AsType[*web.BackupError](err); !ok || !strings.Contains(e.Error(), want) {
			t.Errorf("a copy is refused with %v, want %s", err, want)
		}
	}
	left := func() (list []string) {
		t.Helper()
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if strings.Contains(e.Name(), "download") || strings.Contains(e.Name(), "backup") {
				list = append(list, e.Name())
			}
		}
		return list
	}
	for _, name := range []string{".keep.db.download-1", ".other.db.download-2"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c, err := b.Make(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refused("Somebody downloads a backup now")
	if runtime.GOOS != "windows" && len(left()) != 1 {
		t.Errorf("while a copy is read there are %s", left())
	}
	text, err := io.ReadAll(c)
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	if got := left(); len(got) != 1 || got[0] != ".other.db.download-2" {
		t.Errorf("afterwards there are %s, want that of the other database", got)
	}
	if int64(len(text)) != c.Size || !c.At.Equal(now) {
		t.Errorf("%d bytes of %s, want %d of %s", len(text), c.At, c.Size, now)
	}
	at := filepath.Join(t.TempDir(), "got.db")
	if err := os.WriteFile(at, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sqlite.New(at, sqlite.Config{Host: true}).Open(t.Context()); !errors.Is(err, keep.ErrSealed) {
		t.Errorf("open a copy to work on it: %v, want ErrSealed", err)
	}

	b.free = func(string) (int64, bool) { return spare, true }
	refused("no room")
	b.free = nil
	if e, ok := errors.AsType[*web.BackupError](unmade(keep.ErrDiskFull)); !ok || !strings.Contains(e.Error(), "no room") {
		t.Error("a disk that is full is no reason that a person can do something about")
	}
	c, err = b.Make(t.Context()) // what was refused does not count as one
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	b.DB = nil
	if !strings.Contains(b.Instead(), "pg_dump") {
		t.Error("what is no file is offered as one")
	}
	refused("pg_dump")
}
