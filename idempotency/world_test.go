package idempotency_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/memory"
)

// A world is a guard with a store that can fail, in front of a handler that
// counts how often it is executed.
type world struct {
	t     testing.TB
	store *flaky
	guard *idempotency.Guard
	h     http.Handler
	runs  atomic.Int64
	log   logged
	seen  []idempotency.Observation
	mu    sync.Mutex // protects seen
}

// newWorld guards h, or a handler that answers 201 with the number of the run.
func newWorld(t testing.TB, cfg idempotency.Config, h http.HandlerFunc) *world {
	t.Helper()
	return newWorldOn(t, func(f *flaky) idempotency.Store { return f }, cfg, h)
}

// newWorldOn is newWorld with a store of its own upon the one that can fail.
func newWorldOn(t testing.TB, on func(*flaky) idempotency.Store, cfg idempotency.Config, h http.HandlerFunc) *world {
	t.Helper()
	w := &world{t: t, store: &flaky{Keys: new(memory.Keys)}}
	cfg.Logger = slog.New(slog.NewTextHandler(&w.log, nil))
	cfg.Observe = func(_ context.Context, o idempotency.Observation) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen = append(w.seen, o)
	}
	g, err := idempotency.New(on(w.store), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if h == nil {
		h = func(rw http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			rw.Header().Set("Location", "/orders/1")
			rw.WriteHeader(http.StatusCreated)
			_, _ = rw.Write(append([]byte("made "), body...))
		}
	}
	w.guard = g
	w.h = g.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.runs.Add(1)
		h(rw, r)
	}))
	return w
}

// rule returns a Config with one rule.
func rule(r idempotency.Rule) idempotency.Config {
	return idempotency.Config{Rules: []idempotency.Rule{r}}
}

// with returns a POST with a key, as changed by change.
func with(k string, change ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("order"))
	if k != "" {
		r.Header.Set("Idempotency-Key", k)
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func body(text string) func(*http.Request) {
	return func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
	}
}

// do sends a request past HTTP.
func (w *world) do(r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	w.h.ServeHTTP(rec, r)
	return rec
}

// ran fails the test unless the handler was executed n times.
func (w *world) ran(n int64) {
	w.t.Helper()
	if got := w.runs.Load(); got != n {
		w.t.Errorf("the handler ran %d times, want %d", got, n)
	}
}

// record returns the record of a key that one caller used, or the zero Record.
func (w *world) record(k string) key.Record {
	w.t.Helper()
	list, _, err := w.store.Keys.List(context.Background(), key.Filter{Key: k}, keep.Page{})
	if err != nil || len(list) > 1 {
		w.t.Fatalf("records of %s: %d, %v", k, len(list), err)
	}
	if len(list) == 0 {
		return key.Record{}
	}
	r, err := w.store.Keys.Read(context.Background(), list[0].ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// replayed fails the test unless got is a replay of first.
func (w *world) replayed(first, got *httptest.ResponseRecorder) {
	w.t.Helper()
	if got.Header().Get("Idempotent-Replayed") != "true" {
		w.t.Errorf("answer %d %q is not marked as replayed", got.Code, got.Body)
	}
	if got.Code != first.Code || !bytes.Equal(got.Body.Bytes(), first.Body.Bytes()) {
		w.t.Errorf("replay = %d %q, want %d %q", got.Code, got.Body, first.Code, first.Body)
	}
}

// problem fails the test unless got is a problem of that kind, and returns it.
func (w *world) problem(got *httptest.ResponseRecorder, status int, kind idempotency.Kind) map[string]any {
	w.t.Helper()
	var p map[string]any
	err := json.Unmarshal(got.Body.Bytes(), &p)
	if err != nil || got.Code != status || got.Header().Get("Content-Type") != "application/problem+json" ||
		p["type"] != idempotency.ProblemBase+string(kind) || p["status"] != float64(status) || p["title"] == "" || p["detail"] == "" {
		w.t.Errorf("answer %d %v %q, want problem %s with status %d", got.Code, got.Header(), got.Body, kind, status)
	}
	return p
}

// flaky is a store that fails as it is told, and counts.
type flaky struct {
	*memory.Keys
	failRead  atomic.Bool
	failWrite atomic.Bool
	failAfter atomic.Int64 // writes that still work; 0: failWrite decides
	forget    atomic.Bool  // writes are stored and reported as failed
	writes    atomic.Int64
}

var errDisk = errors.New("the disk is full")

func (f *flaky) Read(ctx context.Context, id key.ID) (key.Record, error) {
	if f.failRead.Load() {
		return key.Record{}, errDisk
	}
	return f.Keys.Read(ctx, id)
}

func (f *flaky) Write(ctx context.Context, r key.Record) error {
	if n := f.failAfter.Load(); n > 0 && f.failAfter.Add(-1) == 0 {
		f.failWrite.Store(true)
		f.writes.Add(1)
		return f.Keys.Write(ctx, r)
	}
	if f.failWrite.Load() {
		return errDisk
	}
	f.writes.Add(1)
	err := f.Keys.Write(ctx, r)
	if err == nil && f.forget.Load() {
		return errDisk
	}
	return err
}

// logged is what was logged.
type logged struct {
	mu  sync.Mutex // protects buf
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const week = 7 * 24 * time.Hour
