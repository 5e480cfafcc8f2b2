package scripttest_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep/rehearsal/scripttest"
)

// counts changes all that a script can change, and says what it found: its own state, the
// globals, what a prototype has, its checkpoint, events and calls of the same names.
const counts = `
const began = Date.now(), chance = crypto.randomUUID(), seen = [];
export default Keep.workflow({
  name: "counts",
  topics: { found: {} },
  producers: {
    async look(ctx) {
      seen.push(1);
      globalThis.calls = (globalThis.calls ?? 0) + 1;
      Array.prototype.calls = (Array.prototype.calls ?? 0) + 1;
      const kv = (await ctx.kv.get("n")) ?? 0;
      await ctx.kv.set("n", kv + 1);
      await ctx.publish("found", { messageId: "same", seen: seen.length, calls: globalThis.calls, proto: [].calls, kv, began, now: ctx.now(), chance });
    },
  },
  consumers: {
    note: Keep.consumer({
      subscribe: ["found"],
      async prepare(ctx, event) {
        seen.push(1);
        if (!event) return { reservations: [], data: {} };
        return { reservations: [{ topic: "found", ids: [event.messageId] }], data: { seen: seen.length, calls: globalThis.calls ?? 0 } };
      },
      async mutate(ctx, prepared) { await ctx.shop.note({ id: "same", ...prepared.data }); },
    }),
  },
});
`

// Tests that share a loaded script, at the same time and one after another, find nothing
// that another one left, and the top level of their script has their own time.
func TestRun_sees_no_other_test(t *testing.T) {
	t.Parallel()
	cfg := configOf(t, "counts.js", counts)
	cfg.Now = time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	var running sync.WaitGroup
	for worker := range 4 {
		running.Go(func() {
			for i := range 30 {
				began, own := cfg.Now, ""
				if i%2 > 0 {
					began = cfg.Now.Add(time.Duration(i%8) * time.Hour)
					own = "now = " + began.Format(time.RFC3339)
				}
				f, err := scripttest.Parse(fmt.Appendf(nil, `[[test]]
name = "%d %d"
%s
[test.expect]
kv        = { n = 1 }
calls     = [{ tool = "shop.note", params = { id = "same", seen = 1, calls = 0 }, state = "applied" }]
publishes = [{ topic = "found", messageId = "same", payload = { seen = 1, calls = 1, proto = 1, kv = 0, began = %d } }]
questions = []
`, worker, i, own, began.UnixMilli()))
				if err != nil {
					t.Error(err)
					return
				}
				v, err := scripttest.Run(t.Context(), cfg, f.Tests[0])
				if err != nil || len(v.Problems) > 0 {
					t.Errorf("%s: %v\n%s", v.Name, err, strings.Join(v.Problems, "\n"))
				}
			}
		})
	}
	running.Wait()
}

// A test costs what its own host and its runs need: nothing is loaded, compiled or made large
// for it, with a time of its own or without. (BenchmarkRun says how long it takes.)
func TestRun_costs_little(t *testing.T) {
	cfg := config(t)
	for _, own := range []string{"", "now = 2026-07-01T00:00:%02dZ\n"} {
		var tests []scripttest.Test
		for i := range 60 {
			text := event
			if own != "" {
				text += fmt.Sprintf(own, i)
			}
			f, err := scripttest.Parse([]byte(text + "[test.expect]\ncalls = [{ tool = 'shop.send' }]"))
			if err != nil {
				t.Fatal(err)
			}
			tests = append(tests, f.Tests...)
		}
		var before, after runtime.MemStats
		for i, test := range tests {
			if i == 10 { // the first ones share what they make
				runtime.ReadMemStats(&before)
			}
			if v, err := scripttest.Run(t.Context(), cfg, test); err != nil || len(v.Problems) > 0 {
				t.Fatal(v, err)
			}
		}
		runtime.ReadMemStats(&after)
		each := (after.TotalAlloc - before.TotalAlloc) / 50
		t.Logf("%q: %d bytes a test", own, each)
		if each > 200<<10 {
			t.Errorf("%q: a test allocates %d bytes", own, each)
		}
	}
}
