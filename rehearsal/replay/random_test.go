package replay_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/rehearsal/replay"
)

var randomRuns = flag.Int("runs", 150, "how many random runs TestRandomRuns replays at least")

// Random scripts do random things with random answers, and each of their committed runs is equal
// on its own version. The long form is make replays.
func TestRandomRuns(t *testing.T) {
	t.Parallel()
	n, seed := 0, uint64(0)
	for ; n < *randomRuns; seed++ {
		w := newWorld(t)
		w.shop.orders = 12
		source := randomScript(rand.New(rand.NewPCG(seed, 17)))
		w.live(t, source)
		ran := w.runs(t)
		for _, run := range ran {
			if run.Status != keep.StatusCommitted {
				continue
			}
			n++
			if r := w.replay(t, run, ""); r.Verdict != replay.Equal {
				t.Errorf("script %d, run of %s: %s\n%s\n%s", seed, run.Handler, r.Verdict, said(r), source)
			}
		}
		if len(ran) == 0 {
			t.Fatalf("script %d did nothing:\n%s", seed, source)
		}
	}
	t.Logf("%d runs of %d scripts", n, seed)
}

// A writer writes a random script.
type writer struct{ *rand.Rand }

func (w writer) one(of ...string) string { return of[w.IntN(len(of))] }

// value returns a random expression; ctx has reads if it is in a place that allows them.
func (w writer) value(depth int, reads ...string) string {
	if depth == 0 || w.IntN(3) == 0 {
		return w.one(append(reads, "Math.random()", "crypto.randomUUID()", "ctx.now()", "new Date()", "Date.now() % 7", `"\u2028é\"<"`, "1e21", "-0", "0.1 + 0.2",
			"null", "undefined", "made", "[...crypto.getRandomValues(new Uint8Array(3))]", "Object.keys({ b: 1, a: 2 })")...)
	}
	v := func() string { return w.value(depth-1, reads...) }
	switch w.IntN(6) {
	case 0:
		return fmt.Sprintf("{ a: %s, b: %s, [%s]: 1 }", v(), v(), w.one(`"x"`, `String(Math.random())`))
	case 1:
		return fmt.Sprintf("[%s, %s]", v(), v())
	case 2:
		return fmt.Sprintf("(Math.random() < 0.5 ? %s : %s)", v(), v())
	case 3:
		return fmt.Sprintf("JSON.stringify(%s)", v())
	case 4:
		return fmt.Sprintf("(await Promise.all([%s, %s]))", v(), v())
	}
	return fmt.Sprintf("[3, 1, 2].sort(() => Math.random() - 0.5).map((i) => [i, %d])", w.IntN(9))
}

// maybe returns s in some scripts.
func (w writer) maybe(s string) string {
	if w.IntN(2) == 0 {
		return ""
	}
	return s
}

// randomScript returns a workflow whose producer publishes events, with a consumer of them and a job with
// items.
func randomScript(r *rand.Rand) string {
	w := writer{r}
	get := `(await ctx.shop.get({ id: "g" + Math.floor(Math.random() * 3) }))`
	list := `(await ctx.shop.list({ page: String(Math.floor(Math.random() * 2)) }))`
	return strings.NewReplacer(
		"$PUB", w.value(3, get, list), "$KV", w.maybe(`await ctx.kv.set("k", `+w.one(`Math.random()`, `{ a: [1, "é"] }`, `String(Date.now())`)+`);`),
		"$IDS", w.one(`[trigger.messageId]`, `(await ctx.peek("a", { limit: 2 })).map((e) => e.messageId)`, `(await ctx.getByIds("a", [trigger.messageId, "none"])).map((e) => e.messageId)`),
		"$DATA", w.value(3, get, list, "trigger"), "$READ", w.maybe("const row = "+get+";"), "$PAY", w.value(2), "$IF", w.maybe("if (Math.random() < 0.7)"),
		"$NEXT", w.value(2, "m", "prepared"), "$INPUT", w.maybe(`inputId: await ctx.registerInput({ source: "s", type: "t", id: o.id, title: "T" }),`),
		"$ID", w.maybe(`messageId: prepared.data.id,`), "$JOB", w.value(2, get),
	).Replace(`const made = [Date.now(), Math.random(), crypto.randomUUID()];
export default Keep.workflow({ name: "w", topics: { a: {}, b: {} },
  producers: { async poll(ctx) {
    const before = await ctx.kv.get("k");
    $KV
    for (const o of await ctx.shop.list({ page: "0" })) await ctx.publish("a", { messageId: o.id, $INPUT payload: { before, v: $PUB } });
    return { after: await ctx.kv.get("k") };
  } },
  consumers: { send: Keep.consumer({ subscribe: ["a"],
    async prepare(ctx, trigger) {
      if (!trigger) return { reservations: [], data: {} };
      return { reservations: [{ topic: "a", ids: $IDS }], data: { id: trigger.messageId, v: $DATA }, ui: { title: "T" + Math.random() } };
    },
    async mutate(ctx, prepared) { $READ $IF await ctx.shop.send({ id: prepared.data.id, v: $PAY }); },
    async next(ctx, prepared, m) { await ctx.publish("b", { $ID payload: { v: $NEXT } }); } }) },
  jobs: { async each(ctx) {
    for (const o of await ctx.shop.list({ page: "1" })) await ctx.withItem(o.id, "Item " + o.id, async (ctx) => {
      if (ctx.item.isDone) return;
      $IF await ctx.shop.send({ id: "job:" + o.id, v: $JOB });
    });
  } } });`)
}
