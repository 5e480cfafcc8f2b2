package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/cputime"
	"github.com/keep-run/keep/script/sandbox"
)

const benchSource = `
type State = { cursor: string; history: unknown[] };
export default Keep.workflow({
  name: "bench",
  jobs: {
    async pass(ctx, state: State) { return state; },
    async two(ctx, state: State) {
      const r = await ctx.mail.search({ q: "in:inbox", cursor: state.cursor });
      const t = await ctx.mail.get({ id: r.messages[0].id });
      return { ...state, top: t.id, n: r.messages.length };
    },
    async items(ctx, n) {
      for (let i = 0; i < n; i++)
        await ctx.withItem("invoice:" + i, "Remind of " + i, async (ctx) => {
          if (ctx.item.isDone) return;
          await ctx.mail.get({ id: i });
        });
    },
    async calls(ctx, n) { for (let i = 0; i < n; i++) await ctx.mail.get({ id: i }); },
    async fib(ctx, n) { const f = (n) => n < 2 ? n : f(n - 1) + f(n - 2); return f(n); },
  },
});
`

// benchHost answers with about 2 KB each time.
var benchReply = func() json.RawMessage {
	m := `{"id":"18c2f0000003","from":"alice@example.com","subject":"Invoice #0123 for November","snippet":"` + strings.Repeat("text ", 10) + `","labels":["INBOX","UNREAD"]}`
	return json.RawMessage(`{"id":"18c2f0000003","messages":[` + strings.Repeat(m+",", 9) + m + `]}`)
}()

func openBench(b *testing.B) (*sandbox.Program, []json.RawMessage) {
	b.Helper()
	rt, err := sandbox.Open(b.Context(), sandbox.Config{CacheDir: cacheDir})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { rt.Close() })
	bundle, err := sandbox.BuildSource("bench.ts", []byte(benchSource))
	if err != nil {
		b.Fatal(err)
	}
	p, err := rt.Load(b.Context(), bundle)
	if err != nil {
		b.Fatal(err)
	}
	own, base, memory := p.Footprint()
	b.ReportMetric(float64(own>>10), "KiB/program")
	b.ReportMetric(float64(base>>10), "KiB/base")
	b.ReportMetric(float64(memory>>10), "KiB/instance")
	state := json.RawMessage(`{"cursor":"abc","history":[` + strings.Repeat(`{"id":"18c2f0000003","at":1,"note":"picked this one first"},`, 30) + `1]}`)
	return p, []json.RawMessage{state}
}

func benchCall(b *testing.B, path string, args []json.RawMessage, p *sandbox.Program) {
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, err := p.Call(context.Background(), sandbox.Call{Path: []string{"jobs", path}, Args: args, Now: time.Unix(1, 0),
				Host: hostFunc(func(context.Context, sandbox.HostCall) (json.RawMessage, error) { return benchReply, nil })})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkCallEmpty(b *testing.B) {
	p, _ := openBench(b)
	benchCall(b, "pass", nil, p)
}

// The argument and result are 2 KB of JSON each, here and below.
func BenchmarkCallPass2KB(b *testing.B) {
	p, args := openBench(b)
	benchCall(b, "pass", args, p)
}

func BenchmarkCallTwoHostCalls(b *testing.B) {
	p, args := openBench(b)
	benchCall(b, "two", args, p)
}

func BenchmarkCallFib22(b *testing.B) {
	p, _ := openBench(b)
	benchCall(b, "fib", []json.RawMessage{json.RawMessage("22")}, p)
}

// BenchmarkItems is a job that comes to a thousand items, which are done, or each of
// which makes a call. BenchmarkCalls makes a thousand calls outside of items.
func BenchmarkItems(b *testing.B) {
	for _, record := range []string{`{"isDone":true}`, `{"isDone":false}`} {
		b.Run(record, func(b *testing.B) { benchThousand(b, "items", json.RawMessage(record)) })
	}
}

func BenchmarkCalls(b *testing.B) { benchThousand(b, "calls", nil) }

func benchThousand(b *testing.B, path string, record json.RawMessage) {
	p, _ := openBench(b)
	host := hostFunc(func(_ context.Context, c sandbox.HostCall) (json.RawMessage, error) {
		if c.Name == "item.begin" {
			return record, nil
		}
		return json.RawMessage(`{"id":"7"}`), nil
	})
	cpu := cputime.Used()
	for b.Loop() {
		_, err := p.Call(b.Context(), sandbox.Call{Path: []string{"jobs", path}, Args: []json.RawMessage{json.RawMessage("1000")}, Host: host})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cputime.Used()-cpu).Microseconds())/1000/float64(b.N), "cpu-µs/each")
}

func BenchmarkLoad(b *testing.B) {
	rt, err := sandbox.Open(b.Context(), sandbox.Config{CacheDir: cacheDir})
	if err != nil {
		b.Fatal(err)
	}
	defer rt.Close()
	bundle, err := sandbox.BuildSource("bench.ts", []byte(benchSource))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := rt.Load(b.Context(), bundle); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpenWarm(b *testing.B) {
	openRuntime(b, sandbox.Config{}) // fills the cache
	for b.Loop() {
		rt, err := sandbox.Open(b.Context(), sandbox.Config{CacheDir: cacheDir})
		if err != nil {
			b.Fatal(err)
		}
		rt.Close()
	}
}

func BenchmarkOpenCold(b *testing.B) {
	for b.Loop() {
		rt, err := sandbox.Open(b.Context(), sandbox.Config{})
		if err != nil {
			b.Fatal(err)
		}
		rt.Close()
	}
}

func BenchmarkBuild(b *testing.B) {
	for b.Loop() {
		if _, err := sandbox.BuildSource("bench.ts", []byte(benchSource)); err != nil {
			b.Fatal(err)
		}
	}
}

const consumerSource = `export default Keep.workflow({
  name: "consumer",
  topics: { "in": {}, "out": {} },
  consumers: {
    act: Keep.consumer({
      subscribe: ["in"],
      publishes: ["out"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "in", ids: [trigger.messageId] }],
          data: { id: trigger.messageId, text: trigger.payload.text },
          ui: { title: "Handle " + trigger.messageId },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.svc.create({ id: prepared.data.id, text: prepared.data.text });
      },
      async next(ctx, prepared, m) {
        if (m.status === "applied") await ctx.publish("out", { messageId: "out:" + prepared.data.id, ref: m.result.id });
      },
    }),
  },
});`

// BenchmarkConsumer runs the three phases of a consumer with 1 KB of data, one after another.
func BenchmarkConsumer(b *testing.B) {
	rt, err := sandbox.Open(b.Context(), sandbox.Config{CacheDir: cacheDir})
	if err != nil {
		b.Fatal(err)
	}
	defer rt.Close()
	bundle, err := sandbox.BuildSource("consumer.js", []byte(consumerSource))
	if err != nil {
		b.Fatal(err)
	}
	p, err := rt.Load(b.Context(), bundle)
	if err != nil {
		b.Fatal(err)
	}
	text := strings.Repeat("x", 1000)
	trigger := json.RawMessage(`{"topic":"in","messageId":"m000000001","payload":{"text":"` + text + `"},"title":"","createdAt":1}`)
	prepared := json.RawMessage(`{"reservations":[{"topic":"in","ids":["m000000001"]}],"data":{"id":"m000000001","text":"` + text + `"},"ui":{"title":"Handle m000000001"}}`)
	result := json.RawMessage(`{"status":"applied","result":{"id":"7"}}`)
	for _, c := range []struct {
		name string
		args []json.RawMessage
		err  bool
	}{{"prepare", []json.RawMessage{trigger}, false}, {"mutate", []json.RawMessage{prepared}, true}, {"next", []json.RawMessage{prepared, result}, false}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			cpu := cputime.Used()
			defer func() { b.ReportMetric(float64((cputime.Used()-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op") }()
			for b.Loop() {
				_, err := p.Call(context.Background(), sandbox.Call{Path: []string{"consumers", "act", c.name}, Args: c.args, Now: time.Unix(1, 0), Seed: []byte("seedseedseed"),
					Host: hostFunc(func(context.Context, sandbox.HostCall) (json.RawMessage, error) {
						if c.err {
							return nil, errTaken
						}
						return nil, nil
					})})
				if (err != nil) != c.err {
					b.Fatal(err)
				}
			}
		})
	}
}

// errTaken ends mutate at its call, as the engine does.
var errTaken = errors.New("taken")
