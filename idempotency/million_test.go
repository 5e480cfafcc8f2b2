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
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/key"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/postgres"
)

// BenchmarkMillion fills each store to 10,000 keys and then to 1,000,000, and
// reports how long a lookup takes at either size, and the 99th percentile of new
// keys at 32 clients, without and beside a sweep that has all million to delete.
// It takes a minute for each store: -benchtime 1x.
func BenchmarkMillion(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) {
		path := filepath.Join(b.TempDir(), "keys.db")
		million(b, openFile(b, path).Keys(), fillSQLite(b, path))
	})
	b.Run("postgres", func(b *testing.B) {
		server, err := pgtest.Start("", pgtest.Durable()...)
		if err != nil {
			b.Skip(err)
		}
		b.Cleanup(server.Stop)
		db := postgres.New(server.URL("postgres"), postgres.Config{})
		must(b, db.Open(b.Context()))
		b.Cleanup(func() { _ = db.Close() })
		million(b, db.Keys(), fillPostgres(b, server.URL("postgres")))
	})
}

// million measures a store that fill adds the keys from and until to.
func million(b *testing.B, s idempotency.Store, fill func(from, until int)) {
	const few, many = 10_000, 1_000_000
	fill(0, few)
	b.ReportMetric(lookups(b, s, few), "lookup-10k-µs")
	fill(few, many)
	b.ReportMetric(lookups(b, s, many), "lookup-1M-µs")
	g, err := idempotency.New(s, idempotency.Config{Logger: slog.New(slog.DiscardHandler)})
	must(b, err)
	var names atomic.Int64
	rate, p99 := newKeys(b, g, &names)
	b.ReportMetric(rate, "new/s")
	b.ReportMetric(p99, "p99-ms")
	ctx, stop := context.WithCancel(b.Context())
	var sweep sync.WaitGroup
	deleted := 0
	sweep.Go(func() { deleted, _ = g.Sweep(ctx, filled.Add(idempotency.DefaultTTL+time.Hour)) })
	rate, p99 = newKeys(b, g, &names)
	stop()
	sweep.Wait()
	b.ReportMetric(rate, "sweeping-new/s")
	b.ReportMetric(p99, "sweeping-p99-ms")
	b.ReportMetric(float64(deleted)/patience.Seconds(), "swept/s")
}

// patience is how long newKeys measures.
const patience = 10 * time.Second

// filled is when the keys of the benchmark were used: they are over, and others
// are not.
var filled = time.Now().Add(-2 * idempotency.DefaultTTL)

func millionName(i int) string { return fmt.Sprintf("order-%07d", i) }

// lookups returns the mean time of reading one of n keys, in microseconds.
func lookups(b *testing.B, s idempotency.Store, n int) float64 {
	const many = 20_000
	look := func(times int) {
		for range times {
			r, err := s.Read(b.Context(), key.NewID("", millionName(rand.IntN(n))))
			if err != nil || r.State != key.Done {
				b.Fatalf("state %q, %v", r.State, err)
			}
		}
	}
	look(many / 10)
	start := time.Now()
	look(many)
	return float64(time.Since(start).Microseconds()) / many
}

// newKeys sends new keys from 32 clients, without HTTP, and returns how many there
// were in a second and the 99th percentile in milliseconds.
func newKeys(b *testing.B, g *idempotency.Guard, names *atomic.Int64) (rate, p99 float64) {
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
	all := slices.Concat(took...)
	slices.Sort(all)
	return float64(len(all)) / patience.Seconds(), float64(all[len(all)*99/100].Microseconds()) / 1000
}

// millionRow returns the columns of a key, as both databases have them.
func millionRow(i int) []any {
	name, at := millionName(i), filled.UnixMilli()
	id := key.NewID("", name)
	return []any{id[:], name, "", "POST", "/orders", make([]byte, 32), "done", false, int64(1), 0, int64(0), int64(0), 201, "owner",
		at, at, at + idempotency.DefaultTTL.Milliseconds(), int64(2), []byte("Content-Type"), bill}
}

var millionColumns = []string{"id", "key", "caller", "method", "path", "fingerprint", "state", "atomic", "token", "doubts",
	"lease_until", "doubt_at", "status", "resolved_by", "created_at", "updated_at", "expires_at", "rev", "header", "body"}

func fillSQLite(b *testing.B, path string) func(from, until int) {
	raw, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=synchronous(OFF)")
	must(b, err)
	b.Cleanup(func() { _ = raw.Close() })
	return func(from, until int) {
		tx, err := raw.Begin()
		must(b, err)
		insert, err := tx.Prepare(`INSERT INTO idempotency_key (` + strings.Join(millionColumns, ", ") + `) VALUES (` +
			strings.Repeat("?, ", len(millionColumns)-1) + `?)`)
		must(b, err)
		for i := from; i < until; i++ {
			_, err := insert.Exec(millionRow(i)...)
			must(b, err)
		}
		must(b, tx.Commit())
		_, err = raw.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`)
		must(b, err)
	}
}

func fillPostgres(b *testing.B, url string) func(from, until int) {
	pool, err := pgxpool.New(b.Context(), url)
	must(b, err)
	b.Cleanup(pool.Close)
	return func(from, until int) {
		_, err := pool.CopyFrom(b.Context(), pgx.Identifier{"idempotency_key"}, millionColumns,
			pgx.CopyFromSlice(until-from, func(i int) ([]any, error) { return millionRow(from + i), nil }))
		must(b, err)
		for _, text := range []string{`VACUUM ANALYZE idempotency_key`, `CHECKPOINT`} { // or they come while it measures
			_, err = pool.Exec(b.Context(), text)
			must(b, err)
		}
	}
}
