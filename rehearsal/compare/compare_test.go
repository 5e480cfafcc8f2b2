package compare_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/internal/sandboxtest"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/rehearsal/compare"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/memory"
)

// shopWorkflow has every kind of handler: orders become calls and events, and a job walks over items.
const shopWorkflow = `
export default Keep.workflow({
  name: "w",
  topics: { "a": {}, "b": {} },
  producers: {
    async poll(ctx) {
      for (const o of await ctx.shop.list({ page: "0" })) {
        const input = await ctx.registerInput({ source: "shop", type: "order", id: o.id, title: "Order " + o.id });
        await ctx.publish("a", { messageId: o.id, inputId: input, payload: { id: o.id } });
      }
      await ctx.kv.set("n", 1);
    },
  },
  consumers: {
    send: Keep.consumer({
      subscribe: ["a"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        return { reservations: [{ topic: "a", ids: [trigger.messageId] }], data: { id: trigger.payload.id }, ui: { title: "Send " + trigger.messageId } };
      },
      async mutate(ctx, prepared) {
        const row = await ctx.shop.get({ id: prepared.data.id });
        await ctx.shop.send({ id: prepared.data.id, name: row.name });
      },
      async next(ctx, prepared, m) {
        await ctx.publish("b", { messageId: "done:" + prepared.data.id, status: m.status });
        await ctx.publish("b", { ref: m.result.ref });
      },
    }),
  },
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

// A shop counts what reaches it.
type shop struct{ reads, calls atomic.Int64 }

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/lose"):
		panic(http.ErrAbortHandler)
	case r.Method == http.MethodPost:
		fmt.Fprintf(w, `{"ref":"r%d"}`, s.calls.Add(1))
	case r.URL.Path == "/orders":
		page := r.URL.Query().Get("page")
		fmt.Fprintf(w, `[{"id":"o%s0"},{"id":"o%s1"},{"id":"o%s2"}]`, page, page, page)
		s.reads.Add(1)
	default:
		fmt.Fprintf(w, `{"name":"Zoë %d"}`, s.reads.Add(1))
	}
}

// runtime is the sandbox of all tests: to open one takes half a second.
var runtime = sync.OnceValues(func() (*sandbox.Runtime, error) {
	return sandbox.Open(context.Background(), sandbox.Config{CacheDir: sandboxtest.CacheDir()})
})

// A world is a shop, and what a host did with it so far.
type world struct {
	shop  *shop
	db    *memory.Store
	conns []connector.Connection
	rt    *sandbox.Runtime
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{shop: &shop{}, db: memory.New()}
	server := httptest.NewServer(w.shop)
	t.Cleanup(server.Close)
	conn, err := httpapi.New("shop", httpapi.Config{BaseURL: server.URL, Tools: map[string]httpapi.Tool{
		"list": {Effect: connector.List, Path: "/orders", Query: []string{"page"}},
		"get":  {Effect: connector.Get, Path: "/orders/{id}"},
		"send": {Effect: connector.Mutate, Path: "/orders/{id}/send", Identity: []string{"id"}, IdempotencyHeader: "Idempotency-Key", Deduplicates: true},
		"post": {Effect: connector.Mutate, Path: "/orders/{id}/post", Identity: []string{"id"}, IdempotencyHeader: "Idempotency-Key", Deduplicates: true},
		"lose": {Effect: connector.Mutate, Path: "/orders/{id}/lose", Identity: []string{"id"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.conns = []connector.Connection{*conn}
	if w.rt, err = runtime(); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) load(t *testing.T, source string) *host.Workflow {
	t.Helper()
	b, err := sandbox.BuildSource("w.js", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := host.LoadBundle(t.Context(), w.rt, b)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// live executes a script for real, until nothing is left to do.
func (w *world) live(t *testing.T, source string) {
	t.Helper()
	h, err := host.Open(t.Context(), w.db, host.Config{Connections: w.conns, Runtime: w.rt, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Deploy(t.Context(), w.load(t, source)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := h.WaitIdle(ctx); err != nil {
		t.Error(err)
	}
	stop()
	running.Wait()
}

// config returns what compares the runs of the current version with another source.
func (w *world) config(t *testing.T, source string) compare.Config {
	t.Helper()
	now, err := w.db.Workflow(t.Context(), "w")
	if err != nil {
		t.Fatal(err)
	}
	own, err := w.db.Deployment(t.Context(), "w", now.Version)
	if err != nil {
		t.Fatal(err)
	}
	loaded := w.load(t, source)
	script, err := host.LoadScript(t.Context(), w.rt, own, loaded.Bundle)
	if err != nil {
		t.Fatal(err)
	}
	return compare.Config{Store: w.db, Workflow: "w", From: own.Version, Script: script, Definition: loaded.Definition, To: "new", Connections: w.conns}
}

func (w *world) compare(t *testing.T, source string) *compare.Report {
	t.Helper()
	r, err := compare.Do(t.Context(), w.config(t, source))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// said returns a report in a few lines: counts, runs that differ, inputs, calls.
func said(r *compare.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v %q\n", r.Impact, r.Counts, r.Declared)
	for _, run := range r.Runs {
		if run.Change == compare.Same {
			continue
		}
		fmt.Fprintf(&b, "run of %s: %s %s\n", run.Handler, run.Change, run.Why)
		for _, e := range run.Before {
			fmt.Fprintf(&b, "- %s %s %s\n", e.Phase, e.What, e.Value)
		}
		for _, e := range run.After {
			fmt.Fprintf(&b, "+ %s %s %s\n", e.Phase, e.What, e.Value)
		}
	}
	for _, in := range r.Inputs {
		fmt.Fprintf(&b, "input %s\n", in.Name)
	}
	for _, m := range r.Mutations {
		kept := "with a key"
		if m.Key == "" {
			kept = "without a key"
		}
		fmt.Fprintf(&b, "call %s %s %s: %s %s\n", m.Tool, kept, m.Change, m.Remedy, m.How)
	}
	return b.String()
}

// A version is compared run by run with the one before, and nothing reaches the service.
func TestDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live(t, shopWorkflow)
	reads, calls := w.shop.reads.Load(), w.shop.calls.Load()
	for _, tt := range []struct {
		name, old, new string
		impact         compare.Impact
		want           []string
	}{
		{"the same", `"n", 1`, `"n", 1`, compare.Safe, []string{"same:5"}},
		{"a comment moves the lines", `async prepare`, "// now with a comment\n\n async prepare", compare.Safe, []string{"same:5"}},
		{"what is handed on", `data: { id: trigger.payload.id }`, `data: { id: trigger.payload.id, more: 1 }`, compare.Safe, []string{"same:5"}},
		{"payload", `name: row.name`, `name: row.name.toUpperCase()`, compare.Impactful,
			[]string{"changed:3", "same:2", "run of send: changed", `- mutate payload {"id":"o00","name":"Zoë 3"}`, `+ mutate payload {"id":"o00","name":"ZOË 3"}`,
				"input o00", "input o02", "call shop.send with a key changed: redo keep events redo w a o00"}},
		{"identity", `send({ id: prepared.data.id`, `send({ id: "x" + prepared.data.id`, compare.Impactful, []string{"changed:3", "- mutate identity", "call shop.send with a key changed: by hand"}},
		{"another tool", `ctx.shop.send({ id: prepared`, `ctx.shop.post({ id: prepared`, compare.Impactful, []string{"changed:3", "by hand"}},
		{"no call for one", `await ctx.shop.send({ id: prepared`, `if (row.name !== "Zoë 3") await ctx.shop.send({ id: prepared`, compare.Impactful,
			[]string{"missing:1", "same:4", "call shop.send with a key missing: by hand"}},
		{"no next", nextOf(shopWorkflow), `}),`, compare.Impactful, []string{"missing:3", "- next publishes"}},
		{"no mutate", mutateOf(shopWorkflow), ``, compare.Impactful, []string{"missing:3", "- mutate call", "by hand"}},
		{"reservations", `if (!trigger)`, `if (!trigger || trigger.messageId === "o01")`, compare.Impactful, []string{"changed:1", "prepare reservations", "mutate call", "call shop.send with a key missing: by hand"}},
		{"fails", `const row =`, `if (prepared.data.id === "o01") throw new Error("no"); const row =`, compare.Impactful, []string{"failed:1", "script-error", "with a key missing: by hand"}},
		{"an event less", `await ctx.publish("b", { ref`, `if (0) await ctx.publish("b", { ref`, compare.Impactful, []string{"missing:3", "next publishes"}},
		{"an event more", `await ctx.publish("b", { ref`, `await ctx.publish("b", { x: 1 }); await ctx.publish("b", { ref`, compare.Impactful, []string{"changed:3", "+ next publishes", `{"x":1}`}},
		{"another message id", `messageId: "done:"`, `messageId: "over:"`, compare.Impactful, []string{"changed:3", "over:o00"}},
		{"another message id of a producer", `messageId: o.id`, `messageId: o.id + "!"`, compare.Impactful, []string{"changed:1", "run of poll", "input o01"}},
		{"checkpoint", `"n", 1`, `"n", 2`, compare.Impactful, []string{"changed:1", "handler checkpoint"}},
		{"another item", `"item:" + o.id`, `"thing:" + o.id`, compare.Impactful, []string{"changed:1", "run of each", "handler items"}},
		{"payload in an item", `n: 1 }`, `n: o.id === "o11" ? 2 : 1 }`, compare.Impactful, []string{"changed:1", "call shop.send with a key changed: redo keep items reprocess w item:o11"}},
		{"isDone is not asked", `if (ctx.item.isDone) return`, `if (!ctx.item.isDone) return`, compare.Impactful, []string{"run of each"}},
		{"an unknown read", `ctx.shop.get({ id: prepared.data.id })`, `ctx.shop.get({ id: "y" })`, compare.Unknown, []string{"inconclusive:3", "the run did not ask this"}},
		{"a handler is gone", `async each(`, `async walk(`, compare.Impactful, []string{"no-handler", "job each is gone", "job walk is new"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			source := strings.Replace(shopWorkflow, tt.old, tt.new, 1)
			if source == shopWorkflow && tt.old != tt.new {
				t.Fatal("nothing was replaced")
			}
			r := w.compare(t, source)
			if r.Impact != tt.impact {
				t.Errorf("impact %s, want %s", r.Impact, tt.impact)
			}
			for _, want := range tt.want {
				if !strings.Contains(said(r), want) {
					t.Errorf("nothing says %q", want)
				}
			}
			if t.Failed() {
				t.Log(said(r))
			}
			if _, err := json.Marshal(r); err != nil {
				t.Error(err)
			}
			if !slices.IsSortedFunc(r.Runs, func(a, b compare.Run) int {
				return slices.Index(compare.Changes(), a.Change) - slices.Index(compare.Changes(), b.Change)
			}) {
				t.Error("runs that do not differ come first")
			}
		})
	}
	if w.shop.reads.Load() != reads || w.shop.calls.Load() != calls || calls == 0 {
		t.Errorf("the replays made %d reads and %d calls, after %d", w.shop.reads.Load()-reads, w.shop.calls.Load()-calls, calls)
	}
}

// Another order key is an impact though each run does the same: other events would wait for one that is in doubt.
func TestOrderKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const key = `order: "key", key: (event) => "order " + event.payload.id`
	source := strings.Replace(shopWorkflow, `subscribe: ["a"],`, `subscribe: ["a"], `+key+`,`, 1)
	w.live(t, source)
	for _, tt := range []struct {
		name, key string
		impact    compare.Impact
		want      []string
	}{
		{"the same", "order: \"key\", key: ({ payload }) => `order ${payload.id}`", compare.Safe, []string{"same:5"}},
		{"one for all", `order: "key", key: () => "one"`, compare.Impactful, []string{"changed:3", `- prepare order_key "order o00"`, `+ prepare order_key "one"`}},
		{"of one", `order: "key", key: (event) => (event.messageId === "o01" ? "a" : "order ") + event.payload.id`, compare.Impactful, []string{"changed:1", "same:4"}},
		{"none", `order: "key", key: () => ""`, compare.Impactful, []string{"failed:3", "bad-order-key", "call shop.send with a key missing"}},
	} {
		r := w.compare(t, strings.Replace(source, key, tt.key, 1))
		if r.Impact != tt.impact {
			t.Errorf("%s: impact %s, want %s", tt.name, r.Impact, tt.impact)
		}
		for _, want := range tt.want {
			if !strings.Contains(said(r), want) {
				t.Errorf("%s: nothing says %q:\n%s", tt.name, want, said(r))
			}
		}
	}
}

// mutateOf and nextOf cut a function out of a source.
func mutateOf(source string) string { return between(source, "async mutate", "async next") }

func nextOf(source string) string { return between(source, "async next", "\n    }),") + "\n    })," }

func between(source, from, to string) string {
	i := strings.Index(source, from)
	return source[i : i+strings.Index(source[i:], to)]
}

// What an earlier attempt executed is compared, too: a run that only took note of what a person
// decided proves nothing on its own.
func TestAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	source := strings.NewReplacer(`await ctx.shop.send({ id: prepared`, `await ctx.shop.lose({ id: prepared`, `m.result.ref`, `m.status`).Replace(shopWorkflow)
	w.live(t, source)
	people, err := operator.New(w.db, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		qs, _, err := w.db.Escalations(t.Context(), keep.EscalationFilter{Open: true}, keep.Page{})
		if err != nil {
			t.Fatal(err)
		}
		if len(qs) == 0 {
			if n != 3 {
				t.Fatalf("%d questions, want 3", n)
			}
			break
		}
		if err := people.Decide(t.Context(), qs[0].ID, keep.Decision{Action: keep.Skip, By: "ann", From: "test", Note: "looked"}); err != nil {
			t.Fatal(err)
		}
		w.live(t, source)
	}
	if r := w.compare(t, source); r.Impact != compare.Safe {
		t.Errorf("its own version: %s", said(r))
	}
	for old, new := range map[string]string{
		`name: row.name`: `name: 7`, `ids: [trigger.messageId]`: `ids: []`, `await ctx.shop.lose`: `if (0) await ctx.shop.lose`,
	} {
		r := w.compare(t, strings.Replace(source, old, new, 1))
		if r.Impact != compare.Impactful || r.Counts[compare.Changed]+r.Counts[compare.Missing] != 3 {
			t.Errorf("%s: %s", new, said(r))
		}
		for _, m := range r.Mutations {
			if m.Remedy != compare.ByHand || m.How != "" {
				t.Errorf("%s: what a person decided to skip: %+v", new, m)
			}
		}
	}
	// What comes after is gone through with what was prepared then: nobody knows what it would do.
	r := w.compare(t, strings.Replace(source, `data: { id: trigger.payload.id }`, `data: { id: trigger.payload.id, more: 1 }`, 1))
	if r.Impact != compare.Unknown || r.Counts[compare.Inconclusive] != 3 {
		t.Errorf("other data in an earlier attempt: %s", said(r))
	}
}

// A phase that the older version did not have is not known: no run has its answers.
func TestNewPhase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live(t, strings.Replace(shopWorkflow, nextOf(shopWorkflow), `}),`, 1))
	if r := w.compare(t, shopWorkflow); r.Impact != compare.Unknown || r.Counts[compare.Inconclusive] != 3 || !strings.Contains(said(r), "not every phase of it is recorded") {
		t.Error(said(r))
	}
}

// dice is a script that is given another number at each call, as no recording could hold it.
type dice struct{ engine.Script }

func (d dice) Call(ctx context.Context, c engine.ScriptCall) (json.RawMessage, error) {
	c.Seed = fmt.Append(nil, rand.Int64())
	return d.Script.Call(ctx, c)
}

// A script that does not do the same twice proves nothing.
func TestNondeterminism(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live(t, shopWorkflow)
	cfg := w.config(t, strings.Replace(shopWorkflow, `name: row.name`, `name: row.name, dice: Math.random()`, 1))
	cfg.Script = dice{cfg.Script}
	r, err := compare.Do(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Impact != compare.Unknown || r.Counts[compare.Inconclusive] != 3 || !strings.Contains(said(r), "two replays of it differ") {
		t.Error(said(r))
	}
}

// The runs, the time and what is shown are bounded, and what was left out is said.
func TestBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live(t, shopWorkflow)
	source := strings.Replace(shopWorkflow, `name: row.name`, `name: "x".repeat(1 << 16)`, 1)
	do := func(f func(c *compare.Config)) *compare.Report {
		cfg := w.config(t, source)
		f(&cfg)
		r, err := compare.Do(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := do(func(c *compare.Config) { c.MaxRuns = 2 }); len(r.Runs) != 2 || !r.Older || !r.Whole {
		t.Errorf("2 runs at most: %d, older %v, whole %v", len(r.Runs), r.Older, r.Whole)
	}
	if r := do(func(c *compare.Config) { c.MaxRuns = 5 }); len(r.Runs) != 5 || r.Older {
		t.Errorf("5 runs at most: %d, older %v", len(r.Runs), r.Older)
	}
	if r := do(func(c *compare.Config) { c.MaxTime = time.Nanosecond }); r.Whole || r.Impact != compare.Unknown {
		t.Errorf("no time: %s, whole %v", r.Impact, r.Whole)
	}
	if r := do(func(c *compare.Config) { c.Since = time.Now().Add(time.Hour) }); len(r.Runs) != 0 || r.Impact != compare.Unknown {
		t.Errorf("since later: %d runs, %s", len(r.Runs), r.Impact)
	}
	r := do(func(*compare.Config) {})
	if b, err := json.Marshal(r); err != nil || len(b) > 16<<10 || !strings.Contains(string(b), "bytes_not_shown") {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	n := 0
	for _, err := range compare.Runs(t.Context(), w.config(t, source)) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 3 {
			break // who reads may stop
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := compare.Do(ctx, w.config(t, source)); err == nil {
		t.Error("a comparison whose context is over: no error")
	}
}

// Runs without a trace prove nothing.
func TestForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live(t, shopWorkflow)
	if _, err := w.db.ForgetTraces(t.Context(), time.Now().Add(time.Hour), 1000); err != nil {
		t.Fatal(err)
	}
	if r := w.compare(t, shopWorkflow); r.Impact != compare.Unknown || r.Counts[compare.Inconclusive] != 5 || !strings.Contains(said(r), "inconclusive what the run saw was not recorded") {
		t.Error(said(r))
	}
}
