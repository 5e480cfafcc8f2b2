package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
)

// wait lets time pass while the host runs.
func (w *world) wait(d time.Duration) {
	time.Sleep(d) // virtual: these tests run in bubbles
	synctest.Wait()
}

// ticks returns when the runs of a handler began, since start, oldest first.
func (w *world) ticks(wf keep.WorkflowName, h keep.HandlerName, start time.Time) []string {
	w.t.Helper()
	var at []string
	for _, r := range w.runs(wf) {
		if r.Handler == h {
			at = append(at, r.CreatedAt.Sub(start).Round(time.Second).String())
		}
	}
	slices.Reverse(at)
	return at
}

func wantTicks(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s ran at %v, want %v", what, got, want)
	}
}

// An interval first ticks at deploy, then counts from
// the end of the last run; a cron comes at its times, in its zone; a bare
// producer at every start and every default interval. What was missed while no
// host ran is one run.
func TestSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // starts at 2000-01-01 00:00 UTC, a Saturday
		w := newBubbleWorld(t)
		start := now()
		w.deploy(`const f = async (ctx) => {}; export default Keep.workflow({ name: "w", topics: { in: {} }, producers: {
			bare: f, every: { schedule: { interval: "30m" }, handler: f },
			hourly: { schedule: { cron: "15 * * * *" }, handler: f },
			berlin: { schedule: { cron: "30 2 * * *", timezone: "Europe/Berlin" }, handler: f } } })`)
		w.deploy(`export default Keep.workflow({ name: "slow", jobs: { every: { schedule: { interval: "10m" },
			async handler(ctx) { await ctx.svc.get({ id: 1 }) } } } })`)
		w.service.onRead = func(context.Context, jsonText) (jsonText, error) { time.Sleep(5 * time.Second); return nil, nil }
		w.start()
		w.wait(2*time.Hour + time.Minute)
		w.close()
		wantTicks(t, "every", w.ticks("w", "every", start), "0s", "30m0s", "1h0m0s", "1h30m0s", "2h0m0s")
		wantTicks(t, "hourly", w.ticks("w", "hourly", start), "15m0s", "1h15m0s")
		wantTicks(t, "berlin", w.ticks("w", "berlin", start), "1h30m0s")
		wantTicks(t, "slow", w.ticks("slow", "every", start)[:3], "0s", "10m5s", "20m10s")
		if got := w.ticks("w", "bare", start); len(got) != 25 || got[0] != "0s" || got[1] != "5m0s" || got[24] != "2h0m0s" {
			t.Errorf("bare ran at %v, want every 5 minutes from 0 to 2h", got)
		}
		w.wait(10 * time.Hour) // no host runs
		w.start()
		w.wait(time.Second)
		w.close()
		for h, n := range map[keep.HandlerName]int{"every": 6, "hourly": 3, "bare": 26, "berlin": 1} {
			if got := len(w.ticks("w", h, start)); got != n {
				t.Errorf("%s ran %d times, want %d: what was missed is one run", h, got, n)
			}
		}
		w.start()
		w.wait(time.Second)
		if got := len(w.ticks("w", "bare", start)); got != 27 {
			t.Errorf("bare ran %d times, want 27: it is due at every start", got)
		}
	})
}

// wakeAt is an ISO string, a Date or milliseconds, clamped to the policy's
// window; anything else is a logic failure.
func TestWakeAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubbleWorld(t)
		w.policy.Wake.Max = 2 * time.Hour // a day of hosts that poll takes a minute
		start := now()
		good := map[string]struct{ expr, at string }{
			"iso":   {`new Date(ctx.now() + 3600e3).toISOString()`, "1h0m0s"},
			"zone":  {`"2000-01-01T03:00:00+02:00"`, "1h0m0s"},
			"date":  {`new Date(ctx.now() + 3600e3)`, "1h0m0s"},
			"ms":    {`ctx.now() + 3600e3`, "1h0m0s"},
			"past":  {`ctx.now() - 1e6`, "30s"},
			"soon":  {`ctx.now() + 1`, "30s"},
			"late":  {`ctx.now() + 1e12`, "2h0m0s"},
			"none":  {`undefined`, ""},
			"null":  {`null`, ""},
			"epoch": {`1`, "30s"},
		}
		bad := []string{`"tomorrow"`, `{}`, `[1]`, `true`, `""`, `1e300`, `"2000-01-01"+"T25:00:00Z"`}
		prepare := `consumers: { c: Keep.consumer({ subscribe: ["in"], async prepare(ctx, trigger) { return { reservations: [], data: {}, wakeAt: trigger && ctx.now() < 946684800000 + 1000 ? %s : undefined } } }) }`
		for name, g := range good {
			w.deploy(script(name, fmt.Sprintf(prepare, g.expr)))
			w.publish(keep.WorkflowName(name), "in", "a")
		}
		for i, expr := range bad {
			w.deploy(script(fmt.Sprint("bad", i), fmt.Sprintf(prepare, expr)))
			w.publish(keep.WorkflowName(fmt.Sprint("bad", i)), "in", "a")
		}
		w.start()
		w.wait(3 * time.Hour)
		for name, g := range good {
			want := []string{"0s"}
			if g.at != "" {
				want = append(want, g.at)
			}
			wantTicks(t, name, w.ticks(keep.WorkflowName(name), "c", start), want...)
		}
		for i, expr := range bad {
			if r := w.lastRun(keep.WorkflowName(fmt.Sprint("bad", i))); r.Status != keep.StatusLogic || r.Error.Code != "bad-prepare-result" {
				t.Errorf("wakeAt %s: run is %s (%v), want failed:logic", expr, r.Status, r.Error)
			}
		}
	})
}

// Consumers go before producers and jobs, among consumers the one with the
// oldest event; triggers that come during a run are one.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubbleWorld(t)
		w.deploy(take + `const c = (topic) => Keep.consumer({ subscribe: [topic], prepare: take, async next(ctx, p) { ctx.log(topic + " " + p.data.id) } });
			export default Keep.workflow({ name: "w", topics: { a: {}, b: {}, z: {} },
			producers: { async early(ctx) { ctx.log("producer") } }, jobs: { async job(ctx) { ctx.log("job") } },
			consumers: { ofA: c("a"), ofB: c("b"), ofZ: c("z") } })`)
		w.publish("w", "z", "1")
		w.publish("w", "b", "2")
		w.publish("w", "a", "3", "4")
		w.publish("w", "b", "5")
		w.publish("w", "z", "6")
		w.run()
		if got, want := strings.Join(w.logs("w"), ", "), "z 1, b 2, a 3, a 4, b 5, z 6, producer, job"; got != want {
			t.Errorf("the order was %s, want %s", got, want)
		}
	})
}

// Many events that come while a consumer is at work wake it once: it takes what
// there is.
func TestTriggersCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubbleWorld(t)
		w.service.onRead = func(context.Context, jsonText) (jsonText, error) { time.Sleep(18 * time.Second); return nil, nil }
		w.deploy(script("w", `consumers: { c: Keep.consumer({ subscribe: ["in"], async prepare(ctx) {
			await ctx.svc.get({}); const all = await ctx.peek("in"); ctx.log(all.length);
			return { reservations: [{ topic: "in", ids: all.map((e) => e.messageId) }], data: {} } } }) }`))
		w.start()
		for i := range 20 {
			w.publish("w", "in", fmt.Sprint("e", i))
			w.wait(3 * time.Second)
		}
		w.idle()
		if n := len(w.runs("w")); n < 3 || n > 6 {
			t.Errorf("%d runs for 20 events in 60 seconds, of 18 seconds each: want about 4, and none after the last", n)
		}
		if logs := w.logs("w"); len(logs) == 0 || logs[0] != "6" && logs[0] != "7" {
			t.Errorf("the runs took %q events, want 6 or 7 by the first: those that came meanwhile, too", logs)
		}
	})
}

// Pause lets the current call finish and be recorded, and begins nothing more;
// resume continues. Another workflow does not notice.
func TestPauseAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubbleWorld(t)
		w.service.onCall = func(_ context.Context, _ keep.Mutation, n int) (bool, error) {
			time.Sleep(5 * time.Second)
			return true, nil
		}
		act := `consumers: { c: Keep.consumer({ subscribe: ["in"], prepare: take, async mutate(ctx, p) { await ctx.svc.create({ id: p.data.id }) } }) }`
		w.deploy(script("w", act))
		w.deploy(script("v", act))
		w.publish("w", "in", "a", "b")
		w.publish("v", "in", "a", "b")
		w.start()
		w.wait(time.Second)
		if err := w.host.Pause(t.Context(), "w", keep.Decision{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		w.wait(time.Hour)
		if a, b := w.event("w", "in", "a"), w.event("w", "in", "b"); a.Status != keep.EventConsumed || !b.Free() {
			t.Errorf("the events of the paused workflow are %s and %s, want consumed and pending", a.Status, b.Status)
		}
		if b := w.event("v", "in", "b"); b.Status != keep.EventConsumed {
			t.Errorf("the other workflow's event is %s, want consumed", b.Status)
		}
		w.close()
		w.run() // a restart does not resume it
		if n := w.service.total(); n != 3 {
			t.Errorf("%d effects while paused, want 3", n)
		}
		if err := w.open().Resume(t.Context(), "w", keep.Decision{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		w.run()
		if n := w.service.total(); n != 4 {
			t.Errorf("%d effects after resume, want 4", n)
		}
	})
}

// "Run now" is refused while the workflow has an unfinished run, and otherwise
// runs the handler once.
func TestRunNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubbleWorld(t)
		broken := true
		w.service.onRead = func(context.Context, jsonText) (jsonText, error) {
			if broken {
				return nil, keep.Failf(keep.ClassPermission, "http-401", "token expired")
			}
			return nil, nil
		}
		w.deploy(`export default Keep.workflow({ name: "w", topics: { in: {} }, producers: {
			daily: { schedule: { cron: "0 12 * * *" }, async handler(ctx) { await ctx.svc.list({}) } } } })`)
		w.start()
		w.wait(time.Minute)
		if n := len(w.runs("w")); n != 0 {
			t.Fatalf("%d runs at midnight, want none", n)
		}
		if err := w.host.Trigger(t.Context(), "w", "daily", keep.Decision{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		w.wait(time.Minute)
		if r := w.lastRun("w"); r.Status != keep.StatusPerson {
			t.Fatalf("run is %s (%v), want paused:person", r.Status, r.Error)
		}
		if err := w.host.Trigger(t.Context(), "w", "daily", keep.Decision{By: "ann"}); !errors.Is(err, keep.ErrRunOpen) {
			t.Errorf("Trigger with an unfinished run: %v, want ErrRunOpen", err)
		}
		if err := w.host.Trigger(t.Context(), "w", "nobody", keep.Decision{By: "ann"}); err == nil {
			t.Error("Trigger of an unknown handler: no error")
		}
		broken = false
		if err := w.decide("w", keep.Retry); err != nil {
			t.Fatal(err)
		}
		w.wait(time.Minute)
		if err := w.host.Trigger(t.Context(), "w", "daily", keep.Decision{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		w.wait(time.Minute)
		if n := len(w.runs("w")); n != 3 || w.lastRun("w").Status != keep.StatusCommitted {
			t.Errorf("%d runs, the last %s; want 3, committed", n, w.lastRun("w").Status)
		}
		w.wait(13 * time.Hour)
		if n := len(w.runs("w")); n != 4 {
			t.Errorf("%d runs after noon, want 4", n)
		}
	})
}

// Law one-at-a-time: a workflow that is blocked in every way blocks no other.
func TestBlockedWorkflows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubbleWorld(t)
		fail := map[string]error{"doubt": errReset, "permission": keep.Failf(keep.ClassPermission, "http-401", "no"),
			"logic": keep.Failf(keep.ClassLogic, "http-422", "no"), "transient": keep.Failf(keep.ClassTransient, "refused", "no")}
		w.service.onCall = func(_ context.Context, m keep.Mutation, _ int) (bool, error) {
			err := fail[string(m.Workflow)]
			return err == nil, err
		}
		for _, wf := range []keep.WorkflowName{"doubt", "permission", "logic", "transient", "good"} {
			w.deploy(script(string(wf), `consumers: { c: Keep.consumer({ subscribe: ["in"], prepare: take, async mutate(ctx, p) { await ctx.svc.blind({ id: p.data.id }) } }) }`))
			w.publish(wf, "in", "a", "b", "c")
		}
		w.start()
		w.wait(5 * time.Second)
		if n := w.service.total(); n != 3 {
			t.Errorf("%d effects, want the 3 of the good workflow", n)
		}
		for wf, want := range map[keep.WorkflowName]keep.RunStatus{"doubt": keep.StatusReconciliation, "permission": keep.StatusPerson,
			"logic": keep.StatusLogic, "transient": keep.StatusTransient, "good": keep.StatusCommitted} {
			if r := w.lastRun(wf); r.Status != want {
				t.Errorf("the run of %s is %s, want %s", wf, r.Status, want)
			}
		}
		if n := len(w.service.received()); n != 7 {
			t.Errorf("%d calls, want one for each blocked workflow and 3", n)
		}
	})
}
