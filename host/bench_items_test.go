package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/internal/cputime"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/sqlite"
)

// instant is a mutate tool that answers at once.
type instant struct{}

func (instant) Spec() connector.Spec {
	return connector.Spec{Name: "create", Effect: connector.Mutate, Level: keep.LevelKey, Identity: []string{"id"}}
}
func (instant) Target(json.RawMessage) string { return "thing" }
func (instant) Mutate(context.Context, keep.Mutation) (connector.Receipt, error) {
	return connector.Receipt{Result: json.RawMessage(`{"id":"7"}`)}, nil
}
func (instant) Reconcile(context.Context, keep.Mutation) (connector.Answer, error) {
	return connector.Answer{Verdict: connector.Happened}, nil
}

// A counted database counts its commits.
type counted struct {
	*sqlite.DB
	commits atomic.Int64
}

func (c *counted) Commit(ctx context.Context, v keep.Commit) error {
	c.commits.Add(1)
	return c.DB.Commit(ctx, v)
}

// An itemBench is a host over a file, with one job.
type itemBench struct {
	b    *testing.B
	db   *counted
	host *host.Host

	n         int // what was measured in all
	took, cpu time.Duration
}

func newItemBench(b *testing.B) *itemBench {
	db := &counted{DB: sqlite.New(filepath.Join(b.TempDir(), "keep.db"), sqlite.Config{Host: true})}
	if err := db.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	h, err := host.Open(b.Context(), db, host.Config{
		Connections: []connector.Connection{{Name: "svc", Connector: "fake", Tools: []connector.Tool{instant{}}}},
		Logger:      slog.New(slog.DiscardHandler),
		Sandbox:     sandbox.Config{CacheDir: cacheDir},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.Close() })
	return &itemBench{b: b, db: db, host: h}
}

// run deploys a job with that body, and returns how long its run took.
func (ib *itemBench) run(body string) time.Duration {
	ib.b.Helper()
	bundle, err := sandbox.BuildSource("w.js", []byte(`export default Keep.workflow({ name: "w", jobs: { j: { schedule: { interval: "`+
		fmt.Sprint(1+ib.db.commits.Load()%100)+`h" }, async handler(ctx) {`+body+`} } } });`))
	if err != nil {
		ib.b.Fatal(err)
	}
	w, err := ib.host.LoadBundle(ib.b.Context(), bundle)
	if err != nil {
		ib.b.Fatal(err)
	}
	if _, err := ib.host.Deploy(ib.b.Context(), w); err != nil {
		ib.b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ib.b.Context())
	var wg sync.WaitGroup
	start := time.Now()
	wg.Go(func() {
		if err := ib.host.Run(ctx); err != nil {
			ib.b.Error(err)
		}
	})
	if err := ib.host.WaitIdle(ctx); err != nil {
		ib.b.Fatal(err)
	}
	took := time.Since(start)
	cancel()
	wg.Wait()
	return took
}

// done fails the benchmark unless the last run committed.
func (ib *itemBench) done() {
	ib.b.Helper()
	runs, _, err := ib.db.Runs(ib.b.Context(), keep.RunFilter{Workflow: "w"}, keep.Page{Limit: 1})
	if err != nil || len(runs) != 1 || runs[0].Status != keep.StatusCommitted {
		ib.b.Fatalf("last run %+v, %v; want it committed", runs, err)
	}
}

// watchHeap returns the most memory that was in use while f ran, over what was in
// use before.
func watchHeap(f func()) uint64 {
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	stop, done := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				done <- most
				return
			case <-tick.C:
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapInuse)
			}
		}
	}()
	f()
	close(stop)
	return max(<-done, before.HeapInuse) - before.HeapInuse
}

const callEach = `
	for (let i = 0; i < %d; i++)
		await ctx.withItem("invoice:" + i, "Remind of " + i, async (ctx) => {
			if (ctx.item.isDone) return;
			await ctx.svc.create({ id: String(i), text: "hello" });
		});`

// asTheCommand makes the collector as eager as the command keep does.
func asTheCommand(b *testing.B) {
	was := debug.SetGCPercent(300)
	b.Cleanup(func() { debug.SetGCPercent(was) })
}

// BenchmarkItems measures a job over 10,000 items with one call each: first when
// nothing is done, then when everything is. commits/item counts all of the first
// run; two are those of the call itself.
func BenchmarkItems(b *testing.B) {
	const items = 10_000
	body := fmt.Sprintf(callEach, items)
	b.Run("new", func(b *testing.B) {
		asTheCommand(b)
		for b.Loop() {
			b.StopTimer()
			ib := newItemBench(b)
			b.StartTimer()
			ib.measure(body, items, "item")
		}
	})
	b.Run("done", func(b *testing.B) {
		asTheCommand(b)
		ib := newItemBench(b)
		ib.run(body)
		ib.done()
		for b.Loop() {
			ib.measure(body, items, "item")
		}
	})
}

// BenchmarkReplay measures items whose calls were all applied, and whose handlers
// run again: each call is answered from the ledger. In the first case there are
// few items with many calls each, and in the second each item has one.
func BenchmarkReplay(b *testing.B) {
	for _, size := range []struct{ items, calls int }{{20, 900}, {10_000, 1}} {
		b.Run(fmt.Sprintf("items=%d,calls=%d", size.items, size.calls), func(b *testing.B) {
			asTheCommand(b)
			body := fmt.Sprintf(`
				for (let i = 0; i < %d; i++)
					await ctx.withItem("i" + i, "I", async (ctx) => {
						if (!ctx.item.isDone)
							for (let k = 0; k < %d; k++) await ctx.svc.create({ id: i + "/" + k, text: "hello" });
					});`, size.items, size.calls)
			ib := newItemBench(b)
			ib.run(body)
			ib.done()
			for b.Loop() {
				b.StopTimer()
				ib.forget(size.items)
				b.StartTimer()
				ib.measure(body, size.items*size.calls, "call")
			}
		})
	}
}

// measure runs the job once, which comes to n items or makes n calls.
func (ib *itemBench) measure(body string, n int, what string) {
	ib.b.Helper()
	ib.b.StopTimer()
	commits, cpu := ib.db.commits.Load(), cputime.Used()
	heap := watchHeap(func() { ib.took += ib.run(body) })
	ib.cpu += cputime.Used() - cpu
	ib.n += n
	ib.done()
	ib.b.ReportMetric(float64(ib.n)/ib.took.Seconds(), what+"s/s")
	ib.b.ReportMetric(float64(ib.cpu.Microseconds())/float64(ib.n), "cpu-µs/"+what)
	ib.b.ReportMetric(float64(ib.db.commits.Load()-commits)/float64(n), "commits/"+what)
	ib.b.ReportMetric(float64(heap)/(1<<20), "heap-MiB")
	ib.b.StartTimer()
}

// forget makes all items look as if the host had died before they were stored as
// done.
func (ib *itemBench) forget(items int) {
	ib.b.Helper()
	c := keep.Commit{Workflow: "w", At: time.Now().UTC().Truncate(time.Millisecond)}
	for i := range items {
		it, err := ib.db.Item(ib.b.Context(), "w", fmt.Sprint("i", i))
		if err != nil {
			ib.b.Fatal(err)
		}
		it.Status = keep.ItemProcessing
		c.Changes = append(c.Changes, keep.PutItem{Item: it})
	}
	if err := ib.db.Commit(ib.b.Context(), c); err != nil {
		ib.b.Fatal(err)
	}
}

// BenchmarkListItems measures what keep items does, at a million items.
func BenchmarkListItems(b *testing.B) {
	const items = 1_000_000
	ib := newItemBench(b)
	now := time.Now().UTC().Truncate(time.Millisecond)
	for i := 0; i < items; {
		c := keep.Commit{Workflow: "w", At: now}
		for range 10_000 {
			it := keep.Item{Workflow: "w", ID: fmt.Sprintf("invoice:%d", i), Title: fmt.Sprintf("Remind of %d", i), Status: keep.ItemDone,
				Attempt: 1, CreatedAt: now, UpdatedAt: now}
			if i%1000 == 0 {
				it.Status = keep.ItemFailed
			}
			c.Changes = append(c.Changes, keep.PutItem{Item: it})
			i++
		}
		if err := ib.db.Commit(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	for _, f := range []keep.ItemFilter{{}, {Workflow: "w"}, {Workflow: "w", Status: keep.ItemFailed}, {Status: keep.ItemDone}, {Workflow: "w", Status: keep.ItemAttention}} {
		b.Run(fmt.Sprintf("workflow=%s,status=%s", f.Workflow, f.Status), func(b *testing.B) {
			var times []time.Duration
			for b.Loop() {
				start := time.Now()
				if _, _, err := api.ListItems(b.Context(), ib.db, f, keep.Page{}); err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(start))
			}
			b.ReportMetric(float64(slices.Max(times).Microseconds())/1000, "max-ms")
		})
	}
}
