package sqlite_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/sqlite"
)

func TestOpenRefuses(t *testing.T) {
	tests := []struct {
		name string
		cfg  sqlite.Config
		make func(t *testing.T, path string)
		want error
		hint string
	}{
		{"a file that is no database", sqlite.Config{}, write("hello, this is not a database; it is a letter to a friend, and longer than a header"), keep.ErrForeignDatabase, "choose another file"},
		{"a file that is too short", sqlite.Config{}, write("hi"), keep.ErrForeignDatabase, "2 bytes"},
		{"a database of another program", sqlite.Config{}, script(`CREATE TABLE t (x); PRAGMA application_id = 7`), keep.ErrForeignDatabase, "0x7"},
		{"a database of nobody", sqlite.Config{}, script(`CREATE TABLE t (x)`), keep.ErrForeignDatabase, "choose another file"},
		{"a database of a newer Keep", sqlite.Config{}, newer, keep.ErrNewerDatabase, "install that version"},
		{"a directory", sqlite.Config{}, func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, nil, "is a directory"},
		{"a missing file, to read only", sqlite.Config{ReadOnly: true}, func(*testing.T, string) {}, fs.ErrNotExist, ""},
		{"an empty file, to read only", sqlite.Config{ReadOnly: true}, write(""), nil, "start a host once"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keep.db")
			tt.make(t, path)
			before, _ := os.ReadFile(path)
			err := sqlite.New(path, tt.cfg).Open(t.Context())
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Fatalf("Open = %v, want %v", err, tt.want)
			}
			if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), tt.hint) {
				t.Errorf("Open = %v, want the path and %q", err, tt.hint)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file has changed")
			}
		})
	}
	t.Run("a missing directory", func(t *testing.T) {
		err := sqlite.New(filepath.Join(t.TempDir(), "none", "keep.db"), sqlite.Config{}).Open(t.Context())
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "make the directory") {
			t.Errorf("Open = %v", err)
		}
	})
}

func write(text string) func(*testing.T, string) {
	return func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte(text), 0o600)) }
}

func script(text string) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		db, err := sql.Open("sqlite", path)
		must(t, err)
		defer db.Close()
		_, err = db.Exec(text)
		must(t, err)
	}
}

func newer(t *testing.T, path string) {
	must(t, openDB(t, path, sqlite.Config{}).Close())
	script(`PRAGMA user_version = 9999`)(t, path)
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func TestOnlyTheOwnerMayReadTheFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keep.db")
	db := openDB(t, path, sqlite.Config{Host: true})
	must(t, db.Commit(t.Context(), newLoad(0).Deploy()))
	for _, file := range []string{path, path + "-wal", path + "-shm", path + ".lock"} {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v, want 0600", file, info.Mode(), err)
		}
	}
}

func TestOneHostWorksOnAFile(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "keep.db"), filepath.Join(dir, "link.db")
	host := openDB(t, path, sqlite.Config{Host: true})
	must(t, os.Symlink(path, link))
	for _, name := range []string{path, link} {
		err := sqlite.New(name, sqlite.Config{Host: true}).Open(t.Context())
		if !errors.Is(err, keep.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
			t.Errorf("Open = %v, want ErrLocked and the process", err)
		}
	}
	must(t, host.Close())
	must(t, host.Close()) // twice is fine
	must(t, openDB(t, path, sqlite.Config{Host: true}).Close())
}

// A program that is newer than the host of a file does not change the schema below it, and says what to do.
func TestOlderSchemaBesideItsHost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keep.db")
	openDB(t, path, sqlite.Config{Host: true})
	script(`PRAGMA user_version = 38`)(t, path)
	err := sqlite.New(path, sqlite.Config{}).Open(t.Context())
	for _, want := range []string{"its schema is 38", fmt.Sprintf("process %d", os.Getpid()), "start the host anew with this version", "or use the version of that host"} {
		if !errors.Is(err, keep.ErrLocked) || !strings.Contains(err.Error(), want) {
			t.Errorf("Open = %v, want ErrLocked and %q", err, want)
		}
	}
}

func TestCommandsReadAndCommitBesideAHost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keep.db")
	host, command := openDB(t, path, sqlite.Config{Host: true}), openDB(t, path, sqlite.Config{})
	l := newLoad(0)
	must(t, host.Commit(t.Context(), l.Deploy()))
	before, err := host.ForeignChanges(t.Context())
	must(t, err)
	must(t, host.Commit(t.Context(), keep.Commit{Workflow: l.Workflow, At: l.At, Changes: []keep.Change{keep.SetPaused{Paused: true}}}))
	if got, err := host.ForeignChanges(t.Context()); err != nil || got != before {
		t.Errorf("ForeignChanges = %d, %v after a commit of our own, want %d", got, err, before)
	}
	must(t, command.Commit(t.Context(), keep.Commit{Workflow: l.Workflow, At: l.At, Changes: []keep.Change{keep.SetPaused{}}}))
	if got, err := host.ForeignChanges(t.Context()); err != nil || got == before {
		t.Errorf("ForeignChanges = %d, %v after a foreign commit, want another", got, err)
	}
	list, err := host.Workflows(t.Context())
	if err != nil || len(list) != 1 || list[0].Paused {
		t.Errorf("Workflows = %v, %v, want what the command wrote", list, err)
	}
}

func TestAReaderWritesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keep.db")
	host := openDB(t, path, sqlite.Config{Host: true})
	reader := openDB(t, path, sqlite.Config{ReadOnly: true})
	l := newLoad(0)
	if err := reader.Commit(t.Context(), l.Deploy()); !errors.Is(err, sqlite.ErrReadOnly) {
		t.Errorf("Commit = %v, want ErrReadOnly", err)
	}
	if _, err := reader.ForeignChanges(t.Context()); !errors.Is(err, sqlite.ErrReadOnly) {
		t.Errorf("ForeignChanges = %v, want ErrReadOnly", err)
	}
	must(t, host.Commit(t.Context(), l.Deploy()))
	if list, err := reader.Workflows(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("Workflows = %v, %v", list, err)
	}
}

func TestAClosedDatabaseSaysSo(t *testing.T) {
	db := sqlite.New(filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{})
	l := newLoad(0)
	expect := func(when string) {
		t.Helper()
		if err := db.Commit(t.Context(), l.Deploy()); !errors.Is(err, sqlite.ErrClosed) {
			t.Errorf("Commit %s = %v", when, err)
		}
		if _, err := db.Workflows(t.Context()); !errors.Is(err, sqlite.ErrClosed) {
			t.Errorf("Workflows %s = %v", when, err)
		}
		if _, _, err := db.Runs(t.Context(), keep.RunFilter{}, keep.Page{}); !errors.Is(err, sqlite.ErrClosed) {
			t.Errorf("Runs %s = %v", when, err)
		}
		for err := range db.Check(t.Context()) {
			if !errors.Is(err, sqlite.ErrClosed) {
				t.Errorf("Check %s = %v", when, err)
			}
		}
	}
	expect("before Open")
	must(t, db.Open(t.Context()))
	must(t, db.Close())
	expect("after Close")
}

func TestAFullDiskLosesNothing(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{Host: true})
	l, other := newLoad(0), newLoad(1)
	must(t, db.Commit(t.Context(), l.Deploy()))
	must(t, db.Commit(t.Context(), other.Deploy()))
	pages, err := db.Pages(t.Context())
	must(t, err)
	must(t, db.LimitPages(t.Context(), pages+40))
	acknowledged := 0
	for err = l.Run(t.Context(), db); err == nil; err = l.Run(t.Context(), db) {
		acknowledged++
	}
	if !errors.Is(err, keep.ErrDiskFull) || !strings.Contains(err.Error(), "make space where /") {
		t.Fatalf("run = %v, want a full disk", err)
	}
	small := keep.Commit{Workflow: other.Workflow, At: l.At, Changes: []keep.Change{keep.SetPaused{Paused: true}}}
	if err := db.Commit(t.Context(), small); err != nil {
		t.Errorf("a commit that fits: %v", err)
	}
	committed, _, err := db.Runs(t.Context(), keep.RunFilter{Status: keep.StatusCommitted}, keep.Page{Limit: keep.MaxPage})
	if err != nil || len(committed) != acknowledged {
		t.Errorf("%d committed runs, %v, want the %d that were acknowledged", len(committed), err, acknowledged)
	}
	must(t, db.LimitPages(t.Context(), 0))
	must(t, other.Run(t.Context(), db))
	clean(t, db)
}

// A full disk is said once, however many callers of the package pass the error on.
func TestAFullDiskIsSaidOnce(t *testing.T) {
	file, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "full.db"))
	must(t, err)
	defer file.Close()
	file.SetMaxOpenConns(1)
	_, err = file.ExecContext(t.Context(), "PRAGMA max_page_count = 1; CREATE TABLE t (a)")
	once := sqlite.Named(err, "keep.db")
	if !errors.Is(once, keep.ErrDiskFull) {
		t.Fatalf("the error is %v, want a full disk", once)
	}
	if twice := sqlite.Named(fmt.Errorf("open: %w", once), "keep.db"); strings.Count(twice.Error(), "make space") != 1 {
		t.Errorf("it says %v", twice)
	}
}

// clean fails the test if the store breaks a law.
func clean(t *testing.T, db *sqlite.DB) {
	t.Helper()
	for err := range db.Check(t.Context()) {
		t.Errorf("Check: %v", err)
	}
}

func TestACorruptedFileIsReportedNotTrusted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keep.db")
	db := openDB(t, path, sqlite.Config{Host: true})
	l := newLoad(0)
	must(t, db.Commit(t.Context(), l.Deploy()))
	for range 50 {
		must(t, l.Run(t.Context(), db))
	}
	must(t, db.Close())
	content, err := os.ReadFile(path)
	must(t, err)
	for i := 40 * 4096; i < 60*4096; i++ {
		content[i] = 0xa5
	}
	must(t, os.WriteFile(path, content, 0o600))
	db = sqlite.New(path, sqlite.Config{Host: true})
	defer db.Close()
	if err := db.Open(t.Context()); err != nil {
		return // refusing it is fine, too
	}
	found := 0
	for range db.Check(t.Context()) {
		found++
	}
	if found == 0 {
		t.Error("Check found nothing wrong with a damaged file")
	}
}

// Who reads a damaged table is told what to do, whatever reads it.
func TestADamagedFileSaysWhatToDo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keep.db")
	db := openDB(t, path, sqlite.Config{Host: true})
	l := newLoad(0)
	must(t, db.Commit(t.Context(), l.Deploy()))
	must(t, l.Run(t.Context(), db))
	must(t, db.Close())
	damage(t, path, "run", "idempotency_key")
	db = openDB(t, path, sqlite.Config{ReadOnly: true})
	_, _, runs := db.Runs(t.Context(), keep.RunFilter{}, keep.Page{Limit: 10})
	_, _, some := db.Runs(t.Context(), keep.RunFilter{Text: "something"}, keep.Page{Limit: 10})
	_, count := db.CountRuns(t.Context(), keep.RunFilter{})
	_, one := db.Run(t.Context(), "run_1")
	_, kept := db.Keys().Read(t.Context(), key.ID{1})
	for what, err := range map[string]error{"Runs": runs, "Runs with a text": some, "CountRuns": count, "Run": one, "Keys.Read": kept} {
		if err == nil || strings.Count(err.Error(), path+" is damaged; keep a copy of it") != 1 {
			t.Errorf("%s: %v, want what to do about a damaged file", what, err)
		}
	}
}

// damage overwrites the first page of each table, and of its indexes.
func damage(t *testing.T, path string, tables ...string) {
	t.Helper()
	file, err := sql.Open("sqlite", path)
	must(t, err)
	defer file.Close()
	for _, table := range tables {
		rows, err := file.QueryContext(t.Context(), "SELECT rootpage FROM sqlite_master WHERE tbl_name = ? AND rootpage > 0", table)
		must(t, err)
		var roots []int64
		for rows.Next() {
			roots = append(roots, 0)
			must(t, rows.Scan(&roots[len(roots)-1]))
		}
		must(t, errors.Join(rows.Err(), rows.Close()))
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		must(t, err)
		for _, root := range roots {
			_, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, 4096), (root-1)*4096)
			must(t, err)
		}
		must(t, f.Close())
	}
}

func TestACommitWaitsForAForeignWriterAndThenGivesUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keep.db")
	db := openDB(t, path, sqlite.Config{Host: true, BusyTimeout: 20 * time.Millisecond})
	l := newLoad(0)
	foreign, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate")
	must(t, err)
	defer foreign.Close()
	tx, err := foreign.Begin()
	must(t, err)
	if err := db.Commit(t.Context(), l.Deploy()); err == nil || !strings.Contains(err.Error(), "locked") {
		t.Errorf("Commit = %v, want a locked database", err)
	}
	must(t, tx.Rollback())
	l = newLoad(0)
	must(t, db.Commit(t.Context(), l.Deploy()))
	clean(t, db)
}
