package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/law/breaker"
	"github.com/keep-run/keep/rehearsal/plan"
)

// A plan knows the calls of an unfinished item that were made under another name of their tool, as a run does, and that
// calls of one are stopped which had another name then.
func TestPlanAfterARename(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	once := strings.Replace(billing, `["a", "b"]`, `["a"]`, 1)
	w.load(t, strings.Replace(once, "await ctx.shop.bill({ id });", `await ctx.shop.bill({ id }); throw new Error("half")`, 1))
	w.live(t)
	if n := w.shop.calls.Load(); n != 1 {
		t.Fatalf("%d calls, want 1", n)
	}
	renamed, err := httpapi.New("store", httpapi.Config{BaseURL: "http://127.0.0.1:9", Tools: map[string]httpapi.Tool{
		"bill": {Effect: connector.Mutate, Path: "/orders/{id}/bill", Identity: []string{"id"}},
		"send": {Effect: connector.Mutate, Path: "/orders/{id}/send", Identity: []string{"id"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	renamed.Was = []string{"shop"}
	w.conns = []connector.Connection{*renamed}
	w.load(t, strings.Replace(once, "await ctx.shop.bill({ id });", "await ctx.store.bill({ id }); await ctx.store.send({ id });", 1))
	state := breaker.State{Open: &breaker.Open{Since: time.Now(), Cause: "logic http-422", N: 5, Why: "no"}}
	putState(t, w, keep.ToolGate("shop.send"), state)
	p := w.plan(t, plan.Config{Base: w.db, Due: true})
	if got := calls(p); !slices.Equal(got, []string{`store.send{"id":"a"}`}) || len(p.Errors) != 0 {
		t.Errorf("calls %q, errors %v; want that of send alone", got, p.Errors)
	}
	if !slices.ContainsFunc(p.Unknown, func(s string) bool { return strings.HasPrefix(s, "No call of store.send is made") }) {
		t.Errorf("unknown %q, want that calls of send are stopped", p.Unknown)
	}

	renamed.Was, renamed.New = nil, true
	w.conns = []connector.Connection{*renamed}
	if p = w.plan(t, plan.Config{Base: w.db, Due: true}); len(p.Mutations) != 2 || len(p.Errors) != 0 {
		t.Errorf("another connection: calls %q, errors %v; want both", calls(p), p.Errors)
	}
	renamed.New = false
	w.conns = []connector.Connection{*renamed}
	if p = w.plan(t, plan.Config{Base: w.db, Due: true}); len(p.Mutations) != 0 || len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Message, "configured no more") {
		t.Errorf("nothing says which: calls %q, errors %v; want the question of a run", calls(p), p.Errors)
	}
}
