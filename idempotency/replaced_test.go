package idempotency_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// replaceable is a store whose database is replaced under it, as SQLite's: writes are stored
// where nobody will look, and reads find them there.
type replaceable struct {
	*flaky
	replaced atomic.Bool
}

func (s *replaceable) Write(ctx context.Context, r key.Record) error {
	if err := s.flaky.Write(ctx, r); err != nil || !s.replaced.Load() {
		return err
	}
	return keep.ErrReplaced
}

func (s *replaceable) Sweep(ctx context.Context, now time.Time, limit int) (int, error) {
	n, err := s.flaky.Sweep(ctx, now, limit)
	if err == nil && s.replaced.Load() {
		err = keep.ErrReplaced
	}
	return n, err
}

// newReplaceable returns a world whose store can be replaced.
func newReplaceable(t *testing.T, cfg idempotency.Config, h http.HandlerFunc) (*world, *replaceable) {
	s := new(replaceable)
	return newWorldOn(t, func(f *flaky) idempotency.Store {
		s.flaky = f
		return s
	}, cfg, h), s
}

// Once the database was replaced under it, a guard executes nothing, also where it would without a
// store that answers; it says so once, and ends.
func TestReplacedStore(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		w, store := newReplaceable(t, rule(idempotency.Rule{FailOpen: open}), nil)
		first := w.do(with("before"))
		ended := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { ended <- w.guard.Run(ctx) }()
		store.replaced.Store(true)
		for _, k := range []string{"a", "a", "b"} {
			w.problem(w.do(with(k)), 503, idempotency.KindStoreUnavailable)
		}
		w.ran(1)
		w.replayed(first, w.do(with("before")))
		if err := <-ended; !errors.Is(err, keep.ErrReplaced) {
			t.Errorf("Run = %v, want ErrReplaced", err)
		}
		store.replaced.Store(false) // it was put back, perhaps after another process had worked on the other one
		w.problem(w.do(with("c")), 503, idempotency.KindStoreUnavailable)
		w.ran(1)
		if n := strings.Count(w.log.String(), "removed or replaced; nothing is executed"); n != 1 {
			t.Errorf("logged %d times that nothing is executed, want once:\n%s", n, &w.log)
		}
	}
}

// A guard without requests finds out, too.
func TestReplacedStoreIsSwept(t *testing.T) {
	t.Parallel()
	w, store := newReplaceable(t, idempotency.Config{}, nil)
	store.replaced.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.guard.Run(ctx); !errors.Is(err, keep.ErrReplaced) {
		t.Errorf("Run = %v, want ErrReplaced", err)
	}
}

// The database goes while a handler runs. Its lease is renewed as before: who still has the old file must not take the request
// for one whose owner died. Its client gets the answer, since nobody else will know of it, and the log says that the record
// is lost.
func TestReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	var store *replaceable
	w, store := newReplaceable(t, idempotency.Config{Lease: 30 * time.Millisecond}, func(rw http.ResponseWriter, r *http.Request) {
		store.replaced.Store(true)
		writes := store.writes.Load()
		for store.writes.Load() < writes+3 { // until the lease is renewed again and again
			select {
			case <-time.After(time.Millisecond):
			case <-r.Context().Done():
			}
		}
		rw.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(rw, "made")
	})
	got := w.do(with("k"))
	if got.Code != 201 || got.Body.String() != "made" || got.Header().Get("Idempotency-Expires") != "" {
		t.Errorf("answer %d %v %q", got.Code, got.Header(), got.Body)
	}
	w.ran(1)
	if log := w.log.String(); !strings.Contains(log, "outcome not recorded") || !strings.Contains(log, w.record("k").ID.String()) {
		t.Errorf("the log does not name the key whose outcome is lost:\n%s", log)
	}
	if o := w.seen[0].Outcome; o != idempotency.OutcomeUnprotected {
		t.Errorf("observed %s", o)
	}
}

// moveAway takes a database from under who has it open.
func moveAway(t *testing.T, path string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("an open file keeps its name there")
	}
	must(t, os.Rename(path, path+".away"))
}

// What a handler committed in its transaction is in the file that is gone, and perhaps put back: its answer is not shown, and
// nobody says that it was not executed.
func TestReplacedTransaction(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	db := openFile(t, path)
	h := guardFile(t, db, rule(idempotency.Rule{Atomic: true}), func(rw http.ResponseWriter, r *http.Request) {
		if _, err := idempotency.Tx[any](r.Context()); err != nil {
			t.Error(err)
		}
		moveAway(t, path)
		rw.WriteHeader(http.StatusCreated)
	})
	w := &world{t: t, h: h}
	w.problem(w.do(with("k")), 503, idempotency.KindOutcomeUnknown)
}

// A file that is moved away under a guard is noticed before a handler runs.
func TestReplacedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	w := &world{t: t}
	w.h = guardFile(t, openFile(t, path), idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) { w.runs.Add(1) })
	w.do(with("a"))
	moveAway(t, path)
	w.problem(w.do(with("b")), 503, idempotency.KindStoreUnavailable)
	w.ran(1)
}
