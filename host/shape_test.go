package host_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep"
)

// What a script returns or passes in another shape fails the run with the field, what is wanted
// there, what there is, and the place: of the call, or else of the function that returned it.
func TestWrongShapes(t *testing.T) {
	prepare := func(returned string) string {
		return "consumers: {\n c: Keep.consumer({\n subscribe: [\"in\"],\n async prepare(ctx, e) { " + returned + " } }) }"
	}
	produce := func(body string) string { return "producers: {\n p: {\n async handler(ctx) { " + body + " } } }" }
	tests := map[string]struct{ body, at, says string }{
		"reservation": {prepare(`return { reservations: ["O-01"], data: {} }`), "4:8", `reservations[0]: want an object, got the text "O-01"`},
		"ids":         {prepare(`return { reservations: [{ topic: "in", ids: "O-01" }], data: {} }`), "4:8", `reservations[0].ids: want a list, got the text "O-01"`},
		"id":          {prepare(`return { reservations: [{ topic: "in", ids: [null] }], data: {} }`), "4:8", `reservations[0].ids[0]: want a text or a whole number, got null`},
		"list":        {prepare(`return { reservations: { topic: "in", ids: [] }, data: {} }`), "4:8", `reservations: want a list, got the object {"topic"`},
		"topic":       {prepare(`return { reservations: [{ topic: 7, ids: [] }], data: {} }`), "4:8", `reservations[0].topic: want a text, got the number 7`},
		"ui":          {prepare(`return { reservations: [], data: {}, ui: "Pay" }`), "4:8", `ui: want an object, got the text "Pay"`},
		"title":       {prepare(`return { reservations: [], data: {}, ui: { title: 5 } }`), "4:8", `ui.title: want a text, got the number 5`},
		"text":        {prepare(`return "done"`), "4:8", `want an object, got the text "done"`},
		"nothing":     {prepare(``), "4:8", `it returned nothing`},
		"wakeAt":      {prepare(`return { reservations: [], data: {}, wakeAt: true }`), "4:8", `wakeAt: want an ISO string with a zone, a Date or milliseconds, got true`},
		"trigger":     {prepare(`return { reservations: [], data: {}, trigger: "a" }`), "4:8", `trigger: want an event, or {topic, messageId}, got the text "a"`},
		"taken":       {prepare(`return { reservations: [{ topic: "in", ids: ["nobody"] }], data: {} }`), "4:8", `event "nobody"`},
		"key": {"consumers: {\n c: Keep.consumer({\n subscribe: [\"in\"], order: \"key\",\n key: () => true,\n async prepare() {} }) }",
			"4:2", `it is true`},
		"input":     {produce(`await ctx.registerInput("x")`), "3:33", `want an object, got the text "x"`},
		"source":    {produce(`await ctx.registerInput({ source: 5, type: "t", id: 1 })`), "3:33", `source: want a text of 1 to 512 bytes, got the number 5`},
		"input id":  {produce(`await ctx.registerInput({ source: "s", type: "t" })`), "3:33", `id: want a text or a whole number, got nothing`},
		"kv":        {produce(`await ctx.kv.get()`), "3:36", `ctx.kv.get: key: want a text of 1 to 512 bytes, got nothing`},
		"item":      {"jobs: {\n j: {\n async handler(ctx) { await ctx.withItem(7, \"a\", async () => {}) } } }", "3:33", `id: want a text of 1 to 512 bytes, got the number 7`},
		"params":    {"jobs: {\n j: {\n async handler(ctx) { await ctx.withItem(\"a\", \"a\", async (ctx) => { await ctx.svc.create(\"x\") }) } } }", "3:83", `takes one object, got the text "x"`},
		"no cursor": {produce(`return { more: true }`), "3:8", `stores nothing with ctx.kv.set`},
	}
	w := newWorld(t)
	for name, tt := range tests {
		name = strings.ReplaceAll(name, " ", "-")
		w.deploy("export default Keep.workflow({ name: \"" + name + "\", topics: { in: {}, out: {} }, " + tt.body + " })")
		w.publish(keep.WorkflowName(name), "in", "a")
	}
	w.run()
	for name, tt := range tests {
		r := w.lastRun(keep.WorkflowName(strings.ReplaceAll(name, " ", "-")))
		if r.Status != keep.StatusLogic || r.Error.At != "w.js:"+tt.at || !strings.Contains(r.Error.Message, tt.says) {
			t.Errorf("%s: run is %s (%v), want failed:logic at w.js:%s that says %s", name, r.Status, r.Error, tt.at, tt.says)
		}
		if r.Error != nil && strings.Contains(r.Error.Message, "json:") {
			t.Errorf("%s: the failure speaks of Go: %v", name, r.Error)
		}
	}
}
