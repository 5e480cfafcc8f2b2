package plan_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
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
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/law/trace"
	"github.com/keep-run/keep/rehearsal"
	"github.com/keep-run/keep/rehearsal/plan"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/view"
)

// orders sends each order, and bills what was sent by the reference that the shop gave.
const orders = `
export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {}, "order.sent": {} },
  producers: {
    async poll(ctx) {
      const seen = await ctx.kv.get("polls") || 0;
      await ctx.kv.set("polls", seen + 1);
      for (const o of await ctx.shop.list({ polls: String(seen) }))
        await ctx.publish("order.new", { messageId: o.id, id: o.id });
    },
  },
  consumers: {
    send: Keep.consumer({
      subscribe: ["order.new"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        return { reservations: [{ topic: "order.new", ids: [trigger.messageId] }], data: trigger.payload };
      },
      async mutate(ctx, prepared) { await ctx.shop.send({ id: prepared.data.id }); },
      async next(ctx, prepared, m) {
        await ctx.publish("order.sent", { messageId: "sent:" + prepared.data.id, id: prepared.data.id, ref: m.result && m.result.ref });
      },
    }),
    bill: Keep.consumer({
      subscribe: ["order.sent"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        return { reservations: [{ topic: "order.sent", ids: [trigger.messageId] }], data: trigger.payload };
      },
      async mutate(ctx, prepared) { await ctx.shop.bill({ id: prepared.data.id, ref: String(prepared.data.ref) }); },
    }),
  },
});
`

// A shop counts what reaches it.
type shop struct {
	orders       atomic.Value // []string
	reads, calls atomic.Int64
	polls        atomic.Value // of the last read
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPost {
		s.calls.Add(1)
		fmt.Fprint(w, `{"ref":"r1"}`)
		return
	}
	s.reads.Add(1)
	s.polls.Store(r.URL.Query().Get("polls"))
	rows := []map[string]string{}
	for _, id := range s.orders.Load().([]string) {
		rows = append(rows, map[string]string{"id": id})
	}
	if err := json.NewEncoder(w).Encode(rows); err != nil {
		panic(err)
	}
}

// runtime is the sandbox of all tests: to open one takes half a second.
var runtime = sync.OnceValues(func() (*sandbox.Runtime, error) {
	return sandbox.Open(context.Background(), sandbox.Config{CacheDir: sandboxtest.CacheDir()})
})

// A world is a shop, a script and what a host did with it so far.
type world struct {
	shop  *shop
	db    *memory.Store
	conns []connector.Connection
	rt    *sandbox.Runtime
	w     *host.Workflow
}

// load makes a script the one that is planned.
func (w *world) load(t *testing.T, source string) {
	t.Helper()
	b, err := sandbox.BuildSource("w.js", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	if w.w, err = host.LoadBundle(t.Context(), w.rt, b); err != nil {
		t.Fatal(err)
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := &shop{}
	s.orders.Store([]string{"o1"})
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	conn, err := httpapi.New("shop", httpapi.Config{BaseURL: server.URL, Tools: map[string]httpapi.Tool{
		"list": {Effect: connector.List, Path: "/orders", Query: []string{"polls"}},
		"send": {
			Effect: connector.Mutate, Path: "/orders/{id}/send", Identity: []string{"id"}, Approve: "always",
			IdempotencyHeader: "Idempotency-Key", Deduplicates: true,
		},
		"bill": {Effect: connector.Mutate, Path: "/orders/{id}/bill", Identity: []string{"id"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "orders.js"), []byte(orders), 0o600); err != nil {
		t.Fatal(err)
	}
	rt, err := runtime()
	if err != nil {
		t.Fatal(err)
	}
	w, err := host.Load(t.Context(), rt, dir, "orders.js")
	if err != nil {
		t.Fatal(err)
	}
	return &world{shop: s, db: memory.New(), conns: []connector.Connection{*conn}, rt: rt, w: w}
}

// live executes the script for real, until a person is asked to approve the first call.
func (w *world) live(t *testing.T) {
	t.Helper()
	h, err := host.Open(t.Context(), w.db, host.Config{Connections: w.conns, Runtime: w.rt})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Deploy(t.Context(), w.w); err != nil {
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

func (w *world) plan(t *testing.T, cfg plan.Config) *plan.Plan {
	t.Helper()
	cfg.Scripts, cfg.Connections, cfg.Runtime = []*host.Workflow{w.w}, w.conns, w.rt
	p, err := plan.Make(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// calls returns the calls of a plan in a few words.
func calls(p *plan.Plan) []string {
	out := []string{}
	for _, m := range p.Mutations {
		s := string(m.Tool) + string(m.Payload)
		if m.DependsOnUnknown {
			s += "?"
		}
		out = append(out, s)
	}
	return out
}

func TestMake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.plan(t, plan.Config{})
	want := []string{`shop.send{"id":"o1"}`, `shop.bill{"id":"o1","ref":"null"}?`}
	if got := calls(p); !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
	if n := w.shop.calls.Load(); n != 0 {
		t.Errorf("the plan made %d calls", n)
	}
	if len(p.Reads) != 1 || p.Reads[0].Tool != "shop.list" || w.shop.reads.Load() != 1 {
		t.Errorf("reads %v, of which %d arrived; want one", p.Reads, w.shop.reads.Load())
	}
	if a := p.Mutations[0].Approval; !a.Needed || a.Reason == nil {
		t.Errorf("approval of send %+v, want needed with a reason", a)
	}
	if m := p.Mutations[0]; m.Topic == nil || *m.Topic != "order.new" || *m.MessageID != "o1" || m.Handler != "send" || m.Level != keep.LevelKey {
		t.Errorf("first call %+v, want send of order.new o1 at level A", m)
	}
	if len(p.Publishes) != 2 || len(p.Errors) != 0 || p.Cut {
		t.Errorf("publishes %v, errors %v, cut %t; want 2, none, false", p.Publishes, p.Errors, p.Cut)
	}
	if !slices.ContainsFunc(p.Unknown, func(s string) bool { return strings.Contains(s, "shop.send") }) {
		t.Errorf("unknown %q, want a sentence about shop.send", p.Unknown)
	}
}

func TestMake_begins_with_the_database(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live(t) // polled once; o1 waits for approval
	w.shop.orders.Store([]string{"o1", "o2"})
	before := snapshot(t, w.db)
	p := w.plan(t, plan.Config{Base: w.db})
	want := []string{`shop.send{"id":"o2"}`, `shop.bill{"id":"o2","ref":"null"}?`}
	if got := calls(p); !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q: o1 is reserved by an unfinished run", got, want)
	}
	if got := w.shop.polls.Load(); got != "1" {
		t.Errorf("the checkpoint was %v, want 1 of the database", got)
	}
	if !slices.ContainsFunc(p.Unknown, func(s string) bool { return strings.Contains(s, "unfinished") }) {
		t.Errorf("unknown %q, want a sentence about the unfinished run", p.Unknown)
	}
	if after := snapshot(t, w.db); after != before {
		t.Errorf("the plan changed the database:\n%s\nwas\n%s", after, before)
	}
	if n := w.shop.calls.Load(); n != 0 {
		t.Errorf("the plan made %d calls", n)
	}
}

// Each call takes of budgets what the calls before it left; one that has no room, or that counts
// nothing known, is said, and takes nothing.
func TestMake_says_what_budgets_have(t *testing.T) {
	t.Parallel()
	rule := func(r budget.Rule, spent string) plan.Standing {
		t.Helper()
		r.Per = time.Hour
		r, err := budget.New(r)
		if err != nil {
			t.Fatal(err)
		}
		return plan.Standing{Rule: r, Balance: budget.Balance{Limit: r.Limit, Spent: amountOf(t, spent)}}
	}
	w := newWorld(t)
	w.shop.orders.Store([]string{"7", "o1", "3"})
	calls := rule(budget.Rule{Name: "calls", Tools: []string{"shop.*"}, Limit: amountOf(t, "5")}, "1")
	numbers := rule(budget.Rule{Name: "numbers", Tools: []string{"shop.send"}, Sum: "double(params.id)", Limit: amountOf(t, "9")}, "0")
	p := w.plan(t, plan.Config{Budgets: []plan.Standing{calls, numbers}})
	got := make(map[string][]string)
	for _, m := range p.Mutations {
		call := string(m.Tool) + string(m.Payload)
		for _, b := range m.Budgets {
			got[call] = append(got[call], b.String())
		}
	}
	want := map[string][]string{
		`shop.send{"id":"7"}`:              {"budget calls: 1, then 3 of 5 is left", "budget numbers: 7, then 2 of 9 is left"},
		`shop.bill{"id":"7","ref":"null"}`: {"budget calls: 1, then 2 of 5 is left"},
	}
	for call, lines := range want {
		if !slices.Equal(got[call], lines) {
			t.Errorf("%s takes %q, want %q", call, got[call], lines)
		}
	}
	three := got[`shop.send{"id":"3"}`]
	if len(three) != 2 || !strings.HasSuffix(three[1], "3, and 2 of 9 is left: a person is asked first") {
		t.Errorf("what does not fit: %q", three)
	}
	if unknown := got[`shop.send{"id":"o1"}`]; len(unknown) != 2 || !strings.Contains(unknown[1], "refused, what the call counts (double(params.id)) is not known") {
		t.Errorf("what is no number: %q", unknown)
	}
	var page, text strings.Builder
	if err := p.WriteHTML(&page); err != nil || !strings.Contains(page.String(), "budget numbers: 3, and 2 of 9 is left: a person is asked first") {
		t.Errorf("the page has no budgets (%v)", err)
	}
	if err := json.NewEncoder(&text).Encode(p); err != nil || !strings.Contains(text.String(), `{"name":"numbers","before":7,"amount":3,"limit":9,"left":2,"over":true,"error":null}`) {
		t.Errorf("the JSON has no budgets (%v): %s", err, text.String())
	}
}

func amountOf(t *testing.T, number string) keep.Amount {
	t.Helper()
	var f float64
	if _, err := fmt.Sscan(number, &f); err != nil {
		t.Fatal(err)
	}
	a, err := budget.FromFloat(f)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestMake_of_one_event(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.plan(t, plan.Config{Event: &keep.Event{Topic: "order.sent", MessageID: "sent:o9", Payload: json.RawMessage(`{"id":"o9","ref":"r9"}`)}})
	if got, want := calls(p), []string{`shop.bill{"id":"o9","ref":"r9"}`}; !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
	if n := w.shop.reads.Load(); n != 0 {
		t.Errorf("%d reads, want none: producers are not executed", n)
	}
}

func TestMake_says_what_fails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.conns[0].Tools = slices.DeleteFunc(slices.Clone(w.conns[0].Tools), func(t connector.Tool) bool { return t.Spec().Name == "list" })
	p := w.plan(t, plan.Config{})
	if len(p.Errors) != 1 || p.Errors[0].Handler != "poll" || !strings.Contains(p.Errors[0].Message, "shop.list") {
		t.Errorf("errors %+v, want one of poll that names shop.list", p.Errors)
	}
}

// TestMake_cannot_send is about the types: whatever a connector's mutate tool does, a plan
// doesn't reach it.
func TestMake_cannot_send(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, tool := range w.conns[0].Tools {
		if m, ok := tool.(connector.Mutator); ok {
			w.conns[0].Tools[i] = bomb{m, t}
		}
	}
	if got := calls(w.plan(t, plan.Config{})); len(got) != 2 {
		t.Errorf("calls %q, want two that were planned", got)
	}
}

// A bomb fails the test when it is used for more than a description.
type bomb struct {
	connector.Mutator
	t *testing.T
}

func (b bomb) Mutate(context.Context, keep.Mutation) (connector.Receipt, error) {
	b.t.Error("a plan called Mutate")
	return connector.Receipt{}, nil
}

func (b bomb) Reconcile(context.Context, keep.Mutation) (connector.Answer, error) {
	b.t.Error("a plan called Reconcile")
	return connector.Answer{}, nil
}

func (b bomb) Start(context.Context) error {
	b.t.Error("a plan called Start")
	return nil
}

// snapshot describes everything in a database.
func snapshot(t *testing.T, db *memory.Store) string {
	t.Helper()
	page := keep.Page{Limit: keep.MaxPage}
	runs, _, err1 := db.Runs(t.Context(), keep.RunFilter{}, page)
	events, _, err2 := db.Events(t.Context(), keep.EventFilter{}, page)
	mutations, _, err3 := db.Mutations(t.Context(), keep.MutationFilter{}, page)
	handlers, err4 := db.Handlers(t.Context(), "orders")
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("%+v\n%+v\n%+v\n%+v", runs, events, mutations, handlers)
}

// firstRun returns the first run of the producer.
func (w *world) firstRun(t *testing.T) keep.Run {
	t.Helper()
	runs, _, err := w.db.Runs(t.Context(), keep.RunFilter{Workflow: "orders", Handler: "poll"}, keep.Page{Limit: 10})
	if err != nil || len(runs) == 0 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	return runs[len(runs)-1]
}

// A plan of a run has its reads in place of live ones; what the run did not read is said.
func TestAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live(t)
	run := w.firstRun(t)
	seen, _, err := view.Trace(t.Context(), w.db, run.ID)
	if err != nil {
		t.Fatal(err)
	}
	w.shop.orders.Store([]string{"other"})
	before, calls := w.shop.reads.Load(), w.shop.calls.Load()
	p := w.plan(t, plan.Config{Base: w.db, At: plan.NewAt(run, seen), Now: run.CreatedAt})
	if len(p.Reads) != 1 || len(p.Errors) != 0 || string(p.Reads[0].Params) != `{"polls":"0"}` {
		t.Errorf("reads %s, errors %+v", p.Reads, p.Errors)
	}
	if n := w.shop.reads.Load() - before; n != 0 || w.shop.calls.Load() != calls {
		t.Errorf("%d reads were live, and %d calls were made", n, w.shop.calls.Load()-calls)
	}
	seen.Entries = slices.DeleteFunc(seen.Entries, func(e trace.Entry) bool { return e.Tool == "shop.list" })
	p = w.plan(t, plan.Config{Base: w.db, At: plan.NewAt(run, seen), Now: run.CreatedAt})
	if len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Message, "the run did not read shop.list") || w.shop.reads.Load() != before {
		t.Errorf("errors %+v", p.Errors)
	}
}

// A checkpoint that the run did not read, or whose value is not kept, is not the one of today, which the run itself may have
// written: with it a plan of a run that published would say that nothing is published.
func TestAt_has_no_checkpoint_of_today(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live(t)
	run := w.firstRun(t)
	for name, change := range map[string]func(*trace.Trace){
		"not read": func(seen *trace.Trace) {
			seen.Entries = slices.DeleteFunc(seen.Entries, trace.Entry.ReadsCheckpoint)
		},
		"cut": func(seen *trace.Trace) {
			for i := range seen.Entries {
				if seen.Entries[i].ReadsCheckpoint() {
					seen.Entries[i].Result, seen.Entries[i].Cut = nil, true
				}
			}
		},
	} {
		seen, _, err := view.Trace(t.Context(), w.db, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		change(&seen)
		p := w.plan(t, plan.Config{Base: w.db, At: plan.NewAt(run, seen), Now: run.CreatedAt})
		if len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Message, "kv.get") || len(p.Reads) != 0 {
			t.Errorf("%s: errors %+v, and reads %s", name, p.Errors, p.Reads)
		}
	}
}

// A broken base cannot say what a checkpoint is.
type broken struct{ rehearsal.Base }

var errDisk = errors.New("the disk is broken")

func (broken) KV(context.Context, keep.WorkflowName, keep.HandlerName, string) ([]byte, error) {
	return nil, errDisk
}

// A plan of a database that cannot be read in the middle of it ends, and says why: an engine asks its store again without end.
func TestMake_ends_with_its_database(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, stop := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("the plan has no end"))
	defer stop()
	_, err := plan.Make(ctx, plan.Config{Base: broken{w.db}, Scripts: []*host.Workflow{w.w}, Connections: w.conns, Runtime: w.rt})
	if !errors.Is(err, errDisk) {
		t.Errorf("Make = %v, want %v", err, errDisk)
	}
}

// A checkpoint that would be too large is so in a plan, too: what the database has of it counts.
func TestMake_of_a_full_checkpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live(t)
	full := policy.Default()
	full.Limits.KVTotal = len("polls1") + len("big") + 1000
	c := keep.Commit{Workflow: "orders", At: time.Now(), Changes: []keep.Change{
		keep.SetKV{Producer: "poll", Key: "big", Value: json.RawMessage(`"` + strings.Repeat("x", 998) + `"`)},
	}}
	if err := w.db.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	p := w.plan(t, plan.Config{Base: w.db, Due: true, Policy: &full})
	if len(p.Errors) != 0 {
		t.Errorf("with room for it: errors %+v", p.Errors)
	}
	full.Limits.KVTotal--
	p = w.plan(t, plan.Config{Base: w.db, Due: true, Policy: &full})
	if len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Message, "the checkpoint of poll would hold") {
		t.Errorf("without: errors %+v, publishes %+v", p.Errors, p.Publishes)
	}
}
