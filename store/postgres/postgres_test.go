package postgres_test

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/testkit/storetest"
)

var _ store.Store = (*postgres.DB)(nil)

var all = flag.Bool("all", false, "run every case behind a pooler too")

func TestMain(m *testing.M) {
	// A sequence costs a schema and its round trips; -rapid.checks asks for more.
	if err := flag.Set("rapid.checks", "8"); err != nil {
		panic(err)
	}
	os.Exit(pgtest.Main(m))
}

// TestStore runs the conformance suite, and then looks at the query plan of every
// statement that the suite made the database use, lists included.
func TestStore(t *testing.T) {
	p := planner{plans: make(map[string]string)}
	t.Cleanup(func() {
		if !t.Failed() && !t.Skipped() {
			p.judge(t)
		}
	})
	storetest.Run(t, func(tb testing.TB) store.Store {
		b := base{openDB(tb, tablesURL(tb), postgres.Config{Host: true, Conns: 4})}
		if tb.Name() != "TestStore/what_was_committed_survives_a_restart" { // which closes it
			p.watch(tb, b.DB)
		}
		return b
	})
}

func TestMemoryAgrees(t *testing.T) {
	storetest.Compare(t, func(tb testing.TB, _ string) (store.Store, store.Store) {
		return memory.New(), openDB(tb, tablesURL(tb), postgres.Config{Conns: 4})
	})
}

func TestFilters(t *testing.T) {
	t.Parallel()
	storetest.Filters(t, openDB(t, tablesURL(t), postgres.Config{}))
	db := openDB(t, tablesURL(t), postgres.Config{})
	db.SearchByIndex()
	storetest.Filters(t, db)
}

// A base is a database that can be closed and opened again.
type base struct{ *postgres.DB }

func (b base) Reopen(tb testing.TB) store.Store {
	tb.Helper()
	if err := b.Close(); err != nil {
		tb.Fatal(err)
	}
	return base{openDB(tb, b.URL(), postgres.Config{Host: true, Conns: 4})}
}

// tablesURL returns the URL of a schema for a test that leaves its tables as they are.
func tablesURL(tb testing.TB) string {
	tb.Helper()
	return pgtest.TablesURL(tb, func(url string) error {
		db := postgres.New(url, postgres.Config{})
		return errors.Join(db.Open(tb.Context()), db.Close())
	})
}

// openDB opens a database and closes it when the test ends.
func openDB(tb testing.TB, url string, cfg postgres.Config) *postgres.DB {
	tb.Helper()
	db := postgres.New(url, cfg)
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

// TestStorePooled runs the suite as behind a pooler without sessions: nothing is
// prepared, set or listened to. Searches ask their index at once. Without -all it runs
// the searches, and one of three other cases.
func TestStorePooled(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) store.Store {
		if !*all && !strings.Contains(tb.Name(), "text") {
			storetest.Sample(tb, 3)
		}
		db := openDB(tb, tablesURL(tb)+"&default_query_exec_mode=exec", postgres.Config{Host: true, Conns: 4})
		db.SearchByIndex()
		return db
	})
}
