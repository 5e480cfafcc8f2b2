package sandbox_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep/script/sandbox"
)

func TestNothingIsLeftBehind(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{Processors: 2})
	src := handler(`
		state.n++; globalThis.g = (globalThis.g ?? 0) + 1; Array.prototype.x = (Array.prototype.x ?? 0) + 1;
		cache.set(Math.random(), "x".repeat(1e4)); Keep.y = 1;
		return [state.n, g, [].x, cache.size]`) + "const state = { n: 0 }, cache = new Map();\n"
	a := mustLoad(t, rt, "a.js", src)
	b := mustLoad(t, rt, "b.js", strings.Replace(src, "n: 0", "n: 100", 1))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if got, err := call(a, nil); got != "[1,1,1,1]" || err != nil {
					t.Errorf("a = %s, %v, want [1,1,1,1]", got, err)
				}
				if got, err := call(b, nil); got != "[101,1,1,1]" || err != nil {
					t.Errorf("b = %s, %v, want [101,1,1,1]", got, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestRandomnessDiffersPerCall(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	p := mustLoad(t, rt, "t.js", handler(`return [Math.random(), crypto.randomUUID(), String(crypto.getRandomValues(new Uint32Array(4)))].join()`))
	seen := map[string]bool{}
	for range 20 {
		got, err := call(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(got, ",") {
			if seen[part] {
				t.Errorf("%s came twice", part)
			}
			seen[part] = true
		}
	}
}

func TestClockStandsStill(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	p := mustLoad(t, rt, "t.js", handler(`
		const a = Date.now(); for (let i = 0; i < 1e6; i++); await ctx.x.y();
		return [a === Date.now(), +new Date() === a, ctx.now() === a, new Date(a).toISOString(), new Date(2026, 0, 1).toISOString(), typeof performance]`))
	got, err := call(p, &recorder{})
	if want := `[true,true,true,"2026-11-20T10:30:00.123Z","2026-01-01T00:00:00.000Z","undefined"]`; got != want || err != nil {
		t.Errorf("call = %s, %v, want %s", got, err, want)
	}
}

// A script may change every prototype and every global. It must not thereby
// catch the host's errors, invent a result for the host, or break the host.
func TestPollutionStaysInTheScript(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{Limits: sandbox.Limits{CPU: time.Second}})
	const spoil = `
		const evil = (name) => function (...args) { globalThis.log0.push(name); throw new Error("evil " + name) };
		globalThis.log0 = [];
		const all = [Object, Array, String, Number, Boolean, Symbol, Function, Promise, Map, Set, WeakMap, Error, TypeError, RegExp, Date, Proxy, Reflect, JSON, Math, Uint8Array, ArrayBuffer];
		const names = new Map(all.map((c) => [c, Reflect.ownKeys(c)])), protos = all.map((c) => c.prototype).filter(Boolean).map((p) => [p, Reflect.ownKeys(p)]);
		const define = Object.defineProperty, descriptor = Object.getOwnPropertyDescriptor, each = (list, f) => { for (let i = 0; i < list.length; i++) f(list[i]) };
		const break_ = (o, k) => { const d = descriptor(o, k); if (d && d.configurable && k !== "constructor") { d.get = d.set = undefined; define(o, k, { get: evil("get " + String(k)), set: evil("set " + String(k)), configurable: true }) } };
		const lists = []; names.forEach((keys, o) => lists.push([o, keys])); each(protos, (p) => lists.push(p));
		const flat = []; each(lists, ([o, keys]) => each(keys, (k) => flat.push([o, k])));
		for (let i = 0; i < flat.length; i++) break_(flat[i][0], flat[i][1]);
	`
	for _, tt := range []struct{ name, body, want string }{
		{"every method", spoil + `return 1`, ""},
		{"toJSON of everything", `Object.prototype.toJSON = () => "forged"; String.prototype.toJSON = Object.prototype.toJSON; Array.prototype.toJSON = Object.prototype.toJSON; await ctx.x.y({ a: 1 }); return 1`, "1"},
		{"array setters", `for (let i = 0; i < 10; i++) Object.defineProperty(Array.prototype, i, { set() { throw new Error("caught a value") }, get() { return "forged" }, configurable: true }); await ctx.x.y(1, 2); return "r"`, `"r"`},
		{"thenable objects", `Object.prototype.then = function (ok) { delete Object.prototype.then; ok("forged") }; return 1`, "1"},
		{"species", `Object.defineProperty(Promise, Symbol.species, { get() { throw new Error("species") } }); return 1`, "1"},
		{"constructor", `Object.defineProperty(Promise.prototype, "constructor", { get() { return function (f) { f(() => {}, () => {}) } } }); return 1`, "1"},
		{"descriptor defaults", `Object.prototype.get = () => { throw 1 }; Object.prototype.value = "forged"; Object.prototype.writable = false; return await ctx.withItem("a", "b", () => 2)`, "2"},
		{"proxy traps", `Object.prototype.get = () => "forged"; Object.prototype.apply = () => "forged"; await ctx.x.y(1); return 1`, "1"},
		{"global constructors", `globalThis.Promise = globalThis.Map = globalThis.Error = globalThis.Proxy = globalThis.JSON = undefined; await ctx.x.y({ b: 1 }); return 1`, "1"},
		{"Error hooks", `Error.stackTraceLimit = 0; Error.prepareStackTrace = () => { throw 1 }; await ctx.x.y(1); return 1`, "1"},
		{"stack of errors", `Object.defineProperty(Error.prototype, "stack", { get() { throw 1 }, set() { throw 1 } }); await ctx.x.y(1); return 1`, "1"},
		{"Keep", `try { "use strict"; Keep.workflow = 1 } catch {} delete globalThis.Keep; return typeof Keep.workflow`, `"function"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := mustLoad(t, rt, "t.js", handler(tt.body))
			host := &recorder{}
			got, err := call(p, host)
			if tt.want != "" && (got != tt.want || err != nil) {
				t.Errorf("call = %s, %v, want %s", got, err, tt.want)
			}
			for _, c := range host.calls {
				if strings.Contains(c, "forged") && tt.name != "toJSON of everything" {
					t.Errorf("the host got %q", c)
				}
			}
			// And the same, with a host that fails.
			p = mustLoad(t, rt, "t.js", handler(strings.ReplaceAll(tt.body, "return 1", "")+"\n try { await ctx.x.fail() } catch { ctx.ran.catch() } finally { ctx.ran.finally() }"))
			failed := false
			_, err = call(p, hostFunc(func(_ context.Context, c sandbox.HostCall) (json.RawMessage, error) {
				if failed {
					t.Errorf("%s was called after the host's error", c.Name)
				}
				if c.Name == "x.fail" {
					failed = true
					return nil, errRefused
				}
				return nil, nil
			}))
			if err == nil && failed {
				t.Errorf("the script continued after the host's error")
			}
		})
	}
}

// What a script leaves at the top level must not get at the calls either.
func TestPollutionAtLoad(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	p := mustLoad(t, rt, "t.js", `
		Promise.prototype.then = JSON.parse = JSON.stringify = Map.prototype.get = Reflect.apply = () => { throw new Error("patched") };
		Object.prototype.toJSON = () => "forged";
	`+handler(`await ctx.crm.create({ id: 1 }); return 1`))
	host := &recorder{}
	got, err := call(p, host)
	if err != nil || got != "1" || len(host.calls) != 1 || host.calls[0] != `crm.create "forged"` {
		// toJSON is the script's own say about its own objects.
		t.Errorf("call = %s, %v with %q, want 1 with crm.create \"forged\"", got, err, host.calls)
	}
}
