package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/store/transfer"
)

// A backup that is taken while commits continue is one moment of the database: lawful,
// and with everything that was acknowledged before.
func TestBackupBesideCommits(t *testing.T) {
	dir := t.TempDir()
	db := openDB(t, filepath.Join(dir, "keep.db"), sqlite.Config{Host: true})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for i := range 4 {
		l := newLoad(i)
		must(t, db.Commit(t.Context(), l.Deploy()))
		must(t, l.Run(t.Context(), db))
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := l.Run(context.WithoutCancel(ctx), db); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for _, name := range []string{"one.db", "two.db"} {
		to := filepath.Join(dir, name)
		must(t, db.Backup(t.Context(), to, time.UnixMilli(1)))
		copied := openDB(t, to, sqlite.Config{ReadOnly: true})
		clean(t, copied)
		host := sqlite.New(to, sqlite.Config{Host: true})
		if err := host.Open(t.Context()); !errors.Is(err, keep.ErrSealed) {
			t.Errorf("open a backup to work on it: %v, want ErrSealed", err)
		}
		if ws, err := copied.Workflows(t.Context()); err != nil || len(ws) != 4 {
			t.Errorf("%d workflows, %v, want 4", len(ws), err)
		}
		if db.Backup(t.Context(), to, time.UnixMilli(1)) == nil {
			t.Error("a backup replaced a file")
		}
	}
	left, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range left {
		if f.IsDir() {
			t.Errorf("%s was left behind", f.Name())
		}
	}
}

// Whichever page of a backup is damaged, it is not worked on, and the reason is said.
func TestDamagedBackup(t *testing.T) {
	const page = 4096
	dir := t.TempDir()
	db := openDB(t, filepath.Join(dir, "keep.db"), sqlite.Config{Host: true})
	l := newLoad(1)
	must(t, db.Commit(t.Context(), l.Deploy()))
	must(t, l.Run(t.Context(), db))
	whole := filepath.Join(dir, "whole.db")
	must(t, db.Backup(t.Context(), whole, time.UnixMilli(1)))
	data, err := os.ReadFile(whole)
	must(t, err)
	for at := page; at < len(data); at += 3 * page {
		path := filepath.Join(dir, fmt.Sprint(at, ".db"))
		broken := slices.Concat(data[:at], bytes.Repeat([]byte{0xff}, page), data[at+page:])
		must(t, os.WriteFile(path, broken, 0o600))
		err := transfer.Mover{Now: time.Now()}.Restore(t.Context(), sqlite.At(path))
		if err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("page %d: %v", at/page, err)
		}
	}
	must(t, transfer.Mover{Now: time.Now()}.Restore(t.Context(), sqlite.At(whole)))
}
