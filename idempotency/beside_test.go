package idempotency_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// What others doubt is no doubt to the process that is executing the request: another one whose clock is ahead, or who saw no renewal
// while the store was away, says that nobody knows. A retry that comes here is not executed beside it, and no probe is asked.
func TestDoubtOfOthersWhileItIsExecuted(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]idempotency.Rule{
		"retry": {AfterCrash: idempotency.AfterCrashRetry}, "neither": {},
		"probe": {Probe: func(context.Context, idempotency.Question) (idempotency.Finding, error) {
			t.Error("the probe is asked")
			return idempotency.Finding{}, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stuck := make(chan struct{})
				w := newWorld(t, rule(r), func(rw http.ResponseWriter, _ *http.Request) {
					<-stuck
					fmt.Fprint(rw, "done")
				})
				var first *httptest.ResponseRecorder
				var wg sync.WaitGroup
				w.store.failAfter.Store(1) // renewals fail from now on
				wg.Go(func() { first = w.do(with("k")) })
				time.Sleep(65 * time.Second)
				w.store.failWrite.Store(false)
				other, err := idempotency.New(w.store, idempotency.Config{})
				must(t, err)
				_, err = other.Sweep(t.Context(), time.Now())
				must(t, err)
				if got := w.record("k").State; got != key.Unknown {
					t.Fatalf("to others the key is %q", got)
				}
				go func() {
					time.Sleep(10 * time.Second)
					close(stuck)
				}()
				w.problem(w.do(with("k")), 409, idempotency.KindInProgress)
				if got := w.do(httptest.NewRequest("GET", idempotency.InstancePath+w.record("k").ID.String(), nil)); !strings.Contains(got.Body.String(), `"running"`) {
					t.Errorf("who asks what became of it gets %d %s", got.Code, got.Body)
				}
				wg.Wait()
				w.replayed(first, w.do(with("k")))
				w.ran(1)
			})
		})
	}
}

// An attempt that did nothing says nothing of the one before it, also where that cannot be recorded: the request is not executed without a
// record then.
func TestDoubtBeforeAnAttemptThatDidNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w *world
		w = newWorld(t, rule(idempotency.Rule{AfterCrash: idempotency.AfterCrashRetry, FailOpen: true}), func(rw http.ResponseWriter, _ *http.Request) {
			if w.runs.Load() == 1 {
				rw.WriteHeader(http.StatusBadGateway) // it may have had its effect
				return
			}
			w.store.failRead.Store(true)
			w.store.failWrite.Store(true)
			rw.WriteHeader(http.StatusTooManyRequests)
		})
		w.problem(w.do(with("k")), 502, idempotency.KindOutcomeUnknown)
		if got := w.do(with("k")); got.Code != http.StatusTooManyRequests {
			t.Errorf("the second attempt is answered with %d %s", got.Code, got.Body)
		}
		w.problem(w.do(with("k")), 503, idempotency.KindStoreUnavailable)
		w.ran(2)
	})
}
