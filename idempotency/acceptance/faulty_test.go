package acceptance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/acceptance"
	"github.com/keep-run/keep/store/memory"
)

// A faulty is an API with keys that forgets them, or breaks another promise.
type faulty struct {
	programmable bool
	backend      acceptance.Backend
	made         atomic.Int64
	guarded      atomic.Value // http.HandlerFunc
	down         atomic.Bool
}

// forget begins anew, with no keys.
func (f *faulty) forget() {
	g, err := idempotency.New(new(memory.Keys), idempotency.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	f.guarded.Store(g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.programmable {
			f.backend.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		id := f.made.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", fmt.Sprintf("/orders/%d", id))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id":%d}`, id)
	})).(http.HandlerFunc))
}

// answer answers a request as the guard does.
func (f *faulty) answer(r *http.Request) *httptest.ResponseRecorder {
	got := httptest.NewRecorder()
	if f.down.Load() {
		idempotency.Problem{Kind: idempotency.KindStoreUnavailable, Status: http.StatusServiceUnavailable, RetryAfter: 1}.ServeHTTP(got, r)
		return got
	}
	f.guarded.Load().(http.HandlerFunc).ServeHTTP(got, r)
	return got
}

// An API that breaks a promise fails a case, also if nothing but its answers shows that.
func TestFaultyAPIs(t *testing.T) {
	t.Parallel()
	none := func(context.Context) error { return nil }
	tests := map[string]struct {
		programmable bool
		fault        func(*faulty, *http.Request) *httptest.ResponseRecorder
		restart, up  func(*faulty)
		fails        []string
	}{
		"sound":               {},
		"sound, programmable": {programmable: true},
		"keeps its keys in memory": {restart: (*faulty).forget,
			fails: []string{"an answer survives a kill", "another body is still refused after a kill", "two callers stay apart after a kill"}},
		"loses its keys in an outage": {up: (*faulty).forget,
			fails: []string{"an answered key is not run again"}},
		"replays once": {fault: func(f *faulty, r *http.Request) *httptest.ResponseRecorder {
			got := f.answer(r)
			if got.Header().Get(idempotency.ReplayedHeader) != "" {
				f.forget()
			}
			return got
		}, fails: []string{"a third and fourth request too"}},
		"another body frees the key": {fault: func(f *faulty, r *http.Request) *httptest.ResponseRecorder {
			got := f.answer(r)
			if got.Code == http.StatusUnprocessableEntity {
				f.forget()
			}
			return got
		}, fails: []string{"the first answer is still replayed afterwards"}},
		"replays without headers": {fault: func(f *faulty, r *http.Request) *httptest.ResponseRecorder {
			got := f.answer(r)
			if got.Header().Get(idempotency.ReplayedHeader) != "" {
				got.Header().Del("Location")
			}
			return got
		}, fails: []string{"a retry is replayed"}},
		"wants long keys": {fault: func(f *faulty, r *http.Request) *httptest.ResponseRecorder {
			got := f.answer(r)
			if k := r.Header.Get("Idempotency-Key"); k != "" && len(strings.Trim(k, `"`)) < 8 {
				got = httptest.NewRecorder()
				idempotency.Problem{Kind: idempotency.KindKeyInvalid, Status: http.StatusBadRequest}.ServeHTTP(got, r)
			}
			return got
		}, fails: []string{"accepts a key: 1 character"}},
		"answers any caller": {programmable: true, fault: func(f *faulty, r *http.Request) *httptest.ResponseRecorder {
			other := r.Header.Get("Authorization") == "Bearer two"
			r.Header.Set("Authorization", "Bearer one")
			got := f.answer(r)
			if other {
				got.Header().Del(idempotency.ReplayedHeader)
			}
			return got
		}, fails: []string{"two callers share no answer"}},
		"answers duplicates with nothing": {programmable: true, fault: func(f *faulty, r *http.Request) *httptest.ResponseRecorder {
			got := f.answer(r)
			if strings.Contains(got.Body.String(), "in-progress") {
				got = httptest.NewRecorder()
				got.WriteHeader(http.StatusCreated)
			}
			return got
		}, fails: []string{"2 at once run once", "10 at once run once"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &faulty{programmable: tt.programmable}
			f.forget()
			fault := tt.fault
			if fault == nil {
				fault = (*faulty).answer
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got := fault(f, r)
				for name, lines := range got.Header() {
					w.Header()[name] = lines
				}
				w.WriteHeader(got.Code)
				_, _ = got.Body.WriteTo(w)
			}))
			defer server.Close()
			do := func(what func(*faulty)) func(context.Context) error {
				return func(ctx context.Context) error {
					if what != nil {
						what(f)
					}
					return none(ctx)
				}
			}
			target := acceptance.Target{URL: server.URL, Body: `{"title":"{n}"}`, Headers: map[string]string{"Authorization": "Bearer one"},
				OtherCaller: map[string]string{"Authorization": "Bearer two"}, Programmable: tt.programmable}
			if !tt.programmable {
				target.Restart = do(tt.restart)
				target.StoreDown = func(context.Context) error { f.down.Store(true); return nil }
				target.StoreUp = func(ctx context.Context) error { f.down.Store(false); return do(tt.up)(ctx) }
			}
			results, err := acceptance.Run(t.Context(), target, nil)
			if err != nil {
				t.Fatal(err)
			}
			wrong := make(map[string]string)
			for _, r := range results {
				if r.Skipped == "" && !r.Passed {
					wrong[r.Name] = r.Problem
				}
			}
			for _, want := range tt.fails {
				if wrong[want] == "" {
					t.Errorf("%q passed", want)
				}
				delete(wrong, want)
			}
			if tt.fails == nil && len(wrong) > 0 {
				text, _ := json.MarshalIndent(wrong, "", " ")
				t.Errorf("failed: %s", text)
			}
		})
	}
}
