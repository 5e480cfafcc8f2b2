package plan_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/rehearsal/plan"
)

const billing = `
export default Keep.workflow({
  name: "billing",
  jobs: {
    bill: {
      schedule: { interval: "1h" },
      async handler(ctx) {
        for (const id of ["a", "b"])
          await ctx.withItem(id, id, async (ctx) => {
            if (ctx.item.isDone) return;
            await ctx.shop.bill({ id });
          });
      },
    },
  },
});
`

// A job passes over an item while it is not known whether a call of it happened, and does the others: so does a plan.
func TestPlanPassesOverItemsInDoubt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(server.Close)
	conn, err := httpapi.New("shop", httpapi.Config{BaseURL: server.URL, Tools: map[string]httpapi.Tool{
		"bill": {Effect: connector.Mutate, Path: "/orders/{id}/bill", Identity: []string{"id"}},
		"send": {Effect: connector.Mutate, Path: "/orders/{id}/send", Identity: []string{"id"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.conns = []connector.Connection{*conn}
	w.load(t, strings.Replace(billing, `["a", "b"]`, `["a"]`, 1))
	w.live(t) // the answer about a is lost
	for name, source := range map[string]string{
		"the same call":   billing,
		"another one":     strings.Replace(billing, "ctx.shop.bill({", "ctx.shop.send({", 1),
		"one that throws": strings.Replace(billing, "await ctx.shop", `if (id === "a") throw new Error("no"); await ctx.shop`, 1),
	} {
		w.load(t, source)
		p := w.plan(t, plan.Config{Base: w.db, Due: true})
		if len(p.Mutations) != 1 || p.Mutations[0].Item == nil || *p.Mutations[0].Item != "b" || len(p.Errors) != 0 {
			t.Errorf("%s: calls %q, errors %v; want that of b", name, calls(p), p.Errors)
		}
		if !slices.ContainsFunc(p.Unknown, func(s string) bool { return strings.Contains(s, `item "a" is passed over`) }) {
			t.Errorf("%s: unknown %q, want that a is passed over", name, p.Unknown)
		}
	}
}
