package compattest

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	fiberidem "github.com/gofiber/fiber/v3/middleware/idempotency"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/store/sqlite"
)

var (
	order = []byte(`{"customer":"c-1042","amount":"129.90","currency":"EUR","items":["a-1","b-2"],"note":"to the door"}`)
	bill  = bytes.Repeat([]byte("0123456789"), 20)
)

// BenchmarkPeers measures, in one run, the bare handlers of net/http and of
// gofiber, gofiber's idempotency middleware with its memory store, which survives
// nothing, and the guard with memory, with SQLite, synchronous=FULL, and with a
// Postgres on the same machine whose commits are synced. It reports requests per
// second, the 99th percentile, and the CPU time per request of this process, which
// is client, server and guard, not Postgres.
func BenchmarkPeers(b *testing.B) {
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(bill)
	})
	guarded := func(b *testing.B, s idempotency.Store) http.Handler {
		g, err := idempotency.New(s, idempotency.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		return g.Handler(bare)
	}
	file := func(b *testing.B) idempotency.Store {
		db := sqlite.New(filepath.Join(b.TempDir(), "keys.db"), sqlite.Config{})
		if err := db.Open(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = db.Close() })
		return db.Keys()
	}
	server := sync.OnceValue(func() *pgtest.Server {
		s, err := pgtest.Start("", pgtest.Durable()...)
		if err != nil {
			b.Skip(err)
		}
		b.Cleanup(s.Stop)
		return s
	})
	database := 0
	postgresKeys := func(b *testing.B) idempotency.Store {
		database++
		name := fmt.Sprint("bench", database)
		if err := server().CreateDatabase(b.Context(), name); err != nil {
			b.Fatal(err)
		}
		pool, err := pgxpool.New(b.Context(), server().URL(name))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(pool.Close)
		keys := postgres.NewKeys(pool)
		if err := keys.Migrate(b.Context()); err != nil {
			b.Fatal(err)
		}
		return keys
	}
	fiberApp := func(handlers ...any) string {
		app := fiber.New()
		for _, h := range handlers {
			app.Use(h)
		}
		app.Post("/orders", func(c fiber.Ctx) error {
			c.Set("Content-Type", "application/json")
			return c.Status(201).Send(bill)
		})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		go func() { _ = app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
		b.Cleanup(func() { _ = app.Shutdown() })
		return "http://" + l.Addr().String()
	}
	std := func(b *testing.B, h http.Handler) string {
		s := httptest.NewServer(h)
		b.Cleanup(s.Close)
		return s.URL
	}
	b.Run("nethttp/bare", func(b *testing.B) { load(b, std(b, bare), false) })
	b.Run("fiber/bare", func(b *testing.B) { load(b, fiberApp(), false) })
	b.Run("fiber/memory/new", func(b *testing.B) { load(b, fiberApp(fiberidem.New()), false) })
	b.Run("fiber/memory/replay", func(b *testing.B) { load(b, fiberApp(fiberidem.New()), true) })
	b.Run("keep/memory/new", func(b *testing.B) { load(b, std(b, guarded(b, new(memory.Keys))), false) })
	b.Run("keep/memory/replay", func(b *testing.B) { load(b, std(b, guarded(b, new(memory.Keys))), true) })
	b.Run("keep/sqlite/new", func(b *testing.B) { load(b, std(b, guarded(b, file(b))), false) })
	b.Run("keep/sqlite/replay", func(b *testing.B) { load(b, std(b, guarded(b, file(b))), true) })
	onPostgres := func(b *testing.B, replay bool) {
		url := std(b, guarded(b, postgresKeys(b)))
		cpu := server().CPU()
		load(b, url, replay)
		b.ReportMetric(float64((server().CPU()-cpu).Microseconds())/float64(b.N), "postgres-cpu-µs/req")
	}
	b.Run("keep/postgres/new", func(b *testing.B) { onPostgres(b, false) })
	b.Run("keep/postgres/replay", func(b *testing.B) { onPostgres(b, true) })
}

// load sends b.N requests over 32 kept-alive connections. Client and server share
// the machine, as in all rows.
func load(b *testing.B, url string, replay bool) {
	var next atomic.Int64
	took := make([]time.Duration, b.N)
	run := func(address string, count int, key func(int64) int64) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		buf := make([]byte, 4096)
		for {
			n := next.Add(1) - 1
			if n >= int64(count) {
				return
			}
			start := time.Now()
			// 36 characters: gofiber insists on them.
			req := fmt.Appendf(nil, "POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nX-Idempotency-Key: %036d\r\n\r\n%s", len(order), key(n), order)
			if _, err := conn.Write(req); err != nil {
				b.Error(err)
				return
			}
			got := 0
			for got == 0 || !bytes.Contains(buf[:got], bill) {
				m, err := conn.Read(buf[got:])
				if err != nil {
					b.Error(err, string(buf[:got]))
					return
				}
				got += m
			}
			if !bytes.HasPrefix(buf, []byte("HTTP/1.1 201")) {
				b.Error(string(buf[:got]))
				return
			}
			if n < int64(len(took)) {
				took[n] = time.Since(start)
			}
		}
	}
	if replay {
		run(url, 1000, func(n int64) int64 { return n })
		next.Store(0)
	}
	key := func(n int64) int64 { return n }
	if replay {
		key = func(n int64) int64 { return n % 1000 }
	}
	cpu := cpuTime()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() { run(url, b.N, key) })
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	b.ReportMetric(float64(took[b.N*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(b.N), "cpu-µs/req")
}

// cpuTime returns the CPU time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
