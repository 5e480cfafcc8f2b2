package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep/script/sandbox"
)

// itemHost answers item.begin with an item, refuses items in items and failed
// items, as an engine does, and writes everything down.
type itemHost struct{ calls []string }

var (
	errNested = errors.New("items cannot be nested")
	errItem   = errors.New("item failed")
)

func (h *itemHost) Call(_ context.Context, c sandbox.HostCall) (json.RawMessage, error) {
	line := c.Name
	if c.Scope > 0 {
		line += "@" + string(rune('0'+c.Scope))
	}
	for i, a := range c.Args {
		if c.Name == "item.fail" {
			var e struct{ Name, Message, Stack string }
			if json.Unmarshal(a, &e) != nil || !strings.HasPrefix(e.Stack, "    at ") || !strings.Contains(e.Stack, c.At.String()) {
				return nil, fmt.Errorf("item.fail at %v with %s", c.At, a)
			}
			a = json.RawMessage(e.Name + ": " + e.Message)
		}
		if c.Name != "item.begin" || i == 0 {
			line += " " + string(a)
		}
	}
	h.calls = append(h.calls, line)
	switch {
	case c.Name == "item.fail":
		return nil, errItem
	case c.Name == "item.begin" && c.Scope > 0:
		return nil, errNested
	case c.Name == "item.begin":
		return json.RawMessage(`{"isDone":false}`), nil
	}
	return json.RawMessage(`1`), nil
}

func TestItems(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	for _, tt := range []struct {
		name, body string
		err        error
		want       string // calls; then what the handler returned
	}{
		{"an item begins, calls and ends, and gives its value",
			`return await ctx.withItem("i", "T", async (c) => { await c.crm.create(c.item); return [c.item.id, ctx.item] })`, nil,
			`item.begin "i", crm.create@1 {"id":"i","title":"T","isDone":false}, item.end@1 → ["i",null]`},
		{"one after the other",
			`for (const i of ["a", "b"]) await ctx.withItem(i, "", async (c) => { await c.x.y(i) })`, nil,
			`item.begin "a", x.y@1 "a", item.end@1, item.begin "b", x.y@2 "b", item.end@2 → `},
		{"concurrent ones are served in order",
			`return await Promise.all(["a", "b", "c"].map((i) => ctx.withItem(i, "", async (c) => { await c.x.y(i); return i })))`, nil,
			`item.begin "a", x.y@1 "a", item.end@1, item.begin "b", x.y@2 "b", item.end@2, item.begin "c", x.y@3 "c", item.end@3 → ["a","b","c"]`},
		{"calls that are not awaited, and what follows from them, belong to the item",
			`await ctx.withItem("a", "", (c) => { c.x.one().then(() => c.x.two()).then(async () => { await 0; c.x.three() }) }); await ctx.x.after()`, nil,
			`item.begin "a", x.one@1, x.two@1, x.three@1, item.end@1, x.after → `},
		{"an item that is not awaited is finished",
			`ctx.withItem("a", "", async (c) => { await c.x.one() }); return 5`, nil,
			`item.begin "a", x.one@1, item.end@1 → 5`},
		{"a handler that is not async",
			`return await ctx.withItem("a", "", () => 3)`, nil,
			`item.begin "a", item.end@1 → 3`},
		{"outer calls while an item is open keep their scope",
			`await ctx.withItem("a", "", async (c) => { await ctx.x.outer(); await c.x.inner() })`, nil,
			`item.begin "a", x.outer, x.inner@1, item.end@1 → `},
		{"a ctx that outlives its item keeps its scope",
			`let l; await ctx.withItem("a", "", (c) => { l = c }); await l.x.late()`, nil,
			`item.begin "a", item.end@1, x.late@1 → `},
		{"a handler that throws",
			`try { await ctx.withItem("a", "", async (c) => { await c.x.one(); throw new TypeError("bad") }) } catch { await ctx.x.caught() }`, errItem,
			`item.begin "a", x.one@1, item.fail@1 TypeError: bad`},
		{"a handler that throws at once",
			`await ctx.withItem("a", "", () => { throw new TypeError("bad") })`, errItem,
			`item.begin "a", item.fail@1 TypeError: bad`},
		{"calls that a failed item left are dropped",
			`await ctx.withItem("a", "", async (c) => { c.x.one(); c.x.two(); throw new TypeError("bad") })`, errItem,
			`item.begin "a", item.fail@1 TypeError: bad`},
		{"nested by its own ctx",
			`await ctx.withItem("a", "", async (c) => { try { await c.withItem("b", "", () => 1) } catch {} })`, errNested,
			`item.begin "a", item.begin@1 "b"`},
		{"nested by the outer ctx, at once",
			`await ctx.withItem("a", "", async (c) => { await ctx.withItem("b", "", () => 1) })`, errNested,
			`item.begin "a", item.begin@1 "b"`},
		{"nested by the outer ctx, at once and not awaited",
			`await ctx.withItem("a", "", async (c) => { ctx.withItem("b", "", () => 1) })`, errNested,
			`item.begin "a", item.begin@1 "b"`},
		{"nested by the outer ctx, after a call",
			`await ctx.withItem("a", "", async (c) => { await c.x.one(); await ctx.withItem("b", "", () => 1) })`, errNested,
			`item.begin "a", x.one@1, item.begin@1 "b"`},
		{"after a call and not awaited it comes later",
			`await ctx.withItem("a", "", async (c) => { await c.x.one(); ctx.withItem("b", "", () => 1) })`, nil,
			`item.begin "a", x.one@1, item.end@1, item.begin "b", item.end@2 → `},
		{"a failure that nobody looks at",
			`await ctx.withItem("a", "", async (c) => { [1].forEach(async () => { await c.x.one(); throw new TypeError("lost") }) })`, errors.ErrUnsupported,
			`item.begin "a", x.one@1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := mustLoad(t, rt, "t.js", handler(tt.body))
			h := &itemHost{}
			got, err := call(p, h)
			s := strings.Join(h.calls, ", ")
			if err == nil {
				s += " → " + got
			}
			if s != tt.want {
				t.Errorf("calls:\n%s, want\n%s", s, tt.want)
			}
			switch {
			case tt.err == errors.ErrUnsupported:
				wantScript(t, err)
			case !errors.Is(err, tt.err):
				t.Errorf("error %v, want %v", err, tt.err)
			}
		})
	}
}

func TestItemsHavePositions(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	p := mustLoad(t, rt, "t.js", handler("await ctx.withItem('a',\n  'T',\n  async (c) => {\n    await c.x.one(\n      { a: c.item.id });\n  });"))
	var got []string
	_, err := call(p, hostFunc(func(_ context.Context, c sandbox.HostCall) (json.RawMessage, error) {
		got = append(got, c.Name+" "+c.At.String())
		return json.RawMessage(`{}`), nil
	}))
	want := []string{"item.begin t.js:2:11", "x.one t.js:5:15", "item.end t.js:2:11"}
	if !slices.Equal(got, want) || err != nil {
		t.Errorf("calls %q, %v, want %q", got, err, want)
	}
}

// What an item takes is given back when it ends: however many a job comes to, the
// engine's memory does not grow, so that its instance can be used again.
func TestManyItemsLeaveNothing(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	p := mustLoad(t, rt, "t.js", handler(`for (let i = 0; i < x; i++) await ctx.withItem("item " + i, "Item " + i, async (c) => { await c.x.y(i) })`))
	before := rt.Idle()
	host := hostFunc(func(context.Context, sandbox.HostCall) (json.RawMessage, error) { return json.RawMessage(`{}`), nil })
	if _, err := call(p, host, "20000"); err != nil {
		t.Error(err)
	}
	if after := rt.Idle(); after != max(1, before) {
		t.Errorf("%d instances wait to be used again, want %d: that of the job has grown", after, max(1, before))
	}
}
