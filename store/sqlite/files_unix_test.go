//go:build unix

package sqlite_test

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/store/transfer"
)

// putItem commits something.
func putItem(t *testing.T, db *sqlite.DB, id string) error {
	t.Helper()
	return db.Commit(t.Context(), keep.Commit{Workflow: "w", At: time.UnixMilli(1), Changes: []keep.Change{
		keep.PutItem{Item: keep.Item{Workflow: "w", ID: id, Status: keep.ItemDone, Attempt: 1}}}})
}

// A file has one host, by whatever name, and nobody else opens it by another one.
func TestHardLink(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "keep.db"), filepath.Join(dir, "other.db")
	must(t, openDB(t, path, sqlite.Config{Host: true}).Close())
	must(t, os.Link(path, other))
	host := sqlite.New(path, sqlite.Config{Host: true})
	err := host.Open(t.Context())
	if err != nil { // a system without such a lock refuses all names
		if !strings.Contains(err.Error(), "hard links") {
			t.Fatal(err)
		}
		return
	}
	defer host.Close()
	for _, cfg := range []sqlite.Config{{Host: true}, {}, {ReadOnly: true}} {
		if err := sqlite.New(other, cfg).Open(t.Context()); !errors.Is(err, keep.ErrLocked) {
			t.Errorf("Open %+v by another name = %v, want ErrLocked", cfg, err)
		}
	}
	must(t, putItem(t, host, "a"))
}

// A commit counts only if the file can be found by its name afterwards.
func TestReplaced(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, path, other string){
		"removed":     func(t *testing.T, path, _ string) { must(t, os.Remove(path)) },
		"replaced":    func(t *testing.T, path, other string) { must(t, os.Rename(other, path)) },
		"log_removed": func(t *testing.T, path, _ string) { must(t, os.Remove(path+"-wal")) },
		"emptied":     func(t *testing.T, path, _ string) { must(t, os.Truncate(path, 0)) },
		"written_over": func(t *testing.T, path, other string) {
			text, err := os.ReadFile(other)
			must(t, err)
			must(t, os.WriteFile(path, text, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, other := filepath.Join(dir, "keep.db"), filepath.Join(dir, "other.db")
			must(t, openDB(t, other, sqlite.Config{}).Close())
			db := sqlite.New(path, sqlite.Config{Host: true})
			must(t, db.Open(t.Context()))
			defer db.Close()
			must(t, putItem(t, db, "a"))
			harm(t, path, other)
			if err := putItem(t, db, "b"); !errors.Is(err, keep.ErrReplaced) {
				t.Errorf("Commit = %v, want ErrReplaced", err)
			}
		})
	}
}

// useUpDescriptors leaves this process none that is free, until what it returns is called.
func useUpDescriptors(t *testing.T) (free func()) {
	t.Helper()
	var was syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	few := was
	few.Cur = 64
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	var all []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		all = append(all, f)
	}
	return func() {
		for _, f := range all {
			must(t, f.Close())
		}
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was))
	}
}

// Descriptors that ran out, as in a flood of connections, say nothing about the file.
func TestLookWithoutDescriptors(t *testing.T) {
	for name, cfg := range map[string]sqlite.Config{"host": {Host: true}, "no_host": {}} {
		for _, begun := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/begun=%t", name, begun), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "keep.db")
				if begun {
					must(t, openDB(t, path, cfg).Close())
				}
				db := openDB(t, path, cfg)
				defer db.Close()
				must(t, putItem(t, db, "a"))
				at := time.Now().Add(time.Second)
				must(t, os.Chtimes(path, at, at)) // as a checkpoint does
				free := useUpDescriptors(t)
				err := putItem(t, db, "b")
				free()
				if err := errors.Join(err, putItem(t, db, "c")); err != nil {
					t.Errorf("a commit without descriptors, or after it: %v", err)
				}
			})
		}
	}
}

// A file that cannot be read at the moment was not replaced as far as that says; one that was is found with the next commit.
func TestLookIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "keep.db"), filepath.Join(dir, "other.db")
	for _, p := range []string{path, other} {
		must(t, openDB(t, p, sqlite.Config{}).Close())
	}
	db := openDB(t, path, sqlite.Config{})
	defer db.Close()
	must(t, putItem(t, db, "a"))
	text, err := os.ReadFile(other)
	must(t, err)
	must(t, os.WriteFile(path, text, 0o600))
	mend := db.BreakReads()
	must(t, putItem(t, db, "b"))
	mend()
	if err := putItem(t, db, "c"); !errors.Is(err, keep.ErrReplaced) {
		t.Errorf("Commit to a file that was written over = %v, want ErrReplaced", err)
	}
}

// Where a database was, nothing is begun anew unasked.
func TestGone(t *testing.T) {
	for _, empty := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "keep.db")
		must(t, openDB(t, path, sqlite.Config{Host: true}).Close())
		if must(t, os.Truncate(path, 0)); !empty {
			must(t, os.Remove(path))
		}
		for _, cfg := range []sqlite.Config{{Host: true}, {}} {
			db := sqlite.New(path, cfg)
			if err := db.Open(t.Context()); !errors.Is(err, keep.ErrGone) || !strings.Contains(err.Error(), "--new") {
				t.Errorf("Open %+v = %v, want ErrGone", cfg, err)
			}
		}
		must(t, openDB(t, path, sqlite.Config{Host: true, New: true}).Close())
		if err := sqlite.New(path, sqlite.Config{New: true}).Open(t.Context()); !errors.Is(err, os.ErrExist) {
			t.Errorf("Open anew where a database is = %v", err)
		}
	}
}

// A plain copy of the file, put back after a host worked on it, does not know what was done since: no host works on it
// before somebody says so.
func TestOlderCopy(t *testing.T) {
	for name, copied := range map[string]func(t *testing.T, path string) (db []byte){
		"between two hosts": func(t *testing.T, path string) []byte {
			text, err := os.ReadFile(path)
			must(t, err)
			must(t, openDB(t, path, sqlite.Config{Host: true}).Close())
			return text
		},
		"beside a host, which then ended": func(t *testing.T, path string) []byte {
			host := openDB(t, path, sqlite.Config{Host: true})
			_, err := host.Shrink(t.Context())
			must(t, err)
			text, err := os.ReadFile(path)
			must(t, err)
			must(t, host.Close())
			return text
		},
		"beside a host, which committed then, and was killed": func(t *testing.T, path string) []byte {
			db := sqlite.New(path, sqlite.Config{Host: true})
			db.CountAlways()
			must(t, db.Open(t.Context()))
			must(t, putItem(t, db, "before"))
			file, err := sql.Open("sqlite", path)
			must(t, err)
			_, err = file.ExecContext(t.Context(), `PRAGMA wal_checkpoint(TRUNCATE)`)
			must(t, errors.Join(err, file.Close()))
			text, err := os.ReadFile(path)
			must(t, err)
			must(t, putItem(t, db, "after"))
			killed, err := os.ReadFile(path + ".lock")
			must(t, err)
			must(t, db.Close())
			must(t, os.WriteFile(path+".lock", killed, 0o600))
			return text
		},
		"while a handler worked in a transaction, which then committed, and was killed": func(t *testing.T, path string) []byte {
			db := openDB(t, path, sqlite.Config{Host: true})
			rec := takenKey(t)
			must(t, db.Keys().Write(t.Context(), rec))
			file, err := sql.Open("sqlite", path)
			must(t, err)
			_, err = file.ExecContext(t.Context(), `PRAGMA wal_checkpoint(TRUNCATE)`)
			must(t, errors.Join(err, file.Close()))
			text, err := os.ReadFile(path)
			must(t, err)
			tx, err := db.Keys().Begin(t.Context())
			must(t, err)
			rec.Rev++
			rec, err = key.Apply(rec, key.Fact{Evidence: key.Answered, Fence: rec.Fence, Answer: key.Answer{Status: 200}}, rec.CreatedAt)
			must(t, errors.Join(err, tx.Write(t.Context(), rec), tx.Commit(t.Context())))
			killed, err := os.ReadFile(path + ".lock")
			must(t, err)
			must(t, db.Close())
			must(t, os.WriteFile(path+".lock", killed, 0o600))
			return text
		},
		"between two who count": func(t *testing.T, path string) []byte {
			text, err := os.ReadFile(path)
			must(t, err)
			before, err := os.ReadFile(path + ".lock")
			must(t, err)
			must(t, openDB(t, path, sqlite.Config{Counts: true}).Close())
			after, err := os.ReadFile(path + ".lock")
			must(t, err)
			if pid, _, _ := strings.Cut(string(before), "\n"); !strings.HasPrefix(string(after), pid+"\n") {
				t.Errorf("the lock says %q after who is no host, before %q", after, before)
			}
			return text
		},
		"before a host that was killed": func(t *testing.T, path string) []byte {
			text, err := os.ReadFile(path)
			must(t, err)
			lock := path + ".lock"
			host := openDB(t, path, sqlite.Config{Host: true})
			signed, err := os.ReadFile(lock)
			must(t, err)
			must(t, host.Close())
			must(t, os.WriteFile(lock, signed, 0o600))
			return text
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keep.db")
			must(t, openDB(t, path, sqlite.Config{Host: true}).Close())
			must(t, os.WriteFile(path, copied(t, path), 0o600))
			err := sqlite.New(path, sqlite.Config{Host: true}).Open(t.Context())
			if !errors.Is(err, keep.ErrOlderCopy) || !strings.Contains(err.Error(), "keep db restored") {
				t.Fatalf("Open = %v, want ErrOlderCopy", err)
			}
			if err := sqlite.New(path, sqlite.Config{Host: true}).Open(t.Context()); !errors.Is(err, keep.ErrOlderCopy) {
				t.Errorf("the second Open = %v, want ErrOlderCopy", err)
			}
			moved := path + ".moved"
			if _, err := (transfer.Mover{Now: time.Unix(1, 0)}).Copy(t.Context(), sqlite.At(path), sqlite.At(moved)); !errors.Is(err, keep.ErrOlderCopy) {
				t.Errorf("Copy = %v, want ErrOlderCopy", err)
			}
			must(t, transfer.Mover{Now: time.Unix(1, 0)}.Restore(t.Context(), sqlite.At(path)))
			must(t, openDB(t, path, sqlite.Config{Host: true}).Close())
			must(t, openDB(t, path, sqlite.Config{Host: true}).Close())
		})
	}
}

// A file that was filled with the records of another, or restored, and has its name now is no older copy of it, although
// hosts opened the other one more often.
func TestOlderCopyIsNoMovedFile(t *testing.T) {
	mover := transfer.Mover{Now: time.Unix(1, 0)}
	for name, made := range map[string]func(t *testing.T, from, to string) error{
		"copied": func(t *testing.T, from, to string) error {
			_, err := mover.Copy(t.Context(), sqlite.At(from), sqlite.At(to))
			return err
		},
		"restored": func(t *testing.T, from, to string) error {
			db := openDB(t, from, sqlite.Config{Host: true})
			must(t, db.Backup(t.Context(), to, time.Unix(1, 0)))
			must(t, db.Close())
			return mover.Restore(t.Context(), sqlite.At(to))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, other := filepath.Join(dir, "keep.db"), filepath.Join(dir, "other.db")
			for range 3 {
				must(t, openDB(t, path, sqlite.Config{Host: true}).Close())
			}
			must(t, made(t, path, other))
			must(t, os.Rename(other, path))
			must(t, openDB(t, path, sqlite.Config{Host: true}).Close())
		})
	}
}

// A plain copy of a file that was made before that was restored, or filled with records, has the name of an earlier count than the lock. It
// knows nothing of what was done since, whatever the clock said at which restore.
func TestOlderCopyOfAnEarlierCount(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "keep.db"), filepath.Join(dir, "other.db")
	for range 3 {
		must(t, openDB(t, path, sqlite.Config{Host: true}).Close())
	}
	restore := func(at int64) error {
		return transfer.Mover{Now: time.Unix(at, 0)}.Restore(t.Context(), sqlite.At(path))
	}
	for name, anew := range map[string]func(at int64) error{
		"restored": restore,
		"copied to": func(at int64) error {
			mover := transfer.Mover{Now: time.Unix(at, 0)}
			if _, err := mover.Copy(t.Context(), sqlite.At(path), sqlite.At(other)); err != nil {
				return err
			}
			must(t, os.Remove(path))
			_, err := mover.Copy(t.Context(), sqlite.At(other), sqlite.At(path))
			return errors.Join(err, os.Remove(other), os.Remove(other+".lock"))
		},
	} {
		for _, at := range []int64{1_000, 2_000, 500} {
			before, err := os.ReadFile(path)
			must(t, err)
			must(t, anew(at))
			must(t, openDB(t, path, sqlite.Config{Host: true}).Close())
			after, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, before, 0o600))
			if err := sqlite.New(path, sqlite.Config{Host: true}).Open(t.Context()); !errors.Is(err, keep.ErrOlderCopy) {
				t.Errorf("Open of a copy from before it was %s at %d = %v, want ErrOlderCopy", name, at, err)
			}
			must(t, os.WriteFile(path, after, 0o600))
			must(t, openDB(t, path, sqlite.Config{Host: true}).Close())
		}
	}
}

// A restored workflow says why it is paused, and, once, why it was before.
func TestRestoredNotes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keep.db")
	db := openDB(t, path, sqlite.Config{Host: true})
	runs, stopped := newLoad(0), newLoad(1)
	must(t, db.Commit(t.Context(), runs.Deploy()))
	must(t, db.Commit(t.Context(), stopped.Deploy()))
	must(t, db.Commit(t.Context(), keep.Commit{Workflow: stopped.Workflow, At: time.Unix(1, 0), Changes: []keep.Change{keep.SetPaused{Paused: true, Note: "duplicates"}}}))
	must(t, db.Close())
	for range 2 {
		must(t, transfer.Mover{Now: time.Unix(1, 0)}.Restore(t.Context(), sqlite.At(path)))
	}
	db = openDB(t, path, sqlite.Config{Host: true})
	for name, want := range map[keep.WorkflowName]string{
		runs.Workflow:    transfer.RestoredNote(time.Unix(1, 0)),
		stopped.Workflow: transfer.RestoredNote(time.Unix(1, 0)) + "; paused before: duplicates",
	} {
		if w, err := db.Workflow(t.Context(), name); err != nil || !w.Paused || w.PauseNote != want {
			t.Errorf("%s: %+v, %v; want the note %q", name, w, err, want)
		}
	}
}

// keepsALog opens a file as a host, which then commits whoever reads, and reads whoever commits.
func keepsALog(t *testing.T, path string) {
	t.Helper()
	db := openDB(t, path, sqlite.Config{Host: true, BusyTimeout: time.Millisecond})
	defer db.Close()
	other, err := sql.Open("sqlite", path)
	must(t, err)
	defer other.Close()
	reader, err := other.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	must(t, err)
	defer reader.Rollback()
	var mode string
	var items int
	must(t, reader.QueryRowContext(t.Context(), `SELECT count(*) FROM item`).Scan(&items))
	must(t, reader.QueryRowContext(t.Context(), `PRAGMA journal_mode`).Scan(&mode))
	if err := putItem(t, db, "beside a reader"); err != nil || mode != "wal" {
		t.Errorf("a commit beside a reader: %v; journal mode %s", err, mode)
	}
}

// A file that keeps no log of its writes, as one that a version before restored, keeps one once a host has it.
func TestFileWithoutALog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keep.db")
	must(t, openDB(t, path, sqlite.Config{Host: true}).Close())
	without, err := sql.Open("sqlite", path)
	must(t, err)
	_, err = without.ExecContext(t.Context(), `PRAGMA journal_mode = DELETE`)
	must(t, errors.Join(err, without.Close()))
	keepsALog(t, path)
}

// The journal of a file that kept no log, and whose host died in a commit, is not played back over a backup.
func TestBackupBesideAJournal(t *testing.T) {
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "keep.db"), filepath.Join(dir, "backup.db")
	db := openDB(t, path, sqlite.Config{Host: true})
	must(t, db.Backup(t.Context(), backup, time.UnixMilli(1)))
	must(t, errors.Join(putItem(t, db, "a"), db.Close()))
	text, err := os.ReadFile(backup)
	must(t, err)

	died, err := sql.Open("sqlite", path)
	must(t, err)
	defer died.Close()
	died.SetMaxOpenConns(1)
	for _, statement := range []string{`PRAGMA journal_mode = DELETE`, `PRAGMA cache_size = 1`, `PRAGMA cache_spill = 1`, `BEGIN IMMEDIATE`,
		`UPDATE workflow SET paused = 1`, `CREATE TABLE filler AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i, hex(zeroblob(500)) FROM n`} {
		_, err := died.ExecContext(t.Context(), statement)
		must(t, err)
	}
	journal, err := os.ReadFile(path + "-journal") // of a commit that writes more than it can remember
	must(t, err)
	other := filepath.Join(dir, "other.db")
	must(t, errors.Join(os.WriteFile(other, text, 0o600), os.WriteFile(other+"-journal", journal, 0o600)))

	if err := sqlite.New(other, sqlite.Config{Host: true}).Open(t.Context()); !errors.Is(err, keep.ErrSealed) || !strings.Contains(err.Error(), "-journal") {
		t.Errorf("Open beside a journal = %v", err)
	}
	if aside, err := sqlite.At(other).SetAsideLog(t.Context()); err != nil || !strings.HasSuffix(aside, "other.db-journal.before") {
		t.Errorf("SetAsideLog = %q, %v", aside, err)
	}
	must(t, transfer.Mover{Now: time.UnixMilli(2)}.Restore(t.Context(), sqlite.At(other)))
	keepsALog(t, other)
}

// A restore whose process dies after a commit, or while that is written into the file, page by page and up to any, is made
// again: the file is whole, and what stands beside it is not taken for that of another.
func TestRestoreDies(t *testing.T) {
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "keep.db"), filepath.Join(dir, "backup.db")
	db := openDB(t, path, sqlite.Config{Host: true})
	must(t, putItem(t, db, "a"))
	must(t, errors.Join(db.Backup(t.Context(), backup, time.UnixMilli(1)), db.Close()))
	restoreDies(t, backup, 2, 1)
}

// restoreDies restores a backup, which takes so many commits, and then what there was after each of them and after every so
// many pages that were written into the file.
func restoreDies(t *testing.T, backup string, commits, pages int) {
	t.Helper()
	type moment struct{ file, log []byte }
	var moments []moment
	place := sqlite.At(backup)
	place.OnCommitted(func() {
		file, err := os.ReadFile(backup)
		must(t, err)
		log, err := os.ReadFile(backup + "-wal")
		must(t, err)
		moments = append(moments, moment{file, log})
	})
	must(t, transfer.Mover{Now: time.UnixMilli(2)}.Restore(t.Context(), place))
	if len(moments) != commits {
		t.Fatalf("%d commits, want %d", len(moments), commits)
	}
	torn := filepath.Join(filepath.Dir(backup), "torn.db")
	for n, m := range moments {
		const header, frame = 32, 24
		size := int(m.file[16])<<8 | int(m.file[17])
		file, frames := bytes.Clone(m.file), map[uint32][]byte{}
		for at := header; at+frame+size <= len(m.log); at += frame + size {
			frames[binary.BigEndian.Uint32(m.log[at:])] = m.log[at+frame : at+frame+size]
		}
		for i, page := range append([]uint32{0}, slices.Sorted(maps.Keys(frames))...) {
			if page > 0 { // a checkpoint writes them in this order
				end := int(page) * size
				file = append(file, make([]byte, max(0, end-len(file)))...)
				copy(file[end-size:], frames[page])
			}
			if i%pages != 0 {
				continue
			}
			must(t, errors.Join(os.WriteFile(torn, file, 0o600), os.WriteFile(torn+"-wal", m.log, 0o600)))
			if _, err := sqlite.At(torn).SetAsideLog(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := (transfer.Mover{Now: time.UnixMilli(3)}).Restore(t.Context(), sqlite.At(torn)); err != nil {
				t.Errorf("commit %d, page %d of %d: %v", n+1, page, len(frames), err)
			} else {
				keepsALog(t, torn)
			}
			for _, suffix := range []string{"", "-wal", "-shm", "-wal.before", ".lock"} {
				_ = os.Remove(torn + suffix)
			}
		}
	}
}

// A backup that another process reads is not restored by halves.
func TestRestoreBesideAReader(t *testing.T) {
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "keep.db"), filepath.Join(dir, "backup.db")
	db := openDB(t, path, sqlite.Config{Host: true})
	must(t, errors.Join(db.Backup(t.Context(), backup, time.UnixMilli(1)), db.Close()))
	other, err := sql.Open("sqlite", "file:"+backup+"?_pragma=journal_mode(WAL)")
	must(t, err)
	defer other.Close()
	other.SetMaxOpenConns(1)
	reader, err := other.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	must(t, err)
	var n int
	must(t, reader.QueryRowContext(t.Context(), `SELECT count(*) FROM meta`).Scan(&n))
	if err := (transfer.Mover{Now: time.UnixMilli(2)}).Restore(t.Context(), sqlite.At(backup)); err == nil || !strings.Contains(err.Error(), "another process reads it") {
		t.Errorf("Restore beside a reader = %v", err)
	}
	must(t, errors.Join(reader.Rollback(), other.Close()))
	_, err = sqlite.At(backup).SetAsideLog(t.Context())
	must(t, err)
	must(t, transfer.Mover{Now: time.UnixMilli(3)}.Restore(t.Context(), sqlite.At(backup)))
	keepsALog(t, backup)
}

// A backup is not opened beside the log of another file, and not worked on if it is damaged.
func TestBackupInPlace(t *testing.T) {
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "keep.db"), filepath.Join(dir, "backup.db")
	db := openDB(t, path, sqlite.Config{Host: true})
	must(t, putItem(t, db, "a"))
	must(t, db.Backup(t.Context(), backup, time.UnixMilli(1)))
	must(t, putItem(t, db, "b"))
	log, err := os.ReadFile(path + "-wal")
	must(t, err)
	must(t, db.Close())
	text, err := os.ReadFile(backup)
	must(t, err)
	must(t, os.WriteFile(path, text, 0o600))
	must(t, os.WriteFile(path+"-wal", log, 0o600))
	for _, cfg := range []sqlite.Config{{Host: true}, {}, {ReadOnly: true}} {
		if err := sqlite.New(path, cfg).Open(t.Context()); !errors.Is(err, keep.ErrSealed) || !strings.Contains(err.Error(), "-wal") {
			t.Errorf("Open %+v beside a log = %v", cfg, err)
		}
	}
	aside, err := sqlite.At(path).SetAsideLog(t.Context())
	if moved, readErr := os.ReadFile(aside); err != nil || readErr != nil || string(moved) != string(log) {
		t.Errorf("SetAsideLog = %q, %v; %v", aside, err, readErr)
	}
	must(t, transfer.Mover{Now: time.UnixMilli(2)}.Restore(t.Context(), sqlite.At(path)))
	keepsALog(t, path)

	damaged, err := sql.Open("sqlite", backup)
	must(t, err)
	_, err = damaged.ExecContext(t.Context(), `DROP TRIGGER fence_topic_insert; INSERT INTO topic VALUES ('w', 't', 5, 0, 0, 0)`)
	must(t, errors.Join(err, damaged.Close()))
	m := transfer.Mover{Now: time.UnixMilli(2)}
	if err := m.Restore(t.Context(), sqlite.At(backup)); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a backup that breaks a law is restored: %v", err)
	}
	if err := sqlite.New(backup, sqlite.Config{}).Open(t.Context()); !errors.Is(err, keep.ErrSealed) {
		t.Errorf("Open of a backup that was not restored = %v", err)
	}
	m.Anyway = true
	must(t, m.Restore(t.Context(), sqlite.At(backup)))
}

// What is no file is refused before it is opened.
func TestNoFile(t *testing.T) {
	for _, suffix := range []string{"", ".lock", "-wal", "-shm"} {
		path := filepath.Join(t.TempDir(), "keep.db")
		must(t, syscall.Mkfifo(path+suffix, 0o600))
		f, err := os.OpenFile(path+suffix, os.O_RDWR, 0) // nobody waits at it then
		must(t, err)
		_, err = f.WriteString(strings.Repeat("x", 100))
		must(t, err)
		defer f.Close()
		if err := sqlite.New(path, sqlite.Config{Host: true}).Open(t.Context()); err == nil || !strings.Contains(err.Error(), "a FIFO") {
			t.Errorf("Open beside a FIFO %q = %v", suffix, err)
		}
		if _, err := sqlite.At(path).Hold(t.Context()); err == nil || !strings.Contains(err.Error(), "a FIFO") {
			t.Errorf("Hold beside a FIFO %q = %v", suffix, err)
		}
	}
}
