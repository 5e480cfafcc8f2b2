package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/sqlite"
)

func openFile(t testing.TB, path string) *sqlite.DB {
	t.Helper()
	db := sqlite.New(path, sqlite.Config{})
	must(t, db.Open(t.Context()))
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func guardFile(t testing.TB, db *sqlite.DB, cfg idempotency.Config, h http.HandlerFunc) http.Handler {
	t.Helper()
	g, err := idempotency.New(db.Keys(), cfg)
	must(t, err)
	return g.Handler(h)
}

// Two guards with databases of their own on one file are two processes, as far
// as the guard can tell.
func TestTwoGuardsOnOneFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	var runs atomic.Int64
	var guards []http.Handler
	for range 2 {
		guards = append(guards, guardFile(t, openFile(t, path), rule(idempotency.Rule{Wait: time.Minute}), func(rw http.ResponseWriter, r *http.Request) {
			fmt.Fprint(rw, runs.Add(1))
		}))
	}
	for round := range 5 {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				rec := httptest.NewRecorder()
				guards[i%2].ServeHTTP(rec, with(fmt.Sprint("k", round)))
				if rec.Code != 200 || rec.Body.String() != fmt.Sprint(round+1) {
					t.Errorf("round %d: %d %s", round, rec.Code, rec.Body)
				}
			})
		}
		wg.Wait()
	}
	if runs.Load() != 5 {
		t.Errorf("%d runs, want 5", runs.Load())
	}
}

func TestTx(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"commits_with_the_key": txCommitsWithTheKey,
		"refused":              txRefused,
	} {
		t.Run(name, test)
	}
}

func txCommitsWithTheKey(t *testing.T) {
	t.Parallel()
	db := openFile(t, filepath.Join(t.TempDir(), "keys.db"))
	raw, err := sql.Open("sqlite", "file:"+db.Path())
	must(t, err)
	defer raw.Close()
	_, err = raw.Exec(`CREATE TABLE orders (note TEXT)`)
	must(t, err)
	orders := func() (n int) {
		t.Helper()
		must(t, raw.QueryRow(`SELECT count(*) FROM orders`).Scan(&n))
		return n
	}
	var say func(http.ResponseWriter)
	h := guardFile(t, db, idempotency.Config{Lease: 500 * time.Millisecond, Rules: []idempotency.Rule{{Atomic: true}}}, func(rw http.ResponseWriter, r *http.Request) {
		tx, err := idempotency.Tx[*sql.Tx](r.Context())
		if err != nil {
			t.Error(err)
			return
		}
		if again, err := idempotency.Tx[*sql.Tx](r.Context()); again != tx || err != nil {
			t.Errorf("second Tx: another one, or %v", err)
		}
		if _, err := tx.Exec(`INSERT INTO orders VALUES ('x')`); err != nil {
			t.Error(err)
		}
		say(rw)
	})
	for i, test := range []struct {
		name   string
		say    func(http.ResponseWriter)
		orders int
		state  key.State
	}{
		{"an answer commits", func(rw http.ResponseWriter) { rw.WriteHeader(201) }, 1, key.Done},
		{"a refusal commits", func(rw http.ResponseWriter) { rw.WriteHeader(422) }, 2, key.Done},
		{"a stream commits", func(rw http.ResponseWriter) { rw.Header().Set("Content-Type", "text/event-stream") }, 3, key.DoneWithoutBody},
		{"500 undoes and is kept", func(rw http.ResponseWriter) { rw.WriteHeader(500) }, 3, key.Done},
		{"429 undoes and releases", func(rw http.ResponseWriter) { rw.WriteHeader(429) }, 3, key.Released},
		{"a panic undoes and releases", func(rw http.ResponseWriter) { panic("boom") }, 3, key.Released},
		{"slower than the lease commits", func(rw http.ResponseWriter) { <-time.After(1200 * time.Millisecond) }, 4, key.Done},
	} {
		say = test.say
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), with(fmt.Sprint("k", i)))
		}()
		r, err := db.Keys().Read(t.Context(), key.NewID("example.com", "", fmt.Sprint("k", i)))
		must(t, err)
		if got := orders(); got != test.orders || r.State != test.state {
			t.Errorf("%s: %d orders and key %q, want %d and %q", test.name, got, r.State, test.orders, test.state)
		}
	}
}

func txRefused(t *testing.T) {
	t.Parallel()
	if _, err := idempotency.Tx[*sql.Tx](t.Context()); !errors.Is(err, idempotency.ErrNotGuarded) {
		t.Errorf("outside: %v", err)
	}
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		if _, err := idempotency.Tx[*sql.Tx](r.Context()); !errors.Is(err, idempotency.ErrNoTx) {
			t.Errorf("with a store that has none: %v", err)
		}
	})
	w.do(with("k"))
	var late context.Context
	h := guardFile(t, openFile(t, filepath.Join(t.TempDir(), "keys.db")), idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		late = r.Context()
		if _, err := idempotency.Tx[int](r.Context()); !errors.Is(err, idempotency.ErrNoTx) {
			t.Errorf("of another kind: %v", err)
		}
	})
	h.ServeHTTP(httptest.NewRecorder(), with("k"))
	if _, err := idempotency.Tx[*sql.Tx](late); !errors.Is(err, idempotency.ErrNotGuarded) {
		t.Errorf("after the answer: %v", err)
	}
}

// What a sweep deletes comes back to the file system.
func TestSweepShrinks(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	g, err := idempotency.New(openFile(t, path).Keys(), idempotency.Config{})
	must(t, err)
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 64<<10)) }))
	for i := range 200 {
		h.ServeHTTP(httptest.NewRecorder(), with(fmt.Sprint("k", i)))
	}
	size := func() int64 {
		t.Helper()
		file, err := os.Stat(path)
		must(t, err)
		log, err := os.Stat(path + "-wal")
		must(t, err)
		return file.Size() + log.Size()
	}
	before := size()
	n, err := g.Sweep(t.Context(), time.Now().Add(idempotency.DefaultTTL+time.Hour))
	if after := size(); n != 200 || err != nil || before < 12<<20 || after > 2<<20 {
		t.Errorf("Sweep = %d, %v; %d bytes before and %d after", n, err, before, after)
	}
}
