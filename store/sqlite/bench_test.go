package sqlite_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/cputime"
	"github.com/keep-run/keep/internal/wallog"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/testkit/storetest"
)

// BenchmarkRun measures the two commits of an undisturbed consumer run: pin an
// event and record the call; settle, consume, publish and commit. Payloads have
// 1 KB. It reports runs per second, and the CPU time of the process and what is added
// to the log per run.
func BenchmarkRun(b *testing.B) {
	for _, workflows := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprintf("workflows=%d", workflows), func(b *testing.B) { benchmarkRuns(b, workflows) })
	}
}

func benchmarkRuns(b *testing.B, workflows int) {
	db := sqlite.New(filepath.Join(b.TempDir(), "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	loads := make([]*storetest.Load, workflows)
	for i := range loads {
		loads[i] = newLoad(i)
		if err := db.Commit(b.Context(), loads[i].Deploy()); err != nil {
			b.Fatal(err)
		}
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	log := wallog.Watch(db.Path() + "-shm")
	defer log.Close()
	cpu, logged := cputime.Used(), log.Bytes()
	b.ResetTimer()
	var wg sync.WaitGroup
	for _, l := range loads {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := l.Run(b.Context(), db); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
	b.ReportMetric(float64(2*b.N)/b.Elapsed().Seconds(), "commits/s")
	b.ReportMetric(float64(cputime.Used()-cpu)/float64(time.Microsecond)/float64(b.N), "cpu-µs/run")
	b.ReportMetric(float64(log.Bytes()-logged)/float64(b.N), "log-B/run")
}

// newLoad returns a load; number tells it from others.
func newLoad(number int) *storetest.Load {
	return storetest.NewLoad(keep.WorkflowName(fmt.Sprintf("workflow-%02d", number)), number)
}
