package plan_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/rehearsal/plan"
)

// A tool says that its identity is applied once, and another workflow applied it: a run would ask a person, so the plan
// has no change for it, and says why.
func TestPlanOfWhatWasDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := httptest.NewServer(w.shop)
	t.Cleanup(server.Close)
	conn, err := httpapi.New("shop", httpapi.Config{BaseURL: server.URL, Tools: map[string]httpapi.Tool{
		"list": {Effect: connector.List, Path: "/orders", Query: []string{"polls"}},
		"send": {Effect: connector.Mutate, Path: "/orders/{id}/send", Identity: []string{"id"}, Unique: true, IdempotencyHeader: "Idempotency-Key", Deduplicates: true},
		"bill": {Effect: connector.Mutate, Path: "/orders/{id}/bill", Identity: []string{"id"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.conns = []connector.Connection{*conn}
	w.live(t)
	made := w.shop.calls.Load()
	w.load(t, strings.Replace(orders, `name: "orders"`, `name: "again"`, 1))
	if p := w.plan(t, plan.Config{}); len(p.Mutations) != 2 {
		t.Errorf("calls %q on an empty database, want two", calls(p))
	}
	p := w.plan(t, plan.Config{Base: w.db})
	if len(p.Mutations) != 0 || len(p.Errors) != 0 {
		t.Errorf("calls %q, errors %v; want none", calls(p), p.Errors)
	}
	if said := strings.Join(p.Unknown, "\n"); !strings.Contains(said, "shop.send on id=o1 was already done") || !strings.Contains(said, "a person is asked") {
		t.Errorf("unknown %q, want that it was done already", p.Unknown)
	}
	w.live(t)
	if n := w.shop.calls.Load(); n != made {
		t.Errorf("%d calls, want %d: a person is asked", n, made)
	}
}
