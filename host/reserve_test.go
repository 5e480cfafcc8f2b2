package host_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/keep-run/keep"
)

// What prepare may not reserve. The topic in of every workflow holds the events
// free, consumed, skipped and foreign; the other workflow's topic in holds theirs.
var badReservations = []struct{ name, reservations, code string }{
	{"Unknown", `[{ topic: "in", ids: ["nobody"] }]`, "reservation-unknown"},
	{"Consumed", `[{ topic: "in", ids: ["consumed"] }]`, "reservation-consumed"},
	{"Skipped", `[{ topic: "in", ids: ["skipped"] }]`, "reservation-skipped"},
	{"Foreign", `[{ topic: "in", ids: ["foreign"] }]`, "reservation-reserved"},
	{"OtherWorkflow", `[{ topic: "in", ids: ["theirs"] }]`, "reservation-unknown"},
	{"Twice", `[{ topic: "in", ids: ["free", "free"] }]`, "reservation-duplicate"},
	{"TwiceApart", `[{ topic: "in", ids: ["free"] }, { topic: "in", ids: ["free"] }]`, "reservation-duplicate"},
	{"NotSubscribed", `[{ topic: "out", ids: ["free"] }]`, "bad-prepare-result"},
	{"NotDeclared", `[{ topic: "nowhere", ids: ["free"] }]`, "bad-prepare-result"},
	{"GoodThenBad", `[{ topic: "in", ids: ["free", "nobody"] }]`, "reservation-unknown"},
	{"GoodThenBadApart", `[{ topic: "in", ids: ["free"] }, { topic: "in2", ids: ["free"] }]`, "reservation-unknown"},
	{"NotAString", `[{ topic: "in", ids: [{}] }]`, "bad-prepare-result"},
	{"NoIDs", `[{ topic: "in" }]`, "bad-prepare-result"},
	{"NoTopic", `[{ ids: ["free"] }]`, "bad-prepare-result"},
	{"NotAList", `{ topic: "in", ids: ["free"] }`, "bad-prepare-result"},
	{"Missing", `undefined`, "bad-prepare-result"},
}

// A reservation that cannot be had fails the run;
// nothing is called and nothing reserved, also not what could be had.
func TestBadReservations(t *testing.T) {
	w := newFileWorld(t)
	w.deploy(script("other", `jobs: { j: { schedule: { cron: "0 0 1 1 *" }, async handler() {} } }`))
	w.publish("other", "in", "theirs")
	for _, b := range badReservations {
		wf := keep.WorkflowName(b.name)
		w.deploy(take + fmt.Sprintf(`export default Keep.workflow({ name: %q, topics: { in: {}, in2: {}, out: {} },
			consumers: { c: Keep.consumer({ subscribe: ["in", "in2"],
				async prepare(ctx) { return { reservations: %s, data: {} } },
				async mutate(ctx) { await ctx.svc.create({ id: "1" }) } }) } })`, b.name, b.reservations))
		w.publish(wf, "in", "free", "consumed", "skipped", "foreign")
		w.publish(wf, "out", "free")
		w.commit(wf, append(consumed(wf, "in", "consumed"), keep.SkipEvents{Topic: "in", IDs: []keep.MessageID{"skipped"}},
			keep.Reserve{Chain: "run_foreign_" + keep.RunID(wf), Reservation: keep.Reservation{Topic: "in", IDs: []keep.MessageID{"foreign"}}})...)
	}
	w.start()
	w.idle()
	for _, b := range badReservations {
		wf := keep.WorkflowName(b.name)
		r := w.lastRun(wf)
		if r.Status != keep.StatusLogic || r.Error.Code != b.code || len(r.Reservations) != 0 {
			t.Errorf("%s: run is %s (%v) with %v, want failed:logic %s with none", b.name, r.Status, r.Error, r.Reservations, b.code)
		}
		if n := len(w.runs(wf)); n != 2 {
			t.Errorf("%s: %d runs, want the one before and the failed one", b.name, n)
		}
		if ev := w.event(wf, "in", "free"); !ev.Free() {
			t.Errorf("%s: the free event is %s, reserved by %q", b.name, ev.Status, ev.ReservedBy)
		}
		if ev := w.event(wf, "in", "foreign"); ev.ReservedBy != "run_foreign_"+keep.RunID(wf) {
			t.Errorf("%s: the foreign event is reserved by %q", b.name, ev.ReservedBy)
		}
		w.commit(wf, keep.Release{Chain: "run_foreign_" + keep.RunID(wf)})
	}
	if ev := w.event("other", "in", "theirs"); !ev.Free() {
		t.Errorf("the other workflow's event is %s, reserved by %q", ev.Status, ev.ReservedBy)
	}
	if got := w.service.received(); len(got) != 0 {
		t.Errorf("the service got %v, want nothing", got)
	}
}

// Empty reservations: mutate is skipped, next gets {status: 'none'}, and the
// consumer does not spin on the events that it leaves.
func TestEmptyReservations(t *testing.T) {
	w := newFileWorld(t)
	for name, rs := range map[string]string{"None": `[]`, "NoIDs": `[{ topic: "in", ids: [] }]`} {
		w.deploy(script(name, fmt.Sprintf(`consumers: { c: Keep.consumer({ subscribe: ["in"],
			async prepare(ctx, trigger) { ctx.log("prepare " + trigger.messageId); return { reservations: %s, data: {} } },
			async mutate(ctx) { ctx.log("mutate"); await ctx.svc.create({ id: "1" }) },
			async next(ctx, p, m) { ctx.log("next " + JSON.stringify(m)) } }) }`, rs)))
		w.publish(keep.WorkflowName(name), "in", "a", "b")
	}
	w.run()
	w.run()
	for _, wf := range []keep.WorkflowName{"None", "NoIDs"} {
		if got, want := w.logs(wf), []string{"prepare a", `next {"status":"none"}`}; !slices.Equal(got, want) {
			t.Errorf("%s: logged %q, want %q", wf, got, want)
		}
		if ev := w.event(wf, "in", "a"); !ev.Free() {
			t.Errorf("%s: the event is %s, reserved by %q; want free", wf, ev.Status, ev.ReservedBy)
		}
	}
	if got := w.service.received(); len(got) != 0 {
		t.Errorf("the service got %v, want nothing", got)
	}
}

// Law pinned: mutate and next get what prepare returned, and a mutation that
// mutate decides against consumes the events all the same.
func TestMutateThatMakesNoCall(t *testing.T) {
	w := newWorld(t)
	w.deploy(script("w", `consumers: { c: Keep.consumer({ subscribe: ["in"], prepare: take,
		async mutate(ctx, prepared) { ctx.log(JSON.stringify(prepared)); await ctx.svc.get({ id: prepared.data.id }) },
		async next(ctx, prepared, m) { ctx.log(JSON.stringify(prepared)); ctx.log(m.status) } }) }`))
	w.publish("w", "in", "a")
	w.run()
	prepared := `{"reservations":[{"topic":"in","ids":["a"]}],"data":{"id":"a"},"ui":{"title":"do a"}}`
	if got, want := w.logs("w"), []string{prepared, prepared, "none"}; !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
	if ev := w.event("w", "in", "a"); ev.Status != keep.EventConsumed {
		t.Errorf("the event is %s, want consumed", ev.Status)
	}
}
