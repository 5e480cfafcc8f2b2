//go:build unix

package idempotency_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/postgres"
)

// BenchmarkMillion fills two of each store, one to 10,000 keys and one to 1,000,000,
// and reports how long a lookup takes in either, and the 99th percentile of new keys
// at 32 clients in the large one, without and beside a sweep that has all million to
// delete. What is compared is measured in turns, so that what else the machine does
// falls on both. It takes a minute for each store: -benchtime 1x.
func BenchmarkMillion(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) {
		million(b, func(b *testing.B, keys int) idempotency.Store {
			path := filepath.Join(b.TempDir(), "keys.db")
			store := openFile(b, path).Keys()
			fillSQLite(b, path, keys)
			return store
		})
	})
	b.Run("postgres", func(b *testing.B) {
		server, err := pgtest.Start("", pgtest.Durable()...)
		if err != nil {
			b.Skip(err)
		}
		b.Cleanup(server.Stop)
		million(b, func(b *testing.B, keys int) idempotency.Store {
			name := fmt.Sprint("keys", keys)
			must(b, server.CreateDatabase(b.Context(), name))
			db := postgres.New(server.URL(name), postgres.Config{})
			must(b, db.Open(b.Context()))
			b.Cleanup(func() { _ = db.Close() })
			fillPostgres(b, server.URL(name), keys)
			return db.Keys()
		})
	})
}

// million measures stores that open makes with that many keys.
func million(b *testing.B, open func(b *testing.B, keys int) idempotency.Store) {
	const few, many = 10_000, 1_000_000
	small, large := open(b, few), open(b, many)
	of := map[idempotency.Store]int{small: few, large: many}
	took := make(map[idempotency.Store][]time.Duration)
	for turn := range 42 {
		for s, n := range of {
			times := lookups(b, s, n)
			if turn >= 2 { // what the first find is not in the cache yet
				took[s] = append(took[s], times...)
			}
		}
	}
	b.ReportMetric(microseconds(took[small], 0.5), "lookup-10k-µs")
	b.ReportMetric(microseconds(took[large], 0.5), "lookup-1M-µs")

	g, err := idempotency.New(large, idempotency.Config{Logger: slog.New(slog.DiscardHandler)})
	must(b, err)
	var names atomic.Int64
	var alone, beside []time.Duration
	var times []float64 // how much longer the 99th percentile is beside a sweep
	deleted := 0
	for range windows {
		a := newKeys(b, g, &names)
		ctx, stop := context.WithCancel(b.Context())
		var sweep sync.WaitGroup
		sweep.Go(func() {
			n, _ := g.Sweep(ctx, filled.Add(idempotency.DefaultTTL+time.Hour))
			deleted += n
		})
		s := newKeys(b, g, &names)
		stop()
		sweep.Wait()
		times = append(times, microseconds(s, 0.99)/microseconds(a, 0.99))
		alone, beside = append(alone, a...), append(beside, s...)
	}
	slices.Sort(times)
	seconds := (windows * patience).Seconds()
	b.ReportMetric(float64(len(alone))/seconds, "new/s")
	b.ReportMetric(microseconds(alone, 0.99)/1000, "p99-ms")
	b.ReportMetric(float64(len(beside))/seconds, "sweeping-new/s")
	b.ReportMetric(microseconds(beside, 0.99)/1000, "sweeping-p99-ms")
	b.ReportMetric(times[len(times)/2], "p99-times")
	b.ReportMetric(float64(deleted)/seconds, "swept/s")
}

const (
	// windows is how often newKeys measures, without and with a sweep.
	windows = 7

	// patience is how long it measures.
	patience = 2 * time.Second
)

// microseconds returns a quantile. It sorts.
func microseconds(all []time.Duration, quantile float64) float64 {
	slices.Sort(all)
	return float64(all[int(float64(len(all))*quantile)].Nanoseconds()) / 1000
}

// filled is when the keys of the benchmark were used: they are over, and others
// are not.
var filled = time.Now().Add(-2 * idempotency.DefaultTTL)

func millionName(i int) string { return fmt.Sprintf("order-%07d", i) }

// lookups returns how long it takes to read some of n keys.
func lookups(b *testing.B, s idempotency.Store, n int) []time.Duration {
	took := make([]time.Duration, 500)
	for i := range took {
		id := key.NewID("example.com", "", millionName(rand.IntN(n)))
		start := time.Now()
		r, err := s.Read(b.Context(), id)
		if took[i] = time.Since(start); err != nil || r.State != key.Done {
			b.Fatalf("state %q, %v", r.State, err)
		}
	}
	return took
}

// newKeys sends new keys from 32 clients, without HTTP, for as long as patience says,
// and returns how long each took.
func newKeys(b *testing.B, g *idempotency.Guard, names *atomic.Int64) []time.Duration {
	h := g.Handler(http.HandlerFunc(answerBill))
	took := make([][]time.Duration, 32)
	until := time.Now().Add(patience)
	var wg sync.WaitGroup
	for c := range took {
		wg.Go(func() {
			for time.Now().Before(until) {
				r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(string(order)))
				r.Header["Idempotency-Key"] = []string{fmt.Sprint("new-", names.Add(1))}
				w := httptest.NewRecorder()
				start := time.Now()
				if h.ServeHTTP(w, r); w.Code != http.StatusCreated {
					b.Error(w.Code, w.Body)
					return
				}
				took[c] = append(took[c], time.Since(start))
			}
		})
	}
	wg.Wait()
	return slices.Concat(took...)
}

// millionRow returns the columns of a key, as both databases have them.
func millionRow(i int) []any {
	name, at := millionName(i), filled.UnixMilli()
	id := key.NewID("example.com", "", name)
	return []any{id[:], name, "", "POST", "/orders", make([]byte, 32), "done", false, int64(1), 0, int64(0), int64(0), 201, "owner",
		at, at, at + idempotency.DefaultTTL.Milliseconds(), int64(2), []byte("Content-Type"), bill, key.Version, "example.com"}
}

var millionColumns = []string{"id", "key", "caller", "method", "path", "fingerprint", "state", "atomic", "token", "doubts",
	"lease_until", "doubt_at", "status", "resolved_by", "created_at", "updated_at", "expires_at", "rev", "header", "body", "version", "host"}

func fillSQLite(b *testing.B, path string, keys int) {
	raw, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=synchronous(OFF)")
	must(b, err)
	defer raw.Close()
	tx, err := raw.Begin()
	must(b, err)
	insert, err := tx.Prepare(`INSERT INTO idempotency_key (` + strings.Join(millionColumns, ", ") + `) VALUES (` +
		strings.Repeat("?, ", len(millionColumns)-1) + `?)`)
	must(b, err)
	for i := range keys {
		_, err := insert.Exec(millionRow(i)...)
		must(b, err)
	}
	must(b, tx.Commit())
	_, err = raw.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`)
	must(b, err)
}

func fillPostgres(b *testing.B, url string, keys int) {
	conn, err := pgx.Connect(b.Context(), url)
	must(b, err)
	defer conn.Close(b.Context())
	_, err = conn.CopyFrom(b.Context(), pgx.Identifier{"idempotency_key"}, millionColumns,
		pgx.CopyFromSlice(keys, func(i int) ([]any, error) { return millionRow(i), nil }))
	must(b, err)
	for _, text := range []string{`VACUUM ANALYZE idempotency_key`, `CHECKPOINT`} { // or they come while it measures
		_, err = conn.Exec(b.Context(), text)
		must(b, err)
	}
}
