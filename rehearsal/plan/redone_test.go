package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/rehearsal/plan"
)

// A plan of a pending event shows the script the attempt that the run would see, and when the event was published.
func TestPlanOfRedoneEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.load(t, strings.Replace(orders, `await ctx.shop.send({ id: prepared.data.id });`, `await ctx.shop.bill({ id: prepared.data.id, ref: prepared.data.seen });`, 1))
	w.live(t)
	redo := func(attempt int, chain keep.RunID, changes ...keep.Change) {
		t.Helper()
		changes = append(changes, keep.RedoEvents{Topic: "order.new", IDs: []keep.MessageID{"o1"}, Chain: chain, Attempt: attempt, By: "ann", From: "test"})
		if err := w.db.Commit(t.Context(), keep.Commit{Workflow: "orders", At: time.Now(), Changes: changes}); err != nil {
			t.Fatal(err)
		}
	}
	ev, err := w.db.Event(t.Context(), "orders", "order.new", "o1")
	if err != nil || ev.Status != keep.EventConsumed {
		t.Fatalf("the event is %+v, %v; want it consumed", ev, err)
	}
	redo(1, ev.ReservedBy)
	redo(2, "", keep.SkipEvents{Topic: "order.new", IDs: []keep.MessageID{"o1"}})
	w.load(t, strings.NewReplacer(`await ctx.shop.send({ id: prepared.data.id });`, `await ctx.shop.bill({ id: prepared.data.id, ref: prepared.data.seen });`,
		`ids: [trigger.messageId] }], data: trigger.payload }`,
		"ids: [trigger.messageId] }], data: { ...trigger.payload, seen: `attempt ${trigger.attempt} of ${trigger.createdAt}` } }").Replace(orders))
	said := strings.Join(calls(w.plan(t, plan.Config{Base: w.db})), "\n")
	if want := fmt.Sprintf("attempt 3 of %s", ev.CreatedAt.UTC().Format(time.RFC3339Nano)); !strings.Contains(said, want) {
		t.Errorf("the plan calls %q, want %q", said, want)
	}
}
