package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/operator"
)

// producer returns a workflow whose only handler is a producer with that body.
func producer(name, body string) string {
	return script(name, fmt.Sprintf(`producers: { p: { publishes: ["in", "out"], async handler(ctx) { %s } } }`, body))
}

// stores are worlds over each store.
var stores = map[string]func(testing.TB) *world{"Memory": newWorld, "File": newFileWorld}

// The forms of publish: ids that the host makes, lists of topics, inputs given and
// made, and one event for one message id, of which the later payload wins.
func TestPublishForms(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			w := open(t)
			w.deploy(producer("w", `
				await ctx.publish("in", { messageId: "fields", a: 1, b: { c: [2] } });
				await ctx.publish("in", { messageId: "payload", payload: [1, 2] });
				await ctx.publish("in", { messageId: "null", payload: null });
				await ctx.publish("in", { messageId: "empty" });
				await ctx.publish("in", { messageId: 7, n: 1 });
				await ctx.publish(["in", "out"], { messageId: "both", n: 1 });
				await ctx.publish("out", { once: false, n: 1 });
				for (let i = 0; i < 2; i++) await ctx.publish("out", { once: false });
				await ctx.publish("in", { messageId: "twice", n: 1 });
				await ctx.publish("in", { messageId: "twice", n: 2 });
				const input = await ctx.registerInput({ source: "mail", type: "email", id: 9, title: "Email from alice" });
				await ctx.publish("in", { messageId: "given", inputId: input, n: 1 });
				await ctx.publish("out", { messageId: "given", inputId: input, payload: "text" });`))
			w.run()
			if r := w.lastRun("w"); r.Status != keep.StatusCommitted {
				t.Fatalf("run is %s (%v), want committed", r.Status, r.Error)
			}
			for id, want := range map[string]string{
				"fields": `{"a":1,"b":{"c":[2]}}`, "payload": `[1,2]`, "null": `null`, "empty": `{}`, "7": `{"n":1}`,
				"both": `{"n":1}`, "twice": `{"n":2}`, "given": `{"n":1}`,
			} {
				if ev := w.event("w", "in", id); string(ev.Payload) != want {
					t.Errorf("payload of %s is %s, want %s", id, ev.Payload, want)
				}
			}
			if n := len(w.events("w", "in")); n != 8 {
				t.Errorf("%d events in the topic in, want 8", n)
			}
			w.checkMade(t)
			w.checkInputs(t)
		})
	}
}

// checkMade looks at the three events whose ids the host made.
func (w *world) checkMade(t *testing.T) {
	t.Helper()
	made := map[keep.MessageID]bool{}
	for _, ev := range w.events("w", "out") {
		if ev.MessageID != "both" && ev.MessageID != "given" {
			made[ev.MessageID] = true
		}
	}
	if len(made) != 3 {
		t.Errorf("ids made by the host: %v, want 3 different ones", made)
	}
}

// checkInputs looks at what the events of TestPublishForms come from.
func (w *world) checkInputs(t *testing.T) {
	t.Helper()
	inputs := map[keep.InputID]keep.Input{}
	for _, in := range w.inputs("w") {
		inputs[in.ID] = in
	}
	in, out := w.event("w", "in", "given"), w.event("w", "out", "given")
	if !slices.Equal(in.CausedBy, out.CausedBy) || len(in.CausedBy) != 1 || inputs[in.CausedBy[0]].Title != "Email from alice" || inputs[in.CausedBy[0]].ExternalID != "9" {
		t.Errorf("the events given come from %v and %v, want the registered input", in.CausedBy, out.CausedBy)
	}
	both := w.event("w", "in", "both")
	if len(both.CausedBy) != 1 || !slices.Equal(both.CausedBy, w.event("w", "out", "both").CausedBy) {
		t.Errorf("the event both comes from %v, want one input", both.CausedBy)
	}
	if got := inputs[both.CausedBy[0]]; got.Source != "in" || got.ExternalID != "both" || got.Status != keep.InputDone {
		t.Errorf("its input is %+v, want one made from its topic and id, done since nobody reads them", got)
	}
	if n := len(inputs); n != 11 {
		t.Errorf("%d inputs, want one for each message and the registered one: 11", n)
	}
}

// What publish refuses is a logic failure, and nothing of the run is stored: a
// failing producer commits neither events nor inputs nor its checkpoint.
func TestPublishRefuses(t *testing.T) {
	refused := []struct{ name, call, code string }{
		{"NotDeclared", `ctx.publish("nowhere", { n: 1 })`, "unknown-topic"},
		{"NotInPublishes", `ctx.publish("other", { n: 1 })`, "undeclared-publish"},
		{"OneOfTwo", `ctx.publish(["in", "other"], { n: 1 })`, "undeclared-publish"},
		{"NoTopic", `ctx.publish()`, "bad-publish"},
		{"EmptyTopic", `ctx.publish("", {})`, "bad-publish"},
		{"NoTopics", `ctx.publish([], {})`, "bad-publish"},
		{"TopicIsNumber", `ctx.publish(7, {})`, "bad-publish"},
		{"MessageIsText", `ctx.publish("in", "text")`, "bad-publish"},
		{"MessageIsNull", `ctx.publish("in", null)`, "bad-publish"},
		{"IDIsObject", `ctx.publish("in", { messageId: {} })`, "bad-publish"},
		{"IDIsEmpty", `ctx.publish("in", { messageId: "" })`, "bad-publish"},
		{"IDIsLong", `ctx.publish("in", { messageId: "x".repeat(513) })`, "bad-publish"},
		{"IDIsUnsafe", `ctx.publish("in", { messageId: 2 ** 60 })`, "bad-publish"},
		{"PayloadAndFields", `ctx.publish("in", { payload: 1, n: 2 })`, "bad-publish"},
		{"PayloadIsLarge", `ctx.publish("in", { text: "x".repeat(1 << 20) })`, "(limit-result|payload-too-large)"},
		{"BigInt", `ctx.publish("in", { n: 1n })`, "script-error"},
		{"InputIsUnknown", `ctx.publish("in", { messageId: "a", inputId: "in_nobody", n: 1 })`, "unknown-input"},
		{"InputIsForeign", `ctx.publish("in", { messageId: "a", inputId: "in_foreign_x", n: 1 })`, "unknown-input"},
		{"InputIsNumber", `ctx.publish("in", { inputId: 7, n: 1 })`, "bad-publish"},
		{"InputWithoutSource", `ctx.registerInput({ type: "t", id: "1", title: "T" })`, "bad-input"},
		{"InputWithoutID", `ctx.registerInput({ source: "s", type: "t", title: "T" })`, "bad-input"},
		{"NoInput", `ctx.registerInput()`, "bad-input"},
		{"KVWithoutKey", `ctx.kv.set()`, "bad-kv"},
		{"KVUndefined", `ctx.kv.set("x")`, "bad-kv"},
		{"KVValueIsLarge", `ctx.kv.set("x", "y".repeat(65537))`, "kv-value-too-large"},
		{"KVIsFull", `Promise.all([...Array(20).keys()].map((i) => ctx.kv.set("x" + i, "y".repeat(60000))))`, "kv-full"},
		{"TooMany", `(async () => { for (let i = 0; i < 60; i++) await ctx.publish("in", { messageId: i }) })()`, "too-many-publishes"},
		{"Throws", `Promise.reject(new Error("boom"))`, "script-error"},
	}
	w := newWorld(t)
	w.policy.Limits.Publishes = 50
	w.deploy(producer("foreign", ""))
	w.publish("foreign", "in", "x")
	for _, r := range refused {
		w.deploy(take + fmt.Sprintf(`export default Keep.workflow({ name: %q, topics: { in: {}, out: {}, other: {} },
			producers: { p: { publishes: ["in", "out"], async handler(ctx) {
				await ctx.kv.set("cursor", 1); await ctx.publish("in", { messageId: "before" });
				try { await %s } catch (e) { if (!(e instanceof Error)) ctx.log("caught"); throw e } } } } })`, r.name, r.call))
	}
	w.run()
	for _, r := range refused {
		wf := keep.WorkflowName(r.name)
		run := w.lastRun(wf)
		if run.Status != keep.StatusLogic || run.Error == nil || !strings.Contains(r.code, run.Error.Code) {
			t.Errorf("%s: run is %s (%v), want failed:logic %s", r.name, run.Status, run.Error, r.code)
		}
		if n, m := len(w.events(wf, "")), len(w.inputs(wf)); n+m > 0 {
			t.Errorf("%s: %d events and %d inputs were stored, want none", r.name, n, m)
		}
		if v, err := w.database().KV(t.Context(), wf, "p", "cursor"); v != nil || err != nil {
			t.Errorf("%s: the checkpoint is %s, %v; want none", r.name, v, err)
		}
		if n := len(w.runs(wf)); n != 1 {
			t.Errorf("%s: %d runs, want 1", r.name, n)
		}
	}
}

// Publishing the same message id again, in a later run: while the event is
// pending and free the later payload wins; reserved, consumed or skipped it
// stays as it is.
func TestPublishAgain(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			w := open(t)
			all := `for (const id of ["free", "reserved", "consumed", "skipped"]) await ctx.publish("in", { messageId: id, n: N })`
			w.deploy(producer("w", strings.ReplaceAll(all, "N", "1")))
			w.run()
			w.commit("w", append(consumed("w", "in", "consumed"), keep.SkipEvents{Topic: "in", IDs: []keep.MessageID{"skipped"}},
				keep.Reserve{Chain: "run_other", Reservation: keep.Reservation{Topic: "in", IDs: []keep.MessageID{"reserved"}}})...)
			w.deploy(producer("w", strings.ReplaceAll(all, "N", "2")))
			w.start()
			w.idle()
			w.commit("w", keep.Release{Chain: "run_other"})
			for id, want := range map[string]string{"free": `{"n":2}`, "reserved": `{"n":1}`, "consumed": `{"n":1}`, "skipped": `{"n":1}`} {
				if ev := w.event("w", "in", id); string(ev.Payload) != want {
					t.Errorf("payload of the %s event is %s, want %s", id, ev.Payload, want)
				}
			}
			if n, m := len(w.events("w", "in")), len(w.inputs("w")); n != 4 || m != 4 {
				t.Errorf("%d events and %d inputs, want 4 of each", n, m)
			}
		})
	}
}

// The outcome of a call is written beside a next that takes long. What next publishes then
// without an id has the same id as after a crash.
func TestPublishBesideACommit(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			w := open(t)
			w.deploy(take + `export default Keep.workflow({ name: "w", topics: { in: {}, out: {} }, consumers: { c: Keep.consumer({
				subscribe: ["in"], prepare: take, async mutate(ctx) { await ctx.svc.create({ id: "1" }) },
				async next(ctx) { for (let i = 0; i < 40; i++) { for (let n = 0; n < 1e5; n++); await ctx.publish("out", { n: i }); } } }) } })`)
			w.publish("w", "in", "a")
			w.run()
			chain := w.lastRun("w").Chain
			events := w.events("w", "out")
			for _, ev := range events {
				if !strings.HasPrefix(string(ev.MessageID), string(chain)+"/") {
					t.Errorf("the id %s does not begin with the chain %s", ev.MessageID, chain)
				}
			}
			if len(events) != 40 {
				t.Errorf("%d events, want 40", len(events))
			}
		})
	}
}

// An event from next comes from all inputs of the events that its run reserved,
// and an input is done when everything that it caused is.
func TestCausesGoThroughNext(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			w := open(t)
			w.deploy(take + `export default Keep.workflow({ name: "w", topics: { in: {}, in2: {}, mid: {}, out: {} }, consumers: {
				both: Keep.consumer({ subscribe: ["in", "in2"], async prepare(ctx) {
					const a = await ctx.peek("in"), b = await ctx.peek("in2", { limit: 1 });
					if (a.length < 2 || b.length < 1) return { reservations: [], data: {} };
					return { reservations: [{ topic: "in", ids: a.map((e) => e.messageId) }, { topic: "in2", ids: [b[0].messageId] }], data: {} };
				}, async mutate(ctx) { await ctx.svc.create({ id: "1" }) },
				async next(ctx) { await ctx.publish(["mid"], { messageId: "m" }) } }),
				last: Keep.consumer({ subscribe: ["mid"], prepare: take, async next(ctx) { await ctx.publish("out", { messageId: "o" }) } }) } })`)
			w.publish("w", "in", "a", "b")
			w.publish("w", "in2", "c")
			w.run()
			want := []keep.InputID{"in_w_a", "in_w_b", "in_w_c"}
			for topic, id := range map[keep.TopicName]string{"mid": "m", "out": "o"} {
				if ev := w.event("w", topic, id); !slices.Equal(ev.CausedBy, want) {
					t.Errorf("%s in %s comes from %v, want %v", id, topic, ev.CausedBy, want)
				}
			}
			for _, in := range w.inputs("w") {
				if in.Status != keep.InputDone { // nobody reads the topic out
					t.Errorf("input %s is %s, want done", in.ID, in.Status)
				}
			}
			w.commit("w", keep.SkipEvents{Topic: "out", IDs: []keep.MessageID{"o"}})
			for _, in := range w.inputs("w") {
				if in.Status != keep.InputDone {
					t.Errorf("input %s is %s, want done", in.ID, in.Status)
				}
			}
		})
	}
}

// The same input again is the same input, with its first title.
func TestRegisterInputAgain(t *testing.T) {
	w := newFileWorld(t)
	body := `const a = await ctx.registerInput({ source: "s", type: "t", id: "1", title: TITLE });
		const b = await ctx.registerInput({ source: "s", type: "t", id: "1", title: "third" }); ctx.log(a, b)`
	w.deploy(producer("w", strings.ReplaceAll(body, "TITLE", `"first"`)))
	w.run()
	w.deploy(producer("w", strings.ReplaceAll(body, "TITLE", `"second"`)))
	w.run()
	ins := w.inputs("w")
	if len(ins) != 1 || ins[0].Title != "first" {
		t.Fatalf("inputs are %+v, want one with the first title", ins)
	}
	id := string(ins[0].ID)
	if got, want := w.logs("w"), []string{id + " " + id, id + " " + id}; !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}

// A producer sees its own writes in its checkpoint, which commits with its
// events, is its own, and can be reset.
func TestCheckpoint(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			w := open(t)
			source := `export default Keep.workflow({ name: "w", topics: { in: {} }, producers: {
				async p(ctx) {
					const n = (await ctx.kv.get("n")) ?? 0;
					await ctx.kv.set("n", n + 1); await ctx.kv.set("gone", [1]); await ctx.kv.delete("gone"); await ctx.kv.set("null", null);
					ctx.log(n, await ctx.kv.get("n"), await ctx.kv.get("gone"), await ctx.kv.get("null"), await ctx.kv.get("never"));
					await ctx.publish("in", { messageId: "m" + n });
				},
				async q(ctx) { ctx.log("q", await ctx.kv.get("n")) } } })`
			w.deploy(source)
			for range 3 {
				w.run() // a bare producer is due at every start
			}
			w.commit("w", keep.ResetKV{Producer: "p"})
			w.run()
			got := slices.DeleteFunc(w.logs("w"), func(s string) bool { return s == "q null" })
			want := []string{"0 1 null null null", "1 2 null null null", "2 3 null null null", "0 1 null null null"}
			if !slices.Equal(got, want) {
				t.Errorf("logged %q, want %q", got, want)
			}
			if n := len(w.events("w", "in")); n != 3 {
				t.Errorf("%d events, want 3: the reset made m0 again, which is the same", n)
			}
		})
	}
}

// peek shows what is free, oldest first and up to its limit; getByIds shows what
// exists, whatever became of it. Both only in subscribed topics.
func TestPeekAndGetByIDs(t *testing.T) {
	w := newFileWorld(t)
	for name, call := range map[string]string{
		"peek":      `(await ctx.peek("in", { limit: 2 })).map((e) => e.messageId + " " + e.status + " " + e.payload.n)`,
		"all":       `(await ctx.peek("in")).map((e) => e.messageId)`,
		"ids":       `(await ctx.getByIds("in", ["c", "skipped", "nobody", "a"])).map((e) => e.messageId + " " + e.status)`,
		"view":      `Object.keys((await ctx.peek("in"))[0])`,
		"unsub":     `await ctx.peek("out")`,
		"unsubIDs":  `await ctx.getByIds("out", ["a"])`,
		"zero":      `await ctx.peek("in", { limit: 0 })`,
		"huge":      `await ctx.peek("in", { limit: 1e9 })`,
		"notAList":  `await ctx.getByIds("in", "a")`,
		"notATopic": `await ctx.peek()`,
	} {
		w.deploy(script(name, fmt.Sprintf(`consumers: { c: Keep.consumer({ subscribe: ["in"], async prepare(ctx) {
			ctx.log(JSON.stringify(%s)); return { reservations: [], data: {} } } }) }`, call)))
		w.publish(keep.WorkflowName(name), "in", "skipped", "b", "a", "c")
		w.commit(keep.WorkflowName(name), keep.SkipEvents{Topic: "in", IDs: []keep.MessageID{"skipped"}})
	}
	w.run()
	for name, want := range map[string]string{
		"peek": `["b pending 1","a pending 1"]`, "all": `["b","a","c"]`, "ids": `["c pending","skipped skipped","a pending"]`,
		"view": `["topic","messageId","payload","status","createdAt","attempt"]`,
	} {
		if got := strings.Join(w.logs(keep.WorkflowName(name)), " "); got != want {
			t.Errorf("%s: logged %s, want %s", name, got, want)
		}
	}
	for name, want := range map[string]string{"unsub": "not-subscribed", "unsubIDs": "not-subscribed", "zero": "bad-peek", "huge": "bad-peek", "notAList": "bad-ids", "notATopic": "not-subscribed"} {
		if r := w.lastRun(keep.WorkflowName(name)); r.Error == nil || r.Error.Code != want {
			t.Errorf("%s: run is %s (%v), want %s", name, r.Status, r.Error, want)
		}
	}
}

// changeMeanwhile runs a producer p of a workflow w, and has a person change its checkpoint from another process before the run commits.
func (w *world) changeMeanwhile(body string, change func(o *operator.Operator, d keep.Decision) error) (published []keep.MessageID) {
	w.t.Helper()
	w.deploy(`export default Keep.workflow({ name: "w", topics: { in: {} }, producers: { async p(ctx) { ` + body + ` } } })`)
	w.commit("w", keep.SetKV{Producer: "p", Key: "n", Value: json.RawMessage("7")})
	var once sync.Once
	w.passed = func(p engine.Point) {
		if p != engine.BeforeCommit {
			return
		}
		once.Do(func() {
			other, err := operator.New(w.database(), operator.Config{Logger: slog.New(slog.DiscardHandler)})
			if err == nil {
				err = change(other, keep.Decision{By: "ann", From: "cli"})
			}
			if err != nil {
				w.t.Error(err)
			}
		})
	}
	w.run()
	for _, e := range w.events("w", "in") {
		published = append(published, e.MessageID)
	}
	return published
}

// A checkpoint that a person changes while the producer executes, from another process, which does not know that it does, is the one that
// counts: the run begins anew with it, and neither stores nor publishes what it made of the one before.
func TestCheckpointChangedMeanwhile(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			w := open(t)
			ids := w.changeMeanwhile(`const n = (await ctx.kv.get("n")) ?? 0; await ctx.kv.set("n", n + 1); await ctx.publish("in", { messageId: "m" + n })`,
				func(o *operator.Operator, d keep.Decision) error {
					return o.ResetCheckpoint(context.Background(), "w", "p", d)
				})
			n, err := w.database().KV(t.Context(), "w", "p", "n")
			if err != nil || string(n) != "1" || !slices.Equal(ids, []keep.MessageID{"m0"}) {
				t.Errorf("the checkpoint is %s, and %v was published, %v; want 1 and m0, as after a reset", n, ids, err)
			}
		})
	}
}

// So it is with a value that the producer sets without reading it: the run after the person's change is the one that sets it.
func TestUnreadCheckpointChangedMeanwhile(t *testing.T) {
	w := newWorld(t)
	times := 0
	w.changeMeanwhile(`await ctx.kv.set("n", 8)`, func(o *operator.Operator, d keep.Decision) error {
		times++
		_, err := o.SetCheckpoint(context.Background(), "w", "p", "n", json.RawMessage("3"), d, false)
		w.passed = func(p engine.Point) {
			if p == engine.BeforeCommit {
				times++
			}
		}
		return err
	})
	if times != 2 {
		t.Errorf("the run came %d times to its commit, want 2: the first must not go over what a person set", times)
	}
}
