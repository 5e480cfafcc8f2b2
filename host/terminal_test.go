package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep"
)

// A mutate handler that tries to do more than one thing, or to outlive its call.
type trick struct {
	name, body string
	effects    int
	code       string // of the failure; empty: the run commits
}

const (
	createCall = `ctx.svc.create({ id: "1" })`
	otherCall  = `ctx.svc.other({ id: "2" })`
)

var tricks = []trick{
	{"Two", `await CREATE; await OTHER`, 1, ""},
	{"TryCatch", `try { await CREATE } catch { await OTHER } await OTHER`, 1, ""},
	{"TryFinally", `try { await CREATE } finally { await OTHER }`, 1, ""},
	{"Catch", `await CREATE.catch(() => OTHER); await OTHER`, 1, ""},
	{"Then", `await CREATE.then(() => OTHER, () => OTHER)`, 1, ""},
	{"PromiseFinally", `await CREATE.finally(() => OTHER)`, 1, ""},
	{"SettledOne", `await Promise.allSettled([CREATE]); await OTHER`, 1, ""},
	{"Loop", `for (;;) { try { await CREATE } catch {} }`, 1, ""},
	{"NotAwaited", `CREATE`, 1, ""},
	{"NotAwaitedThenRead", `CREATE; await ctx.svc.get({ id: 1 }); ctx.log("after")`, 1, ""},
	{"ReadThenNotAwaited", `ctx.svc.get({ id: 1 }).then(() => ctx.log("read")); CREATE; ctx.log("issued")`, 1, ""},
	{"Generator", `const g = (async function* () { yield await CREATE; yield await OTHER })(); for await (const v of g) await OTHER`, 1, ""},
	{"GeneratorReturn", `const g = (async function* () { try { yield await CREATE } finally { await OTHER } })(); await g.next(); await g.return()`, 1, ""},
	{"Race", `await Promise.race([CREATE, new Promise((done) => done(1))]); await OTHER`, 0, "two-mutations"},
	{"AwaitUsing", `const c = CREATE; await null; await c; await OTHER`, 1, ""},
	{"Stored", `globalThis.p = CREATE; await globalThis.p; ctx.log("after")`, 1, ""},
	{"All", `await Promise.all([CREATE, OTHER])`, 0, "two-mutations"},
	{"AllSame", `await Promise.all([CREATE, CREATE])`, 0, "two-mutations"},
	{"AllSettled", `await Promise.allSettled([CREATE, OTHER])`, 0, "two-mutations"},
	{"Any", `await Promise.any([CREATE, OTHER]).catch(() => OTHER)`, 0, "two-mutations"},
	{"TwoNotAwaited", `CREATE; OTHER`, 0, "two-mutations"},
	{"Microtask", `Promise.resolve().then(() => OTHER); await CREATE`, 0, "two-mutations"},
	{"ReadBetween", `CREATE; ctx.svc.get({ id: 1 }); OTHER`, 0, "two-mutations"},
	{"ThrowsAfter", `CREATE; throw new Error("boom")`, 0, "script-error"},
	{"ForbiddenBefore", `try { await ctx.svc.list({}) } catch { await CREATE }`, 0, "forbidden-call"},
	{"UnknownToolBefore", `try { await ctx.svc.nothing({}) } catch { await CREATE }`, 0, "unknown-tool"},
	{"BigInt", `try { await ctx.svc.create({ id: 1n }) } catch (e) { throw e }`, 0, "script-error"},
	{"UnsafeInteger", `try { await ctx.svc.create({ id: 2 ** 60 }) } catch { await OTHER }`, 0, "bad-params"},
	{"TwoArguments", `await ctx.svc.create({ id: "1" }, 2)`, 0, "bad-params"},
	{"NoObject", `await ctx.svc.create("1")`, 0, "bad-params"},
}

func (tr trick) workflow() keep.WorkflowName { return keep.WorkflowName(tr.name) }

// Law not-catchable, and at most one mutation a run: whatever a script does with
// promises, the service gets at most one mutate call, nothing of the script
// runs after it, and of two at once none is sent.
func TestMutateIsTerminal(t *testing.T) {
	w := newWorld(t)
	for _, tr := range tricks {
		body := replacer.Replace(tr.body)
		w.deploy(script(tr.name, fmt.Sprintf(`consumers: { c: Keep.consumer({ subscribe: ["in"], prepare: take,
			async mutate(ctx) { %s; ctx.log("continued") },
			async next(ctx, prepared, m) { await ctx.publish("out", { messageId: "n", status: m.status }) } }) }`, body)))
		w.publish(tr.workflow(), "in", "a")
	}
	w.run()
	for _, tr := range tricks {
		t.Run(tr.name, func(t *testing.T) { tr.check(t, w) })
	}
}

func (tr trick) check(t *testing.T, w *world) {
	w.t = t
	r := w.lastRun(tr.workflow())
	code := ""
	if r.Error != nil {
		code = r.Error.Code
	}
	want := keep.StatusLogic
	if tr.code == "" {
		want = keep.StatusCommitted
	}
	if r.Status != want || code != tr.code {
		t.Errorf("run is %s (%v), want %s %q", r.Status, r.Error, want, tr.code)
	}
	ms := w.mutations(tr.workflow())
	effects := 0
	for _, m := range ms {
		effects += w.service.effects[m.Token]
	}
	if effects != tr.effects || len(ms) != tr.effects {
		t.Errorf("%d effects and %d ledger rows, want %d of each", effects, len(ms), tr.effects)
	}
	logs := w.logs(tr.workflow())
	if tr.name == "ReadThenNotAwaited" {
		logs = slices.DeleteFunc(logs, func(s string) bool { return s == "issued" || s == "read" })
	}
	if tr.name == "NotAwaited" || tr.name == "ReadThenNotAwaited" {
		// Without an await the handler is at its end before the host is asked.
		logs = slices.DeleteFunc(logs, func(s string) bool { return s == "continued" })
	}
	if tr.code == "two-mutations" || tr.name == "ThrowsAfter" {
		logs = nil // what ran before the host was asked is the script's affair
	}
	if len(logs) != 0 {
		t.Errorf("the script continued and logged %q", logs)
	}
	if n := len(w.events(tr.workflow(), "out")); n != tr.effects {
		t.Errorf("next published %d events, want %d", n, tr.effects)
	}
	if ev := w.event(tr.workflow(), "in", "a"); ev.Free() != (tr.code != "") {
		t.Errorf("the event is %s, reserved by %q", ev.Status, ev.ReservedBy)
	}
}

// Law not-catchable: a script learns neither of a refusal nor of a lost answer,
// so it can react to neither.
func TestToolErrorsAreNotCatchable(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error
		status keep.RunStatus
	}{
		{"Refused", keep.Failf(keep.ClassLogic, "http-422", "no"), keep.StatusLogic},
		{"Forbidden", keep.Failf(keep.ClassPermission, "http-403", "no"), keep.StatusPerson},
		{"Gone", keep.Failf(keep.ClassPrecondition, "gone", "no table"), keep.StatusPerson},
		{"Lost", errReset, keep.StatusReconciliation},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.service.onCall = func(context.Context, keep.Mutation, int) (bool, error) { return false, tt.err }
			w.deploy(script("w", replacer.Replace(`consumers: { c: Keep.consumer({ subscribe: ["in"], prepare: take,
				async mutate(ctx) { try { await BLIND } catch (e) { ctx.log("caught"); await OTHER } finally { ctx.log("finally"); await OTHER } } }) }`)))
			w.publish("w", "in", "a")
			w.run()
			if r := w.lastRun("w"); r.Status != tt.status {
				t.Errorf("run is %s (%v), want %s", r.Status, r.Error, tt.status)
			}
			if got := w.service.received(); !slices.Equal(got, []string{"blind"}) {
				t.Errorf("the service got %v, want one call", got)
			}
			if logs := w.logs("w"); len(logs) != 0 {
				t.Errorf("the script continued and logged %q", logs)
			}
		})
	}
}

// A failed read ends the phase, too; it is transient, and retried with nothing
// pinned yet.
func TestReadErrorsAreNotCatchable(t *testing.T) {
	w := newWorld(t)
	w.policy.Retry.Attempts = 0
	w.service.onRead = func(context.Context, jsonText) (jsonText, error) { return nil, errReset }
	w.deploy(script("w", `consumers: { c: Keep.consumer({ subscribe: ["in"], async prepare(ctx, trigger) {
		try { await ctx.svc.list({}) } catch { ctx.log("caught") } return take(ctx, trigger) } }) }`))
	w.publish("w", "in", "a")
	w.run()
	r := w.lastRun("w")
	if r.Status != keep.StatusPerson || r.Error.Class != keep.ClassTransient || r.Phase != keep.Preparing {
		t.Errorf("run is %s in %s (%v), want paused:person in preparing, transient", r.Status, r.Phase, r.Error)
	}
	if logs := w.logs("w"); len(logs) != 0 {
		t.Errorf("the script continued and logged %q", logs)
	}
}

var replacer = strings.NewReplacer("CREATE", createCall, "OTHER", otherCall, "BLIND", `ctx.svc.blind({ id: "3" })`)

type jsonText = json.RawMessage
