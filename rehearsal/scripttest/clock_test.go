package scripttest_test

import (
	"testing"

	"github.com/keep-run/keep/rehearsal/scripttest"
)

// A test with a time of its own knows what a script does with it, however busy the machine is: all
// that is done without a wait is done at one time, and after one at the time at which it ends.
func TestClock(t *testing.T) {
	t.Parallel()
	const script = `
export default Keep.workflow({
  name: "clock",
  topics: { "tick": {} },
  producers: {
    async poll(ctx) {
      for (const id of await ctx.shop.list({})) await ctx.publish("tick", { messageId: id, at: Date.now() });
    },
  },
  consumers: {
    send: Keep.consumer({
      subscribe: ["tick"],
      async prepare(ctx, event) {
        if (!event) return { reservations: [], data: {} };
        return { reservations: [{ topic: "tick", ids: [event.messageId] }], data: { id: event.messageId, seen: event.payload.at } };
      },
      async mutate(ctx, { data }) { await ctx.shop.send({ ...data, at: Date.now() }); },
    }),
  },
});
`
	const text = `
[[test]]
name = "times"
now  = 2026-07-01T00:00:00Z
[[test.read]]
tool  = "shop.list"
error = { class = "transient" }
[[test.read]]
tool   = "shop.list"
result = ["a", "b", "c", "d"]
[test.expect]
reservations = [{ topic = "tick", ids = ["a"] }, { topic = "tick", ids = ["b"] }, { topic = "tick", ids = ["c"] }, { topic = "tick", ids = ["d"] }]
calls = [
  { tool = "shop.send", params = { id = "a", seen = 1782864000001, at = 1782864000001 } },
  { tool = "shop.send", params = { id = "b", seen = 1782864000001, at = 1782864000001 } },
  { tool = "shop.send", params = { id = "c", seen = 1782864000001, at = 1782864000001 } },
  { tool = "shop.send", params = { id = "d", seen = 1782864000001, at = 1782864000001 } },
]
`
	cfg := configOf(t, "clock.js", script)
	f, err := scripttest.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		v, err := scripttest.Run(t.Context(), cfg, f.Tests[0])
		if err != nil || len(v.Problems) > 0 {
			t.Errorf("%v, %v", v.Problems, err)
		}
	}
}
