package sqlite_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/memory"
	"github.com/keep-run/keep/sqlite"
	"github.com/keep-run/keep/storetest"
)

var (
	_ engine.Store     = (*sqlite.DB)(nil)
	_ storetest.Looker = (*sqlite.DB)(nil)
)

// TestStore runs the conformance suite, and then looks at the query plan of every
// statement that the suite made the database use, lists included.
func TestStore(t *testing.T) {
	p := planner{plans: make(map[string]string)}
	t.Cleanup(func() { p.judge(t) })
	storetest.Run(t, func(tb testing.TB) storetest.Store {
		f := file{openDB(tb, filepath.Join(tb.TempDir(), "keep.db"), sqlite.Config{Host: true})}
		if !strings.HasSuffix(tb.Name(), "_survives_a_restart") { // which closes it
			p.watch(tb, f.DB)
		}
		return f
	})
}

// A read that asked for a second connection while it holds one would wait for
// ever here, and in a busy host as soon as every reader did so at once.
func TestOneReaderIsEnough(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.Store {
		return file{openDB(tb, filepath.Join(tb.TempDir(), "keep.db"), sqlite.Config{Host: true, Readers: 1})}
	})
}

func TestMemoryAgrees(t *testing.T) {
	storetest.Compare(t, func(tb testing.TB, dir string) (storetest.Store, storetest.Store) {
		return memory.New(), openDB(tb, filepath.Join(dir, "keep.db"), sqlite.Config{Host: true})
	})
}

// A file is a database that can be closed and opened again.
type file struct{ *sqlite.DB }

func (f file) Reopen(tb testing.TB) storetest.Store {
	tb.Helper()
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
	return file{openDB(tb, f.Path(), sqlite.Config{Host: true})}
}

// openDB opens a database and closes it when the test ends.
func openDB(tb testing.TB, path string, cfg sqlite.Config) *sqlite.DB {
	tb.Helper()
	db := sqlite.New(path, cfg)
	if err := db.Open(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}
