package sqlite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/sqlite"
)

// BenchmarkRun measures the two commits of an undisturbed consumer run: pin an
// event and record the call; settle, consume, publish and commit. Payloads have
// 1 KB. It reports runs per second and the CPU time of the process per run.
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
	loads := make([]*load, workflows)
	for i := range loads {
		loads[i] = newLoad(i)
		if err := db.Commit(b.Context(), loads[i].deploy()); err != nil {
			b.Fatal(err)
		}
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	cpu := cpuTime()
	b.ResetTimer()
	var wg sync.WaitGroup
	for _, l := range loads {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := l.run(b.Context(), db); err != nil {
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
	b.ReportMetric(float64(cpuTime()-cpu)/float64(time.Microsecond)/float64(b.N), "cpu-µs/run")
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
		workflow: keep.WorkflowName(fmt.Sprintf("workflow-%02d", number)),
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
func (l *load) run(ctx context.Context, db *sqlite.DB) error {
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
