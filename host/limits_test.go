package host_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/script/sandbox"
)

// Each limit of the sandbox that a script breaks is a logic failure that names
// it, the place, and what to do; the wall clock also while a tool is at work.
func TestSandboxLimits(t *testing.T) {
	limited := []struct{ name, body, code string }{
		{"Calls", `for (;;) await ctx.svc.get({})`, "limit-host_calls"},
		{"Result", `return { reservations: [], data: "x".repeat(5000) }`, "limit-result"},
		{"Params", `await ctx.svc.get({ q: "x".repeat(5000) })`, "limit-result"},
		{"Wall", `await ctx.svc.list({})`, "limit-wall"},
		{"NotJSON", `return { reservations: [], data: 1n }`, "script-error"},
		{"Never", `await new Promise(() => {})`, "script-error"},
		{"Nothing", ``, "bad-prepare-result"},
		{"Number", `return 7`, "bad-prepare-result"},
		{"Throws", `throw new TypeError("boom")`, "script-error"},
		{"ThrowsText", `throw "boom"`, "script-error"},
	}
	w := newWorld(t)
	w.limits = sandbox.Limits{HostCalls: 20, Result: 4000}
	w.service.onRead = func(ctx context.Context, params jsonText) (jsonText, error) {
		if w.service.received()[len(w.service.received())-1] != "list" {
			return nil, nil
		}
		<-ctx.Done()
		return nil, keep.Failf(keep.ClassTransient, "timeout", "no answer: %v", context.Cause(ctx))
	}
	for _, l := range limited {
		if l.name != "Wall" {
			w.deploy(script(l.name, `consumers: { c: Keep.consumer({ subscribe: ["in"], async prepare(ctx) { `+l.body+` } }) }`))
			w.publish(keep.WorkflowName(l.name), "in", "a")
		}
	}
	w.run()
	w.limits.Wall = time.Second
	w.deploy(script("Wall", `consumers: { c: Keep.consumer({ subscribe: ["in"], async prepare(ctx) { await ctx.svc.list({}) } }) }`))
	w.publish("Wall", "in", "a")
	w.run()
	for _, l := range limited {
		r := w.lastRun(keep.WorkflowName(l.name))
		if r.Status != keep.StatusLogic || r.Error.Code != l.code {
			t.Errorf("%s: run is %s (%v), want failed:logic %s", l.name, r.Status, r.Error, l.code)
			continue
		}
		if strings.HasPrefix(l.code, "limit-") && !strings.HasPrefix(r.Error.At, "w.js:") {
			t.Errorf("%s: the failure is at %q, want a place in w.js", l.name, r.Error.At)
		}
		if qs := w.questions(keep.WorkflowName(l.name)); len(qs) != 1 || qs[0].Kind != keep.AskLogic {
			t.Errorf("%s: questions %+v, want one about logic", l.name, qs)
		}
	}
}

// A call that is out when the wall clock runs out is finished and recorded; only
// then does the job fail, and what it did stays done.
func TestWallDoesNotCutAMutation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubbleWorld(t)
		w.limits = sandbox.Limits{Wall: time.Second}
		w.service.onCall = func(ctx context.Context, _ keep.Mutation, _ int) (bool, error) {
			select {
			case <-ctx.Done():
				return true, context.Cause(ctx)
			case <-time.After(3 * time.Second / 2): // longer than the phase may last
				return true, nil
			}
		}
		w.deploy(script("w", `jobs: { j: { schedule: { interval: "1h" }, async handler(ctx) {
			await ctx.withItem("a", "A", async (ctx) => { if (!ctx.item.isDone) await ctx.svc.create({ id: "a" }) }) } } }`))
		w.run()
		ms := w.mutations("w")
		if len(ms) != 1 || ms[0].State != keep.Applied {
			t.Errorf("the ledger is %v, want one applied record", ms)
		}
		if r := w.lastRun("w"); r.Status != keep.StatusLogic || r.Error.Code != "limit-wall" {
			t.Errorf("run is %s (%v), want failed:logic limit-wall", r.Status, r.Error)
		}
		if err := w.decide("w", keep.Retry); err != nil {
			t.Fatal(err)
		}
		w.run()
		if r := w.lastRun("w"); r.Status != keep.StatusCommitted {
			t.Errorf("run is %s (%v), want committed: the retry gets the stored result", r.Status, r.Error)
		}
		w.wantOnce(t, 1)
	})
}

// A call that is not recorded yet when the wall clock runs out is cut off: the item failed by the limit, and
// the host continues.
func TestWallCutsWhatIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubbleWorld(t)
		w.limits = sandbox.Limits{Wall: 5 * time.Second} // its tools have 10 s
		w.service.onStart = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
		w.deploy(script("w", `jobs: { j: { schedule: { interval: "1h" }, async handler(ctx) {
			await ctx.withItem("a", "A", async (ctx) => { if (!ctx.item.isDone) await ctx.svc.create({ id: "a" }) }) } } }`))
		w.run()
		if r := w.lastRun("w"); r.Status != keep.StatusLogic || r.Error.Code != "limit-wall" || r.Crashes != 0 {
			t.Errorf("run is %s (%v) after %d crashes, want failed:logic limit-wall", r.Status, r.Error, r.Crashes)
		}
		if ms := w.mutations("w"); len(ms) != 0 {
			t.Errorf("the ledger is %v, want nothing", ms)
		}
		w.service.onStart = nil
		if err := w.decide("w", keep.Retry); err != nil {
			t.Fatal(err)
		}
		w.run()
		if r := w.lastRun("w"); r.Status != keep.StatusCommitted {
			t.Errorf("run is %s (%v), want committed", r.Status, r.Error)
		}
		w.wantOnce(t, 1)
	})
}

// A script that computes long when it is loaded delays no other workflow.
func TestSlowLoadDelaysNoOther(t *testing.T) {
	w := newWorld(t)
	w.limits = sandbox.Limits{CPU: 20 * time.Second}
	w.deploy("let n = 0; for (let i = 0; i < 4e6; i++) n += i;" + script("a-slow", `jobs: { async j() {} }`))
	w.deploy(act("good", "create"))
	w.publish("good", "in", "a")
	w.close()
	w.run()
	good, slow := w.lastRun("good"), w.lastRun("a-slow")
	if good.Status != keep.StatusCommitted || slow.Status != keep.StatusCommitted {
		t.Fatalf("runs are %s and %s, want committed", good.Status, slow.Status)
	}
	if !good.UpdatedAt.Before(slow.CreatedAt) {
		t.Errorf("the run of good ended at %s, after that of a-slow began at %s", good.UpdatedAt, slow.CreatedAt)
	}
}
