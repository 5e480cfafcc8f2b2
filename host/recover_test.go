package host_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/sqlite"
)

// act returns a workflow whose consumer makes one call of a tool for each event.
func act(name, tool string) string {
	return script(name, fmt.Sprintf(`consumers: { c: Keep.consumer({ subscribe: ["in"], prepare: take,
		async mutate(ctx, p) { await ctx.svc.%s({ id: p.data.id }) },
		async next(ctx, p, m) { await ctx.publish("out", { messageId: "out:" + p.data.id, status: m.status }) } }) }`, tool))
}

// quick makes backoffs and lookups short enough for real time.
func (w *world) quick() *world {
	w.policy.Retry.First, w.policy.Reconcile.First = 5*time.Millisecond, 5*time.Millisecond
	w.service.settle, w.service.timeout = 10*time.Millisecond, 100*time.Millisecond
	w.policy.Outage.After = 0 // calls so short time out on a busy machine; the engine's tests are about outages
	return w
}

// runUntilDead runs a host until an actor of each of n workflows died at p, and
// ends it like a process.
func (w *world) runUntilDead(p engine.Point, n int) {
	w.t.Helper()
	w.dieAt, w.alive, w.died = p, n, make(chan struct{})
	w.start()
	select {
	case <-w.died:
	case <-time.After(w.limit):
		w.mu.Lock()
		left := w.alive
		w.mu.Unlock()
		w.t.Fatalf("%d did not come to %s", left, p)
	}
	w.close()
	w.dieAt = ""
}

// The process dies at every point between durable steps of a run, at levels A, C
// and D, and another opens the file: one effect, the event is consumed, Check is
// clean. At level D a person is asked if, and only if, a call may have been made.
func TestDeathAtEveryPoint(t *testing.T) {
	tools := []string{"keyed", "create", "blind"}
	for _, p := range engine.Points() {
		if p == engine.Bought {
			continue // none of these tools costs; TestPaidOnce of the engine dies there
		}
		t.Run(string(p), func(t *testing.T) {
			w := newFileWorld(t).quick()
			w.gated = p == engine.AtGate // nobody else comes there
			for _, tool := range tools {
				source := act(tool, tool)
				if p == engine.OutcomeWritten && tool != "blind" { // only a slow next comes there
					source = strings.Replace(source, "await ctx.publish", "for (let i = 0; i < 3e6; i++); await ctx.publish", 1)
				}
				w.deploy(source)
				w.publish(keep.WorkflowName(tool), "in", "a", "b")
			}
			w.runUntilDead(p, len(tools))
			w.run()
			for _, tool := range tools {
				w.checkRecovered(t, p, keep.WorkflowName(tool))
			}
			w.wantOnce(t, 6)
		})
	}
}

// checkRecovered answers the question that a death at p leaves at level D, as a
// person would who looked at the service, and wants both events handled.
func (w *world) checkRecovered(t *testing.T, p engine.Point, wf keep.WorkflowName) {
	t.Helper()
	want := []keep.EventStatus{keep.EventConsumed, keep.EventConsumed}
	doubt := wf == "blind" && (p == engine.Recorded || p == engine.Answered)
	if n := len(w.questions(wf)); doubt != (n == 1) {
		t.Fatalf("%s: %d questions, want one: %t", wf, n, doubt)
	}
	if doubt {
		a := keep.DidNotHappen
		if w.service.did(w.mutations(wf)[0].Token) {
			a, want[0] = keep.Skip, keep.EventSkipped
		}
		if err := w.decide(wf, a); err != nil {
			t.Fatal(err)
		}
		w.run()
	}
	got := []keep.EventStatus{w.event(wf, "in", "a").Status, w.event(wf, "in", "b").Status}
	if !slices.Equal(got, want) {
		t.Errorf("%s: events are %v, want %v", wf, got, want)
	}
	if n := len(w.events(wf, "out")); n != 2 {
		t.Errorf("%s: %d events downstream, want 2", wf, n)
	}
}

// The same for a job: after the restart its handler gets the stored results.
func TestDeathInAJob(t *testing.T) {
	for _, p := range []engine.Point{engine.BeforeCall, engine.Recorded, engine.Answered, engine.OutcomeWritten, engine.AfterCommit} {
		t.Run(string(p), func(t *testing.T) {
			w := newFileWorld(t).quick()
			w.deploy(script("w", `jobs: { j: { schedule: { interval: "1h" }, async handler(ctx) {
				for (const id of ["a", "b", "c"]) await ctx.withItem(id, "Item " + id, async (ctx) => {
					if (ctx.item.isDone) return;
					const r = await ctx.svc.create({ id });
					ctx.log(id + " " + r.id) }) } } }`))
			w.runUntilDead(p, 1)
			w.run()
			w.wantOnce(t, 3)
			for _, it := range w.items("w") {
				if it.Status != keep.ItemDone || it.Attempt != 1 {
					t.Errorf("item %s is %s in attempt %d, want done in 1", it.ID, it.Status, it.Attempt)
				}
			}
			if r := w.lastRun("w"); r.Status != keep.StatusCommitted {
				t.Errorf("run is %s (%v), want committed", r.Status, r.Error)
			}
		})
	}
}

// wantOnce fails the test unless there were n effects, each of one token.
func (w *world) wantOnce(t *testing.T, n int) {
	t.Helper()
	if total, tokens := w.service.total(), len(w.service.effects); total != n || tokens != n {
		t.Errorf("%d effects of %d tokens, want %d of %d (law: once)", total, tokens, n, n)
	}
}

// Stopping waits for the call that is out and records it; what outlasts the
// policy's patience stays in flight and is asked about by the next host.
func TestStopWithACallOut(t *testing.T) {
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprint(patient), func(t *testing.T) {
			w := newFileWorld(t).quick()
			w.service.timeout = 20 * time.Second
			if !patient {
				w.policy.Shutdown = 50 * time.Millisecond
			}
			arrived, answer := make(chan struct{}), make(chan struct{})
			w.service.onCall = func(ctx context.Context, _ keep.Mutation, _ int) (bool, error) {
				close(arrived)
				select {
				case <-ctx.Done():
					return true, context.Cause(ctx)
				case <-answer:
					return true, nil
				}
			}
			w.deploy(act("w", "create"))
			w.publish("w", "in", "a")
			w.start()
			<-arrived
			w.stop()
			if patient {
				close(answer)
			}
			w.close()
			want := keep.InFlight
			if patient {
				want = keep.Applied
			}
			if ms := w.mutations("w"); len(ms) != 1 || ms[0].State != want {
				t.Errorf("the record is %v, want %s", ms, want)
			}
			w.service.onCall = nil
			w.run()
			w.wantOnce(t, 1)
			if r := w.lastRun("w"); r.Status != keep.StatusCommitted {
				t.Errorf("run is %s (%v), want committed", r.Status, r.Error)
			}
		})
	}
}

// A decision that another process records beside the host is seen by the host.
func TestDecisionOfAnotherProcess(t *testing.T) {
	ctx := t.Context()
	w := newFileWorld(t).quick()
	w.unwatched = true // the host asks the file itself for foreign changes
	w.service.onCall = func(_ context.Context, _ keep.Mutation, n int) (bool, error) {
		if n == 1 {
			return true, errReset
		}
		return true, nil
	}
	w.deploy(act("w", "blind"))
	w.publish("w", "in", "a")
	w.start()
	w.idle()
	beside := sqlite.New(w.path, sqlite.Config{})
	if err := beside.Open(ctx); err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	other, err := host.Open(ctx, beside, host.Config{Connections: []connector.Connection{w.service.connection()}, Sandbox: sandbox.Config{CacheDir: cacheDir}})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	q := w.questions("w")[0]
	if err := other.Decide(ctx, q.ID, keep.Decision{Action: keep.Skip, By: "ann", From: "cli"}); err != nil {
		t.Fatal(err)
	}
	for w.event("w", "in", "a").Status == keep.EventPending { // once a second the host looks
		if err := ctx.Err(); err != nil {
			t.Fatal(err)
		}
		w.idle()
	}
	if ev := w.event("w", "in", "a"); ev.Status != keep.EventSkipped {
		t.Errorf("the event is %s, want skipped", ev.Status)
	}
	w.wantOnce(t, 1)
}

// The same script is the same version; any change of it is another.
func TestDeployTheSameScript(t *testing.T) {
	w := newFileWorld(t)
	for i, tt := range []struct {
		source string
		want   string
	}{{act("w", "create"), "1.0"}, {act("w", "create"), "1.0"}, {act("w", "keyed"), "2.0"}, {act("w", "keyed"), "2.0"}, {act("w", "create"), "3.0"}} {
		if got := w.deploy(tt.source); got.String() != tt.want {
			t.Errorf("deploy %d: version %s, want %s", i, got, tt.want)
		}
		w.close()
	}
}

// A new version repairs a run that failed by logic, before the effect from
// prepare with a new key, after it in next with the stored result; more versions
// than a host keeps loaded do no harm.
func TestDeployRepairs(t *testing.T) {
	for name, head := range map[string]string{"prepare": "prepare: take", "mutate": "async mutate(ctx, p) {", "next": "async next(ctx, p, m) {"} {
		t.Run(name, func(t *testing.T) {
			w := newFileWorld(t)
			good := act("w", "create")
			w.start()
			for i := range 6 {
				broken := fmt.Sprintf("%s null.x%d;", head, i)
				if name == "prepare" {
					broken = fmt.Sprintf("prepare: () => null.x%d", i)
				}
				w.deploy(strings.Replace(good, head, broken, 1))
				if i == 0 {
					w.publish("w", "in", "a")
				}
				w.idle()
				if r := w.lastRun("w"); r.Status != keep.StatusLogic || !strings.Contains(r.Error.Message, "null") {
					t.Fatalf("run is %s (%v), want failed:logic", r.Status, r.Error)
				}
			}
			w.deploy(good)
			w.idle()
			w.wantOnce(t, 1)
			runs := w.runs("w")
			if r := runs[0]; r.Status != keep.StatusCommitted || len(runs) != 7 || r.Version.Major != 7 {
				t.Errorf("run %d is %s by version %s, want the 7th, committed, by 7.0", len(runs), r.Status, r.Version)
			}
			if fresh := runs[0].Chain != runs[6].Chain; fresh != (name != "next") {
				t.Errorf("the repaired run is of a new chain: %t, want %t", fresh, name != "next")
			}
			if len(w.questions("w")) != 0 {
				t.Error("a question is still open")
			}
		})
	}
}
