package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keep-run/keep/store/sqlite"
)

// What changes nothing is not counted: an idle host asks each second what others committed, and would write each second.
func TestOnlyChangesAreCounted(t *testing.T) {
	for name, cfg := range map[string]sqlite.Config{"host": {Host: true}, "who counts as one": {Counts: true}} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keep.db")
			db := sqlite.New(path, cfg)
			db.CountAlways()
			opened(t, db)
			type state struct {
				count, lock string
				wal         int64
			}
			look := func() (s state) {
				must(t, db.Scan(t.Context(), `SELECT value FROM meta WHERE name = 'openings'`, &s.count))
				lock, err := os.ReadFile(path + ".lock")
				must(t, err)
				wal, err := os.Stat(path + "-wal")
				must(t, err)
				s.lock, s.wal = string(lock), wal.Size()
				return s
			}
			before := look()
			for range 3 {
				_, err := db.ForeignChanges(t.Context())
				must(t, err)
				_, err = db.Keys().Sweep(t.Context(), time.Unix(0, 0), 1)
				must(t, err)
			}
			if got := look(); got != before {
				t.Errorf("after what changed nothing: %+v, want %+v", got, before)
			}
			must(t, db.Commit(t.Context(), newLoad(0).Deploy()))
			if got := look(); got.count == before.count || got.lock == before.lock {
				t.Errorf("after a commit: %+v, want another count than %+v", got, before)
			}
		})
	}
}
