package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

func guardRecordedBeforeSent(t *testing.T) {
	t.Parallel()
	var w *world
	w = newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		if got := w.record("k").State; got != key.InProgress {
			t.Errorf("while the handler runs the key is %q", got)
		}
		rw.WriteHeader(201)
	})
	rec := &firstByte{ResponseRecorder: httptest.NewRecorder(), see: func() {
		if got := w.record("k").State; got != key.Done {
			t.Errorf("at the first byte the key is %q", got)
		}
	}}
	w.h.ServeHTTP(rec, with("k"))
	if rec.calls != 1 {
		t.Errorf("%d answers", rec.calls)
	}
}

// firstByte calls see when the answer begins.
type firstByte struct {
	*httptest.ResponseRecorder
	see   func()
	calls int
}

func (f *firstByte) WriteHeader(status int) {
	f.calls++
	f.see()
	f.ResponseRecorder.WriteHeader(status)
}

func guardDuplicates(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, rule(idempotency.Rule{Wait: wait}), func(rw http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Second)
				fmt.Fprint(rw, "done")
			})
			var wg sync.WaitGroup
			got := make([]*httptest.ResponseRecorder, 100)
			for i := range got {
				wg.Go(func() { got[i] = w.do(with("k")) })
			}
			wg.Wait()
			w.ran(1)
			codes := map[int]int{}
			for _, g := range got {
				codes[g.Code]++
				if g.Code == 409 {
					w.problem(g, 409, idempotency.KindInProgress)
					if g.Header().Get("Retry-After") != "1" || !strings.Contains(g.Body.String(), "Request is being processed") {
						t.Errorf("409 = %v %s", g.Header(), g.Body)
					}
				}
			}
			want := map[int]int{200: 1, 409: 99}
			if wait > 0 {
				want = map[int]int{200: 100}
			}
			if fmt.Sprint(codes) != fmt.Sprint(want) {
				t.Errorf("wait %s: answers %v, want %v", wait, codes, want)
			}
		})
	}
}

func guardWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, rule(idempotency.Rule{Wait: 5 * time.Second}), func(http.ResponseWriter, *http.Request) { time.Sleep(time.Hour) })
		go w.do(with("k"))
		synctest.Wait()
		start := time.Now()
		w.problem(w.do(with("k")), 409, idempotency.KindInProgress)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("the duplicate waited %s, want 5s", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start = time.Now()
		w.do(with("k").WithContext(ctx))
		if took := time.Since(start); took != time.Second {
			t.Errorf("a duplicate whose client left waited %s, want 1s", took)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
	})
}

func guardSlowHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, rule(idempotency.Rule{AfterCrash: idempotency.AfterCrashRetry}), func(rw http.ResponseWriter, r *http.Request) {
			time.Sleep(10 * time.Minute)
			fmt.Fprint(rw, "done")
		})
		var first *httptest.ResponseRecorder
		var wg sync.WaitGroup
		wg.Go(func() { first = w.do(with("k")) })
		for range 9 {
			time.Sleep(time.Minute)
			w.problem(w.do(with("k")), 409, idempotency.KindInProgress)
		}
		wg.Wait()
		w.replayed(first, w.do(with("k")))
		w.ran(1)
		if n := w.store.writes.Load(); n < 60 || n > 70 {
			t.Errorf("%d writes, want one each ten seconds", n)
		}
	})
}

// A handler whose process stops and continues, or whose store was away, finds that
// somebody else has the key.
func guardFencedOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		stuck := make(chan struct{})
		var ended error
		rules := rule(idempotency.Rule{AfterCrash: idempotency.AfterCrashRetry})
		h := func(rw http.ResponseWriter, r *http.Request) {
			if runs.Add(1) == 1 {
				<-stuck
				fmt.Fprint(rw, "late")
				<-r.Context().Done()
				ended = context.Cause(r.Context())
				return
			}
			fmt.Fprint(rw, "second")
		}
		w := newWorld(t, rules, h)
		other, err := idempotency.New(w.store, rules) // of a process that does not see what this one executes
		must(t, err)
		var first *httptest.ResponseRecorder
		var wg sync.WaitGroup
		w.store.failAfter.Store(1) // renewals fail from now on
		wg.Go(func() { first = w.do(with("k")) })
		time.Sleep(65 * time.Second) // between two renewals
		w.store.failWrite.Store(false)
		second := httptest.NewRecorder()
		other.Handler(http.HandlerFunc(h)).ServeHTTP(second, with("k"))
		close(stuck)
		wg.Wait()
		if second.Body.String() != "second" || first.Body.String() != "second" || first.Header().Get("Idempotent-Replayed") != "true" {
			t.Errorf("answers %q and %q, want the second one's for both", first.Body, second.Body)
		}
		if !errors.Is(ended, key.ErrFenced) {
			t.Errorf("the late handler's context ended with %v, want %v", ended, key.ErrFenced)
		}
		if runs.Load() != 2 { // the route allows it once more
			t.Errorf("the handlers ran %d times, want 2", runs.Load())
		}
	})
}

func guardLateAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
			<-stuck
			fmt.Fprint(rw, "late")
		})
		w.store.failAfter.Store(1)
		var first *httptest.ResponseRecorder
		var wg sync.WaitGroup
		wg.Go(func() { first = w.do(with("k")) })
		time.Sleep(65 * time.Second) // between two renewals
		w.store.failWrite.Store(false)
		w.problem(w.do(with("k")), 409, idempotency.KindInProgress) // this process knows that it executes it
		other, err := idempotency.New(w.store, idempotency.Config{})
		must(t, err)
		doubt := httptest.NewRecorder()
		other.Handler(http.NotFoundHandler()).ServeHTTP(doubt, with("k"))
		p := w.problem(doubt, 409, idempotency.KindOutcomeUnknown)
		if p["reference"] != key.NewID("example.com", "", "k").String() {
			t.Errorf("reference = %v", p["reference"])
		}
		close(stuck)
		wg.Wait()
		w.replayed(first, w.do(with("k")))
		w.ran(1)
	})
}

// crash leaves a key as a process that died in its handler leaves it.
func crash(t testing.TB, w *world, k string) {
	t.Helper()
	// The claim of a request is made by the guard; its handler "dies" by failing
	// every later write.
	w.store.failAfter.Store(1)
	func() {
		defer func() { _ = recover() }()
		r := with(k)
		w.h.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), dies{}, true)))
	}()
	w.store.failWrite.Store(false)
	if got := w.record(k).State; got != key.InProgress {
		t.Fatalf("after the crash the key is %q", got)
	}
	time.Sleep(idempotency.DefaultLease)
}

type dies struct{}

// mortal is a handler that panics in requests of crash, and else answers.
func mortal(rw http.ResponseWriter, r *http.Request) {
	if r.Context().Value(dies{}) != nil {
		panic(http.ErrAbortHandler)
	}
	fmt.Fprint(rw, "done")
}

func guardCrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, idempotency.Config{}, mortal)
		crash(t, w, "k")
		for range 3 {
			w.problem(w.do(with("k")), 409, idempotency.KindOutcomeUnknown)
		}
		time.Sleep(10 * week) // it does not expire
		w.problem(w.do(with("k")), 409, idempotency.KindOutcomeUnknown)
		w.ran(1)
	})
}

func guardSweepAfterCrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, idempotency.Config{}, mortal)
		crash(t, w, "k")
		if _, err := w.guard.Sweep(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if r := w.record("k"); r.State != key.Unknown || r.Doubts != 1 {
			t.Errorf("record = %+v", r)
		}
	})
}

func guardRetryAfterCrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, rule(idempotency.Rule{AfterCrash: idempotency.AfterCrashRetry}), mortal)
		crash(t, w, "k")
		if got := w.do(with("k")); got.Code != 200 || got.Body.String() != "done" {
			t.Errorf("answer = %d %q", got.Code, got.Body)
		}
		w.ran(2)
		crash(t, w, "twice")
		w.ran(3)
		func() {
			defer func() { _ = recover() }()
			r := with("twice")
			w.h.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), dies{}, true)))
		}()
		w.ran(4)
		w.problem(w.do(with("twice")), 409, idempotency.KindOutcomeUnknown)
		w.ran(4)
	})
}

func guardAtomicCrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, rule(idempotency.Rule{Atomic: true}), mortal)
		crash(t, w, "k")
		if got := w.do(with("k")); got.Code != 200 {
			t.Errorf("answer = %d %q", got.Code, got.Body)
		}
		w.ran(2)
	})
}

// isOrder is of a route whose orders are made once, whoever makes them.
func isOrder(_ *http.Request, body []byte) bool { return string(body) == "order" }

// A request that may be repeated is executed again after each doubt, and after a 5xx, but not beside itself.
func guardRepeatable(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	var answers atomic.Int64
	w := newWorld(t, rule(idempotency.Rule{Repeatable: isOrder}), func(rw http.ResponseWriter, r *http.Request) {
		n := answers.Add(1)
		if again := idempotency.Repeated(r.Context()); again != (n > 1) {
			t.Errorf("execution %d is one that was begun before: %t", n, again)
		}
		switch n {
		case 1, 2:
			idempotency.Doubt(r.Context(), 502)
		case 3:
			rw.WriteHeader(500)
		case 4:
			rw.WriteHeader(503)
		case 5:
			panic("broken")
		case 6:
			close(begun)
			<-end
			fmt.Fprint(rw, "done")
		}
	})
	for range 2 {
		p := w.problem(w.do(with("k")), 502, idempotency.KindOutcomeUnknown)
		if !strings.Contains(fmt.Sprint(p["detail"]), "Send it again with the same key") {
			t.Errorf("of a request that may be repeated: %v", p["detail"])
		}
	}
	for _, status := range []int{500, 503} {
		if got := w.do(with("k")); got.Code != status || w.record("k").State != key.Released {
			t.Errorf("answer = %d %q, and the key is %s", got.Code, got.Body, w.record("k").State)
		}
	}
	func() {
		defer func() { _ = recover() }()
		w.do(with("k"))
	}()
	var first *httptest.ResponseRecorder
	var wg sync.WaitGroup
	wg.Go(func() { first = w.do(with("k")) })
	<-begun
	w.problem(w.do(with("k")), 409, idempotency.KindInProgress)
	close(end)
	wg.Wait()
	w.replayed(first, w.do(with("k")))
	w.problem(w.do(with("k", body("another"))), 422, idempotency.KindKeyReused)
	w.ran(6)
}

// Another process executes it although its owner may be at it still, whose late answer is not the one that counts.
func guardRepeatableElsewhere(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	cfg := rule(idempotency.Rule{Repeatable: isOrder})
	old := newWorld(t, cfg, func(rw http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-end
		fmt.Fprint(rw, "late")
	})
	w := newWorldOn(t, func(*flaky) idempotency.Store { return old.store }, cfg, nil)
	var late *httptest.ResponseRecorder
	var wg sync.WaitGroup
	wg.Go(func() { late = old.do(with("k")) })
	<-begun
	first := w.do(with("k"))
	if first.Code != 201 || first.Body.String() != "made order" {
		t.Errorf("answer beside an owner elsewhere: %d %q", first.Code, first.Body)
	}
	close(end)
	wg.Wait()
	w.replayed(first, late)
	w.ran(1)
}

func guardPanic(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rule  idempotency.Rule
		state key.State
	}{
		{idempotency.Rule{}, key.Unknown},
		{idempotency.Rule{Policy: key.Retry5xx}, key.Released},
		{idempotency.Rule{Atomic: true}, key.Released},
	} {
		w := newWorld(t, rule(test.rule), func(http.ResponseWriter, *http.Request) { panic("boom") })
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("the panic became %v", p)
				}
			}()
			w.do(with("k"))
		}()
		if got := w.record("k").State; got != test.state {
			t.Errorf("after a panic with %+v the key is %q, want %q", test.rule, got, test.state)
		}
	}
}

func guardReleaseAndDoubt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		if !idempotency.Guarded(r.Context()) {
			t.Error("not guarded")
		}
		switch r.Header.Get("X-Say") {
		case "release":
			idempotency.Release(r.Context())
			rw.WriteHeader(502)
		case "doubt":
			fmt.Fprint(rw, "half an ans")
			idempotency.Doubt(r.Context(), 504)
			panic(http.ErrAbortHandler)
		}
	})
	if got := w.do(with("a", header("X-Say", "release"))); got.Code != 502 {
		t.Errorf("released answer = %d", got.Code)
	}
	if got := w.record("a").State; got != key.Released {
		t.Errorf("key is %q", got)
	}
	w.problem(w.do(with("b", header("X-Say", "doubt"))), 504, idempotency.KindOutcomeUnknown)
	w.problem(w.do(with("b", header("X-Say", "doubt"))), 409, idempotency.KindOutcomeUnknown)
	w.ran(2)
	idempotency.Release(t.Context()) // does nothing, outside
	if idempotency.Guarded(t.Context()) {
		t.Error("guarded outside")
	}
}

func guardStoreDown(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		down func(*flaky)
	}{
		{"reads fail", func(f *flaky) { f.failRead.Store(true) }},
		{"writes fail", func(f *flaky) { f.failWrite.Store(true) }},
	} {
		w := newWorld(t, idempotency.Config{}, nil)
		test.down(w.store)
		got := w.do(with("k"))
		w.problem(got, 503, idempotency.KindStoreUnavailable)
		if got.Header().Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		w.ran(0)
		w = newWorld(t, rule(idempotency.Rule{FailOpen: true}), nil)
		test.down(w.store)
		if got := w.do(with("k")); got.Code != 201 || got.Body.String() != "made order" {
			t.Errorf("%s: fail open: %d %q", test.name, got.Code, got.Body)
		}
		w.ran(1)
	}
}

func guardWithheldAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, idempotency.Config{}, nil)
		w.store.failAfter.Store(1)
		got := w.do(with("k"))
		w.problem(got, 503, idempotency.KindOutcomeUnknown)
		if strings.Contains(got.Body.String(), "made") {
			t.Errorf("the answer was shown: %q", got.Body)
		}
		w.store.failWrite.Store(false)
		time.Sleep(idempotency.DefaultLease)
		w.problem(w.do(with("k")), 409, idempotency.KindOutcomeUnknown)
		w.ran(1)
	})
}

// A store may report an error for what it did store: a connection that broke
// after the commit.
func guardUnknownCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, nil)
	w.store.forget.Store(true)
	first := w.do(with("k"))
	if first.Code != 201 {
		t.Errorf("answer = %d %q", first.Code, first.Body)
	}
	w.replayed(first, w.do(with("k")))
	w.ran(1)
}

// committing is a store with transactions, whose commit is what commit does with the record.
type committing struct {
	*flaky
	commit func(*flaky, key.Record) error
}

func (s *committing) Begin(context.Context) (key.Tx, error) { return &committingTx{s: s}, nil }

type committingTx struct {
	s   *committing
	rec key.Record
}

func (tx *committingTx) Handle() any { return tx }

func (tx *committingTx) Write(_ context.Context, r key.Record) error {
	tx.rec = r
	return nil
}

func (tx *committingTx) Commit(context.Context) error { return tx.s.commit(tx.s.flaky, tx.rec) }

func (tx *committingTx) Rollback() error { return nil }

// Of a commit that failed, nobody says that it did not happen before the record says so.
func guardUnknownTx(t *testing.T) {
	for name, test := range map[string]struct {
		commit func(*flaky, key.Record) error
		status int
		kind   idempotency.Kind
		after  int // status of the next request with the key, when the store works
	}{
		"undone": {func(*flaky, key.Record) error { return errDisk }, 503, idempotency.KindStoreUnavailable, 503},
		"undone, which is not seen": {func(f *flaky, _ key.Record) error {
			f.failRead.Store(true)
			f.failWrite.Store(true)
			return errDisk
		}, 503, idempotency.KindOutcomeUnknown, 409},
		"stored, which is not seen": {func(f *flaky, r key.Record) error {
			err := f.Keys.Write(t.Context(), r)
			f.failRead.Store(true)
			return errors.Join(err, errDisk)
		}, 503, idempotency.KindOutcomeUnknown, 201},
		"stored, and lost": {func(f *flaky, r key.Record) error {
			return errors.Join(f.Keys.Write(t.Context(), r), keep.ErrReplaced)
		}, 503, idempotency.KindOutcomeUnknown, 201},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorldOn(t, func(f *flaky) idempotency.Store { return &committing{f, test.commit} },
					rule(idempotency.Rule{Atomic: true}), func(rw http.ResponseWriter, r *http.Request) {
						if _, err := idempotency.Tx[any](r.Context()); err != nil {
							t.Error(err)
						}
						rw.WriteHeader(201)
					})
				w.problem(w.do(with("k")), test.status, test.kind)
				w.store.failRead.Store(false)
				w.store.failWrite.Store(false)
				if got := w.do(with("k")); got.Code != test.after {
					t.Errorf("the next request with the key got %d %s, want %d", got.Code, got.Body, test.after)
				}
			})
		})
	}
}

func guardClientGone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		cancel()
		if r.Context().Err() != nil {
			t.Error("the handler's context ended with the client")
		}
		fmt.Fprint(rw, "done")
	})
	first := w.do(with("k").WithContext(ctx))
	w.replayed(first, w.do(with("k")))
	w.ran(1)
	late, gone := context.WithCancel(t.Context())
	gone()
	w.do(with("k2").WithContext(late))
	w.ran(1)
}

// A client that leaves while its key is being taken leaves no doubt behind.
func guardClientLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	g, err := idempotency.New(leaving{w.store, cancel}, idempotency.Config{})
	must(t, err)
	runs := 0
	h := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ }))
	h.ServeHTTP(httptest.NewRecorder(), with("k").WithContext(ctx))
	if got := w.record("k").State; runs != 1 || got != key.Done {
		t.Errorf("%d runs and the key is %q, want 1 and done", runs, got)
	}
}

// leaving is a store whose writes make the client leave first.
type leaving struct {
	idempotency.Store
	leave func()
}

func (l leaving) Write(ctx context.Context, r key.Record) error {
	l.leave()
	return l.Store.Write(ctx, r)
}

func guardObserver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, rule(idempotency.Rule{Path: "/orders"}), func(rw http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			if r.Header.Get("X-Busy") != "" {
				rw.WriteHeader(429)
			}
		})
		w.do(with("a"))
		w.do(with("a"))
		w.do(with("b", header("X-Busy", "1")))
		w.do(with("a", body("other")))
		w.do(with(""))
		var got []string
		for _, o := range w.seen {
			got = append(got, fmt.Sprint(o.Route, " ", o.Outcome, " ", o.Kind, " ", o.Status, " ", o.Elapsed))
		}
		want := []string{"/orders executed  200 1s", "/orders replayed  200 0s", "/orders released  429 1s", "/orders refused key-reused 422 0s"}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("observed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func guardRunSweeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, idempotency.Config{}, nil)
		w.do(with("k"))
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error)
		go func() { done <- w.guard.Run(ctx) }()
		time.Sleep(week + time.Minute)
		synctest.Wait()
		if page, _, err := w.store.List(t.Context(), key.Filter{}, keep.Page{}); err != nil || len(page) != 0 {
			t.Errorf("records left: %v, %v", page, err)
		}
		cancel(errors.New("enough"))
		if err := <-done; err == nil || err.Error() != "enough" {
			t.Errorf("Run = %v", err)
		}
	})
}
