package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/postgres"
)

// BenchmarkRun measures the two commits of an undisturbed consumer run, as the
// benchmark of package sqlite does: pin an event and record the call; settle,
// consume, publish and commit. Payloads have 1 KB. The server is durable: fsync and
// synchronous_commit are on.
//
// It reports, per run, the CPU time of this process, and of the server its
// transactions and bytes of WAL.
func BenchmarkRun(b *testing.B) {
	s := pgtest.StartDurable(b)
	for i, workflows := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprintf("workflows=%d", workflows), func(b *testing.B) {
			name := fmt.Sprintf("bench_%d_%d", i, b.N)
			if err := s.CreateDatabase(b.Context(), name); err != nil {
				b.Fatal(err)
			}
			benchmarkRuns(b, s.URL(name), workflows)
		})
	}
}

func benchmarkRuns(b *testing.B, url string, workflows int) {
	db := openDB(b, url, postgres.Config{Host: true})
	loads := make([]*load, workflows)
	for i := range loads {
		loads[i] = newLoad(i)
		if err := db.Commit(b.Context(), loads[i].deploy()); err != nil {
			b.Fatal(err)
		}
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, workflows)
	before := serverStats(b, url)
	b.ReportAllocs()
	cpu := cpuTime()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, l := range loads {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				start := time.Now()
				if err := l.run(b.Context(), db); err != nil {
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
	b.ReportMetric(float64(cpuTime()-cpu)/float64(time.Microsecond)/n, "cpu-µs/run")
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

// cpuTime returns the CPU time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A load is one workflow whose consumer always has one event to consume.
type load struct {
	workflow keep.WorkflowName
	number   int
	runs     int
	at       time.Time
	event    keep.MessageID
	input    keep.InputID
	payload  json.RawMessage
}

func newLoad(number int) *load {
	return &load{
		workflow: keep.WorkflowName(fmt.Sprintf("workflow-%02d-%d", number, os.Getpid())),
		number:   number,
		payload:  json.RawMessage(`{"text":"` + strings.Repeat("x", 1000) + `"}`),
	}
}

// clock makes ids as the host does: later ones sort later, over all workflows.
var clock atomic.Int64

// id returns an id that is later than those before it.
func (l *load) id(prefix string) string {
	l.at = time.UnixMilli(clock.Add(1))
	return keep.NewID(prefix, l.at, [10]byte{byte(l.number), byte(l.runs), byte(l.runs >> 8), byte(l.runs >> 16)})
}

func (l *load) deploy() keep.Commit {
	l.event, l.input = "message-0", keep.InputID(l.id("in"))
	return keep.Commit{Workflow: l.workflow, At: l.at, Changes: []keep.Change{
		keep.Deploy{Deployment: keep.Deployment{Workflow: l.workflow, Version: keep.Version{Major: 1},
			Definition: keep.Definition{Name: l.workflow, Topics: []keep.TopicName{"mail.received"}}, CreatedAt: l.at}},
		keep.PutInput{Input: keep.Input{ID: l.input, Workflow: l.workflow, Source: "mail", Type: "mail", ExternalID: "1"}},
		keep.Publish{Event: keep.Event{Workflow: l.workflow, Topic: "mail.received", MessageID: l.event,
			Payload: l.payload, CausedBy: []keep.InputID{l.input}}},
	}}
}

// run makes the two commits of a run.
func (l *load) run(ctx context.Context, db *postgres.DB) error {
	r, m := l.start()
	err := db.Commit(ctx, keep.Commit{Workflow: l.workflow, At: l.at, Changes: []keep.Change{
		keep.PutRun{Run: r},
		keep.Reserve{Chain: r.ID, Reservation: r.Reservations[0]},
		keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: l.at, By: "call", To: keep.InFlight, Evidence: "sent"}}},
	}})
	if err != nil {
		return err
	}
	r.Rev, m.Rev = 1, 1
	m.State, m.Result, m.ResolvedBy = keep.Applied, l.payload, "call"
	r.Phase, r.Status, r.Closed = keep.Committed, keep.StatusCommitted, true
	l.event = keep.MessageID(fmt.Sprintf("message-%d", l.runs))
	return db.Commit(ctx, keep.Commit{Workflow: l.workflow, At: l.at, Changes: []keep.Change{
		keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: l.at, By: "call", From: keep.InFlight, To: keep.Applied, Evidence: "happened"}}},
		keep.Finish{Chain: r.ID, Status: keep.EventConsumed},
		keep.Publish{Event: keep.Event{Workflow: l.workflow, Topic: "mail.received", MessageID: l.event,
			Payload: l.payload, CreatedBy: r.ID, CausedBy: []keep.InputID{l.input}}},
		keep.PutHandler{State: keep.HandlerState{Workflow: l.workflow, Handler: "addRow", Kind: keep.Consumer, LastRun: r.ID, LastAt: l.at}},
		keep.PutRun{Run: r},
	}})
}

// start returns a run that reserves the event, and its call.
func (l *load) start() (keep.Run, keep.Mutation) {
	l.runs++
	id := keep.RunID(l.id("run"))
	r := keep.Run{
		ID: id, Chain: id, Workflow: l.workflow, Version: keep.Version{Major: 1}, Handler: "addRow", Kind: keep.Consumer,
		Phase: keep.Mutating, Status: keep.StatusActive, Trigger: keep.EventRef{Topic: "mail.received", MessageID: l.event},
		Reservations: []keep.Reservation{{Topic: "mail.received", IDs: []keep.MessageID{l.event}}},
		Prepared:     l.payload, Mutation: keep.MutationKey("mut_" + id), Title: "Add a row", CreatedAt: l.at, UpdatedAt: l.at,
	}
	m := keep.Mutation{
		Key: r.Mutation, Workflow: l.workflow, Run: id, Tool: "db.insert", Connector: "http", Level: keep.LevelKey,
		Target: "invoices", Identity: json.RawMessage(`{"id":"1"}`), Payload: l.payload, PayloadHash: strings.Repeat("0", 64),
		Token: string(id), Title: r.Title, State: keep.InFlight, Attempts: 1, CallDeadline: l.at.Add(time.Minute),
		CanReconcile: true, CreatedAt: l.at, UpdatedAt: l.at,
	}
	return r, m
}
