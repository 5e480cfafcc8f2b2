package acceptance_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/acceptance"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/memory"
	"github.com/keep-run/keep/sqlite"
)

func TestRun_passes_for_guard_and_proxy_on_every_store(t *testing.T) {
	t.Parallel()
	stores := map[string]func(*testing.T) idempotency.Store{
		"memory": func(*testing.T) idempotency.Store { return new(memory.Keys) },
		"sqlite": func(t *testing.T) idempotency.Store {
			db := sqlite.New(filepath.Join(t.TempDir(), "keys.db"), sqlite.Config{})
			if err := db.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			return db.Keys()
		},
	}
	fronts := map[string]func(*testing.T, idempotency.Store) http.Handler{
		"guard": func(t *testing.T, s idempotency.Store) http.Handler {
			g, err := idempotency.New(s, idempotency.Config{})
			if err != nil {
				t.Fatal(err)
			}
			return g.Handler(new(acceptance.Backend))
		},
		"proxy": func(t *testing.T, s idempotency.Store) http.Handler {
			up := httptest.NewServer(new(acceptance.Backend))
			t.Cleanup(up.Close)
			p, err := proxy.New(s, proxy.Config{Upstream: up.URL, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			return p.Handler()
		},
	}
	for store, open := range stores {
		for front, make := range fronts {
			t.Run(front+" on "+store, func(t *testing.T) {
				t.Parallel()
				s := httptest.NewServer(make(t, open(t)))
				defer s.Close()
				results := run(t, s.URL)
				if len(results) < 100 {
					t.Errorf("%d cases, want at least 100", len(results))
				}
				for _, r := range results {
					if !r.Passed {
						t.Errorf("%s: %s: %s%s", r.Group, r.Name, r.Problem, r.Skipped)
					}
				}
			})
		}
	}
}

func run(t *testing.T, url string) []acceptance.Result {
	t.Helper()
	results, err := acceptance.Run(t.Context(), acceptance.Target{
		URL: url, Body: `{"n":"{n}"}`, Programmable: true, BodyLimit: 1 << 20, ResponseLimit: 8 << 20,
		Headers:     map[string]string{"Content-Type": "application/json", "Authorization": "Bearer a"},
		OtherCaller: map[string]string{"Authorization": "Bearer b"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// A suite that passes whatever it is pointed at proves nothing.
func TestRun_finds_what_is_missing(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(new(acceptance.Backend))
	defer s.Close()
	failed := map[string]int{}
	for _, r := range run(t, s.URL) {
		if !r.Passed {
			failed[r.Group]++
		}
	}
	for _, group := range []string{"gating", "replay fidelity", "fingerprint", "concurrency", "failure policy", "scope", "expiry", "size and streaming"} {
		if failed[group] == 0 {
			t.Errorf("a bare handler fails no case of %s", group)
		}
	}
}

func TestRun_skips_what_it_cannot_ask(t *testing.T) {
	t.Parallel()
	g, err := idempotency.New(new(memory.Keys), idempotency.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "made") })))
	defer s.Close()
	results, err := acceptance.Run(context.Background(), acceptance.Target{URL: s.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	passed, skipped := 0, 0
	for _, r := range results {
		switch {
		case r.Skipped != "":
			skipped++
		case r.Passed:
			passed++
		default:
			t.Errorf("%s: %s: %s", r.Group, r.Name, r.Problem)
		}
	}
	if passed < 25 || skipped < 50 {
		t.Errorf("%d passed and %d skipped", passed, skipped)
	}
}
