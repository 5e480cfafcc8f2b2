package idempotency_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// A retry that did nothing, as one that was refused for now, says nothing of the attempt before it, which nobody knows of: that stays in doubt.
func TestRetryThatDidNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		probes, happened := 0, false
		probe := func(context.Context, idempotency.Question) (idempotency.Finding, error) {
			if probes++; !happened {
				return idempotency.Finding{}, idempotency.ErrCannotTell
			}
			return idempotency.Finding{Happened: true, Status: 201}, nil
		}
		status := 502 // a gateway that passed the request on
		w := newWorld(t, rule(idempotency.Rule{AfterCrash: idempotency.AfterCrashRetry, Probe: probe}), func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(status) })
		reference := w.problem(w.do(with("k")), 502, idempotency.KindOutcomeUnknown)["reference"].(string)
		status = 429
		if got := w.do(with("k")); got.Code != 429 {
			t.Errorf("the retry got %d %s", got.Code, got.Body)
		}
		w.ran(2)
		if got := w.seen[len(w.seen)-1].Outcome; got != idempotency.OutcomeDoubt {
			t.Errorf("the retry is counted as %s", got)
		}
		status = 201
		ask := httptest.NewRequest(http.MethodGet, idempotency.InstancePath+reference, nil)
		if got := w.do(ask).Body.String(); !strings.Contains(got, `"state":"unknown"`) {
			t.Errorf("the caller is told %s, and the first attempt may have happened", got)
		}
		careful, err := idempotency.New(w.store, rule(idempotency.Rule{})) // other rules, by an edit or at a neighbour
		must(t, err)
		rec := httptest.NewRecorder()
		careful.Handler(http.NotFoundHandler()).ServeHTTP(rec, with("k"))
		w.problem(rec, 409, idempotency.KindOutcomeUnknown)
		happened = true
		if got := w.do(with("k")); got.Code != 201 || got.Header().Get(idempotency.ReplayedHeader) != "true" {
			t.Errorf("what the probe knows is not asked: %d %s", got.Code, got.Body)
		}
		w.ran(2)
		if r := w.record("k"); r.State != key.Done || r.ExpiresAt.Before(time.Now()) {
			t.Errorf("the record is %s", r.State)
		}
	})
}

// The same holds if the rule of the retry says that its handler leaves nothing behind, and that of the attempt before did not.
func TestAtomicRetryThatDidNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, rule(idempotency.Rule{}), func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(502) })
		w.problem(w.do(with("k")), 502, idempotency.KindOutcomeUnknown)
		edited, err := idempotency.New(w.store, rule(idempotency.Rule{Atomic: true, AfterCrash: idempotency.AfterCrashRetry}))
		must(t, err)
		for _, does := range []http.HandlerFunc{
			func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(429) },
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		} {
			func() {
				defer func() { _ = recover() }()
				edited.Handler(does).ServeHTTP(httptest.NewRecorder(), with("k"))
			}()
			if r := w.record("k"); r.State != key.Unknown || r.Doubts != 1 {
				t.Errorf("the record is %s with %d doubts", r.State, r.Doubts)
			}
		}
		w.problem(w.do(with("k")), 409, idempotency.KindOutcomeUnknown)
		w.ran(1)
	})
}

// What a decision returns names the record as it stands then: who sees it may decide again.
func TestSeenOfADecision(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(502) })
	w.problem(w.do(with("k")), 502, idempotency.KindOutcomeUnknown)
	keys, reference := idempotency.NewKeys(w.store), w.record("k").ID.String()
	v, err := keys.Resolve(t.Context(), reference, idempotency.Resolution{Happened: true, Status: 201, By: "pat"}, time.Now())
	must(t, err)
	if _, err := keys.ForgetSeen(t.Context(), reference, "pat", v.Seen, time.Now()); err != nil {
		t.Errorf("it is forgotten as it was shown: %v", err)
	}
}
