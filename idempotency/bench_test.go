package idempotency_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/internal/cputime"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/store/sqlite"
)

// order is a request of about 105 bytes; bill an answer of about 200.
var (
	order = []byte(`{"customer":"c-1042","amount":"129.90","currency":"EUR","items":["a-1","b-2"],"note":"to the door"}`)
	bill  = bytes.Repeat([]byte("0123456789"), 20)
)

func answerBill(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(bill)
}

// BenchmarkHTTP measures requests over the loopback at 32 connections: the bare
// handler, and the guard with each store, for new keys and for replays. It
// reports requests per second, the 99th percentile, and the CPU time of the
// whole process, which is client, server and store, per request.
func BenchmarkHTTP(b *testing.B) {
	guarded := func(b *testing.B, s idempotency.Store) http.Handler {
		g, err := idempotency.New(s, idempotency.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		return g.Handler(http.HandlerFunc(answerBill))
	}
	file := func(b *testing.B) idempotency.Store {
		db := sqlite.New(filepath.Join(b.TempDir(), "keys.db"), sqlite.Config{})
		if err := db.Open(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = db.Close() })
		return db.Keys()
	}
	b.Run("bare", func(b *testing.B) { load(b, http.HandlerFunc(answerBill), 1<<30, 0) })
	b.Run("memory/new", func(b *testing.B) { load(b, guarded(b, new(memory.Keys)), 1<<30, 0) })
	b.Run("memory/replay", func(b *testing.B) { load(b, guarded(b, new(memory.Keys)), 1000, 1000) })
	b.Run("sqlite/new", func(b *testing.B) { load(b, guarded(b, file(b)), 1<<30, 0) })
	b.Run("sqlite/replay", func(b *testing.B) { load(b, guarded(b, file(b)), 1000, 1000) })
}

// load sends b.N requests over 32 connections, with that many different keys,
// after warm of them.
func load(b *testing.B, h http.Handler, keys, warm int) {
	server := httptest.NewServer(h)
	defer server.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: 32, DisableCompression: true}
	defer transport.CloseIdleConnections()
	send := func(n int) {
		r, _ := http.NewRequest(http.MethodPost, server.URL+"/orders", bytes.NewReader(order))
		r.Header.Set("Idempotency-Key", "order-"+strconv.Itoa(n%keys))
		resp, err := transport.RoundTrip(r)
		if err != nil {
			b.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			b.Errorf("status %d", resp.StatusCode)
		}
	}
	for n := range warm {
		send(n)
	}
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	cpu := cputime.Used()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= b.N {
					return
				}
				start := time.Now()
				send(n)
				took[n] = time.Since(start)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	b.ReportMetric(float64(took[b.N*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64((cputime.Used()-cpu).Microseconds())/float64(b.N), "cpu-µs/req")
}

// void is a store that costs nothing and keeps nothing.
type void struct{ idempotency.Store }

func (void) Read(context.Context, key.ID) (key.Record, error) { return key.Record{}, nil }
func (void) Write(context.Context, key.Record) error          { return nil }

// BenchmarkGuard measures what the guard itself costs, without HTTP: a new key
// without a store, and a replay from memory.
func BenchmarkGuard(b *testing.B) {
	g, err := idempotency.New(new(memory.Keys), idempotency.Config{})
	if err != nil {
		b.Fatal(err)
	}
	empty, err := idempotency.New(void{}, idempotency.Config{})
	if err != nil {
		b.Fatal(err)
	}
	for _, test := range []struct {
		name string
		h    http.Handler
		keys int
	}{
		{"bare", http.HandlerFunc(answerBill), 1},
		{"new", empty.Handler(http.HandlerFunc(answerBill)), 1 << 40},
		{"replay", g.Handler(http.HandlerFunc(answerBill)), 1},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			cpu := cputime.Used()
			for n := range b.N {
				r := httptest.NewRequest(http.MethodPost, "/orders", bytes.NewReader(order))
				r.Header["Idempotency-Key"] = []string{fmt.Sprintf("%s-%d-%d", test.name, n%test.keys, b.N)}
				w := httptest.NewRecorder()
				test.h.ServeHTTP(w, r)
				if w.Code != http.StatusCreated {
					b.Fatal(w.Code, w.Body)
				}
			}
			b.ReportMetric(float64((cputime.Used()-cpu).Microseconds())/float64(b.N), "cpu-µs/req")
		})
	}
}
