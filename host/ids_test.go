package host_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keep-run/keep"
)

// idPlaces are where a script gives an id. What JSON makes null of was an id once, "0", and
// all things without an id were one.
var idPlaces = map[string]string{
	"publish":       `producers: { async p(ctx) { await ctx.publish("in", { messageId: ID }) } }`,
	"registerInput": `producers: { async p(ctx) { await ctx.registerInput({ source: "s", type: "t", id: ID, title: "T" }) } }`,
	"checkpoint":    `producers: { async p(ctx) { await ctx.kv.set(ID, 1) } }`,
	"getByIds":      `consumers: { c: { subscribe: ["in"], async prepare(ctx) { await ctx.getByIds("in", [ID]); return { reservations: [], data: {} } } } }`,
	"reservation":   `consumers: { c: { subscribe: ["in"], async prepare(ctx) { return { reservations: [{ topic: "in", ids: [ID] }], data: {} } } } }`,
	"trigger":       `consumers: { c: { subscribe: ["in"], async prepare(ctx) { return { reservations: [], data: {}, trigger: { topic: "in", messageId: ID } } } } }`,
	"next":          `consumers: { c: { subscribe: ["in"], async prepare(ctx) { return { reservations: [], data: {} } }, async next(ctx) { await ctx.publish("out", { messageId: ID }) } } }`,
	"item":          `jobs: { async j(ctx) { await ctx.withItem(ID, "A", async () => {}) } }`,
	"subkey":        `jobs: { async j(ctx) { await ctx.withItem("a", "A", async (ctx) => { await ctx.svc.create({ id: "1", subkey: ID }) }) } }`,
	"key":           `consumers: { c: { subscribe: ["in"], order: "key", key: () => (ID), async prepare(ctx, e) { return { reservations: [{ topic: "in", ids: [e.messageId] }], data: {} } } } }`,
}

// An id is a text or a whole number, wherever a script gives one: null, what JSON makes null
// of, and what is no id at all, fail the run.
func TestIDsOfScripts(t *testing.T) {
	w := newWorld(t)
	bad := []string{`null`, `NaN`, `1 / 0`, `true`, `{}`, `[1]`, `""`}
	for place, body := range idPlaces {
		for i, id := range bad {
			name := fmt.Sprintf("%s%d", place, i)
			w.deploy(script(name, strings.ReplaceAll(body, "ID", id)))
			w.publish(keep.WorkflowName(name), "in", "0", "1")
		}
	}
	w.run()
	for place := range idPlaces {
		for i, id := range bad {
			if place == "subkey" && id == `""` {
				continue // as none
			}
			wf := keep.WorkflowName(fmt.Sprintf("%s%d", place, i))
			r := w.lastRun(wf)
			if r.Status != keep.StatusLogic || r.Error == nil || !strings.HasPrefix(r.Error.At, "w.js:") {
				t.Errorf("%s of %s: run is %s (%+v), want failed:logic with a place in w.js", place, id, r.Status, r.Error)
			}
			if n, m := len(w.events(wf, ""))-2, len(w.inputs(wf))-2; n+m > 0 {
				t.Errorf("%s of %s: %d events and %d inputs were stored, want none", place, id, n, m)
			}
		}
	}
	if got := w.service.received(); len(got) > 1 {
		t.Errorf("the service got %v, want the call with an empty subkey alone", got)
	}
}
