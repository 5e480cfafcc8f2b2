package host_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/policy"
)

// A loop is a job whose script does something odd with its items.
type loop struct {
	name, body string // body of the job; FAIL is a call that the service refuses
	code       string // of the failure; empty: the run commits
	effects    int
	items      map[string]keep.ItemStatus
}

type statuses = map[string]keep.ItemStatus

var loops = []loop{
	// A failed call ends the run whatever the handler does with it, and the item is
	// never done (law not-catchable).
	{"TryCatch", `await ctx.withItem("a", "A", async (ctx) => { try { await FAIL } catch { ctx.log("caught") } })`,
		"refused", 0, statuses{"a": keep.ItemFailed}},
	{"TryFinally", `await ctx.withItem("a", "A", async (ctx) => { try { await FAIL } finally { await CREATE } })`,
		"refused", 0, statuses{"a": keep.ItemFailed}},
	{"Catch", `await ctx.withItem("a", "A", async (ctx) => { await FAIL.catch(() => ctx.log("caught")) })`,
		"refused", 0, statuses{"a": keep.ItemFailed}},
	{"CatchOutside", `await ctx.withItem("a", "A", async (ctx) => { await FAIL }).catch(() => ctx.log("caught")); ctx.log("continued")`,
		"refused", 0, statuses{"a": keep.ItemFailed}},
	{"AllSettled", `await ctx.withItem("a", "A", async (ctx) => { await Promise.allSettled([FAIL, CREATE]); ctx.log("settled") })`,
		"refused", 0, statuses{"a": keep.ItemFailed}},
	{"Race", `await ctx.withItem("a", "A", async (ctx) => { await Promise.race([FAIL, 1]) })`,
		"refused", 0, statuses{"a": keep.ItemFailed}},
	{"CallBefore", `await ctx.withItem("a", "A", async (ctx) => { await CREATE; try { await FAIL } catch { ctx.log("caught") } })`,
		"refused", 1, statuses{"a": keep.ItemFailed}},

	// A handler that throws fails its item, and nobody can catch that either.
	{"Throws", `try { await ctx.withItem("a", "A", async (ctx) => { await CREATE; throw new Error("odd") }) } catch { ctx.log("caught") }
		await ctx.withItem("b", "B", async () => {})`,
		"script-error", 1, statuses{"a": keep.ItemFailed}},
	{"Rejects", `await Promise.allSettled([ctx.withItem("a", "A", () => Promise.reject(new Error("odd")))]); ctx.log("continued")`,
		"script-error", 0, statuses{"a": keep.ItemFailed}},

	// A call is waited for, whether the handler waits for it or not.
	{"NotAwaited", `await ctx.withItem("a", "A", async (ctx) => { CREATE })`,
		"", 1, statuses{"a": keep.ItemDone}},
	{"NotAwaitedFails", `await ctx.withItem("a", "A", async (ctx) => { FAIL }); ctx.log("continued")`,
		"refused", 0, statuses{"a": keep.ItemFailed}},
	{"ReturnsBefore", `await ctx.withItem("a", "A", (ctx) => { CREATE.then(() => FAIL) }); ctx.log("continued")`,
		"refused", 1, statuses{"a": keep.ItemFailed}},
	{"NothingAwaited", `ctx.withItem("a", "A", (ctx) => { CREATE }); ctx.withItem("b", "B", (ctx) => { OTHER })`,
		"", 2, statuses{"a": keep.ItemDone, "b": keep.ItemDone}},
	{"ThrowsWithoutAwaiting", `await ctx.withItem("a", "A", (ctx) => { CREATE; throw new Error("odd") })`,
		"script-error", 0, statuses{"a": keep.ItemFailed}}, // nothing that it left behind is served

	// Items do not nest, and an item's ctx is its own.
	{"Nested", `await ctx.withItem("a", "A", async (ctx) => { await CREATE; await ctx.withItem("b", "B", async () => {}) })`,
		"forbidden-call", 1, statuses{"a": keep.ItemFailed}},
	{"NestedOuter", `await ctx.withItem("a", "A", async () => { await ctx.withItem("b", "B", async () => {}) })`,
		"forbidden-call", 0, statuses{"a": keep.ItemFailed}},
	{"NestedCaught", `await ctx.withItem("a", "A", async () => { try { await ctx.withItem("b", "B", async () => {}) } catch { ctx.log("caught") } })`,
		"forbidden-call", 0, statuses{"a": keep.ItemFailed}},
	{"OuterCtx", `const outer = ctx; await ctx.withItem("a", "A", async (ctx) => { try { await outer.svc.create({ id: "1" }) } catch { ctx.log("caught") } })`,
		"forbidden-call", 0, statuses{"a": keep.ItemFailed}},
	{"OuterRead", `const outer = ctx; await ctx.withItem("a", "A", async (ctx) => { await outer.svc.list({}); await CREATE })`,
		"", 1, statuses{"a": keep.ItemDone}},
	{"AfterItem", `let kept; await ctx.withItem("a", "A", async (ctx) => { kept = ctx }); await kept.svc.create({ id: "1" })`,
		"call-after-item", 0, nil},
	{"OtherItem", `let kept; await ctx.withItem("a", "A", async (ctx) => { kept = ctx; await CREATE })
		await ctx.withItem("b", "B", async () => { await kept.svc.other({ id: "2" }) })`,
		"call-after-item", 1, statuses{"a": keep.ItemDone, "b": keep.ItemFailed}},
	{"CallOutside", `await CREATE`, "forbidden-call", 0, nil},

	// Items that are begun together take turns.
	{"Concurrent", `await Promise.all(["a", "b", "c"].map((id) => ctx.withItem(id, id, async (ctx) => {
			ctx.log("begin " + id); await ctx.svc.create({ id }); ctx.log("end " + id) })))`,
		"", 3, statuses{"a": keep.ItemDone, "b": keep.ItemDone, "c": keep.ItemDone}},
	{"ConcurrentFails", `await Promise.allSettled([ctx.withItem("a", "A", async (ctx) => { await CREATE }),
			ctx.withItem("b", "B", async (ctx) => { await FAIL }), ctx.withItem("c", "C", async (ctx) => { await OTHER })]); ctx.log("continued")`,
		"refused", 1, statuses{"a": keep.ItemDone, "b": keep.ItemFailed}},
	{"SequentialCalls", `await ctx.withItem("a", "A", async (ctx) => { await Promise.all([CREATE, OTHER, ctx.svc.keyed({ id: "3" })]) })`,
		"", 3, statuses{"a": keep.ItemDone}},

	// What is thrown away is not an item.
	{"BadID", `await ctx.withItem("", "A", async () => {})`, "bad-item", 0, nil},
	{"NumberID", `await ctx.withItem(7, "A", async () => {})`, "bad-item", 0, nil},
	{"NoHandler", `await ctx.withItem("a", "A")`, "script-error", 0, nil},
}

var fails = strings.NewReplacer("FAIL", `ctx.svc.create({ id: "fail" })`)

func (l loop) workflow() keep.WorkflowName { return keep.WorkflowName(l.name) }

// The rules of items where JavaScript could get around them: the run ends with the
// failed call, its item is never done, and no call outlives its item.
func TestItemsAreNotCatchable(t *testing.T) {
	w := newWorld(t)
	w.policy.Breaker.Failures = 0 // many of them fail, and alike
	w.service.onCall = func(_ context.Context, m keep.Mutation, _ int) (bool, error) {
		if string(m.Identity) == `{"id":"fail"}` {
			return false, keep.Failf(keep.ClassPermission, "refused", "no")
		}
		return true, nil
	}
	for _, l := range loops {
		w.deploy(script(l.name, replacer.Replace(fails.Replace(`jobs: { j: { async handler(ctx) { `+l.body+` } } }`))))
	}
	w.run()
	for _, l := range loops {
		t.Run(l.name, func(t *testing.T) { l.check(t, w) })
	}
}

func (l loop) check(t *testing.T, w *world) {
	w.t = t
	r := w.lastRun(l.workflow())
	code := ""
	if r.Error != nil {
		code = r.Error.Code
	}
	if code != l.code || (r.Status == keep.StatusCommitted) != (l.code == "") {
		t.Errorf("run is %s (%v), want code %q", r.Status, r.Error, l.code)
	}
	effects := 0
	for _, m := range w.mutations(l.workflow()) {
		effects += w.service.effects[m.Token]
	}
	if effects != l.effects {
		t.Errorf("%d effects, want %d", effects, l.effects)
	}
	got := make(statuses)
	for _, it := range w.items(l.workflow()) {
		got[it.ID] = it.Status
	}
	if l.code == "call-after-item" || len(l.items) == 0 {
		delete(got, "a") // it was done before the run failed, or never began
	}
	want := maps.Clone(l.items)
	if l.code == "call-after-item" {
		delete(want, "a")
	}
	if !maps.Equal(got, want) {
		t.Errorf("items are %v, want %v", got, want)
	}
	logs := w.logs(l.workflow())
	if l.name == "Concurrent" {
		turns := []string{"begin a", "end a", "begin b", "end b", "begin c", "end c"}
		for i, line := range turns {
			if i >= len(logs) || logs[i] != line {
				t.Fatalf("logs are %q, want %q", logs, turns)
			}
		}
		return
	}
	if len(logs) != 0 {
		t.Errorf("the script continued and logged %q", logs)
	}
}

// A done item whose handler makes a call, in whatever disguise, fails
// by logic and sends nothing, on the second run of the job.
func TestDoneItemsMakeNoCall(t *testing.T) {
	bodies := map[string]string{
		"Plain":      `await CREATE`,
		"TryCatch":   `try { await CREATE } catch { ctx.log("caught") }`,
		"NotAwaited": `CREATE`,
		"Settled":    `await Promise.allSettled([CREATE])`,
	}
	w := newWorld(t)
	w.policy.Breaker.Failures = 0 // many of them fail, and alike
	for name, body := range bodies {
		w.deploy(script(name, replacer.Replace(`jobs: { j: { async handler(ctx) {
			await ctx.withItem("a", "A", async (ctx) => { `+body+` });
			await ctx.withItem("a", "A", async (ctx) => { ctx.log("done: " + ctx.item.isDone); `+body+` }) } } }`)))
	}
	w.run()
	for name := range bodies {
		t.Run(name, func(t *testing.T) {
			w.t = t
			wf := keep.WorkflowName(name)
			if r := w.lastRun(wf); r.Status != keep.StatusLogic || r.Error.Code != "item-done" {
				t.Errorf("run is %s (%v), want failed:logic item-done", r.Status, r.Error)
			}
			if ms := w.mutations(wf); len(ms) != 1 || w.service.effects[ms[0].Token] != 1 {
				t.Errorf("%d records, want 1 with one effect", len(ms))
			}
			if logs := w.logs(wf); len(logs) != 1 || logs[0] != "done: true" {
				t.Errorf("logs %q, want that the handler ran and saw isDone", logs)
			}
		})
	}
}

// Policy on_item_blocked = "continue": the handler of a blocked item does not run,
// withItem is undefined, and the items behind it are worked on.
func TestBlockedItemIsPassedOver(t *testing.T) {
	w := newWorld(t)
	w.policy.Breaker.Failures = 0 // many of them fail, and alike
	w.policy.OnItemBlocked = policy.Continue
	w.policy.Retry.First, w.policy.Retry.Max = time.Millisecond, time.Millisecond
	w.service.onCall = func(_ context.Context, _ keep.Mutation, n int) (bool, error) {
		if n == 1 {
			return true, errReset
		}
		return true, nil
	}
	w.deploy(script("w", `jobs: { j: { async handler(ctx) {
		for (const id of ["a", "b", "c"]) {
			const v = await ctx.withItem(id, id, async (ctx) => { ctx.log("in " + id); if (!ctx.item.isDone) await ctx.svc.blind({ id }); return 7; });
			ctx.log(id + " " + v);
		}
	} } }`))
	w.run()
	got := make(statuses)
	for _, it := range w.items("w") {
		got[it.ID] = it.Status
	}
	if want := (statuses{"a": keep.ItemFailed, "b": keep.ItemDone, "c": keep.ItemDone}); !maps.Equal(got, want) {
		t.Errorf("items are %v, want %v", got, want)
	}
	logs := strings.Join(w.logs("w"), "|")
	if !strings.Contains(logs, "a undefined|in b|b 7|in c|c 7") || strings.Count(logs, "in a") != 1 {
		t.Errorf("logs are %q, want a passed over, b and c worked on", logs)
	}
	if err := w.decide("w", keep.Skip); err != nil {
		t.Fatal(err)
	}
	w.run()
	if logs := strings.Join(w.logs("w"), "|"); !strings.Contains(logs, "in a|a 7|in b|b 7") || w.service.total() != 3 {
		t.Errorf("logs are %q after %d effects, want all three handled, and 3", logs, w.service.total())
	}
}
