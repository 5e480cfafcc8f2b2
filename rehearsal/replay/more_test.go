package replay_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep/rehearsal/replay"
)

// A producer that says that there is more runs again at once. One that stores nothing then fails, as it does on a host.
func TestMore(t *testing.T) {
	t.Parallel()
	const source = `
export default Keep.workflow({
  name: "w",
  topics: { "a": {} },
  producers: { async poll(ctx) {
    const n = (await ctx.kv.get("n")) ?? 0;
    await ctx.kv.set("n", n + 1);
    await ctx.publish("a", { messageId: String(n) });
    return n === 0 ? { more: true } : { n };
  } },
});
`
	w := newWorld(t)
	w.live(t, source)
	runs := w.runs(t)
	if len(runs) != 2 {
		t.Fatalf("%d runs, want two", len(runs))
	}
	const ends, stores = `return n === 0 ? { more: true } : { n };`, `await ctx.kv.set("n", n + 1);`
	for name, tt := range map[string]struct {
		old, new    string
		first, last replay.Verdict
		what        replay.What
	}{
		"its own":         {"", "", replay.Equal, replay.Equal, ""},
		"another value":   {"{ n }", "{ m: n }", replay.Equal, replay.Equal, ""},
		"never more":      {ends, "", replay.Different, replay.Equal, replay.Data},
		"always more":     {ends, "return { more: true };", replay.Equal, replay.Different, replay.Data},
		"more of nothing": {stores, "", replay.Different, replay.Different, ""},
	} {
		other := strings.Replace(source, tt.old, tt.new, 1)
		for i, want := range []replay.Verdict{tt.last, tt.first} {
			r := w.replay(t, runs[i], other)
			if r.Verdict != want || tt.what != "" && want == replay.Different && r.Differences[0].What != tt.what {
				t.Errorf("%s, run %d: %s, want %s\n%s", name, i, r.Verdict, want, said(r))
			}
			if name == "more of nothing" && i == 1 && !strings.Contains(said(r), "more-without-checkpoint") {
				t.Errorf("%s: %s, want that it fails", name, said(r))
			}
		}
	}
}
