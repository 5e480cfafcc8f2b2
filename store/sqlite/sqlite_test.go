package sqlite_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/testkit/storetest"
)

var (
	_ store.Store   = (*sqlite.DB)(nil)
	_ store.Watcher = (*sqlite.DB)(nil)
)

// TestStore runs the conformance suite, and then looks at the query plan of every
// statement that the suite made the database use, lists included.
func TestStore(t *testing.T) {
	p := planner{plans: make(map[string]string)}
	t.Cleanup(func() { p.judge(t) })
	storetest.Run(t, func(tb testing.TB) store.Store {
		f := file{openDB(tb, filepath.Join(tb.TempDir(), "keep.db"), sqlite.Config{Host: true})}
		if !strings.HasSuffix(tb.Name(), "_survives_a_restart") { // which closes it
			p.watch(tb, f.DB)
		}
		return f
	})
}

// A read that asked for a second connection while it holds one would never end here, and
// in a busy host as soon as every reader did so at once. Searches use their index at once,
// which holds all but the newest rows.
func TestOneReaderIsEnough(t *testing.T) {
	p := planner{plans: make(map[string]string)}
	t.Cleanup(func() { p.judge(t) })
	storetest.Run(t, func(tb testing.TB) store.Store {
		db := sqlite.New(filepath.Join(tb.TempDir(), "keep.db"), sqlite.Config{Host: true, Readers: 1})
		db.LimitSearch(40, 1, 1<<20)
		opened(tb, db)
		if !strings.HasSuffix(tb.Name(), "_survives_a_restart") {
			p.watch(tb, db)
		}
		return file{db}
	})
}

func TestFilters(t *testing.T) {
	t.Parallel()
	storetest.Filters(t, openDB(t, filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{}))
	db := sqlite.New(filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{})
	db.LimitSearch(40, 1, 1<<20)
	opened(t, db)
	storetest.Filters(t, db)
}

// A search that has looked at many rows in vain returns what it has, and a cursor.
func TestSearchStops(t *testing.T) {
	db := sqlite.New(filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{Host: true})
	db.LimitSearch(1, 1, 10)
	opened(t, db)
	var want []string
	for i := range 200 {
		it := keep.Item{Workflow: "w", ID: fmt.Sprint("item-", i), Title: "Invoice", Status: keep.ItemDone, Attempt: 1}
		if i%50 == 3 {
			it.Status, want = keep.ItemFailed, append(want, it.ID)
		}
		must(t, db.Commit(t.Context(), keep.Commit{Workflow: "w", At: time.UnixMilli(int64(i + 1)), Changes: []keep.Change{keep.PutItem{Item: it}}}))
	}
	must(t, db.Index(t.Context()))
	// Of each status the list has few: the index is asked with the rest of the filter in a
	// statement only if there are more than the walk reads.
	for _, c := range []struct {
		f    keep.ItemFilter
		want []string
	}{{keep.ItemFilter{Text: "invo", Status: keep.ItemFailed}, want}, {keep.ItemFilter{Text: "invoice item 1"}, nil}} {
		var got []string
		pages := 0
		for p := (keep.Page{Limit: 2}); ; pages++ {
			list, next, err := db.Items(t.Context(), c.f, p)
			must(t, err)
			for _, it := range list {
				got = append(got, it.ID)
			}
			if p.After = next; next == "" {
				break
			}
		}
		slices.Reverse(got)
		if c.want != nil && !slices.Equal(got, c.want) {
			t.Errorf("%+v finds %q, want %q", c.f, got, c.want)
		}
		if c.want == nil && len(got) != 1+10+100 || pages < 2 {
			t.Errorf("%+v finds %d on %d pages", c.f, len(got), pages)
		}
	}
}

// A number that a count cannot look further than is told from an exact one.
func TestCountStops(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{Host: true})
	for i := range 12 {
		var changes []keep.Change
		for j := range 1000 {
			changes = append(changes, keep.PutItem{Item: keep.Item{Workflow: "w", ID: fmt.Sprint(i, "-", j), Title: "Invoice", Status: keep.ItemDone, Attempt: 1}})
		}
		must(t, db.Commit(t.Context(), keep.Commit{Workflow: "w", At: time.UnixMilli(int64(i + 1)), Changes: changes}))
	}
	for text, want := range map[string]int{"invoice": search.MaxCount + 1, "": 12_000} {
		counts, err := db.CountItems(t.Context(), keep.ItemFilter{Text: text})
		if err != nil || counts[keep.ItemDone] != want {
			t.Errorf("CountItems %q = %v, %v, want %d", text, counts, err, want)
		}
	}
}

func TestMemoryAgrees(t *testing.T) {
	storetest.Compare(t, func(tb testing.TB, dir string) (store.Store, store.Store) {
		return memory.New(), openDB(tb, filepath.Join(dir, "keep.db"), sqlite.Config{Host: true})
	})
}

// A file is a database that can be closed and opened again.
type file struct{ *sqlite.DB }

func (f file) Reopen(tb testing.TB) store.Store {
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
	opened(tb, db)
	return db
}

// opened opens a database and closes it when the test ends.
func opened(tb testing.TB, db *sqlite.DB) {
	tb.Helper()
	if err := db.Open(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
}
