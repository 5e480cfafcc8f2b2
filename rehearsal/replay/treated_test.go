package replay_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/rehearsal/replay"
)

// A person treated a call as done, so that no record of it is of the run. A script that makes no such call does something else.
func TestTreatedAsDone(t *testing.T) {
	t.Parallel()
	const one = `
export default Keep.workflow({
  name: "w",
  topics: { "a": {} },
  producers: { async poll(ctx) { await ctx.publish("a", { messageId: "m" }); } },
  consumers: {
    send: Keep.consumer({
      subscribe: ["a"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        return { reservations: [{ topic: "a", ids: [trigger.messageId] }], data: {} };
      },
      async mutate(ctx, prepared) { await ctx.shop.send({ id: "7" }); },
      async next(ctx, prepared, m) {},
    }),
  },
});
`
	w := newWorld(t)
	w.conns[0].Approve = map[string]string{"send": "always"}
	w.live(t, one)
	o, err := operator.New(w.db, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	asked, _, err := w.db.Escalations(t.Context(), keep.EscalationFilter{Open: true}, keep.Page{})
	if err != nil || len(asked) != 1 {
		t.Fatalf("questions %+v, %v; want one", asked, err)
	}
	if err := o.Decide(t.Context(), asked[0].ID, keep.Decision{Action: keep.TreatAsDone, By: "ann", Result: []byte("null")}); err != nil {
		t.Fatal(err)
	}
	w.live(t, one)
	run := w.runOf(t, "send")
	if run.Status != keep.StatusCommitted || w.shop.calls.Load() != 0 {
		t.Fatalf("run %+v after %d calls, want one that committed without a call", run, w.shop.calls.Load())
	}
	first, err := w.db.Run(t.Context(), run.RetryOf)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		source string
		want   replay.Verdict
		what   replay.What
	}{
		"its own":     {one, replay.Equal, ""},
		"no call":     {strings.Replace(one, `await ctx.shop.send({ id: "7" });`, "", 1), replay.Different, replay.Call},
		"another one": {strings.Replace(one, `"7"`, `"8"`, 1), replay.Different, replay.Identity},
	} {
		if r := w.replay(t, first, tt.source); r.Verdict != tt.want || tt.want == replay.Different && r.Differences[0].What != tt.what {
			t.Errorf("%s: %s, want %s\n%s", name, r.Verdict, tt.want, said(r))
		}
	}
}
