package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/internal/cputime"
	"github.com/keep-run/keep/internal/pause"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/store/sqlite"
)

// A bench is a host over a fresh database, with a number of workflows.
type bench struct {
	dir        string
	url        string // of Postgres; empty: a file of SQLite in dir
	db         database
	counted    *counter
	host       *host.Host
	workflows  []keep.WorkflowName
	policy     *policy.Policy // nil: the default
	retention  policy.Retention
	tool       connector.Tool           // nil: instant
	connection *connector.Connection    // nil: one with the tool
	wrap       func(*counter) hostStore // what the host commits to; nil: the counter
	seeded     int                      // events per workflow so far

	mu   sync.Mutex // protects the next two
	last map[keep.WorkflowName]time.Time
	took []time.Duration // from one commit of a workflow to the next
}

// hostStore is what a host of a benchmark works on. It is wide because host.Store is.
type hostStore interface{ host.Store }

// A database is what a benchmark opens. It is wide because hostStore is.
type database interface {
	hostStore
	Open(ctx context.Context) error
	Close() error
}

// A counter is a store that counts commits, and runs that consumed something.
type counter struct {
	database
	commits, consumed atomic.Int64
	last              atomic.Int64 // when the last of those runs was committed, in nanoseconds since 1970
}

// Commit counts, and passes on.
func (c *counter) Commit(ctx context.Context, k keep.Commit) error {
	c.commits.Add(1)
	err := c.database.Commit(ctx, k)
	if err == nil && slices.ContainsFunc(k.Changes, func(c keep.Change) bool { _, ends := c.(keep.Finish); return ends }) {
		c.consumed.Add(1)
		c.last.Store(time.Now().UnixNano())
	}
	return err
}

// instant is a mutate tool that answers at once, and can be asked.
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

const consumer = `export default Keep.workflow({
  name: %q,
  topics: { "in": {}, "out": {} },
  consumers: {
    act: Keep.consumer({
      subscribe: ["in"],
      publishes: ["out"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "in", ids: [trigger.messageId] }],
          data: { id: trigger.messageId, text: trigger.payload.text },
          ui: { title: "Handle " + trigger.messageId },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.svc.create({ id: prepared.data.id, text: prepared.data.text });
      },
      async next(ctx, prepared, m) {
        if (m.status === "applied") await ctx.publish("out", { messageId: "out:" + prepared.data.id, ref: m.result.id });
      },
    }),
  },
});`

const producer = `export default Keep.workflow({ name: %q, topics: { t: {} },
  producers: { async poll(ctx) { for (let i = 0; i < 10; i++) await ctx.publish("t", { messageId: "m" + i, i }); } } });`

func openBench(ctx context.Context, dir string, workflows int) (*bench, error) {
	return openBenchOn(ctx, "", dir, workflows)
}

// openBenchOn is openBench on Postgres, if url is not empty.
func openBenchOn(ctx context.Context, url, dir string, workflows int) (*bench, error) {
	b := &bench{dir: dir, url: url, last: make(map[keep.WorkflowName]time.Time)}
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	for i := range workflows {
		name := fmt.Sprintf("w%03d", i)
		if err := b.deploy(ctx, name, fmt.Sprintf(consumer, name)); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (b *bench) open(ctx context.Context) error {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return err
	}
	b.db = sqlite.New(filepath.Join(b.dir, "keep.db"), sqlite.Config{Host: true})
	if b.url != "" {
		b.db = postgres.New(b.url, postgres.Config{Host: true})
	}
	if err := b.db.Open(ctx); err != nil {
		return err
	}
	b.counted = &counter{database: b.db}
	var store hostStore = b.counted
	if b.wrap != nil {
		store = b.wrap(b.counted)
	}
	if b.tool == nil {
		b.tool = instant{}
	}
	if b.connection == nil {
		b.connection = &connector.Connection{Name: "svc", Connector: "fake", Tools: []connector.Tool{b.tool}}
	}
	h, err := host.Open(ctx, store, host.Config{
		Connections: []connector.Connection{*b.connection},
		Logger:      slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Sandbox:     sandbox.Config{CacheDir: filepath.Join(os.TempDir(), "keep-bench-cache")},
		Trace:       b.trace,
		Policy:      b.policy,
		Retention:   b.retention,
		Leases:      leasesOf(b.db),
	})
	b.host = h
	return err
}

// leasesOf returns the leases of a database that has them, or nil.
func leasesOf(db database) store.Leaser {
	l, _ := db.(store.Leaser)
	return l
}

func (b *bench) close() error {
	if err := b.host.Close(); err != nil {
		return err
	}
	return b.db.Close()
}

func (b *bench) deploy(ctx context.Context, name, script string) error {
	bundle, err := sandbox.BuildSource(name+".js", []byte(script))
	if err != nil {
		return err
	}
	w, err := b.host.LoadBundle(ctx, bundle)
	if err != nil {
		return err
	}
	if _, err := b.host.Deploy(ctx, w); err != nil {
		return err
	}
	b.workflows = append(b.workflows, w.Name)
	return nil
}

// trace measures how long runs take, from one commit to the next.
func (b *bench) trace(w keep.WorkflowName, p engine.Point) {
	if p != engine.AfterCommit {
		return
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if last, ok := b.last[w]; ok {
		b.took = append(b.took, now.Sub(last))
	}
	b.last[w] = now
}

// seed publishes n events of 1 KB in each workflow, in large commits.
func (b *bench) seed(ctx context.Context, topic keep.TopicName, n int) error {
	payload := json.RawMessage(fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 1000)))
	for _, w := range b.workflows {
		for from := 0; from < n; from += 1000 {
			if err := b.db.Commit(ctx, seedCommit(w, topic, payload, b.seeded+from, min(1000, n-from))); err != nil {
				return err
			}
		}
	}
	b.seeded += n
	return nil
}

func seedCommit(w keep.WorkflowName, topic keep.TopicName, payload json.RawMessage, from, n int) keep.Commit {
	now := time.Now().UTC().Truncate(time.Millisecond)
	in := keep.Input{ID: keep.InputID(fmt.Sprintf("in_%s_%09d", w, from)), Workflow: w, Source: "bench", Type: "seed",
		ExternalID: fmt.Sprint(from), Title: "seed", Status: keep.InputPending, CreatedAt: now}
	c := keep.Commit{Workflow: w, At: now, Changes: []keep.Change{keep.PutInput{Input: in}}}
	for i := range n {
		c.Changes = append(c.Changes, keep.Publish{Event: keep.Event{
			Workflow: w, Topic: topic, MessageID: keep.MessageID(fmt.Sprintf("m%09d", from+i)), Payload: payload,
			Status: keep.EventPending, CausedBy: []keep.InputID{in.ID}, CreatedAt: now, UpdatedAt: now}})
	}
	return c
}

// drain runs the host until every event is handled.
func (b *bench) drain(ctx context.Context) (wall, cpu time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var runErr error
	b.mu.Lock()
	b.took, b.last = nil, make(map[keep.WorkflowName]time.Time)
	b.mu.Unlock()
	start, startCPU := time.Now(), cputime.Used()
	wg.Go(func() { runErr = b.host.Run(ctx) })
	err = b.host.WaitIdle(ctx)
	wall, cpu = time.Since(start), cputime.Used()-startCPU
	cancel()
	wg.Wait()
	if err == nil {
		err = runErr
	}
	return wall, cpu, err
}

// consume measures runs, and how memory grows with them.
func (b *bench) consume(ctx context.Context, runs int, syncs float64, out io.Writer) error {
	per := max(1, runs/len(b.workflows)/4)
	if err := b.seed(ctx, "in", 8); err != nil { // the first runs load the scripts
		return err
	}
	if _, _, err := b.drain(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "consumer runs, %d workflow(s), 1 KB payload, synchronous=FULL, instant tool\n", len(b.workflows))
	fmt.Fprintf(out, "  %10s %10s %8s %12s %10s %10s %10s %10s %10s\n", "runs", "runs/s", "of floor", "commits/run", "CPU/run", "allocs/run", "p50", "p99", "RSS")
	for range 4 {
		if err := b.seed(ctx, "in", per); err != nil {
			return err
		}
		b.counted.commits.Store(0)
		before := allocations()
		wall, cpu, err := b.drain(ctx)
		if err != nil {
			return err
		}
		n := per * len(b.workflows)
		p50, p99 := b.percentiles()
		fmt.Fprintf(out, "  %10d %10.0f %7.2fx %12.3f %10s %10d %10s %10s %10s\n", b.seeded*len(b.workflows),
			float64(n)/wall.Seconds(), ofFloor(float64(n)/wall.Seconds(), syncs), float64(b.counted.commits.Load())/float64(n),
			(cpu / time.Duration(n)).Round(time.Microsecond), (allocations()-before)/uint64(n), p50, p99, rss())
	}
	fmt.Fprintln(out)
	return nil
}

// ofFloor returns the part of the floor that a rate is; 0: there is no floor.
func ofFloor(rate, floor float64) float64 {
	if floor == 0 {
		return 0
	}
	return rate / floor
}

// allocations returns how many objects this process has allocated.
func allocations() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

func (b *bench) percentiles() (p50, p99 time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return percentiles(b.took)
}

// grow stores many events in a topic that nobody consumes, and measures again.
func (b *bench) grow(ctx context.Context, events int, out io.Writer) error {
	per := events / len(b.workflows)
	start := time.Now()
	if err := b.seed(ctx, "out", per); err != nil {
		return err
	}
	n := per * len(b.workflows)
	fmt.Fprintf(out, "%d more events stored in %s; RSS %s\n", n, time.Since(start).Round(time.Millisecond), rss())
	const more = 20
	if err := b.seed(ctx, "in", more); err != nil {
		return err
	}
	wall, cpu, err := b.drain(ctx)
	if err != nil {
		return err
	}
	runs := more * len(b.workflows)
	p50, p99 := b.percentiles()
	fmt.Fprintf(out, "runs beside them: %.0f runs/s, %s CPU/run, p50 %s, p99 %s, RSS %s\n\n", float64(runs)/wall.Seconds(),
		(cpu / time.Duration(runs)).Round(time.Microsecond), p50, p99, rss())
	return nil
}

// produce counts the commits of producer runs.
func produce(ctx context.Context, dir string, out io.Writer) error {
	b, err := openBench(ctx, dir, 0)
	if err != nil {
		return err
	}
	err = b.deploy(ctx, "p", fmt.Sprintf(producer, "p"))
	if err != nil {
		return err
	}
	b.counted.commits.Store(0)
	if _, _, err := b.drain(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "producer run with 10 publishes: %d commit(s)\n", b.counted.commits.Load())
	return b.close()
}

// idle measures what 100 workflows cost that have nothing to do.
func idle(ctx context.Context, dir string, d time.Duration, out io.Writer) error {
	b, err := openBench(ctx, dir, 100)
	if err != nil {
		return err
	}
	if _, _, err := b.drain(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = b.host.Run(ctx) })
	if err := b.host.WaitIdle(ctx); err != nil {
		cancel()
		return err
	}
	start := cputime.Used()
	_ = pause.For(ctx, d)
	used := cputime.Used() - start
	cancel()
	wg.Wait()
	fmt.Fprintf(out, "idle, 100 workflows: %.2f %% of one core over %s, RSS %s\n", 100*used.Seconds()/d.Seconds(), d, rss())
	return b.close()
}

// coldStart measures keep run of a small project with a warm compilation cache.
func coldStart(ctx context.Context, dir string, out io.Writer) error {
	bin, err := buildKeep(ctx, dir)
	if err != nil {
		return err
	}
	project := filepath.Join(dir, "project")
	if err := os.MkdirAll(project, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(project, "w.js"), []byte(fmt.Sprintf(producer, "w")), 0o600); err != nil {
		return err
	}
	var took []time.Duration
	for range 6 {
		start := time.Now()
		if msg, err := exec.CommandContext(ctx, bin, "run", project).CombinedOutput(); err != nil {
			return fmt.Errorf("keep run: %w: %s", err, msg)
		}
		took = append(took, time.Since(start))
	}
	took = took[1:] // the first warms the cache
	slices.Sort(took)
	fmt.Fprintf(out, "cold start of keep run, warm compilation cache: median %s of %d\n", took[len(took)/2].Round(time.Millisecond), len(took))
	return nil
}
