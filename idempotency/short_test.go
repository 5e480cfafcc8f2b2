package idempotency_test

import (
	"database/sql"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// An answer that is shorter than announced was cut off where it came from. It is not made
// whole, and not kept.
func TestShortAnswer(t *testing.T) {
	h := func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(rw, `{"paid":`)
	}
	w := newWorld(t, idempotency.Config{}, h)
	w.problem(w.do(with("k")), 502, idempotency.KindOutcomeUnknown)
	w.problem(w.do(with("k")), 409, idempotency.KindOutcomeUnknown)
	w.ran(1)
	atomic := newWorld(t, rule(idempotency.Rule{Atomic: true}), h)
	if atomic.do(with("k")); atomic.record("k").State != key.Released {
		t.Errorf("of an atomic route: %q, want released", atomic.record("k").State)
	}
}

// Refusals of a guard that the handler stands before say what they say, and are no answers.
func TestBehindAnotherGuard(t *testing.T) {
	for kind, want := range map[idempotency.Kind]key.State{
		idempotency.KindInProgress: key.Released, idempotency.KindOutcomeUnknown: key.Unknown, idempotency.KindBodyNotStored: key.Done,
	} {
		w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
			idempotency.Problem{Kind: kind, Status: 409}.ServeHTTP(rw, r)
		})
		if w.do(with("k")); w.record("k").State != want {
			t.Errorf("%s: %q, want %q", kind, w.record("k").State, want)
		}
	}
}

// What a handler declares counts more than what it passes on.
func TestDeclaredBehindAnotherGuard(t *testing.T) {
	w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		idempotency.Doubt(r.Context(), 502)
		idempotency.Problem{Kind: idempotency.KindInProgress, Status: 409}.ServeHTTP(rw, r)
	})
	if w.do(with("k")); w.record("k").State != key.Unknown {
		t.Errorf("the key is %q, want unknown", w.record("k").State)
	}
}

// A handler that is wrapped twice by one guard is guarded once.
func TestWrappedTwice(t *testing.T) {
	w := newWorld(t, idempotency.Config{}, nil)
	h := w.guard.Handler(w.h)
	first, again := httptest.NewRecorder(), httptest.NewRecorder()
	h.ServeHTTP(first, with("k"))
	h.ServeHTTP(again, with("k"))
	w.replayed(first, again)
	w.ran(1)
}

// A handler that ends the transaction of its key itself leaves a doubt: nothing says whether
// its effect is there.
func TestTxEndedByItsHandler(t *testing.T) {
	for name, end := range map[string]func(*sql.Tx) error{"commit": (*sql.Tx).Commit, "rollback": (*sql.Tx).Rollback} {
		runs := 0
		h := guardFile(t, openFile(t, filepath.Join(t.TempDir(), "k.db")), rule(idempotency.Rule{Atomic: true}), func(rw http.ResponseWriter, r *http.Request) {
			runs++
			tx, err := idempotency.Tx[*sql.Tx](r.Context())
			if err == nil {
				err = end(tx)
			}
			if err != nil {
				t.Error(err)
			}
		})
		first, again := httptest.NewRecorder(), httptest.NewRecorder()
		h.ServeHTTP(first, with("k"))
		h.ServeHTTP(again, with("k"))
		if first.Code != 503 || again.Code != 409 || runs != 1 {
			t.Errorf("%s: %d %s, then %d after %d runs; want 503, 409, 1", name, first.Code, first.Body, again.Code, runs)
		}
	}
}

// A transaction that begins after the first byte of a stream could not be taken back.
func TestTxInAStream(t *testing.T) {
	h := guardFile(t, openFile(t, filepath.Join(t.TempDir(), "k.db")), idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, "data: 0\n\n")
		if _, err := idempotency.Tx[*sql.Tx](r.Context()); err == nil {
			t.Error("it began")
		}
	})
	h.ServeHTTP(httptest.NewRecorder(), with("k"))
}

// A doubt is shown as an error, whatever status its handler had at hand.
func TestDoubtWithoutAStatus(t *testing.T) {
	t.Parallel()
	for _, status := range []int{0, 200, 1000} {
		w := newWorld(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
			idempotency.Doubt(r.Context(), status)
			rw.WriteHeader(200)
		})
		w.problem(w.do(with("k")), 502, idempotency.KindOutcomeUnknown)
		w.problem(w.do(with("k")), 409, idempotency.KindOutcomeUnknown)
		w.ran(1)
	}
}
