package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// jobs of real JavaScript over items, with what the service gets and how the
// items end.
var itemJobs = []struct {
	name, body string
	creates    int
	items      string // id=status, sorted
	code       string // of the failure; empty: the run commits
}{
	{"Sequential", `for (const id of ["a", "b"]) await ctx.withItem(id, id, async (ctx) => { await ctx.svc.create({ id }) })`, 2, "[a=done b=done]", ""},
	{"Concurrent", `await Promise.all(["a", "b", "c"].map((id) => ctx.withItem(id, id, async (ctx) => { await ctx.svc.create({ id }) })))`, 3, "[a=done b=done c=done]", ""},
	{"NotAwaitedItem", `ctx.withItem("a", "a", async (ctx) => { await ctx.svc.create({ id: "a" }) })`, 1, "[a=done]", ""},
	{"NotAwaitedCall", `await ctx.withItem("a", "a", async (ctx) => { ctx.svc.create({ id: "a" }) })`, 1, "[a=done]", ""},
	{"TwoCalls", `await ctx.withItem("a", "a", async (ctx) => { await Promise.all([ctx.svc.create({ id: "1" }), ctx.svc.create({ id: "2" })]) })`, 2, "[a=done]", ""},
	{"SameTwice", `await ctx.withItem("a", "a", async (ctx) => { await ctx.svc.create({ id: "1" }); await ctx.svc.create({ id: "1" }) })`, 1, "[a=done]", ""},
	{"Subkeys", `await ctx.withItem("a", "a", async (ctx) => { await ctx.svc.create({ id: "1", subkey: "x" }); await ctx.svc.create({ id: "1", subkey: "y" }) })`, 2, "[a=done]", ""},
	{"SameItemTwice", `for (let i = 0; i < 2; i++) await ctx.withItem("a", "a", async (ctx) => { if (!ctx.item.isDone) await ctx.svc.create({ id: "1" }) })`, 1, "[a=done]", ""},
	{"DoneItem", `for (let i = 0; i < 2; i++) await ctx.withItem("a", "a", async (ctx) => { await ctx.svc.create({ id: "1" }) })`, 1, "[a=done]", "item-done"},
	{"Nested", `await ctx.withItem("a", "a", async (ctx) => { await ctx.withItem("b", "b", async () => {}) })`, 0, "[a=failed]", "forbidden-call"},
	{"NestedByOuter", `const outer = ctx; await ctx.withItem("a", "a", async (ctx) => { await ctx.svc.get({}); await outer.withItem("b", "b", async () => {}) })`, 0, "[a=failed]", "forbidden-call nested-item"},
	{"OuterInItem", `const outer = ctx; await ctx.withItem("a", "a", async () => { await outer.svc.create({ id: "1" }) })`, 0, "[a=failed]", "forbidden-call"},
	{"InnerAfterItem", `let inner; await ctx.withItem("a", "a", async (ctx) => { inner = ctx }); await inner.svc.create({ id: "1" })`, 0, "[a=done]", "call-after-item"},
	{"InnerInOther", `let inner; await ctx.withItem("a", "a", async (ctx) => { inner = ctx }); await ctx.withItem("b", "b", async () => { await inner.svc.create({ id: "1" }) })`, 0, "[a=done b=failed]", "call-after-item"},
	{"Throws", `await ctx.withItem("a", "a", async (ctx) => { await ctx.svc.create({ id: "1" }); throw new Error("boom") })`, 1, "[a=failed]", "script-error"},
	{"ThrowIsCaught", `try { await ctx.withItem("a", "a", async (ctx) => { throw new Error("boom") }) } catch { await ctx.withItem("b", "b", async (ctx) => { await ctx.svc.create({ id: "1" }) }) }`, 0, "[a=failed]", "script-error"},
	{"NumberID", `await ctx.withItem(7, "a", async () => {})`, 0, "[]", "bad-item"},
	{"NoTitle", `await ctx.withItem("a", undefined, async () => {})`, 0, "[]", "bad-item"},
	{"NoHandler", `await ctx.withItem("a", "a")`, 0, "[]", "script-error"},
}

// Items of jobs in real JavaScript: one at a time, none inside of another, each
// call of its own item, and nothing twice.
func TestItemsOfJobs(t *testing.T) {
	w := newWorld(t)
	for _, j := range itemJobs {
		w.deploy(script(j.name, fmt.Sprintf(`jobs: { j: { schedule: { interval: "1h" }, async handler(ctx) { %s } } }`, j.body)))
	}
	var mu sync.Mutex
	out, most := map[keep.WorkflowName]int{}, 0
	w.service.onCall = func(_ context.Context, m keep.Mutation, _ int) (bool, error) {
		mu.Lock()
		out[m.Workflow]++
		most = max(most, out[m.Workflow])
		mu.Unlock()
		<-time.After(5 * time.Millisecond) // a call takes time, so that two would overlap
		mu.Lock()
		out[m.Workflow]--
		mu.Unlock()
		return true, nil
	}
	w.run()
	if most != 1 {
		t.Errorf("%d calls of one workflow at once, want 1", most)
	}
	total := 0
	for _, j := range itemJobs {
		total += j.creates
		wf := keep.WorkflowName(j.name)
		r := w.lastRun(wf)
		switch {
		case j.code == "" && r.Status != keep.StatusCommitted:
			t.Errorf("%s: run is %s (%v), want committed", j.name, r.Status, r.Error)
		case j.code != "" && (r.Status != keep.StatusLogic || !slices.Contains(strings.Fields(j.code), r.Error.Code)):
			t.Errorf("%s: run is %s (%v), want failed:logic %s", j.name, r.Status, r.Error, j.code)
		}
		var items []string
		for _, it := range w.items(wf) {
			items = append(items, it.ID+"="+string(it.Status))
		}
		slices.Sort(items)
		if got := fmt.Sprint(items); got != j.items {
			t.Errorf("%s: items are %s, want %s", j.name, got, j.items)
		}
		if n := len(w.mutations(wf)); n != j.creates {
			t.Errorf("%s: %d mutations, want %d", j.name, n, j.creates)
		}
	}
	w.wantOnce(t, total)
}

// An item whose call waits for a person is left by the answer that leaves it, of whatever kind its question is.
func TestSkipItemThatWaits(t *testing.T) {
	ctx, noon := t.Context(), time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for kind, leaves := range map[keep.EscalationKind]keep.Action{keep.AskApproval: keep.Reject, keep.AskItem: keep.Skip} {
		for name, skip := range map[string]func(*operator.Operator, keep.Decision) error{
			"item":    func(o *operator.Operator, d keep.Decision) error { return o.SkipItem(ctx, "w", "a", d) },
			"attempt": func(o *operator.Operator, d keep.Decision) error { return o.SkipAttempt(ctx, "w", "a", 1, d) },
			"shown item": func(o *operator.Operator, d keep.Decision) error {
				return o.SkipShownItem(ctx, "w", "a", 1, "esc_1", d)
			},
		} {
			s := memory.New()
			o, err := operator.New(s, operator.Config{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Handler: "j", Kind: keep.Job, Phase: keep.Running,
				Status: keep.StatusApproval, CreatedAt: noon, UpdatedAt: noon}
			asked := keep.Escalation{ID: "esc_1", Kind: kind, Workflow: "w", Run: "run_1", Item: "a", Question: "?",
				Choices: []keep.Choice{{Action: keep.Approve}, {Action: leaves}, {Action: keep.TreatAsDone}}, CreatedAt: noon}
			item := keep.Item{Workflow: "w", ID: "a", Status: keep.ItemProcessing, Attempt: 1, CreatedAt: noon, UpdatedAt: noon}
			if err := s.Commit(ctx, keep.Commit{Workflow: "w", At: noon, Changes: []keep.Change{
				keep.PutRun{Run: run}, keep.PutItem{Item: item}, keep.OpenEscalation{Escalation: asked}}}); err != nil {
				t.Fatal(err)
			}
			if err := skip(o, keep.Decision{By: "ann", Note: "not this one"}); err != nil {
				t.Errorf("%s: %s: %v", kind, name, err)
			}
			q, err := s.Escalation(ctx, "esc_1")
			if err != nil || q.Decision == nil || q.Decision.Action != leaves || q.Decision.By != "ann" || q.Decision.Note != "not this one" {
				t.Errorf("%s: %s: the question has the answer %+v, %v; want %s", kind, name, q.Decision, err, leaves)
			}
			if it, err := s.Item(ctx, "w", "a"); err != nil || it.Status != keep.ItemSkipped {
				t.Errorf("%s: %s: the item is %+v, %v; want it skipped", kind, name, it, err)
			}
		}
	}
}
