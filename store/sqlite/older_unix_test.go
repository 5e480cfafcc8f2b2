//go:build unix

package sqlite_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/store/transfer"
)

// A backup that an earlier version made is restored by this one, whoever dies meanwhile.
func TestRestoreOfAnOlderBackup(t *testing.T) {
	all, err := filepath.Glob("migrations/*.sql")
	must(t, err)
	for name, migrations := range map[string]int{"one before": len(all) - 1, "without notes of a pause": 31} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file, backup := filepath.Join(dir, "keep.db"), filepath.Join(dir, "backup.db")
			makeOlder(t, file, migrations, `INSERT INTO workflow (name, major, minor, paused, created_at, updated_at) VALUES ('w', 1, 0, 0, 1, 1);
				INSERT INTO deployment (workflow, major, minor, hash, code, entry, definition, created_at) VALUES ('w', 1, 0, '', x'', '', '{"name":"w"}', 1)`)
			older := openDB(t, file, sqlite.Config{ReadOnly: true, Older: true})
			must(t, older.Backup(t.Context(), backup, time.UnixMilli(1)))
			must(t, older.Close())
			if err := sqlite.New(backup, sqlite.Config{Host: true}).Open(t.Context()); !errors.Is(err, keep.ErrSealed) {
				t.Fatalf("open a backup to work on it: %v, want ErrSealed", err)
			}
			restoreDies(t, backup, 3, 29)
			db := openDB(t, backup, sqlite.Config{Host: true})
			if w, err := db.Workflow(t.Context(), "w"); err != nil || !w.Paused || w.PauseNote != transfer.RestoredNote(time.UnixMilli(2)) {
				t.Errorf("the workflow is %+v, %v", w, err)
			}
		})
	}
}

// A damaged backup by an earlier version is not written to.
func TestOlderBackupIsDamaged(t *testing.T) {
	const page = 4096
	backup := filepath.Join(t.TempDir(), "backup.db")
	makeOlder(t, backup, 31, "")
	must(t, sqlite.MarkBackup(t.Context(), backup))
	data, err := os.ReadFile(backup)
	must(t, err)
	for at := page; at < len(data); at += 9 * page {
		broken := slices.Concat(data[:at], bytes.Repeat([]byte{0xff}, page), data[at+page:])
		must(t, os.WriteFile(backup, broken, 0o600))
		err := transfer.Mover{Now: time.UnixMilli(2), Anyway: true}.Restore(t.Context(), sqlite.At(backup))
		if err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("page %d: %v", at/page, err)
		}
		is, err := os.ReadFile(backup)
		must(t, err)
		if version := binary.BigEndian.Uint32(is[60:]); version != 31 {
			t.Errorf("page %d: its schema is %d", at/page, version)
		}
	}
}
