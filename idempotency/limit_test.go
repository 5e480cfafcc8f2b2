package idempotency_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keep-run/keep/idempotency"
)

// A limit that stands before the guard is the one that is named.
func TestLimitBeforeTheGuard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, nil)
	rec := httptest.NewRecorder()
	http.MaxBytesHandler(w.h, 4).ServeHTTP(rec, with("k"))
	p := w.problem(rec, 413, idempotency.KindBodyTooLarge)
	if detail, _ := p["detail"].(string); !strings.Contains(detail, "may have 4 bytes") {
		t.Errorf("detail %q, want the limit that was reached", detail)
	}
	w.ran(0)
}
