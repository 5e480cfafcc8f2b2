package plan_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/rehearsal/plan"
)

// An event that is known already causes nothing if it is published again: a plan of it says so.
func TestPlanOfKnownEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check := func(id keep.MessageID, want string) {
		t.Helper()
		p := w.plan(t, plan.Config{Base: w.db, Event: &keep.Event{Topic: "order.new", MessageID: id, Payload: json.RawMessage(`{"id":"o1"}`)}})
		said := strings.Join(p.Unknown, "\n")
		if has := strings.Contains(said, "causes nothing"); !strings.Contains(said, want) || has != (want != "") || len(p.Mutations) == 0 {
			t.Errorf("unknown %q, want %q; calls %q", p.Unknown, want, calls(p))
		}
	}
	w.live(t) // its call waits for an approval
	check("o1", "has event o1 in topic order.new")
	check("o2", "")
	server := httptest.NewServer(w.shop)
	t.Cleanup(server.Close)
	conn, err := httpapi.New("shop", httpapi.Config{BaseURL: server.URL, Tools: map[string]httpapi.Tool{
		"list": {Effect: connector.List, Path: "/orders", Query: []string{"polls"}},
		"send": {Effect: connector.Mutate, Path: "/orders/{id}/send", Identity: []string{"id"}, IdempotencyHeader: "Idempotency-Key", Deduplicates: true},
		"bill": {Effect: connector.Mutate, Path: "/orders/{id}/bill", Identity: []string{"id"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	other := newWorld(t)
	other.conns = []connector.Connection{*conn}
	other.live(t)
	w = other
	check("o1", "event o1 in topic order.new is consumed already")
}
