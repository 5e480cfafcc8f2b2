package compare_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/rehearsal/compare"
)

// A run that differs in more than is shown is judged by all of it: a later attempt published much, and what an earlier one
// reserved and called would have been otherwise as well.
func TestMoreThanIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const key = `order: "key", key: (event) => "order " + event.payload.id`
	source := strings.NewReplacer(`subscribe: ["a"],`, `subscribe: ["a"], `+key+`,`, `await ctx.shop.send({ id: prepared`, `await ctx.shop.lose({ id: prepared`,
		`await ctx.publish("b", { ref: m.result.ref });`, `for (let i = 0; i < 40; i++) await ctx.publish("b", { messageId: prepared.data.id + "/" + i, i });`).Replace(shopWorkflow)
	w.live(t, source)
	people, err := operator.New(w.db, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	qs, _, err := w.db.Escalations(t.Context(), keep.EscalationFilter{Open: true}, keep.Page{})
	if err != nil || len(qs) != 3 {
		t.Fatal(qs, err)
	}
	for _, q := range qs {
		if err := people.Decide(t.Context(), q.ID, keep.Decision{Action: keep.Skip, By: "ann", From: "test", Note: "looked"}); err != nil {
			t.Fatal(err)
		}
	}
	w.live(t, source)
	other := strings.NewReplacer(`"order " +`, `"other " +`, `name: row.name`, `name: 7`, `+ i, i }`, `+ i, i, more: 1 }`).Replace(source)
	r := w.compare(t, other)
	var run *compare.Run
	for i := range r.Runs {
		if r.Runs[i].Handler == "send" && r.Runs[i].Done && len(r.Runs[i].After) >= 20 {
			run = &r.Runs[i]
		}
	}
	if run == nil {
		t.Fatalf("no run differs in much: %s", said(r))
	}
	if !run.OtherKey() || run.OnlyIn("next") {
		t.Errorf("other key %t, only in next %t; want true, false: %.2000s", run.OtherKey(), run.OnlyIn("next"), said(r))
	}
	if same := w.compare(t, strings.Replace(source, `+ i, i }`, `+ i, i, more: 1 }`, 1)); same.Runs[0].OtherKey() || !same.Runs[0].OnlyIn("next") {
		t.Errorf("of one that differs in next: other key %t, only in next %t", same.Runs[0].OtherKey(), same.Runs[0].OnlyIn("next"))
	}
}
