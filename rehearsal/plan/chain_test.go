package plan_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/rehearsal/plan"
	"github.com/keep-run/keep/store/memory"
)

// chain is four steps, each of which publishes what the next one does. What the second sends
// is made of the answer to the first, the third of nothing that is not known, but for that it
// came by an answer, and the fourth makes a second event of the same id.
const chain = `
const step = (topic, call, publish) => Keep.consumer({
  subscribe: [topic],
  async prepare(ctx, trigger) {
    if (!trigger) return { reservations: [], data: {} };
    return { reservations: [{ topic, ids: [trigger.messageId] }], data: trigger.payload };
  },
  async mutate(ctx, prepared) { await call(ctx, prepared.data); },
  async next(ctx, prepared, m) { await publish(ctx, prepared.data, m); },
});
export default Keep.workflow({
  name: "chain",
  topics: { a: {}, b: {}, c: {}, d: {}, end: {} },
  producers: { async poll(ctx) { for (const o of await ctx.shop.list({})) await ctx.publish("a", { messageId: o.id, id: o.id }); } },
  consumers: {
    one: step("a", (ctx, p) => ctx.shop.open({ id: p.id }),
      async (ctx, p, m) => { await ctx.publish("b", { messageId: "b:" + p.id, id: p.id, ref: m.result.ref, lines: m.result.lines.length }); }),
    two: step("b", (ctx, p) => ctx.shop.confirm({ id: p.id, ref: p.ref, lines: p.lines }),
      async (ctx, p, m) => { await ctx.publish("c", { messageId: "c:" + p.id, id: p.id, state: m.result.state }); }),
    three: step("c", (ctx, p) => ctx.shop.bill({ id: p.id }),
      async (ctx, p, m) => { await ctx.publish("d", { messageId: "d:" + p.id, id: p.id, none: m.result }); }),
    four: step("d", (ctx, p) => ctx.shop.close({ id: p.id, none: String(p.none) }),
      async (ctx, p) => { await ctx.publish("end", { messageId: "end" }); await ctx.publish("end", { messageId: "end" }); }),
  },
});
`

// chained is a shop whose tools say what they return: by an example of a field, by an example
// of the whole, by nothing.
func chained(t *testing.T) (*shop, *world) {
	t.Helper()
	s := &shop{}
	s.orders.Store([]string{"1", "2"})
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	tool := func(verb string, result map[string]any) httpapi.Tool {
		return httpapi.Tool{Effect: connector.Mutate, Path: "/orders/{id}/" + verb, Identity: []string{"id"}, Result: result}
	}
	conn, err := httpapi.New("shop", httpapi.Config{BaseURL: server.URL, Tools: map[string]httpapi.Tool{
		"list": {Effect: connector.List, Path: "/orders"},
		"open": tool("open", map[string]any{"type": "object", "properties": map[string]any{
			"ref": map[string]any{"type": "string", "examples": []any{"r-77"}}, "lines": map[string]any{"type": "array"}}}),
		"confirm": tool("confirm", map[string]any{"type": "object", "examples": []any{map[string]any{"state": "confirmed"}}}),
		"bill":    tool("bill", nil),
		"close":   tool("close", nil),
	}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "chain.js"), []byte(chain), 0o600); err != nil {
		t.Fatal(err)
	}
	rt, err := runtime()
	if err != nil {
		t.Fatal(err)
	}
	w, err := host.Load(t.Context(), rt, dir, "chain.js")
	if err != nil {
		t.Fatal(err)
	}
	return s, &world{shop: s, db: memory.New(), conns: []connector.Connection{*conn}, rt: rt, w: w}
}

// A plan says what would be published, what the next consumer would do with it, and so on to
// the end; what is made of an answer that nobody knows is made of the tool's example, and said.
func TestMake_goes_to_the_end_of_the_chain(t *testing.T) {
	t.Parallel()
	s, w := chained(t)
	p := w.plan(t, plan.Config{})
	var want []string
	for _, id := range []string{"1", "2"} {
		want = append(want,
			fmt.Sprintf(`shop.open{"id":%q}`, id),
			fmt.Sprintf(`shop.confirm{"id":%q,"lines":0,"ref":"r-77"}?`, id),
			fmt.Sprintf(`shop.bill{"id":%q}?`, id),
			fmt.Sprintf(`shop.close{"id":%q,"none":"null"}?`, id))
	}
	got := calls(p)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("calls\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var published []string
	for _, e := range p.Publishes {
		published = append(published, fmt.Sprintf("%s %s %s %s", e.Handler, e.Topic, e.MessageID, e.Payload))
	}
	for _, want := range []string{
		`poll a 1 {"id":"1"}`, `one b b:1 {"id":"1","lines":0,"ref":"r-77"}`, `two c c:2 {"id":"2","state":"confirmed"}`,
		`three d d:2 {"id":"2","none":null}`, `four end end {}`,
	} {
		if !slices.Contains(published, want) {
			t.Errorf("nothing publishes %s, but\n%s", want, strings.Join(published, "\n"))
		}
	}
	if len(published) != 9 { // two of each step, and one event of the id end
		t.Errorf("%d events are published:\n%s", len(published), strings.Join(published, "\n"))
	}
	unknown := []string{
		`What shop.open answers is not known before it is called; the script got an example: {"lines":[],"ref":"r-77"}.`,
		`What shop.confirm answers is not known before it is called; the script got an example: {"state":"confirmed"}.`,
		`What shop.bill answers is not known before it is called; the script got null.`,
		`What shop.close answers is not known before it is called; the script got null.`,
	}
	slices.Sort(unknown)
	if said := slices.Sorted(slices.Values(p.Unknown)); !slices.Equal(said, unknown) {
		t.Errorf("unknown\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(unknown, "\n"))
	}
	if n := s.calls.Load(); n != 0 || len(p.Errors) > 0 || p.Cut || len(p.Reads) != 1 {
		t.Errorf("%d calls, errors %v, cut %t, reads %v", n, p.Errors, p.Cut, p.Reads)
	}
}

// A plan of some events has what these cause, to the end, and nothing that is due besides.
func TestMake_of_some_events(t *testing.T) {
	t.Parallel()
	s, w := chained(t)
	h, err := host.Open(t.Context(), w.db, host.Config{Runtime: w.rt, Connections: w.conns})
	if err == nil {
		_, err = h.Deploy(t.Context(), w.w)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"7", "8"} {
		_, _, err := h.Publish(t.Context(), operator.Publication{Workflow: "chain", Topic: "c", MessageID: keep.MessageID(id), Payload: json.RawMessage(`{"id":"` + id + `"}`)})
		if err != nil {
			t.Fatal(err)
		}
	}
	p := w.plan(t, plan.Config{Base: w.db, Take: func(e keep.Event) bool { return e.MessageID == "8" }})
	if got, want := calls(p), []string{`shop.bill{"id":"8"}`, `shop.close{"id":"8","none":"null"}?`}; !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
	if s.calls.Load() != 0 || s.reads.Load() != 0 || len(p.Reads) != 0 {
		t.Errorf("%d calls, %d reads, %v", s.calls.Load(), s.reads.Load(), p.Reads)
	}
}
