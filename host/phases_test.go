package host_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep"
)

// phaseTable is the table of law/policy, written a second time. The columns are the
// places of phaseScripts, in their order.
const phaseTable = `
                producer prepare mutate next job item
list            yes      yes     no     no   yes yes
get             yes      yes     yes    no   yes yes
create          no       no      last   no   no  yes
peek            no       yes     no     no   no  no
getByIds        no       yes     no     no   no  no
publish         yes      no      no     yes  no  no
registerInput   yes      no      no     no   no  no
kv.get          yes      no      no     no   no  no
kv.set          yes      no      no     no   no  no
kv.delete       yes      no      no     no   no  no
withItem        no       no      no     no   yes no
`

// phaseCalls says how a script makes each call of the table.
var phaseCalls = map[string]string{
	"list":          `ctx.svc.list({})`,
	"get":           `ctx.svc.get({})`,
	"create":        `ctx.svc.create({id: "1", text: "x"})`,
	"peek":          `ctx.peek("in", {limit: 5})`,
	"getByIds":      `ctx.getByIds("in", ["a"])`,
	"publish":       `ctx.publish("out", {messageId: "p"})`,
	"registerInput": `ctx.registerInput({source: "s", type: "t", id: "1", title: "T"})`,
	"kv.get":        `ctx.kv.get("k")`,
	"kv.set":        `ctx.kv.set("k", 1)`,
	"kv.delete":     `ctx.kv.delete("k")`,
	"withItem":      `ctx.withItem("inner", "Inner", async () => {})`,
}

// phasePlace is how the failure names the place, and what it says is allowed.
var phasePlace = map[string]string{
	"producer": "not allowed in producer; allowed there: list tools, get tools, publish, registerInput, kv",
	"prepare":  "not allowed in prepare; allowed there: list tools, get tools, peek, getByIds",
	"mutate":   "not allowed in mutate; allowed there: get tools, mutate tools",
	"next":     "not allowed in next; allowed there: publish",
	"job":      "not allowed in job, outside an item; allowed there: list tools, get tools, withItem",
	"item":     "not allowed in job, in an item; allowed there: list tools, get tools, mutate tools",
}

// phaseScripts has one workflow for each place; BODY is where the call goes.
var phaseScripts = map[string]string{
	"producer": `producers: { async p(ctx) { BODY } }`,
	"prepare":  `consumers: { c: Keep.consumer({ subscribe: ["in"], async prepare(ctx) { BODY; return { reservations: [], data: {} } } }) }`,
	"mutate":   `consumers: { c: Keep.consumer({ subscribe: ["in"], prepare: take, async mutate(ctx) { BODY } }) }`,
	"next":     `consumers: { c: Keep.consumer({ subscribe: ["in"], prepare: take, async next(ctx) { BODY } }) }`,
	"job":      `jobs: { async j(ctx) { BODY } }`,
	"item":     `jobs: { async j(ctx) { await ctx.withItem("outer", "Outer", async (ctx) => { BODY }) } }`,
}

// take is the prepare of most scripts: it reserves its trigger.
const take = `const take = async (ctx, trigger) => trigger === undefined ? { reservations: [], data: {} } : {
	reservations: [{ topic: trigger.topic, ids: [trigger.messageId] }], data: { id: trigger.messageId }, ui: { title: "do " + trigger.messageId } };
`

// script returns a workflow with the topics in and out and the given rest.
func script(name, rest string) string {
	return take + fmt.Sprintf("export default Keep.workflow({ name: %q, topics: { in: {}, out: {} }, %s });", name, rest)
}

// Every cell of the table. What is forbidden has no effect
// and leaves no row; the script can neither catch it nor continue (law:
// not-catchable), and the failure names the call, the place and what is allowed
// there. What is allowed works.
func TestPhaseTable(t *testing.T) {
	w := newFileWorld(t)
	lines := strings.Split(strings.TrimSpace(phaseTable), "\n")
	places := strings.Fields(lines[0])
	var cells []phaseCell
	for _, line := range lines[1:] {
		words := strings.Fields(line)
		for i, place := range places {
			c := phaseCell{call: words[0], place: place, want: words[i+1]}
			cells = append(cells, c)
			body := fmt.Sprintf(`try { await %s } catch (e) { ctx.log("caught") } finally { ctx.log("finally") } ctx.log("after")`, phaseCalls[c.call])
			w.deploy(script(string(c.workflow()), strings.ReplaceAll(phaseScripts[place], "BODY", body)))
			w.publish(c.workflow(), "in", "a")
		}
	}
	w.run()
	received := w.service.received()
	for _, c := range cells {
		t.Run(c.place+"/"+c.call, func(t *testing.T) { c.check(t, w) })
	}
	// Each of the three tools was called once for every cell that allows it.
	for tool, want := range map[string]int{"list": 4, "get": 5, "create": 2} {
		if got := len(slices.DeleteFunc(slices.Clone(received), func(s string) bool { return s != tool })); got != want {
			t.Errorf("the service got %s %d times, want %d", tool, got, want)
		}
	}
}

type phaseCell struct{ call, place, want string }

func (c phaseCell) workflow() keep.WorkflowName {
	return keep.WorkflowName(c.place + "-" + c.call)
}

func (c phaseCell) check(t *testing.T, w *world) {
	w.t = t
	r := w.lastRun(c.workflow())
	logs := strings.Join(w.logs(c.workflow()), " ")
	switch c.want {
	case "yes":
		if r.Status != keep.StatusCommitted || logs != "finally after" {
			t.Errorf("run is %s (%v) and logged %q, want committed and all of it", r.Status, r.Error, logs)
		}
	case "last":
		if r.Status != keep.StatusCommitted || logs != "" || len(w.mutations(c.workflow())) != 1 {
			t.Errorf("run is %s (%v) and logged %q with %d mutations, want committed, nothing, 1", r.Status, r.Error, logs, len(w.mutations(c.workflow())))
		}
	case "no":
		c.checkRefused(t, w, r, logs)
	}
}

func (c phaseCell) checkRefused(t *testing.T, w *world, r keep.Run, logs string) {
	wf := c.workflow()
	if r.Status != keep.StatusLogic || r.Error == nil || r.Error.Class != keep.ClassLogic || r.Error.Code != "forbidden-call" {
		t.Fatalf("run is %s (%v), want failed:logic, forbidden-call", r.Status, r.Error)
	}
	if !strings.Contains(r.Error.Message, c.call) || !strings.Contains(r.Error.Message, phasePlace[c.place]) {
		t.Errorf("message %q does not name %s and %q", r.Error.Message, c.call, phasePlace[c.place])
	}
	if !strings.HasPrefix(r.Error.At, "w.js:") {
		t.Errorf("the failure is at %q, want a place in w.js", r.Error.At)
	}
	if logs != "" {
		t.Errorf("the script continued and logged %q", logs)
	}
	if n := len(w.mutations(wf)); n != 0 {
		t.Errorf("%d ledger rows, want none", n)
	}
	if n := len(w.events(wf, "out")); n != 0 {
		t.Errorf("%d events were published, want none", n)
	}
	if n := len(w.inputs(wf)); n != 1 { // that of the event a
		t.Errorf("%d inputs, want only that of the test", n)
	}
	if v, err := w.database().KV(t.Context(), wf, "p", "k"); err != nil || v != nil {
		t.Errorf("the checkpoint holds %s, %v", v, err)
	}
	if ev := w.event(wf, "in", "a"); !ev.Free() {
		t.Errorf("the event is %s, reserved by %q; want free", ev.Status, ev.ReservedBy)
	}
	for _, it := range w.items(wf) {
		if it.ID != "outer" || it.Status != keep.ItemFailed {
			t.Errorf("item %s is %s", it.ID, it.Status)
		}
	}
}
