package compare_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/rehearsal/compare"
)

// A job was tried again after the call of its second item had failed: the attempt that ended it found the first item done, and
// the call of that item counts as well.
func TestAttemptsOfAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var tried atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "job:o11") && tried.Add(1) == 1 {
			rw.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.shop.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	conn, err := httpapi.New("shop", httpapi.Config{BaseURL: server.URL, Tools: map[string]httpapi.Tool{
		"list": {Effect: connector.List, Path: "/orders", Query: []string{"page"}},
		"send": {Effect: connector.Mutate, Path: "/orders/{id}/send", Identity: []string{"id"}, IdempotencyHeader: "Idempotency-Key", Deduplicates: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.conns = []connector.Connection{*conn}
	const job = `
export default Keep.workflow({
  name: "w",
  jobs: {
    async each(ctx) {
      for (const o of await ctx.shop.list({ page: "1" }))
        await ctx.withItem("item:" + o.id, "Item " + o.id, async (ctx) => {
          if (ctx.item.isDone) return;
          await ctx.shop.send({ id: "job:" + o.id, n: 1 });
        });
    },
  },
});
`
	p := policy.Default()
	p.Retry.First, p.Retry.Max = time.Millisecond, time.Millisecond
	h, err := host.Open(t.Context(), w.db, host.Config{Connections: w.conns, Runtime: w.rt, Policy: &p, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Deploy(t.Context(), w.load(t, job)); err != nil {
		t.Fatal(err)
	}
	if err := h.RunUntilIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.shop.calls.Load(); n != 3 || tried.Load() != 2 {
		t.Fatalf("%d calls, and %d tries of the second; want 3 and 2", n, tried.Load())
	}
	for id, want := range map[string]compare.Impact{"none": compare.Safe, "o10": compare.Impactful, "o11": compare.Impactful, "o12": compare.Impactful} {
		r := w.compare(t, strings.Replace(job, "n: 1", `n: o.id === "`+id+`" ? 2 : 1`, 1))
		if r.Impact != want {
			t.Errorf("another payload for %s: %s, want %s", id, said(r), want)
		}
	}
	if n, err := w.db.ForgetTraces(t.Context(), time.Now().Add(time.Hour), 1); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if r := w.compare(t, job); r.Impact != compare.Unknown || r.Counts[compare.Same] != 1 || r.Counts[compare.Inconclusive] != 1 {
		t.Errorf("without what the first attempt saw: %s, want that nobody knows", said(r))
	}
}
