package scripttest_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/internal/cputime"
	"github.com/keep-run/keep/internal/sandboxtest"
	"github.com/keep-run/keep/rehearsal"
	"github.com/keep-run/keep/rehearsal/scripttest"
	"github.com/keep-run/keep/script/sandbox"
)

// orders polls a list, sends one call for each event and publishes what came of it; its
// job sends a reminder for each row.
const orders = `
export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {}, "order.sent": {}, "order.late": {} },
  producers: {
    async poll(ctx) {
      for (const o of await ctx.shop.list({ state: "new" })) {
        await ctx.publish("order.new", { messageId: o.id, id: o.id, amount: o.amount });
      }
    },
  },
  consumers: {
    send: Keep.consumer({
      subscribe: ["order.new"],
      publishes: ["order.sent"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        if (trigger.payload.amount < 0) throw new Error("amount must not be negative");
        return { reservations: [{ topic: "order.new", ids: [trigger.messageId] }], data: trigger.payload };
      },
      async mutate(ctx, prepared) { await ctx.shop.send({ id: prepared.data.id, amount: prepared.data.amount }); },
      async next(ctx, prepared, m) {
        if (m.status === "applied") await ctx.publish("order.sent", { messageId: "sent:" + prepared.data.id, ref: m.result && m.result.ref });
      },
    }),
    late: Keep.consumer({
      subscribe: ["order.late"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        await ctx.shop.list({});
        return { reservations: [{ topic: "order.late", ids: [trigger.messageId] }], data: trigger.payload };
      },
    }),
  },
  jobs: {
    remind: { schedule: { cron: "0 9 * * *" },
      async handler(ctx) {
        for (const o of await ctx.shop.list({ state: "open" }))
          await ctx.withItem("remind:" + o.id, "Remind " + o.id, async (ctx) => {
            if (ctx.item.isDone) return;
            await ctx.shop.note({ id: o.id });
          });
      } },
  },
});
`

const poll = `
[[test]]
name = "the whole chain"
[[test.read]]
tool   = "shop.list"
params = { state = "new" }
result = [{ id = "o1", amount = 5 }]
[[test.answer]]
tool   = "shop.send"
says   = "applied"
result = { ref = "r1" }
[test.expect]
reservations = [{ topic = "order.new", ids = ["o1"] }]
calls        = [{ tool = "shop.send", params = { id = "o1", amount = 5 }, state = "applied" }]
publishes    = [{ topic = "order.new", messageId = "o1" }, { topic = "order.sent", messageId = "sent:o1", payload = { ref = "r1" } }]
questions    = []
`

// event begins a test of the consumer with one event.
const event = `
[[test]]
name    = "one event"
handler = "send"
events  = [{ topic = "order.new", messageId = "o1", payload = { id = "o1", amount = 5 } }]
`

// late begins a test of a consumer that reserves in its second attempt.
const late = `
[[test]]
name    = "late"
handler = "late"
events  = [{ topic = "order.late", messageId = "o1", payload = {} }]
[[test.read]]
tool = "shop.list"
error = { class = "transient", message = "503" }
[[test.read]]
tool = "shop.list"
result = []
`

func TestRun(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	for _, test := range []struct {
		name, text string
		problem    string // part of the one problem; empty: it passes
	}{
		{"the whole chain", poll, ""},
		{"a read of a tool that is not there", strings.Replace(poll, "shop.list", "shop.lits", 1), "[[test.read]]: there is no tool shop.lits"},
		{"an answer of a connection that is not there", event + `[[test.answer]]
tool = "shpo.send"
says = "refused"
[test.expect]
calls = [{ tool = "shop.send" }]`, "[[test.answer]]: there is no tool shpo.send"},
		{"a call that nothing answers is applied", event + `[test.expect]
calls = [{ tool = "shop.send" }]
publishes = [{ topic = "order.sent", payload = { ref = nil } }]`, "nil"},
		{"another call than expected", event + `[test.expect]
calls = [{ tool = "shop.send", params = { amount = 6 } }]`, `calls[0]: want {"params":{"amount":6},"tool":"shop.send"}; got {"params":{"amount":5,"id":"o1"}`},
		{"a call that was not expected", event + `[test.expect]
calls = []`, "calls[0]: want none; got"},
		{"a call that is missing", event + `[test.expect]
calls = [{ tool = "shop.send" }, { tool = "shop.send" }]`, "calls[1]: want"},
		{"lost and found", event + `[[test.answer]]
tool = "shop.send"
says = "lost"
[[test.answer]]
tool = "shop.send"
says = "found"
result = { ref = "r9" }
[test.expect]
calls = [{ tool = "shop.send", state = "applied" }]
publishes = [{ topic = "order.sent", payload = { ref = "r9" } }]`, ""},
		{"lost and absent, then sent again", event + `[[test.answer]]
tool = "shop.send"
says = "lost"
[[test.answer]]
tool = "shop.send"
says = "absent"
[test.expect]
calls = [{ tool = "shop.send" }, { tool = "shop.send" }]
questions = []`, ""},
		{"lost for good asks a person", event + strings.Repeat(`[[test.answer]]
tool = "shop.send"
says = "lost"
`, 20) + `[test.expect]
calls = [{ tool = "shop.send", state = "indeterminate" }]
questions = [{ kind = "unknown_outcome", tool = "shop.send" }]`, ""},
		{"refused", event + `[[test.answer]]
tool = "shop.send"
says = "refused"
error = { message = "no such customer" }
[test.expect]
error = { class = "logic", message = "no such customer" }
publishes = []`, ""},
		{"a refusal that nobody expected", event + `[[test.answer]]
tool = "shop.send"
says = "refused"
[test.expect]
publishes = []`, "a run failed (logic): "},
		{"the script throws", `
[[test]]
name   = "negative"
handler = "send"
events = [{ topic = "order.new", messageId = "o1", payload = { id = "o1", amount = -1 } }]
[test.expect]
error = { class = "logic", message = "must not be negative" }
calls = []`, ""},
		{"a read that nothing answers", `
[[test]]
name = "read"
handler = "poll"`, `shop.list was read with {"state":"new"}, and no [[test.read]] is left for it`},
		{"a read that fails once is repeated", `
[[test]]
name = "read"
handler = "poll"
[[test.read]]
tool = "shop.list"
error = { class = "transient", message = "503" }
[[test.read]]
tool = "shop.list"
result = []
[test.expect]
publishes = []`, ""},
		{"what is reserved after a read that failed once", late + `[test.expect]
reservations = [{ topic = "order.late", ids = ["o1"] }]`, ""},
		{"something else than is reserved after a read that failed once", late + `[test.expect]
reservations = []`, `reservations[0]: want none; got {"ids":["o1"],"topic":"order.late"}`},
		{"a lookup that nothing answers", event + `[[test.answer]]
tool = "shop.send"
says = "lost"`, "shop.send was looked up"},
		{"items", `
[[test]]
name = "items"
handler = "remind"
[[test.read]]
tool = "shop.list"
result = [{ id = 1 }, { id = 2 }]
[test.expect]
calls = [{ tool = "shop.note", params = { id = 1 } }, { tool = "shop.note", params = { id = 2 } }]
items = [{ id = "remind:1", status = "done" }, { id = "remind:2", status = "done" }]`, ""},
		{"an item in doubt at a tool that can't be asked", `
[[test]]
name = "items"
handler = "remind"
[[test.read]]
tool = "shop.list"
result = [{ id = 1 }]
[[test.answer]]
tool = "shop.note"
says = "lost"
[test.expect]
questions = [{ kind = "unknown_outcome", item = "remind:1" }]`, ""},
		{"a handler that there is not", strings.Replace(event, `"send"`, `"sent"`, 1), `no handler "sent"`},
		{"a topic that there is not", strings.Replace(event, `order.new`, `order.now`, 1), `no topic "order.now"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := scripttest.Parse([]byte(test.text))
			if test.problem == "nil" {
				if err == nil {
					t.Error("Parse took nil for a value of TOML")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			v, err := scripttest.Run(t.Context(), cfg, f.Tests[0])
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(v.Problems, "\n")
			if test.problem == "" && got != "" || !strings.Contains(got, test.problem) || test.problem != "" && len(v.Problems) != 1 {
				t.Errorf("problems:\n%s\nwant %q", got, test.problem)
			}
		})
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"[[test]]\nname = 'a'\nhandlr = 'b'", "3:1: unknown key test.handlr"},
		{"[[test]\n", "1:7: "},
		{"[[test]]\nname='a'\nnow='yesterday'", `3:5: "yesterday" is not a time: write one such as 2026-11-22T09:00:00Z`},
		{"[[test]]", "test 1 (): name required"},
		{"[[test]]\nname='a'\nevents=[{topic='x'}]", "topic and messageId required"},
		{"[[test]]\nname='a'\n[[test.answer]]\ntool='a.b'\nsays='maybe'", `says "maybe"`},
		{"[[test]]\nname='a'\n[[test.answer]]\ntool='a.b'\nsays='lost'\nresult=1", "lost has no result"},
		{"[[test]]\nname='a'\n[[test.read]]\ntool='a.b'\nerror={class='odd'}", `class "odd": want one of transient`},
		{"[[test]]\nname='a'\nruns=10001", "runs = 10001: want 1 to 10000"},
		{"[[test]]\nname='a'\n[test.expect]\ncalls=[{tol='x'}]", `expect.calls: unknown key "tol"`},
	} {
		if _, err := scripttest.Parse([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Parse(%q) = %v, want %q", test.text, err, test.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(poll))
	f.Add([]byte(event))
	f.Fuzz(func(_ *testing.T, text []byte) {
		_, _ = scripttest.Parse(text) // must not panic
	})
}

// BenchmarkRun measures one test of one event, one call and one publish, with a time of its
// own and without.
func BenchmarkRun(b *testing.B) {
	b.Run("now", func(b *testing.B) { benchmarkRun(b, "now = 2026-07-01T00:00:00Z\n") })
	b.Run("plain", func(b *testing.B) { benchmarkRun(b, "") })
}

func benchmarkRun(b *testing.B, own string) {
	cfg := config(b)
	f, err := scripttest.Parse([]byte(event + own + "[test.expect]\ncalls = [{ tool = 'shop.send' }]"))
	if err != nil {
		b.Fatal(err)
	}
	began := cputime.Used()
	b.SetParallelism(2)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if v, err := scripttest.Run(b.Context(), cfg, f.Tests[0]); err != nil || len(v.Problems) > 0 {
				b.Error(v, err)
			}
		}
	})
	b.ReportMetric(float64((cputime.Used()-began).Microseconds())/float64(b.N), "cpu-us/test")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tests/s")
}

// sharedRuntime is the sandbox of all tests: to open one takes half a second.
var sharedRuntime = sync.OnceValues(func() (*sandbox.Runtime, error) {
	return sandbox.Open(context.Background(), sandbox.Config{CacheDir: sandboxtest.CacheDir()})
})

// config loads the script orders.
func config(tb testing.TB) scripttest.Config {
	tb.Helper()
	return configOf(tb, "orders.js", orders)
}

// configOf loads a script. Its services are described at an address where nothing listens.
func configOf(tb testing.TB, name, text string) scripttest.Config {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	shop, err := httpapi.New("shop", httpapi.Config{BaseURL: "http://127.0.0.1:1", Tools: map[string]httpapi.Tool{
		"list": {Effect: connector.List, Path: "/orders", Query: []string{"state"}},
		"send": {Effect: connector.Mutate, Path: "/orders/{id}/send", Identity: []string{"id"}, IdempotencyHeader: "Idempotency-Key", Deduplicates: true},
		"note": {Effect: connector.Mutate, Path: "/orders/{id}/note", Identity: []string{"id"}},
	}})
	if err != nil {
		tb.Fatal(err)
	}
	rt, err := sharedRuntime()
	if err != nil {
		tb.Fatal(err)
	}
	w, err := host.Load(tb.Context(), rt, dir, name)
	if err != nil {
		tb.Fatal(err)
	}
	return scripttest.Config{Script: w, Connections: []connector.Connection{*shop}, Runtime: rt, Shared: rehearsal.NewShared(rt)}
}
