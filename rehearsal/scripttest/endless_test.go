package scripttest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/rehearsal/scripttest"
)

// A script that always finds something to do comes to no end, and its test says so.
func TestRun_has_an_end(t *testing.T) {
	t.Parallel()
	const start = `export default Keep.workflow({ name: "endless", topics: { a: {} }, `
	for name, script := range map[string]string{
		"a producer that always has more": start + `producers: { async poll(ctx) { const n = (await ctx.kv.get("n")) ?? 0; await ctx.kv.set("n", n + 1); return { more: true }; } } });`,
		"a consumer of its own events": start + `consumers: { again: Keep.consumer({ subscribe: ["a"],
  async prepare(ctx, e) { return e ? { reservations: [{ topic: "a", ids: [e.messageId] }], data: { id: e.messageId } } : { reservations: [], data: {} }; },
  async next(ctx, p) { await ctx.publish("a", { messageId: String(Number(p.data.id) + 1) }); } }) } });`,
	} {
		f, err := scripttest.Parse([]byte("[[test]]\nname = \"a\"\nevents = [{ topic = \"a\", messageId = \"1\" }]\n[[test]]\nname = \"b\"\nruns = 2\nevents = [{ topic = \"a\", messageId = \"1\" }]\n"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cfg := configOf(t, "endless.js", script)
		v, err := scripttest.Run(ctx, cfg, f.Tests[0])
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(v.Problems) != 1 || !strings.Contains(v.Problems[0], "no end after 1000 runs") {
			t.Errorf("%s: problems %.300q, want that it has no end", name, v.Problems)
		}
		if v, err := scripttest.Run(ctx, cfg, f.Tests[1]); err != nil || len(v.Problems) != 0 {
			t.Errorf("%s, two runs: %v, %v; want that it passes", name, v.Problems, err)
		}
	}
}

// A test that expects the failure of one run fails if another run fails otherwise.
func TestRun_expects_one_error(t *testing.T) {
	t.Parallel()
	cfg := configOf(t, "keyed.js", `export default Keep.workflow({ name: "keyed", topics: { a: {} }, consumers: { c: Keep.consumer({
  subscribe: ["a"], order: "key", key: (e) => e.messageId,
  async prepare(ctx, e) {
    if (e && e.payload.fails) throw new Error("no " + e.messageId);
    return e ? { reservations: [{ topic: "a", ids: [e.messageId] }], data: {} } : { reservations: [], data: {} };
  } }) } });`)
	for other, want := range map[string]string{"fails = false": "", "fails = true": "no 2"} {
		f, err := scripttest.Parse([]byte("[[test]]\nname = \"a\"\nevents = [{ topic = \"a\", messageId = \"1\", payload = { fails = true } }, { topic = \"a\", messageId = \"2\", payload = { " + other + " } }]\nexpect.error = { message = \"no 1\" }\n"))
		if err != nil {
			t.Fatal(err)
		}
		v, err := scripttest.Run(t.Context(), cfg, f.Tests[0])
		if err != nil || (len(v.Problems) > 0) != (want != "") || !strings.Contains(strings.Join(v.Problems, "\n"), want) {
			t.Errorf("%s: problems %q, %v; want %q", other, v.Problems, err, want)
		}
	}
}
