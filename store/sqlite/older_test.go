package sqlite_test

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/store/transfer"
)

// openOlder opens a file as the version with that many migrations left it, with the records that
// a script adds.
func openOlder(t *testing.T, migrations int, records string) *sqlite.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keep.db")
	makeOlder(t, path, migrations, records)
	return openDB(t, path, sqlite.Config{})
}

// makeOlder makes such a file.
func makeOlder(t *testing.T, path string, migrations int, records string) {
	t.Helper()
	file, err := sql.Open("sqlite", path)
	must(t, err)
	names, err := filepath.Glob("migrations/*.sql")
	must(t, err)
	script := "PRAGMA application_id = " + strconv.Itoa(0x4b454550)
	for _, name := range names[:migrations] {
		text, err := os.ReadFile(name)
		must(t, err)
		script += ";\n" + string(text)
	}
	_, err = file.ExecContext(t.Context(), script+";\nPRAGMA user_version = "+strconv.Itoa(migrations)+";\nINSERT INTO meta VALUES ('id', 'an id');\n"+records)
	must(t, err)
	must(t, file.Close())
}

// The file of each older version can be copied, also beside its host: the copy has its schema and its id, is marked, and nobody works
// on it. The file stays as it is.
func TestBackupOfAnOlderFile(t *testing.T) {
	all, err := filepath.Glob("migrations/*.sql")
	must(t, err)
	for migrations := 1; migrations < len(all); migrations++ {
		t.Run(filepath.Base(all[migrations-1]), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file, copied := filepath.Join(dir, "keep.db"), filepath.Join(dir, "copy.db")
			makeOlder(t, file, migrations, `INSERT INTO workflow (name, major, minor, paused, created_at, updated_at) VALUES ('w', 1, 0, 0, 1, 1)`)
			before, err := os.ReadFile(file)
			must(t, err)
			if err := sqlite.New(file, sqlite.Config{ReadOnly: true}).Open(t.Context()); !errors.Is(err, keep.ErrOlderDatabase) {
				t.Errorf("open it to read: %v, want ErrOlderDatabase", err)
			}
			if err := sqlite.New(file, sqlite.Config{NoUpgrade: true, Older: true}).Open(t.Context()); !errors.Is(err, keep.ErrOlderDatabase) {
				t.Errorf("open it to write: %v, want ErrOlderDatabase", err)
			}
			host, err := sqlite.LockHost(file)
			must(t, err)
			must(t, openDB(t, file, sqlite.Config{ReadOnly: true, Older: true}).Backup(t.Context(), copied, time.UnixMilli(1)))
			must(t, host.Close())
			if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the file has changed, %v", err)
			}
			db := openDB(t, copied, sqlite.Config{ReadOnly: true, Older: true})
			if was, is := db.Schema(); was != migrations || is != migrations || !errors.Is(db.Older(), keep.ErrOlderDatabase) {
				t.Errorf("its copy has schema %d, and now %d, Older is %v; want %d", was, is, db.Older(), migrations)
			}
			if id, err := db.StoreID(t.Context()); err != nil || id != "an id" {
				t.Errorf("its id is %q, %v", id, err)
			}
			clean(t, db)
			must(t, db.Close())
			if err := sqlite.New(copied, sqlite.Config{Host: true}).Open(t.Context()); !errors.Is(err, keep.ErrSealed) {
				t.Errorf("open the copy to work on it: %v, want ErrSealed", err)
			}
			if err := changed(t, copied, `UPDATE workflow SET paused = 1`); err == nil {
				t.Error("an older version, which knows no marks, changes a record of the copy")
			}
		})
	}
}

// What was moved away stays so in a copy of it.
func TestBackupOfAnOlderFileThatIsSealed(t *testing.T) {
	dir := t.TempDir()
	file, copied := filepath.Join(dir, "keep.db"), filepath.Join(dir, "copy.db")
	mark := transfer.Mark{State: transfer.Sealed, Peer: "elsewhere.db", At: time.UnixMilli(1)}
	makeOlder(t, file, 40, `INSERT INTO meta (name, value) VALUES ('`+transfer.MarkName+`', '`+mark.Encode()+`')`)
	must(t, openDB(t, file, sqlite.Config{ReadOnly: true, Older: true}).Backup(t.Context(), copied, time.UnixMilli(2)))
	err := sqlite.New(copied, sqlite.Config{Host: true}).Open(t.Context())
	if !errors.Is(err, keep.ErrSealed) || !strings.Contains(err.Error(), "elsewhere.db") {
		t.Errorf("open a copy of what was moved away: %v", err)
	}
}

// A damaged file of an older version is called that, by what SQLite says of it.
func TestOlderFileIsDamaged(t *testing.T) {
	const page = 4096
	file := filepath.Join(t.TempDir(), "keep.db")
	makeOlder(t, file, 31, "")
	data, err := os.ReadFile(file)
	must(t, err)
	for at := page; at < len(data); at += 9 * page {
		must(t, os.WriteFile(file, slices.Concat(data[:at], bytes.Repeat([]byte{0xff}, page), data[at+page:]), 0o600))
		db := sqlite.New(file, sqlite.Config{ReadOnly: true, Older: true})
		found := db.Open(t.Context())
		if found == nil {
			for err := range db.Check(t.Context()) {
				found = err
			}
		}
		if found == nil {
			t.Errorf("page %d: nothing is found", at/page)
		}
		must(t, db.Close())
	}
}

// changed executes a statement without Keep.
func changed(t *testing.T, path, text string) error {
	t.Helper()
	file, err := sql.Open("sqlite", path)
	must(t, err)
	_, err = file.ExecContext(t.Context(), text)
	return errors.Join(err, file.Close())
}
