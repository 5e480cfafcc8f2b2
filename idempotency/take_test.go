package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// A taker takes keys in one step, and fails as the store below it does.
type taker struct {
	*flaky
	stale *atomic.Int64 // as often Take finds a record that is gone again
}

func (s taker) Take(ctx context.Context, r key.Record) (key.Record, error) {
	if s.stale.Add(-1) >= 0 {
		return key.Record{}, keep.ErrStale
	}
	err := s.Write(ctx, r)
	if errors.Is(err, keep.ErrStale) {
		return s.Keys.Read(ctx, r.ID)
	}
	return key.Record{}, err
}

func newTakerWorld(t *testing.T, cfg idempotency.Config, stale int64, h http.HandlerFunc) *world {
	t.Helper()
	gone := new(atomic.Int64)
	gone.Store(stale)
	return newWorldOn(t, func(f *flaky) idempotency.Store { return taker{f, gone} }, cfg, h)
}

func TestTaker(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"new_key":      takerNewKey,
		"duplicates":   takerDuplicates,
		"released_key": takerReleasedKey,
		"store_down":   takerStoreDown,
		"client_gone":  takerClientGone,
	} {
		t.Run(name, test)
	}
}

func takerNewKey(t *testing.T) {
	t.Parallel()
	w := newTakerWorld(t, idempotency.Config{}, 0, nil)
	w.store.failRead.Store(true)
	first := w.do(with("k"))
	if first.Code != 201 || w.store.writes.Load() != 2 {
		t.Errorf("answer = %d %q after %d writes, want 201 after 2", first.Code, first.Body, w.store.writes.Load())
	}
	w.replayed(first, w.do(with("k")))
	w.problem(w.do(with("k", body("other"))), 422, idempotency.KindKeyReused)
	w.ran(1)
}

func takerDuplicates(t *testing.T) {
	t.Parallel()
	w := newTakerWorld(t, idempotency.Config{}, 3, nil)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if got := w.do(with("k")); got.Code != 201 {
				w.problem(got, 409, idempotency.KindInProgress)
			}
		})
	}
	wg.Wait()
	w.ran(1)
	if got := w.record("k").State; got != key.Done {
		t.Errorf("the key is %q, want done", got)
	}
}

func takerReleasedKey(t *testing.T) {
	t.Parallel()
	status := http.StatusTooManyRequests
	w := newTakerWorld(t, idempotency.Config{}, 0, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(status) })
	w.do(with("k"))
	status = http.StatusOK
	if got := w.do(with("k")); got.Code != 200 {
		t.Errorf("answer = %d %q, want 200", got.Code, got.Body)
	}
	w.ran(2)
}

func takerStoreDown(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		broken   func(*flaky)
		runs     bool
		failOpen bool
	}{
		{"nothing works", func(f *flaky) { f.failRead.Store(true); f.failWrite.Store(true) }, false, false},
		{"writes fail", func(f *flaky) { f.failWrite.Store(true) }, false, false},
		{"it is stored, and the error says otherwise", func(f *flaky) { f.forget.Store(true) }, true, false},
		{"nobody knows whether it is stored", func(f *flaky) { f.forget.Store(true); f.failRead.Store(true) }, false, false},
		{"the route does without", func(f *flaky) { f.failWrite.Store(true) }, true, true},
	} {
		w := newTakerWorld(t, rule(idempotency.Rule{FailOpen: test.failOpen}), 0, nil)
		test.broken(w.store)
		got := w.do(with("k"))
		if test.runs {
			w.ran(1)
		} else {
			w.problem(got, 503, idempotency.KindStoreUnavailable)
			w.ran(0)
		}
		if (got.Code == 201) != test.runs {
			t.Errorf("%s: %d %q", test.name, got.Code, got.Body)
		}
	}
}

func takerClientGone(t *testing.T) {
	t.Parallel()
	w := newTakerWorld(t, idempotency.Config{}, 0, nil)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	w.h.ServeHTTP(httptest.NewRecorder(), with("k").WithContext(ctx))
	w.ran(0)
	if got := w.record("k"); got.Rev != 0 {
		t.Errorf("the key is %q, want none", got.State)
	}
}
