package postgres_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/cputime"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/testkit/storetest"
)

// BenchmarkRun measures the two commits of an undisturbed consumer run, as the
// benchmark of package sqlite does: pin an event and record the call; settle,
// consume, publish and commit. Payloads have 1 KB. The server is durable: fsync and
// synchronous_commit are on.
//
// It reports, per run, the CPU time of this process and of the server, and of the
// server its transactions and bytes of WAL.
func BenchmarkRun(b *testing.B) {
	s := pgtest.StartDurable(b)
	for i, workflows := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprintf("workflows=%d", workflows), func(b *testing.B) {
			name := fmt.Sprintf("bench_%d_%d", i, b.N)
			if err := s.CreateDatabase(b.Context(), name); err != nil {
				b.Fatal(err)
			}
			benchmarkRuns(b, s, s.URL(name), workflows)
		})
	}
}

func benchmarkRuns(b *testing.B, s *pgtest.Server, url string, workflows int) {
	db := openDB(b, url, postgres.Config{Host: true})
	loads := make([]*storetest.Load, workflows)
	for i := range loads {
		loads[i] = storetest.NewLoad(keep.WorkflowName(fmt.Sprintf("workflow-%02d-%d", i, os.Getpid())), i)
		if err := db.Commit(b.Context(), loads[i].Deploy()); err != nil {
			b.Fatal(err)
		}
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, workflows)
	before := serverStats(b, url)
	b.ReportAllocs()
	cpu := cputime.Used()
	server := s.CPU()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, l := range loads {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				start := time.Now()
				if err := l.Run(b.Context(), db); err != nil {
					b.Error(err)
					return
				}
				took[i] = append(took[i], time.Since(start))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	n := float64(b.N)
	b.ReportMetric(n/b.Elapsed().Seconds(), "runs/s")
	b.ReportMetric(float64(cputime.Used()-cpu)/float64(time.Microsecond)/n, "cpu-µs/run")
	b.ReportMetric(float64(s.CPU()-server)/float64(time.Microsecond)/n, "server-µs/run")
	after := serverStats(b, url)
	b.ReportMetric(float64(after.transactions-before.transactions)/n, "tx/run")
	b.ReportMetric(float64(after.wal-before.wal)/n, "WAL-B/run")
	b.ReportMetric(float64(after.syncs-before.syncs)/n, "syncs/run")
	all := slices.Sorted(slices.Values(slices.Concat(took...)))
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
}

// stats are counters of the server.
type stats struct{ transactions, wal, syncs int64 }

// serverStats reads counters. Those of other connections arrive in them with a
// delay, so it waits until they stand still.
func serverStats(tb testing.TB, url string) (s stats) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(ctx)
	for quiet := 0; quiet < 3; {
		was := s
		err := conn.QueryRow(ctx, `SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, wal_sync,
				(SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()), pg_sleep(0.4)::text FROM pg_stat_wal`).
			Scan(&s.wal, &s.syncs, &s.transactions, new(string))
		if err != nil {
			tb.Fatal(err)
		}
		if quiet++; s.syncs-was.syncs > 1 {
			quiet = 0
		}
	}
	return s
}

// newLoad returns a load; number tells it from others. The benchmark may share its
// server with an earlier process.
func newLoad(number int) *storetest.Load {
	return storetest.NewLoad(keep.WorkflowName(fmt.Sprintf("workflow-%02d-%d", number, os.Getpid())), number)
}
