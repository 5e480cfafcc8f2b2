package replay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/internal/sandboxtest"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/law/trace"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/rehearsal/replay"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/memory"
)

// everything uses whatever a script can: each kind of handler, chance, clock and host call.
const everything = `
const made = [Date.now(), Math.random(), crypto.randomUUID()];
export default Keep.workflow({
  name: "w",
  topics: { "a": {}, "b": {} },
  producers: {
    async poll(ctx) {
      const n = (await ctx.kv.get("n")) || 0;
      await ctx.kv.set("n", n + 1);
      const again = await ctx.kv.get("n");
      for (const o of await ctx.shop.list({ page: String(n) })) {
        const input = await ctx.registerInput({ source: "shop", type: "order", id: o.id, title: "Order " + o.id });
        await ctx.publish("a", { messageId: o.id, inputId: input, payload: { id: o.id, by: Math.random(), n, again, made } });
      }
    },
  },
  consumers: {
    send: Keep.consumer({
      subscribe: ["a"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        const more = await ctx.peek("a", { limit: 2 }), same = await ctx.getByIds("a", [trigger.messageId]);
        return { reservations: [{ topic: "a", ids: more.map((e) => e.messageId) }], data: { ...trigger.payload, same, now: ctx.now(), uuid: crypto.randomUUID() },
          ui: { title: "Send " + trigger.messageId } };
      },
      async mutate(ctx, prepared) {
        const row = await ctx.shop.get({ id: prepared.data.id });
        await ctx.shop.send({ id: prepared.data.id, row, dice: Math.random(), uuid: prepared.data.uuid });
      },
      async next(ctx, prepared, m) {
        await ctx.publish("b", { messageId: prepared.data.id, status: m.status, result: m.result, at: new Date() });
        await ctx.publish("b", { id: prepared.data.id, dice: Math.random() });
      },
    }),
  },
  jobs: {
    async each(ctx) {
      for (const o of await ctx.shop.list({ page: "0" }))
        await ctx.withItem("item:" + o.id, "Item " + o.id, async (ctx) => {
          if (ctx.item.isDone) return;
          const r = await ctx.shop.send({ id: "job:" + o.id, dice: Math.random() });
          await ctx.shop.send({ id: "job:" + o.id, subkey: "2", ref: r.ref });
        });
    },
  },
});
`

// A shop counts what reaches it.
type shop struct {
	reads, calls atomic.Int64
	orders       int // in a list
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/lose"):
		panic(http.ErrAbortHandler)
	case r.Method == http.MethodPost:
		fmt.Fprintf(w, `{"ref":"r%d"}`, s.calls.Add(1))
	case r.URL.Path == "/orders":
		s.reads.Add(1)
		list := []map[string]string{}
		for i := range s.orders {
			list = append(list, map[string]string{"id": fmt.Sprint("o", r.URL.Query().Get("page"), i)})
		}
		if err := json.NewEncoder(w).Encode(list); err != nil {
			panic(err)
		}
	default:
		fmt.Fprintf(w, `{"seen":%d,"at":%q,"half":0.50,"name":"Zoë \u0041"}`, s.reads.Add(1), time.Now())
	}
}

// runtime is the sandbox of all tests: to open one takes half a second.
var runtime = sync.OnceValues(func() (*sandbox.Runtime, error) {
	return sandbox.Open(context.Background(), sandbox.Config{CacheDir: sandboxtest.CacheDir()})
})

// A world is a shop, and what a host did with it so far.
type world struct {
	shop   *shop
	trace  func(parts []keep.TracePart) []keep.TracePart // what replays find instead; nil: as it is
	db     *memory.Store
	conns  []connector.Connection
	rt     *sandbox.Runtime
	policy policy.Policy
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{shop: &shop{orders: 3}, db: memory.New(), policy: policy.Default()}
	server := httptest.NewServer(w.shop)
	t.Cleanup(server.Close)
	conn, err := httpapi.New("shop", httpapi.Config{BaseURL: server.URL, Tools: map[string]httpapi.Tool{
		"list": {Effect: connector.List, Path: "/orders", Query: []string{"page"}},
		"get":  {Effect: connector.Get, Path: "/orders/{id}"},
		"send": {Effect: connector.Mutate, Path: "/orders/{id}/send", Identity: []string{"id"}, IdempotencyHeader: "Idempotency-Key", Deduplicates: true},
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

func (w *world) load(t testing.TB, source string) *host.Workflow {
	t.Helper()
	b, err := sandbox.BuildSource("w.js", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	script, err := host.LoadBundle(t.Context(), w.rt, b)
	if err != nil {
		t.Fatal(err)
	}
	return script
}

// live executes a script for real, until nothing is left to do.
func (w *world) live(t testing.TB, source string) {
	t.Helper()
	h, err := host.Open(t.Context(), w.db, host.Config{Connections: w.conns, Runtime: w.rt, Policy: &w.policy, Logger: slog.New(slog.DiscardHandler)})
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

// runs returns all runs, newest first.
func (w *world) runs(t testing.TB) []keep.Run {
	t.Helper()
	list, _, err := w.db.Runs(t.Context(), keep.RunFilter{}, keep.Page{Limit: keep.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// runOf returns the newest run of a handler that reserved or read something.
func (w *world) runOf(t testing.TB, handler keep.HandlerName) keep.Run {
	t.Helper()
	for _, r := range w.runs(t) {
		if r.Handler == handler && (r.Kind != keep.Consumer || len(r.Reservations) > 0) {
			return r
		}
	}
	t.Fatalf("no run of %s", handler)
	return keep.Run{}
}

// replay goes through a run, with the source or else with its own version.
func (w *world) replay(t testing.TB, run keep.Run, source string) *replay.Report {
	t.Helper()
	d, err := w.db.Deployment(t.Context(), run.Workflow, run.Version)
	if err != nil {
		t.Fatal(err)
	}
	var other *sandbox.Bundle
	if source != "" {
		loaded := w.load(t, source)
		other, d.Definition = loaded.Bundle, loaded.Definition
	}
	script, err := host.LoadScript(t.Context(), w.rt, d, other)
	if err != nil {
		t.Fatal(err)
	}
	r, err := replay.Run(t.Context(), replay.Config{Store: traces{w.db, w}, Run: run.ID, Script: script, Definition: d.Definition, Connections: w.conns, Policy: &w.policy})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// said returns the differences and what is missing in a few words.
func said(r *replay.Report) string {
	var b strings.Builder
	for _, d := range r.Differences {
		fmt.Fprintf(&b, "%s %s: %s → %s\n", d.Phase, d.What, d.Recorded, d.Now)
	}
	for _, m := range r.Missing {
		fmt.Fprintf(&b, "%s %s %s is missing: %s\n", m.Phase, m.Tool, m.Params, m.Why)
	}
	return b.String()
}

// Every run on its own version is equal, and nothing reaches the service.
func TestEqual(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live(t, everything)
	w.live(t, everything)
	reads, calls := w.shop.reads.Load(), w.shop.calls.Load()
	phases := make(map[string]int)
	for _, run := range w.runs(t) {
		if run.Status != keep.StatusCommitted {
			t.Errorf("run of %s: %s %v", run.Handler, run.Status, run.Error)
		}
		r := w.replay(t, run, "")
		for _, p := range r.Phases {
			phases[p]++
		}
		if r.Verdict != replay.Equal || len(r.Phases) == 0 {
			t.Errorf("run of %s, phases %v: %s\n%s", run.Handler, r.Phases, r.Verdict, said(r))
		}
	}
	for _, p := range []string{"prepare", "mutate", "next", "handler"} {
		if phases[p] < 2 {
			t.Errorf("%d replays of %s", phases[p], p)
		}
	}
	if w.shop.reads.Load() != reads || w.shop.calls.Load() != calls || calls == 0 {
		t.Errorf("the replays made %d reads and %d calls, after %d", w.shop.reads.Load()-reads, w.shop.calls.Load()-calls, calls)
	}
}

// A run that only takes note of an answer executes no function, so nothing is missing in what is
// recorded of it.
func TestNothingExecuted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	script := func(next string) string {
		return `export default Keep.workflow({ name: "w", topics: { a: {} },
  producers: { async poll(ctx) { for (const o of await ctx.shop.list({ page: "0" })) await ctx.publish("a", { messageId: o.id, payload: {} }); } },
  consumers: { c: Keep.consumer({ subscribe: ["a"], order: "none",
    async prepare(ctx, trigger) { return { reservations: trigger ? [{ topic: "a", ids: [trigger.messageId] }] : [], data: {} }; },
    async mutate(ctx) { await ctx.shop.lose({ id: "o1" }); },` + next + ` }) } });`
	}
	w.shop.orders = 1
	w.live(t, script(""))
	qs, _, err := w.db.Escalations(t.Context(), keep.EscalationFilter{}, keep.Page{Limit: 2})
	if err != nil || len(qs) != 1 {
		t.Fatalf("%d questions, %v", len(qs), err)
	}
	people, err := operator.New(w.db, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := people.Decide(t.Context(), qs[0].ID, keep.Decision{Action: keep.Skip, By: "ann", From: "test", Note: "looked"}); err != nil {
		t.Fatal(err)
	}
	w.live(t, script(""))
	run := w.runOf(t, "c")
	if run.Status != keep.StatusCommitted || run.Chain == run.ID {
		t.Fatalf("run %+v", run)
	}
	if r := w.replay(t, run, ""); r.Verdict != replay.Equal || len(r.Phases) != 0 {
		t.Errorf("phases %v: %s\n%s", r.Phases, r.Verdict, said(r))
	}
	if r := w.replay(t, run, script("async next(ctx) {}")); r.Verdict != replay.Inconclusive {
		t.Errorf("with next: %s\n%s", r.Verdict, said(r))
	}
}

// Another script differs where it does, and is followed up to where the record ends.
func TestDifferent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live(t, everything)
	calls := w.shop.calls.Load()
	for _, tt := range []struct {
		name, handler, old, new string
		verdict                 replay.Verdict
		want                    []string // parts of what is said
	}{
		{"comments", "send", `const more`, "\n/* more */ const more", replay.Different, []string{`next made_ids: `, `w.js:32:`, `w.js:33:`}}, // ids that Keep makes name the line
		{"reservations", "send", `more.map((e) => e.messageId)`, `more.map((e) => e.messageId + "x")`, replay.Different, []string{`prepare reservations: [{"topic":"a","ids":["o02"]}]`}},
		{"nothing reserved", "send", `if (!trigger)`, `if (trigger)`, replay.Different, []string{`prepare reservations: `, `mutate call: {"tool":"shop.send"`, "→ null"}},
		{"data", "send", `now: ctx.now(),`, `now: 1,`, replay.Different, []string{"prepare data: {\"data\":"}},
		{"title", "send", `"Send "`, `"Sends "`, replay.Different, []string{`prepare data: {"ui":{"title":"Send o02"}} → {"ui":{"title":"Sends o02"}}`}},
		{"payload", "send", `dice: Math.random(), uuid`, `dice: 7, uuid`, replay.Different, []string{"mutate payload: ", `"dice":7`,
			"next   is missing: the run did not make the call with which mutate ends, so nobody knows what the service would have answered"}},
		{"identity", "send", `send({ id: prepared.data.id,`, `send({ id: "x" + prepared.data.id,`, replay.Different, []string{"mutate identity: ", `"xo02"`}},
		{"no call", "send", `await ctx.shop.send({ id: prepared.data.id, row`, `if (0) await ctx.shop.send({ id: prepared.data.id, row`, replay.Different, []string{"mutate call: {\"tool\":\"shop.send\"", "→ null",
			"next   is missing: mutate makes no call, and next of the run began with what became of one"}},
		{"publishes", "send", `status: m.status,`, `status: m.status + "!",`, replay.Different, []string{`next publishes: {"topic":"b","message_id":"o02"`, `applied!`}},
		{"unknown read", "send", `const row = await ctx.shop.get({ id: prepared.data.id`, `const row = await ctx.shop.get({ id: "y"`, replay.Inconclusive, []string{`mutate shop.get {"id":"y"} is missing: the run did not ask this`}},
		{"one read more", "send", `const row =`, `await ctx.shop.get({ id: prepared.data.id }); const row =`, replay.Inconclusive, []string{`mutate shop.get {"id":"o02"} is missing`}},
		{"throws", "send", `const row =`, `throw new Error("no"); const row =`, replay.Different, []string{"mutate error: null → {", "script-error"}},
		{"spelling of params", "poll", `list({ page: String(n) })`, `list({ "page": "" + n })`, replay.Equal, nil},
		{"checkpoint", "poll", `kv.set("n", n + 1)`, `kv.set("n", n + 2)`, replay.Different, []string{"handler checkpoint"}},
		{"event less", "poll", `await ctx.publish("a"`, `if (o.id !== "o01") await ctx.publish("a"`, replay.Different, []string{`handler publishes: {"topic":"a","message_id":"o01"`}},
		{"item", "each", `"Item " + o.id`, `"Thing " + o.id`, replay.Inconclusive, []string{`handler items: {"id":"item:o00","title":"Item o00"} → {"id":"item:o00","title":"Thing o00"}`}},
		{"call in item", "each", `ref: r.ref`, `ref: "r"`, replay.Inconclusive, []string{"handler payload: ", `"ref":"r"`}},
		{"no such handler", "each", `async each(`, `async other(`, replay.Different, []string{"handler error: null", "no-handler"}},
		{"no such tool", "send", `ctx.shop.get(`, `ctx.shop.fetch(`, replay.Inconclusive, []string{"shop.fetch"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			source := strings.Replace(everything, tt.old, tt.new, 1)
			if source == everything {
				t.Fatal("nothing was replaced")
			}
			r := w.replay(t, w.runOf(t, keep.HandlerName(tt.handler)), source)
			verdict := tt.verdict
			if len(r.Differences) > 0 {
				verdict = replay.Different
			}
			if r.Verdict != verdict || r.Verdict != replay.Equal && len(tt.want) == 0 {
				t.Errorf("%s:\n%s", r.Verdict, said(r))
			}
			for _, want := range tt.want {
				if !strings.Contains(said(r), want) {
					t.Errorf("nothing says %q:\n%s", want, said(r))
				}
			}
			if tt.verdict == replay.Inconclusive && len(r.Missing) == 0 {
				t.Errorf("nothing is missing:\n%s", said(r))
			}
			if _, err := json.Marshal(r); err != nil {
				t.Error(err)
			}
		})
	}
	if n := w.shop.calls.Load(); n != calls {
		t.Errorf("the replays made %d calls", n-calls)
	}
}

// traces is a store that has other traces.
type traces struct {
	*memory.Store
	w *world
}

// Trace implements store.Traces.
func (s traces) Trace(ctx context.Context, run keep.RunID) ([]keep.TracePart, error) {
	parts, err := s.Store.Trace(ctx, run)
	if s.w.trace != nil {
		parts = s.w.trace(parts)
	}
	return parts, err
}

// changed returns a function that changes the entries of a trace.
func changed(t *testing.T, f func(e *trace.Entry) bool) func([]keep.TracePart) []keep.TracePart {
	return func(parts []keep.TracePart) []keep.TracePart {
		rec := trace.NewRecorder(1 << 20)
		for _, p := range parts {
			got, err := trace.Join([]keep.TracePart{p})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range got.Entries {
				if f(&e) {
					rec.Add(e)
				}
			}
		}
		data, _ := rec.Part()
		return []keep.TracePart{{Data: data}}
	}
}

// What is not kept is said, with the words for it, and never invented.
func TestMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live(t, everything)
	for _, tt := range []struct {
		name  string
		trace func([]keep.TracePart) []keep.TracePart
		want  string
	}{
		{"swept", func([]keep.TracePart) []keep.TracePart { return nil }, "was not recorded, or is not kept any more"},
		{"damaged", func(p []keep.TracePart) []keep.TracePart {
			return append([]keep.TracePart{{Data: []byte("x")}}, p[1:]...)
		}, "what the run saw is damaged: "},
		{"empty part", func(p []keep.TracePart) []keep.TracePart { return append([]keep.TracePart{{}}, p...) }, "what the run saw is damaged: "},
		{"cut result", changed(t, func(e *trace.Entry) bool {
			if e.Tool == "shop.get" {
				e.Result, e.Cut = nil, true
			}
			return true
		}), "mutate shop.get {\"id\":\"o02\"} is missing: the answer was too large to be kept"},
		{"cut params", changed(t, func(e *trace.Entry) bool {
			if e.Tool == "shop.get" {
				e.Params, e.Result, e.Cut = nil, nil, true
			}
			return true
		}), "is missing: the answer was too large to be kept"},
		{"a read less", changed(t, func(e *trace.Entry) bool { return e.Tool != "shop.get" }), "the run did not ask this"},
		{"no phase", changed(t, func(e *trace.Entry) bool { return e.What != trace.Phase && e.What != trace.Read }), "no phase of the script is recorded"},
		{"the phase did not end", changed(t, func(e *trace.Entry) bool { return e.What != trace.Phase || e.Phase != "mutate" }), "mutate   is missing: the run ended within this phase"},
		{"an earlier version", changed(t, func(e *trace.Entry) bool { e.Script = nil; return true }), "an earlier version of Keep"},
		{"another event", changed(t, func(e *trace.Entry) bool {
			if e.Phase == "prepare" && e.Script != nil {
				e.Script.In = trace.Digest([]byte("other"))
			}
			return true
		}), "prepare trigger {\"topic\":\"a\",\"messageId\":\"o02\"} is missing: the event says something else since"},
		{"another answer", changed(t, func(e *trace.Entry) bool {
			if e.Phase == "next" && e.Script != nil {
				e.Script.In = trace.Digest([]byte("other"))
			}
			return true
		}), "what became of the call, is not kept as it was"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.trace = tt.trace
			r := w.replay(t, w.runOf(t, "send"), "")
			if r.Verdict != replay.Inconclusive || !strings.Contains(said(r), tt.want) {
				t.Errorf("%s, want %q:\n%s", r.Verdict, tt.want, said(r))
			}
		})
	}
	w.trace = func(p []keep.TracePart) []keep.TracePart { // a run that had no room
		rec := trace.NewRecorder(300)
		for range 10 {
			rec.Add(trace.Entry{Phase: "prepare", What: trace.Read, Tool: "shop.get", Params: json.RawMessage(`"` + strings.Repeat("x", 100) + `"`)})
		}
		data, _ := rec.Part()
		return []keep.TracePart{{Data: data}}
	}
	if r := w.replay(t, w.runOf(t, "send"), ""); r.Verdict != replay.Inconclusive || !strings.Contains(said(r), "entries did not fit into [trace] limit") {
		t.Errorf("%s:\n%s", r.Verdict, said(r))
	}
}

// Hostile scripts are bounded, as in a run.
func TestHostile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live(t, everything)
	rt, err := sandbox.Open(t.Context(), sandbox.Config{Limits: sandbox.Limits{CPU: 300 * time.Millisecond}, CacheDir: sandboxtest.CacheDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	w.rt = rt
	for name, tt := range map[string]struct{ new, want string }{
		"endless":     {`for (;;); const more`, "limit-cpu"},
		"large":       {`return { reservations: [], data: Array(64).fill("x".repeat(1 << 24)) }; const more`, "limit-"},
		"many calls":  {`for (;;) await ctx.peek("a", { limit: 2 }); const more`, "the run did not ask this"},
		"many events": {`return { reservations: Array(1e6).fill({ topic: "a", ids: ["x"] }), data: 0 }; const more`, "limit-"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.replay(t, w.runOf(t, "send"), strings.Replace(everything, "const more", tt.new, 1))
			if r.Verdict == replay.Equal || !strings.Contains(said(r), tt.want) {
				t.Errorf("%s, want %s: %.500s", r.Verdict, tt.want, said(r))
			}
		})
	}
}
