package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/ceiling"
	"github.com/keep-run/keep/internal/cputime"
	"github.com/keep-run/keep/script/sandbox"
)

// hostile are statements that try to compute without end or to take all memory.
// They run at the top level of a script and in a handler. "" as the limit means
// that any error will do: the engine may refuse with an exception of its own
// before a limit is reached.
var hostile = []struct{ name, limit, code string }{
	{"spin", "cpu", `for (;;) {}`},
	{"spin in catch", "cpu", `for (;;) { try { for (;;) {} } catch {} finally {} }`},
	{"spin in finally", "cpu", `try { throw 1 } finally { for (;;) {} }`},
	{"spin in a getter of a native loop", "cpu", `[3,2,1].sort(() => { for (;;) {} })`},
	{"await forever", "cpu", `(async () => { for (;;) await 0 })(); await0()`},
	{"promise jobs forever", "cpu", `const f = () => { Promise.resolve().then(f) }; f(); await0()`},
	{"promise job flood", "", `const f = () => { Promise.resolve().then(f); Promise.resolve().then(f) }; f(); await0()`},
	{"microtask flood", "cpu", `const f = () => queueMicrotask(f); f(); await0()`},
	{"array bomb", "heap", `const a = []; for (;;) a.push(new Array(1e6).fill(0))`},
	{"string bomb", "", `let s = "x"; for (;;) s += s`},
	{"rope bomb", "", `let s = "x"; for (;;) s = [s, s].join("y")`},
	{"typed array bomb", "heap", `const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1))`},
	{"bomb in catch", "cpu", `const a = []; for (;;) { try { for (;;) a.push(new Uint8Array(1 << 16).fill(1)) } catch {} }`},
	{"object bomb in catch", "cpu", `let a = {}; for (;;) { try { for (;;) a = { a, b: [a] } } catch {} }`},
	{"map bomb", "", `const m = new Map(); for (let i = 0;; i++) m.set(i, { i })`},
	{"closure bomb", "", `let f = () => 0; for (;;) { const g = f; f = () => g }`},
	{"recursion", "stack", `const f = (n) => 1 + f(n + 1); f(0)`},
	{"recursion through native code", "stack", `const f = (n) => [1].map(() => f(n + 1)); f(0)`},
	{"recursion in catch", "cpu", `const f = () => { try { f() } catch {} f() }; f()`},
	{"recursion through a proxy", "", `const p = new Proxy({}, { get: (t, k, r) => r[k] }); p.x`},
	{"recursion through toString", "", `const o = { toString() { return "" + o } }; "" + o`},
	{"regexp", "cpu", `/(a+)+$/.test("a".repeat(40) + "!")`},
	{"regexp with lookahead", "cpu", `/(?=a)(a+)+\1?$/.test("a".repeat(40) + "!")`},
	{"nested regexp", "", `new RegExp("(".repeat(1e5) + ")".repeat(1e5)).test("x")`},
	{"native loop indexOf", "cpu", `Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1)`},
	{"native loop lastIndexOf", "cpu", `Array.prototype.lastIndexOf.call({ length: 2 ** 53 - 1 }, 1)`},
	{"native loop join", "cpu", `new Array(2 ** 32 - 2).join("")`},
	{"native loop fill", "", `Array.prototype.fill.call({ length: 2 ** 53 - 1 }, 1)`},
	{"bigint squares", "", `let n = 3n; for (;;) n = n * n`},
	{"quadratic search", "cpu", `const s = "a".repeat(2e6); s.indexOf("a".repeat(1e6) + "b")`},
	{"nested JSON", "", `JSON.parse("[".repeat(1e6))`},
	{"nested arrays to JSON", "", `let a = []; for (let i = 0; i < 1e6; i++) a = [a]; JSON.stringify(a)`},
	{"eval in a loop", "cpu", `for (;;) eval("1 + 1")`},
	{"generator forever", "cpu", `for (const x of (function* () { for (;;) yield 1 })()) ;`},
	{"array from an endless iterator", "", `Array.from((function* () { for (;;) yield 1 })())`},
	{"replace callback", "cpu", `"x".repeat(100).replace(/x/g, () => { for (;;) {} })`},
	{"error that takes long to describe", "cpu", `throw { get name() { for (;;) {} }, get message() { for (;;) {} }, get stack() { for (;;) {} } }`},
	{"toJSON", "cpu", `JSON.stringify({ toJSON() { for (;;) {} } })`},
	{"digest flood", "cpu", `const b = new Uint8Array(1 << 20); for (;;) crypto.subtle.digest("SHA-512", b)`},
	{"URL flood", "cpu", `for (;;) new URL("http://a/" + "b/../".repeat(100))`},
	{"clone flood", "", `let a = []; for (let i = 0; i < 1e6; i++) a = [a]; structuredClone(a)`},
	{"random flood", "cpu", `for (;;) crypto.getRandomValues(new Uint8Array(65536))`},
	{"repeat", "", `"x".repeat(2 ** 30 - 1)`},
	{"sparse sort", "", `const a = []; a.length = 2 ** 32 - 1; a.sort()`},
	{"concat of long arrays", "", `const a = new Array(2 ** 31); a.concat(a).indexOf(1)`},
	{"weak refs", "", `const a = []; for (;;) a.push(new WeakRef({}), new FinalizationRegistry(() => {}))`},
}

// hostileCPU makes the endless cases short. The limit and 200 ms of processor time are what a
// script gets before it is stopped. Under the race detector, which takes several times as much
// and more on a slow machine, it is enough that the script is stopped: one that is not takes
// minutes.
const hostileCPU = 60 * time.Millisecond

func allowance() time.Duration {
	if ceiling.Race {
		return 3 * time.Second
	}
	return 200 * time.Millisecond
}

// stopped runs f until it used no more than that, at most five times: the collector's
// time counts, too. It returns f's error.
func stopped(t *testing.T, f func() error) error {
	t.Helper()
	var used time.Duration
	for range 5 {
		before := cputime.Used()
		err := f()
		if used = cputime.Used() - before; used < hostileCPU+allowance() {
			return err
		}
	}
	t.Fatalf("stopped after %v of processor time, want at most %v", used, hostileCPU+allowance())
	return nil
}

func TestHostileScriptIsStopped(t *testing.T) {
	endless := openRuntime(t, sandbox.Config{Limits: sandbox.Limits{CPU: hostileCPU}})
	greedy := openRuntime(t, sandbox.Config{Limits: sandbox.Limits{Heap: 8 << 20}})
	for _, h := range hostile {
		rt, run := greedy, func(_ *testing.T, f func() error) error { return f() }
		if h.limit == "cpu" || h.limit == "" {
			rt, run = endless, stopped
		}
		t.Run(h.name+"/at load", func(t *testing.T) {
			b := mustBuild(t, "t.js", "const await0 = () => {};\n{ "+h.code+" }\nexport default Keep.workflow({ name: 't' })")
			checkStopped(t, run(t, func() error { _, err := rt.Load(context.Background(), b); return err }), h.limit)
		})
		t.Run(h.name+"/in a handler", func(t *testing.T) {
			p := mustLoad(t, rt, "t.js", "const await0 = () => new Promise(() => {});\n"+handler(h.code+"; await await0()"))
			checkStopped(t, run(t, func() error { _, err := call(p, nil); return err }), h.limit)
		})
	}
	good := mustLoad(t, greedy, "good.js", handler(`globalThis.n = (globalThis.n ?? 0) + 1; return globalThis.n`))
	if got, err := call(good, nil); got != "1" || err != nil {
		t.Errorf("another program afterwards = %s, %v, want 1", got, err)
	}
}

// A stack that a script makes up costs what a true one does, however many places it names and wherever they are. Law: bounded.
func TestForgedStack(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{Limits: sandbox.Limits{CPU: hostileCPU}})
	const deep = 1500
	nested := "const a = (x) => x;\nglobalThis.q = () => " + strings.Repeat("a(", deep) + strings.Repeat("12345678,", 700) + "1" + strings.Repeat(")", deep) + ";\n"
	for what, throw := range map[string]string{"thrown": "throw e", "of an item": "await ctx.withItem('a', 'A', () => { throw e })", "of a frame that is there": "const y = () => { throw e }; y()"} {
		source := nested + "const e = { message: 'x', stack: '    at a (t.js:LAST:3)\\n'.repeat(800) };\n" + handler(throw)
		lines := bytes.Count(mustBuild(t, "t.js", source).Code, []byte("\n"))
		for back := range 5 {
			p := mustLoad(t, rt, "t.js", strings.ReplaceAll(source, "LAST", strconv.Itoa(lines-back)))
			host := hostFunc(func(_ context.Context, c sandbox.HostCall) (json.RawMessage, error) {
				if c.Name == "item.fail" {
					return nil, errors.New("the item failed")
				}
				return json.RawMessage(`{}`), nil
			})
			if err := stopped(t, func() error { _, err := call(p, host); return err }); err == nil {
				t.Errorf("%s: no error", what)
			}
		}
	}
}

// checkStopped wants the error of that limit, or any error of a script.
func checkStopped(t *testing.T, err error, limit string) {
	t.Helper()
	t.Logf("%v", err)
	if limit != "" {
		wantLimit(t, err, limit)
	} else if _, ok := errors.AsType[*sandbox.LimitError](err); !ok {
		wantScript(t, err)
	}
}

// What each hostile statement gets in a handler beyond its limit of processor time, the
// collector's work included. The budget is 200 ms.
func BenchmarkHostileIsStopped(b *testing.B) {
	rt := openRuntime(b, sandbox.Config{Limits: sandbox.Limits{CPU: hostileCPU}})
	for _, h := range hostile {
		if h.limit != "cpu" && h.limit != "" {
			continue
		}
		b.Run(h.name, func(b *testing.B) {
			p := mustLoad(b, rt, "t.js", "const await0 = () => new Promise(() => {});\n"+handler(h.code+"; await await0()"))
			var over time.Duration
			for b.Loop() {
				before := cputime.Used()
				if _, err := call(p, nil); err == nil {
					b.Fatal("it was not stopped")
				}
				over = max(over, cputime.Used()-before-hostileCPU)
			}
			b.ReportMetric(float64(max(over, 0).Milliseconds()), "max-ms-over")
		})
	}
}
