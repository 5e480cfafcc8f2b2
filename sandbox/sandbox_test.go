package sandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/keep-run/keep/sandbox"
)

const cacheDir = "/tmp/keepcache"

type hostFunc func(ctx context.Context, c sandbox.HostCall) (json.RawMessage, error)

func (f hostFunc) Call(ctx context.Context, c sandbox.HostCall) (json.RawMessage, error) {
	return f(ctx, c)
}

func TestSmoke(t *testing.T) {
	t0 := time.Now()
	rt, err := sandbox.Open(t.Context(), sandbox.Config{CacheDir: "/tmp/keepcache"})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("open", time.Since(t0))
	defer rt.Close()
	src := `
export default Keep.workflow({
  name: "x", topics: {"a.b": {}}, when: new Date(), re: /x/, n: NaN,
  producers: { async poll(ctx) {
     console.log("hello", {a: [1,2,new Map([[1,{}]])]}, new Error("boo"));
     const r = await Promise.all([ctx.crm.find({q: 1}), ctx.publish("a", undefined, 3)]);
     return {r, now: ctx.now(), d: new Date(), x: Math.random(), u: crypto.randomUUID()};
  } },
  jobs: { j: { async handler(ctx) {
     const v = await ctx.withItem("i1", "T", async (c) => { c.crm.get(1).then(() => c.crm.late()); return [c.item, 7]; });
     return v;
  }, async nest(ctx) { await ctx.withItem("a","b", async (c) => { await 0; await ctx.crm.x(); await ctx.withItem("c","d",() => 1); }) },
  async boom(ctx) { await ctx.crm.x(); null.foo },
  async never(ctx) { await new Promise(() => {}) },
  async spin(ctx) { await ctx.crm.x(); try { for (;;) {} } catch {} finally { for(;;){} } },
  async native(ctx) { let a = new Array(2**32-2); a.join(''); },
  async bomb(ctx) { let a = []; for (;;) a.push(new Array(1e5).fill(0)); },
  async rec(ctx) { let f = () => 1 + f(); f() },
  async big(ctx) { return {a: 10n} },
  async err(ctx) { try { await ctx.fail.now() } catch (e) { console.log("caught", e) } finally { console.log("fin") } },
  } },
  consumers: { c: Keep.consumer({ subscribe: ["a.b"], async prepare(ctx, t) { return {t} } }) },
});
`
	b, err := sandbox.BuildSource("wf.ts", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	t0 = time.Now()
	p, err := rt.Load(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("load", time.Since(t0))
	t.Logf("%s", p.Declaration())
	for _, path := range [][]string{{"producers", "poll"}, {"jobs", "j"}, {"jobs", "j", "nest"}, {"jobs", "j", "boom"}, {"jobs", "j", "never"}, {"jobs", "j", "spin"}, {"jobs", "j", "native"}, {"jobs", "j", "bomb"}, {"jobs", "j", "rec"}, {"jobs", "j", "big"}, {"jobs", "j", "err"}, {"consumers", "c", "prepare"}} {
		t0 := time.Now()
		r, err := p.Call(t.Context(), sandbox.Call{Path: path, Now: time.Unix(1700000000, 0), Args: []json.RawMessage{nil},
			Host: hostFunc(func(ctx context.Context, c sandbox.HostCall) (json.RawMessage, error) {
				t.Logf("   %s %s at %s scope %d waiting %q", c.Name, c.Args, c.At, c.Scope, c.Waiting)
				if c.Name == "item.begin" && c.Scope != 0 {
					return nil, fmt.Errorf("nested")
				}
				if c.Name == "fail.now" {
					return nil, fmt.Errorf("failed")
				}
				return json.RawMessage(`{"ok":"` + c.Name + `"}`), nil
			}),
			Log: func(level, text string, at sandbox.Position) { t.Logf("   log %s %s %s", level, at, text) },
		})
		t.Logf("%v: %s %v %v", path, r, err, time.Since(t0))
	}
}
