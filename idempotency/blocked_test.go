package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// A blocked store is one whose lock another process has and keeps: writes end after its patience, or, if that is zero, with
// their context alone.
type blocked struct {
	*flaky
	on       *atomic.Bool
	reads    bool // they are blocked, too
	patience time.Duration
}

var errBusy = errors.New("the database is locked")

func (s *blocked) wait(ctx context.Context) error {
	if s.patience == 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	time.Sleep(s.patience)
	return errBusy
}

func (s *blocked) Write(ctx context.Context, r key.Record) error {
	if s.on.Load() {
		return s.wait(ctx)
	}
	return s.flaky.Write(ctx, r)
}

func (s *blocked) Read(ctx context.Context, id key.ID) (key.Record, error) {
	if s.on.Load() && s.reads {
		return key.Record{}, s.wait(ctx)
	}
	return s.flaky.Read(ctx, id)
}

// A retry whose record cannot be moved, or read, gets an answer in bounded time, and is not executed: somebody began it.
func guardBlockedStore(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reads    bool
		patience time.Duration
		doubt    bool // it is known already that nobody knows: a probe is asked
	}{
		"busy":              {patience: 10 * time.Second},
		"silent":            {},
		"silent reads":      {reads: true},
		"busy after doubt":  {patience: 10 * time.Second, doubt: true},
		"silent, in doubt ": {doubt: true},
	} {
		for _, open := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					on, asked := new(atomic.Bool), 0
					r := idempotency.Rule{FailOpen: open && !tt.reads, Probe: func(context.Context, idempotency.Question) (idempotency.Finding, error) {
						asked++
						return idempotency.Finding{Happened: on.Load()}, nil
					}, SettleAfter: time.Hour}
					w := newWorldOn(t, func(f *flaky) idempotency.Store {
						return &blocked{flaky: f, on: on, reads: tt.reads, patience: tt.patience}
					}, rule(r), mortal)
					crash(t, w, "k")
					if tt.doubt {
						w.problem(w.do(with("k")), 409, idempotency.KindOutcomeUnknown)
					}
					on.Store(true)
					asked = 0
					began := time.Now()
					w.problem(w.do(with("k")), 503, idempotency.KindStoreUnavailable)
					if took := time.Since(began); took > 10*time.Second {
						t.Errorf("the answer took %s, want StoreTimeout at most", took)
					}
					if asked > 1 {
						t.Errorf("the probe was asked %d times", asked)
					}
					ctx, leave := context.WithTimeout(t.Context(), time.Second)
					defer leave()
					began = time.Now()
					w.h.ServeHTTP(httptest.NewRecorder(), with("k").WithContext(ctx))
					if took := time.Since(began); tt.patience == 0 && took > time.Second {
						t.Errorf("a client that left was waited for %s", took)
					}
					w.ran(1)
				})
			})
		}
	}
}

// An answer that is recorded does not wait for a renewal of its lease that the store does not answer.
func TestAnswerBesideASilentRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		on := new(atomic.Bool)
		w := newWorldOn(t, func(f *flaky) idempotency.Store { return &blocked{flaky: f, on: on} }, idempotency.Config{Lease: 30 * time.Second}, func(http.ResponseWriter, *http.Request) {
			time.Sleep(9 * time.Second)
			on.Store(true)
			time.Sleep(2 * time.Second)
			on.Store(false)
		})
		begun := time.Now()
		if code := w.do(with("k")).Code; code != 200 || time.Since(begun) > 12*time.Second {
			t.Errorf("the answer is %d after %s, want 200 after 11s", code, time.Since(begun))
		}
	})
}

// A renewal that the store does not answer is made again before the lease ends.
func TestRenewalThatIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		on := new(atomic.Bool)
		w := newWorldOn(t, func(f *flaky) idempotency.Store { return &blocked{flaky: f, on: on} }, idempotency.Config{Lease: 30 * time.Second}, func(http.ResponseWriter, *http.Request) {
			time.Sleep(9 * time.Second)
			on.Store(true)
			time.Sleep(2 * time.Second) // what was sent in these is never answered
			on.Store(false)
			time.Sleep(50 * time.Second)
		})
		go w.do(with("k"))
		time.Sleep(32 * time.Second)
		w.problem(w.do(with("k")), 409, idempotency.KindInProgress)
		synctest.Wait()
		time.Sleep(time.Minute)
	})
}

// Who waited for a request of another process, and can then not read what came of it, does not execute beside it.
func TestWaiterOfABlockedStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		cfg := rule(idempotency.Rule{FailOpen: true, Wait: time.Minute})
		w := newWorld(t, cfg, nil)
		other, err := idempotency.New(w.store, cfg)
		must(t, err)
		go other.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave })).ServeHTTP(httptest.NewRecorder(), with("k"))
		synctest.Wait()
		go func() {
			time.Sleep(time.Second)
			w.store.failRead.Store(true)
		}()
		w.problem(w.do(with("k")), 503, idempotency.KindStoreUnavailable)
		w.ran(0)
		w.store.failRead.Store(false)
		close(leave)
	})
}

// holdsFirst is a handler that closes begun when the request with X-First comes, and answers that one when leave is closed.
func holdsFirst(begun, leave chan struct{}) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-First") != "" {
			close(begun)
			<-leave
		}
	}
}

// Without its store a guard executes nothing beside an execution of its own: it knows of that one.
func TestDuplicateWithoutTheStore(t *testing.T) {
	t.Parallel()
	begun, leave := make(chan struct{}), make(chan struct{})
	w := newWorld(t, rule(idempotency.Rule{FailOpen: true}), holdsFirst(begun, leave))
	done := make(chan struct{})
	go func() { defer close(done); w.do(with("k", header("X-First", "1"))) }()
	<-begun
	w.store.failRead.Store(true)
	w.store.failWrite.Store(true)
	w.problem(w.do(with("k")), 503, idempotency.KindStoreUnavailable)
	w.ran(1)
	if code := w.do(with("another")).Code; code != 200 {
		t.Errorf("a request that nobody began: %d", code)
	}
	w.store.failRead.Store(false)
	w.store.failWrite.Store(false)
	close(leave)
	<-done
	if code := w.do(with("k")).Code; code != 200 {
		t.Errorf("then the answer is %d", code)
	}
	w.ran(2)
}

// A duplicate of a request that this process is executing without a record is not executed beside it, whether the store is there again or not.
func TestDuplicateOfOneWithoutARecord(t *testing.T) {
	t.Parallel()
	begun, leave := make(chan struct{}), make(chan struct{})
	w := newWorld(t, rule(idempotency.Rule{FailOpen: true}), holdsFirst(begun, leave))
	w.store.failRead.Store(true)
	w.store.failWrite.Store(true)
	done := make(chan struct{})
	go func() { defer close(done); w.do(with("k", header("X-First", "1"))) }()
	<-begun
	w.problem(w.do(with("k")), 503, idempotency.KindStoreUnavailable)
	w.store.failRead.Store(false)
	w.store.failWrite.Store(false)
	w.problem(w.do(with("k")), 409, idempotency.KindInProgress)
	w.ran(1)
	close(leave)
	<-done
	if code := w.do(with("k")).Code; code != 200 {
		t.Errorf("then the answer is %d", code)
	}
	w.ran(2)
}

// A request that was executed, and whose outcome could not be recorded, is not executed once more by the same process while the store is away.
func TestRetryOfOneThatIsNotRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // no time passes in which a busy machine would take a key too late
		w := newWorld(t, rule(idempotency.Rule{FailOpen: true}), nil)
		w.store.failAfter.Store(1)
		w.problem(w.do(with("k")), 503, idempotency.KindOutcomeUnknown)
		w.store.failRead.Store(true)
		w.problem(w.do(with("k")), 503, idempotency.KindStoreUnavailable)
		w.ran(1)
		if code := w.do(with("another")).Code; code != 201 {
			t.Errorf("a request that nobody began: %d", code)
		}
		w.ran(2)
		w.store.failRead.Store(false)
		w.store.failWrite.Store(false)
		w.problem(w.do(with("k")), 409, idempotency.KindInProgress)
		w.ran(2)
		late, err := key.Apply(w.record("k"), key.Fact{Evidence: key.LeaseEnded, By: "lease"}, time.Now().Add(time.Minute))
		must(t, err)
		done, err := key.Apply(late, key.Fact{Evidence: key.Happened, By: "person: pat", Answer: key.Answer{Status: 201}}, time.Now())
		must(t, err)
		must(t, w.store.Keys.Write(t.Context(), done))
		_, err = w.guard.Sweep(t.Context(), time.Now())
		must(t, err)
		w.store.failRead.Store(true)
		w.store.failWrite.Store(true)
		if code := w.do(with("k")).Code; code != 201 { // what is recorded is not remembered without end
			t.Errorf("after it was recorded, and the store is away again: %d", code)
		}
		w.ran(3)
	})
}

// The same holds for a handler that worked in the transaction of its key, whose commit failed.
func TestRetryOfATransactionThatIsNotRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := func(f *flaky, _ key.Record) error {
			f.failRead.Store(true)
			f.failWrite.Store(true)
			return errDisk
		}
		w := newWorldOn(t, func(f *flaky) idempotency.Store { return &committing{f, away} },
			rule(idempotency.Rule{FailOpen: true}), func(rw http.ResponseWriter, r *http.Request) {
				if _, err := idempotency.Tx[any](r.Context()); idempotency.Guarded(r.Context()) && err != nil {
					t.Error(err)
				}
				rw.WriteHeader(201)
			})
		w.problem(w.do(with("k")), 503, idempotency.KindOutcomeUnknown)
		w.problem(w.do(with("k")), 503, idempotency.KindStoreUnavailable)
		w.ran(1)
		if code := w.do(with("another")).Code; code != 201 {
			t.Errorf("a request that nobody began: %d", code)
		}
	})
}

// A silencing is a store that answers so many reads, and no more.
type silencing struct {
	*flaky
	answers *atomic.Int64
}

func (s silencing) Read(ctx context.Context, id key.ID) (key.Record, error) {
	if s.answers.Add(-1) < 0 {
		<-ctx.Done()
		return key.Record{}, context.Cause(ctx)
	}
	return s.flaky.Read(ctx, id)
}

// Also the last look at a record is in bounded time: that of an owner that comes too late, and that of a caller who asked
// and about whom a probe knew more.
func TestLastLookIsBounded(t *testing.T) {
	t.Parallel()
	silent := func(t *testing.T, cfg idempotency.Config, h http.HandlerFunc) (*world, *atomic.Int64) {
		answers := new(atomic.Int64)
		answers.Store(1000)
		return newWorldOn(t, func(f *flaky) idempotency.Store { return silencing{f, answers} }, cfg, h), answers
	}
	within := func(t *testing.T, what string, f func(ctx context.Context)) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		f(ctx)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s took %s, want StoreTimeout at most", what, took)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		took := make(chan struct{})
		w, answers := silent(t, idempotency.Config{}, func(http.ResponseWriter, *http.Request) { <-took })
		within(t, "an answer that is too late", func(ctx context.Context) {
			go func() {
				synctest.Wait()
				rec := w.record("k")
				rec.Fence++ // as another owner has it
				must(t, w.store.Keys.Write(ctx, rec))
				answers.Store(1)
				close(took)
			}()
			w.problem(w.do(with("k").WithContext(ctx)), 503, idempotency.KindOutcomeUnknown)
		})
	})
	synctest.Test(t, func(t *testing.T) {
		w, answers := silent(t, rule(idempotency.Rule{Probe: func(context.Context, idempotency.Question) (idempotency.Finding, error) {
			return idempotency.Finding{Happened: true}, nil
		}}), func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(502) })
		w.do(with("k"))
		path := idempotency.InstancePath + w.record("k").ID.String()
		answers.Store(1)
		within(t, "what a probe found", func(ctx context.Context) {
			if got := w.do(httptest.NewRequestWithContext(ctx, "GET", path, nil)); got.Code != 200 {
				t.Errorf("it is answered with %d %s", got.Code, got.Body)
			}
		})
	})
}
