package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
)

// Commit refuses while the database is full.
func (o *outOfOrder) Commit(ctx context.Context, c keep.Commit) error {
	if o.full.Load() {
		return errOutOfOrder
	}
	return o.DB.Commit(ctx, c)
}

// A host whose database takes no commits is not ready, and is again after the next that works.
func TestReadyNeedsCommits(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load(config.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s := sessionOf(t, cfg, slog.New(slog.DiscardHandler))
	check := checkOf(t.Context(), s)
	t.Cleanup(check.wg.Wait)
	want := func(status int, reason string) {
		t.Helper()
		w := httptest.NewRecorder()
		ready(w, httptest.NewRequest(http.MethodGet, "/readyz", nil), s, check)
		if w.Code != status {
			t.Errorf("/readyz answers %d, want %d: %s", w.Code, status, w.Body)
		}
		if r := s.Refusal(); (r == nil) != (reason == "") || r != nil && !strings.Contains(r.Reason, reason) {
			t.Errorf("the refusal is %+v, want %q", r, reason)
		}
	}
	db := s.DB.(*outOfOrder)
	want(http.StatusOK, "")
	db.full.Store(true)
	if err := s.Host.Pause(t.Context(), "notes", keep.Decision{By: "ann"}); !errors.Is(err, errOutOfOrder) {
		t.Fatalf("a commit was answered with %v", err)
	}
	want(http.StatusServiceUnavailable, "out of order")
	db.full.Store(false)
	if err := s.Host.Pause(t.Context(), "notes", keep.Decision{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	want(http.StatusOK, "")
}
