package transfer_test

import (
	"cmp"
	"context"
	"flag"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/store/transfer"
	"github.com/keep-run/keep/testkit/idempotencytest"
	"github.com/keep-run/keep/testkit/storetest"
)

var (
	_ transfer.Place = (*sqlite.Place)(nil)
	_ transfer.Place = (*postgres.Place)(nil)

	// all is for make torture: what takes minutes and goes the ways of TestEveryState.
	all = flag.Bool("all", false, "move every state, those of Postgres and random ones too")

	// ctx is for cleanups, too, which come after a test's own context has ended.
	ctx = context.Background()
)

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "5"); err != nil {
		panic(err)
	}
	os.Exit(pgtest.Main(m))
}

// TestEveryState moves each store of the conformance suite, as the suite leaves it, from
// a file to Postgres, and back to another file. Nothing can be told apart, and no law
// is broken. Without -all it does so with one case of three.
func TestEveryState(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) store.Store {
		if !*all {
			storetest.Sample(tb, 6)
		}
		p := file(tb)
		around(tb, p, schema(tb), file(tb))
		return openFile(tb, p)
	})
}

// TestEveryStateOfPostgres is TestEveryState in the other direction: rows of Postgres have
// numbers that two workflows may share.
func TestEveryStateOfPostgres(t *testing.T) {
	if !*all {
		t.Skip("only with -all")
	}
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) store.Store {
		p := schema(tb)
		around(tb, p, file(tb), schema(tb))
		return openSchema(tb, p)
	})
}

// TestRandomStates moves what random commits lead to, most of it unlawful.
func TestRandomStates(t *testing.T) {
	if !*all {
		t.Skip("only with -all")
	}
	t.Parallel()
	storetest.Compare(t, func(tb testing.TB, _ string) (store.Store, store.Store) {
		p := file(tb)
		around(tb, unchecked{p}, unchecked{schema(tb)}, unchecked{file(tb)})
		return memory.New(), openFile(tb, p)
	})
}

// TestKeys moves idempotency keys, as their conformance suite leaves them.
func TestKeys(t *testing.T) {
	t.Parallel()
	idempotencytest.Run(t, func(tb testing.TB) idempotency.Store {
		p := file(tb)
		around(tb, p, schema(tb), file(tb))
		return openFile(tb, p).Keys()
	})
}

var mover = transfer.Mover{Now: time.UnixMilli(1_800_000_000_000)}

// A place is one whose database tests can open.
type place interface {
	transfer.Place
	open(tb testing.TB) store.Store // to read
	make(tb testing.TB) (db store.Store, closeDB func() error)
	work() error                      // opens it as a host does, and closes it
	beside(tb testing.TB) store.Store // as a command that decides something
}

// placeAt returns the place of an address.
func placeAt(address string) place {
	if strings.HasPrefix(address, "postgres://") {
		return schemaPlace{postgres.At(address), address}
	}
	return filePlace{sqlite.At(address), address}
}

// address is the opposite of placeAt.
func address(p place) string {
	switch p := p.(type) {
	case filePlace:
		return p.path
	case schemaPlace:
		return p.url
	}
	panic("no address")
}

type filePlace struct {
	*sqlite.Place
	path string
}

func file(tb testing.TB) filePlace {
	dir, err := os.MkdirTemp("", "transfer") // tb's own is away when cleanups of a sample run
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "keep.db")
	return filePlace{sqlite.At(path), path}
}

func (p filePlace) open(tb testing.TB) store.Store {
	db := sqlite.New(p.path, sqlite.Config{ReadOnly: true})
	return opened(tb, db, db.Open(ctx))
}

func (p filePlace) make(tb testing.TB) (store.Store, func() error) {
	db := sqlite.New(p.path, sqlite.Config{Host: true})
	if err := db.Open(ctx); err != nil {
		tb.Fatal(err)
	}
	return db, db.Close
}

func (p filePlace) beside(tb testing.TB) store.Store {
	db := sqlite.New(p.path, sqlite.Config{})
	return opened(tb, db, db.Open(ctx))
}

func (p filePlace) work() error {
	db := sqlite.New(p.path, sqlite.Config{Host: true})
	return cmp.Or(db.Open(ctx), db.Close())
}

// openFile makes the database, and closes it at the end.
func openFile(tb testing.TB, p filePlace) *sqlite.DB {
	db := sqlite.New(p.path, sqlite.Config{Host: true})
	return opened(tb, db, db.Open(ctx))
}

type schemaPlace struct {
	*postgres.Place
	url string
}

func schema(tb testing.TB) schemaPlace {
	url := pgtest.SchemaURL(tb)
	return schemaPlace{postgres.At(url), url}
}

func (p schemaPlace) open(tb testing.TB) store.Store {
	db := postgres.New(p.url, postgres.Config{ReadOnly: true, Conns: 4})
	return opened(tb, db, db.Open(ctx))
}

func (p schemaPlace) make(tb testing.TB) (store.Store, func() error) {
	db := postgres.New(p.url, postgres.Config{Conns: 4})
	if err := db.Open(ctx); err != nil {
		tb.Fatal(err)
	}
	return db, db.Close
}

func (p schemaPlace) beside(tb testing.TB) store.Store { return openSchema(tb, p) }

func (p schemaPlace) work() error {
	db := postgres.New(p.url, postgres.Config{Host: true, Conns: 4})
	return cmp.Or(db.Open(ctx), db.Close())
}

// openSchema makes the database, and closes it at the end.
func openSchema(tb testing.TB, p schemaPlace) *postgres.DB {
	db := postgres.New(p.url, postgres.Config{Conns: 4})
	return opened(tb, db, db.Open(ctx))
}

func opened[T interface{ Close() error }](tb testing.TB, db T, err error) T {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}

// unchecked is a place whose broken laws are nobody's business.
type unchecked struct{ place }

func (unchecked) Check(context.Context) iter.Seq[error] { return func(func(error) bool) {} }

// around moves what is at p when the test ends, from one place to the next. What comes
// later in the test must be closed by then.
func around(tb testing.TB, p place, to ...place) {
	places := append([]place{p}, to...)
	tb.Cleanup(func() {
		if tb.Failed() || tb.Skipped() {
			return
		}
		var digest string
		for i, to := range places[1:] {
			done, err := mover.Copy(ctx, places[i], to)
			if err != nil {
				tb.Errorf("move %d: %v", i+1, err)
				return
			}
			if got := done.Digest; i > 0 && got != digest {
				tb.Errorf("move %d: digest %s, want %s", i+1, got, digest)
			} else {
				digest = got
			}
		}
		end := scope{TB: tb}
		defer end.close()
		first := p.open(&end)
		for _, to := range places[1:] {
			storetest.Moved(tb, first, to.open(&end))
		}
	})
}

// A scope closes what was opened in it at its end, not at that of the test.
type scope struct {
	testing.TB
	cleanups []func()
}

func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) close() {
	for _, f := range s.cleanups {
		f()
	}
}
