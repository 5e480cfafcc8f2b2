package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/script/sandbox"
)

func TestCallReturnsWhatTheHandlerReturns(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	for _, tt := range []struct{ body, arg, want string }{
		{`return x`, `{"a":[1,2.5,"é\n",null,true]}`, `{"a":[1,2.5,"é\n",null,true]}`},
		{`return x`, ``, ``},
		{`return null`, ``, `null`},
		{``, `1`, ``},
		{`return 9007199254740993`, ``, `9007199254740992`},
		{`return [1e21, -0, NaN, 0.1]`, ``, `[1e+21,0,null,0.1]`},
		{`return { d: new Date(), u: undefined, f() {} }`, ``, `{"d":"2026-11-20T10:30:00.123Z"}`},
		{`return "\ud800"`, ``, `"\ud800"`},
		{`return Promise.resolve(Promise.resolve(7))`, ``, `7`},
		{`return { then(ok) { ok("thenable") } }`, ``, `"thenable"`},
		{`return this.name`, ``, `"t"`},
		{`return [ctx.now(), Date.now(), new Date().getTimezoneOffset()]`, ``, `[1795170600123,1795170600123,0]`},
		{`return arguments.length`, `[1]`, `2`},
		{`return x.__proto__.a`, `{"__proto__":{"a":1}}`, `1`},
	} {
		p := mustLoad(t, rt, "t.js", handler(tt.body))
		var c sandbox.Call
		c.Path, c.Now = []string{"f"}, epoch
		if tt.arg != "" {
			c.Args = []json.RawMessage{json.RawMessage(tt.arg)}
		}
		got, err := p.Call(context.Background(), c)
		if string(got) != tt.want || err != nil {
			t.Errorf("%s with %s = %s, %v, want %s", tt.body, tt.arg, got, err, tt.want)
		}
		if (got == nil) != (tt.want == "") {
			t.Errorf("%s: nil = %v, want %v", tt.body, got == nil, tt.want == "")
		}
	}
}

func TestCallFindsTheHandler(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	p := mustLoad(t, rt, "t.js", `export default Keep.workflow({
		name: "t",
		jobs: { a() { return "a of " + Object.keys(this) }, b: { schedule: {}, handler() { return "b of " + Object.keys(this) } }, c: {} },
	})`)
	for _, tt := range []struct{ path, want string }{
		{"jobs a", `"a of a,b,c"`},
		{"jobs b", `"b of schedule,handler"`},
		{"jobs b handler", `"b of schedule,handler"`},
	} {
		got, err := p.Call(context.Background(), sandbox.Call{Path: strings.Fields(tt.path), Now: epoch})
		if string(got) != tt.want || err != nil {
			t.Errorf("Call(%s) = %s, %v, want %s", tt.path, got, err, tt.want)
		}
	}
	for _, path := range []string{"jobs c", "jobs nope", "nope nope", "name", ""} {
		_, err := p.Call(context.Background(), sandbox.Call{Path: strings.Fields(path), Now: epoch})
		if s := wantScript(t, err); !strings.Contains(s.Message, "no function at") {
			t.Errorf("Call(%s): %v, want one about a missing function", path, err)
		}
	}
}

func TestHostCallsComeInOrder(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	p := mustLoad(t, rt, "t.js", handler(`
		const later = ctx.crm.find({ q: 1 }).then(async (r) => { await ctx.crm.get(r); ctx.publish("t", undefined, [1]) });
		const both = Promise.all([ctx.a.b(), ctx.peek("topic", { limit: 3 })]);
		ctx.kv.set("k", null);
		await both;
		ctx["odd name"]["x\ny"]();
		return 1;`))
	var calls, waiting []string
	host := hostFunc(func(_ context.Context, c sandbox.HostCall) (json.RawMessage, error) {
		line := c.Name
		for _, a := range c.Args {
			if a == nil {
				a = json.RawMessage("undefined")
			}
			line += " " + string(a)
		}
		calls = append(calls, line)
		waiting = append(waiting, strings.Join(c.Waiting, " "))
		return json.RawMessage(` { "n" : 1 } `), nil
	})
	got, err := call(p, host)
	if got != "1" || err != nil {
		t.Fatalf("call = %s, %v, want 1", got, err)
	}
	want := []string{`crm.find {"q":1}`, `a.b`, `peek "topic" {"limit":3}`, `kv.set "k" null`, `crm.get {"n":1}`, "odd name.x\ny", `publish "t" undefined [1]`}
	if !slices.Equal(calls, want) {
		t.Errorf("calls:\n%q, want\n%q", calls, want)
	}
	wantWaiting := []string{"a.b peek kv.set", "peek kv.set crm.get", "kv.set crm.get", "crm.get odd name.x\ny", "odd name.x\ny", "publish", ""}
	if !slices.Equal(waiting, wantWaiting) {
		t.Errorf("waiting:\n%q, want\n%q", waiting, wantWaiting)
	}
}

// Law bounded: a script that publishes a list without waiting for each takes memory by how long the list is, and not by its square.
func TestCallsThatWaitAreNotCopied(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	p := mustLoad(t, rt, "t.js", handler(`await Promise.all(Array.from({ length: 5000 }, (_, i) => ctx.publish("t", { messageId: "m" + i })));`))
	last := -1
	host := hostFunc(func(_ context.Context, c sandbox.HostCall) (json.RawMessage, error) {
		last = len(c.Waiting)
		return nil, nil
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := call(p, host); err != nil || last != 0 {
		t.Fatalf("behind the last call wait %d, %v", last, err)
	}
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 50 {
		t.Errorf("5000 calls take %d MiB", took)
	}
}

var errRefused = errors.New("refused")

func TestHostErrorIsNotCatchable(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	for _, body := range []string{
		`try { await ctx.fail.now() } catch { await ctx.ran.catch() } finally { await ctx.ran.finally() }`,
		`await ctx.fail.now().catch(() => ctx.ran.catch()).finally(() => ctx.ran.finally())`,
		`ctx.fail.now(); await ctx.ran.next()`,
		`await Promise.race([ctx.fail.now(), 1]); await Promise.any([ctx.ran.any()])`,
		`await Promise.allSettled([ctx.fail.now(), ctx.ran.settled()])`,
		`Promise.prototype.then = function (a, b) { b(1) }; try { await ctx.fail.now() } catch { ctx.ran.patched() }`,
		`ctx.fail.now(); return 1`,
		`process = { on() {} }; await ctx.withItem("a", "b", async (c) => { try { await c.fail.now() } finally { ctx.ran.item() } })`,
	} {
		p := mustLoad(t, rt, "t.js", handler(body))
		var after []string
		logged := false
		failed := false
		_, err := p.Call(context.Background(), sandbox.Call{Path: []string{"f"}, Now: epoch,
			Log: func(string, string, sandbox.Position) { logged = true },
			Host: hostFunc(func(_ context.Context, c sandbox.HostCall) (json.RawMessage, error) {
				if failed {
					after = append(after, c.Name)
				}
				if c.Name == "fail.now" {
					failed = true
					return nil, errRefused
				}
				return nil, nil
			})})
		h, ok := errors.AsType[*sandbox.HostError](err)
		if !ok || !errors.Is(err, errRefused) || h.Call != "fail.now" || h.At.Line != 2 {
			t.Errorf("%s: error %v, want the host's, at line 2", body, err)
		}
		if len(after) > 0 || logged {
			t.Errorf("%s: afterwards the script called %q", body, after)
		}
	}
}

func TestScriptErrors(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	for _, tt := range []struct{ name, body, want string }{
		{"TypeError", `null.x`, "cannot read property 'x' of null"},
		{"Error", `throw new Error("boom")`, "boom"},
		{"MyError", `class MyError extends Error { name = "MyError" } throw new MyError("mine")`, "mine"},
		{"Thrown", `throw "text"`, `"text" (thrown, but not an Error)`},
		{"Thrown", `throw undefined`, `undefined (thrown, but not an Error)`},
		{"Thrown", `throw { a: [1] }`, `{ a: [ 1 ] } (thrown, but not an Error)`},
		{"Thrown", `throw { get message() { throw 1 } }`, `(an error that cannot be shown)`},
		{"Error", `throw Object.assign(new Error(), { message: { toString() { throw 1 } } })`, `(a value that cannot be shown)`},
		{"TypeError", `return 10n`, "the handler returned a value that is not JSON: BigInt are forbidden in JSON.stringify"},
		{"TypeError", `const a = {}; a.a = a; return a`, "the handler returned a value that is not JSON: circular reference"},
		{"TypeError", `return () => 1`, "the handler returned a function, which is not JSON"},
		{"TypeError", `return Symbol("x")`, "the handler returned a symbol, which is not JSON"},
		{"TypeError", `return { toJSON() { throw new Error("no") } }`, "the handler returned a value that is not JSON: no"},
		{"TypeError", `await ctx.crm.find(10n)`, "crm.find: argument 1 is not JSON: BigInt are forbidden in JSON.stringify"},
		{"TypeError", `await ctx.crm.find(1, () => 1)`, "crm.find: argument 2 is a function, which is not JSON"},
		{"TypeError", `ctx.crm = 1`, "ctx.crm cannot be changed"},
		{"TypeError", `ctx.crm.find = 1`, "ctx.crm.find cannot be changed"},
		{"TypeError", `await ctx.withItem("a", "b")`, "withItem(id, title, handler): the handler is not a function"},
		{"UnsettledError", `await new Promise(() => {})`, "the handler awaits a promise that nothing will settle"},
		{"RangeError", `(async () => { throw new RangeError("lost") })(); await 0`, "lost (in a promise that the script does not await)"},
		{"RangeError", `[1, 2].forEach(async (i) => { await ctx.a.b(); throw new RangeError("lost") })`, "lost (in a promise that the script does not await)"},
		{"Error", `queueMicrotask(() => { throw new Error("job") }); await 0`, "job"},
		{"ReferenceError", `(0, eval)("process")`, "process is not defined"},
	} {
		p := mustLoad(t, rt, "t.js", handler(tt.body))
		_, err := call(p, &recorder{})
		s := wantScript(t, err)
		if s.Name != tt.name || s.Message != tt.want {
			t.Errorf("%s: %s: %s, want %s: %s", tt.body, s.Name, s.Message, tt.name, tt.want)
		}
		if s.At.Line < 1 || s.At.Line > 2 || s.At.File != "t.js" {
			t.Errorf("%s: at %v, want line 2 of t.js, or the handler", tt.body, s.At)
		}
	}
	p := mustLoad(t, rt, "t.js", handler(`await new Promise(() => {})`))
	if _, err := call(p, nil); !errors.Is(err, sandbox.ErrUnsettled) {
		t.Errorf("unsettled handler: %v, want ErrUnsettled", err)
	}
}

func TestRejectionThatIsHandledLaterIsNoError(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	p := mustLoad(t, rt, "t.js", handler(`
		const p = (async () => { throw new Error("seen") })();
		await ctx.crm.find();
		try { await p } catch (e) { return e.message }`))
	if got, err := call(p, &recorder{}); got != `"seen"` || err != nil {
		t.Errorf("call = %s, %v, want \"seen\"", got, err)
	}
}

func TestErrorTextIsBounded(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	for _, body := range []string{
		`throw new Error("x".repeat(5e6))`,
		`throw "x".repeat(5e6)`,
		`const e = new Error("x"); e.name = "n".repeat(5e6); e.stack = "    at f (t.js:1:1)\n".repeat(1e5); throw e`,
		`throw Array(1e5).fill({ a: "x".repeat(100) })`,
	} {
		p := mustLoad(t, rt, "t.js", handler(body))
		_, err := call(p, nil)
		s := wantScript(t, err)
		if n := len(s.Name) + len(s.Message); n > 6<<10 || len(s.Stack) > 32 {
			t.Errorf("%s: name and message of %d bytes, %d frames, want at most 6 KiB and 32", body, n, len(s.Stack))
		}
	}
}

// A job may have any number of items: each has the limits of a phase for itself.
func TestItemsHaveTheirOwnLimits(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{Limits: sandbox.Limits{HostCalls: 3}})
	p := mustLoad(t, rt, "t.js", handler(
		`for (let i = 0; i < 10; i++) await ctx.withItem("i" + i, "t", async (c) => { c.log(i); c.log(i); await c.a.b(); await c.a.b() })`))
	if _, err := call(p, &recorder{}); err != nil {
		t.Errorf("ten items of two calls and two lines each: %v", err)
	}
	p = mustLoad(t, rt, "t.js", handler(
		`await ctx.withItem("i", "t", async (c) => { for (let i = 0; i < 4; i++) await c.a.b() })`))
	_, err := call(p, &recorder{})
	wantLimit(t, err, "host_calls")
}

func TestSettingsAreLimits(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{Limits: sandbox.Limits{HostCalls: 3, Result: 100, LogLine: 20}})
	for _, tt := range []struct{ limit, body, want string }{
		{"host_calls", `for (let i = 0; i < 4; i++) await ctx.a.b()`, "more than 3 calls"},
		{"host_calls", `for (;;) ctx.a.b()`, "more than 3 calls"},
		{"host_calls", `try { for (;;) ctx.a.b() } catch { for (;;) ; }`, "more than 3 calls"},
		{"result", `return "x".repeat(100)`, "returned more than 100 bytes"},
		{"result", `await ctx.a.b("x".repeat(60), "y".repeat(60))`, "passed more than 100 bytes of JSON to a.b"},
	} {
		p := mustLoad(t, rt, "t.js", handler(tt.body))
		host := &recorder{}
		_, err := call(p, host)
		l := wantLimit(t, err, tt.limit)
		if !strings.Contains(l.Error(), tt.want) || l.At.Line < 1 || l.At.Line > 2 {
			t.Errorf("%s: %v, want %q at line 2 or the handler", tt.body, err, tt.want)
		}
		if len(host.calls) > 3 {
			t.Errorf("%s: %d calls were served, want at most 3", tt.body, len(host.calls))
		}
	}
}

// A publish is no host call. However many a script issues without awaiting them, what
// waits is bounded.
func TestPublishIsNoHostCall(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{Limits: sandbox.Limits{HostCalls: 3, CPU: time.Minute}})
	host := &recorder{}
	p := mustLoad(t, rt, "t.js", handler(`for (let i = 0; i < 2000; i++) await ctx.publish("t", { messageId: i }); await ctx.a.b()`))
	if _, err := call(p, host); err != nil || len(host.calls) != 2001 {
		t.Errorf("%d calls were served, %v; want 2001", len(host.calls), err)
	}
	p = mustLoad(t, rt, "t.js", handler(`const text = "x".repeat(1e6); for (;;) ctx.publish("t", { text })`))
	_, err := call(p, &recorder{})
	wantLimit(t, err, "waiting")
}

// What phases may take says nothing of the start of the engine, which takes longer on a busy machine.
func TestWallLimitIsOfPhases(t *testing.T) {
	openRuntime(t, sandbox.Config{Limits: sandbox.Limits{Wall: 1}})
}

func TestWallLimitCoversHostCalls(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{Limits: sandbox.Limits{Wall: time.Second}})
	p := mustLoad(t, rt, "t.js", handler(`await ctx.slow.tool(); for (;;) ;`))
	t.Run("the host gives up", func(t *testing.T) {
		_, err := call(p, hostFunc(func(ctx context.Context, c sandbox.HostCall) (json.RawMessage, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}))
		if l := wantLimit(t, err, "wall"); l.At.Line != 2 {
			t.Errorf("at %v, want line 2", l.At)
		}
		if h, ok := errors.AsType[*sandbox.HostError](err); !ok || h.Call != "slow.tool" {
			t.Errorf("error %v, want a HostError of slow.tool", err)
		}
	})
	t.Run("the host answers too late", func(t *testing.T) {
		_, err := call(p, hostFunc(func(ctx context.Context, c sandbox.HostCall) (json.RawMessage, error) {
			<-ctx.Done()
			return nil, nil
		}))
		wantLimit(t, err, "wall")
	})
	t.Run("the script spins", func(t *testing.T) {
		_, err := call(p, &recorder{})
		wantLimit(t, err, "wall")
	})
}

func TestCPULimitDoesNotCountHostCalls(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{Limits: sandbox.Limits{CPU: 200 * time.Millisecond}})
	p := mustLoad(t, rt, "t.js", handler(`await ctx.slow.tool(); return 1`))
	got, err := call(p, hostFunc(func(ctx context.Context, c sandbox.HostCall) (json.RawMessage, error) {
		timer := time.NewTimer(300 * time.Millisecond)
		defer timer.Stop()
		<-timer.C
		return nil, nil
	}))
	if got != "1" || err != nil {
		t.Errorf("call = %s, %v, want 1", got, err)
	}
}

// On a machine where others have the processors a script is not stopped as if it had computed: what the process used
// is less than the time that passed.
func TestCPULimitDoesNotCountOthers(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		passed, used []time.Duration
		over         []bool
	}{
		"alone":                 {[]time.Duration{s, 4 * s, 6 * s}, []time.Duration{11 * s, 14 * s, 16 * s}, []bool{false, false, true}},
		"beside others":         {[]time.Duration{s, 6 * s, 60 * s, 61 * s}, []time.Duration{10 * s, 11 * s, 14 * s, 14*s + 1}, []bool{false, false, false, true}},
		"others in the process": {[]time.Duration{s, 5 * s, 5*s + 1}, []time.Duration{10 * s, 90 * s, 91 * s}, []bool{false, false, true}},
		"first looked at late":  {[]time.Duration{5*s + 1}, []time.Duration{10 * s}, []bool{true}},
		"system says nothing":   {[]time.Duration{s, 6 * s}, []time.Duration{0, 0}, []bool{false, true}},
	} {
		if over := sandbox.Overtime(5*s, c.passed, c.used); !slices.Equal(over, c.over) {
			t.Errorf("%s: %v, want %v", name, over, c.over)
		}
	}
}

func TestCancelledContextEndsTheScript(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	p := mustLoad(t, rt, "t.js", handler(`ctx.log("here"); for (;;) ;`))
	cause := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(context.Background())
	_, err := p.Call(ctx, sandbox.Call{Path: []string{"f"}, Now: epoch,
		Log: func(string, string, sandbox.Position) { cancel(cause) }})
	if !errors.Is(err, cause) {
		t.Errorf("error %v, want %v", err, cause)
	}
	if _, err := p.Call(ctx, sandbox.Call{Path: []string{"f"}, Now: epoch}); !errors.Is(err, cause) {
		t.Errorf("call with a dead context: %v, want %v", err, cause)
	}
}

func TestClose(t *testing.T) {
	rt, err := sandbox.Open(context.Background(), sandbox.Config{CacheDir: cacheDir})
	if err != nil {
		t.Fatal(err)
	}
	p := mustLoad(t, rt, "t.js", handler(`ctx.log("here"); for (;;) ;`))
	q := mustLoad(t, rt, "t.js", handler(``))
	if err := q.Close(); err != nil {
		t.Errorf("Program.Close: %v", err)
	}
	if _, err := call(q, nil); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("call of a closed program: %v, want ErrClosed", err)
	}
	running := make(chan bool)
	done := make(chan error)
	go func() {
		_, err := p.Call(context.Background(), sandbox.Call{Path: []string{"f"}, Now: epoch,
			Log: func(string, string, sandbox.Position) { close(running) }})
		done <- err
	}()
	<-running
	closed := make(chan error)
	go func() { closed <- rt.Close() }()
	if err := <-done; !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("running call: %v, want ErrClosed", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := call(p, nil); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("call after Close: %v, want ErrClosed", err)
	}
	if _, err := rt.Load(context.Background(), mustBuild(t, "t.js", handler(``))); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("load after Close: %v, want ErrClosed", err)
	}
	if err := rt.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// slowHost takes its time for every call.
type slowHost struct{ took time.Duration }

func (h slowHost) Call(ctx context.Context, c sandbox.HostCall) (json.RawMessage, error) {
	if c.Name == "a.b" {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(h.took):
		}
	}
	return json.RawMessage(`{}`), nil
}

// The time of a job is that of each item, however many there are; their number
// is bounded by itself.
func TestItemsHaveTheirOwnTime(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{Limits: sandbox.Limits{Wall: 2 * time.Second, Items: 30}})
	many := func(n int) string {
		return fmt.Sprintf(`for (let i = 0; i < %d; i++) await ctx.withItem("i" + i, "t", async (c) => { await c.a.b() })`, n)
	}
	if _, err := call(mustLoad(t, rt, "t.js", handler(many(30))), slowHost{100 * time.Millisecond}); err != nil {
		t.Errorf("thirty items of a tenth of a second each, with two seconds for each: %v", err)
	}
	_, err := call(mustLoad(t, rt, "t.js", handler(many(31))), slowHost{})
	wantLimit(t, err, "items")
	_, err = call(mustLoad(t, rt, "t.js", handler(
		`await ctx.withItem("i", "t", async (c) => { for (;;) await c.a.b() })`)), slowHost{100 * time.Millisecond})
	if l, ok := errors.AsType[*sandbox.LimitError](err); !ok || l.Limit != "wall" {
		t.Errorf("an item without end: %v, want the limit wall", err)
	}
}

// An answer of a service with a member $list and others of its own is none of a list that was read in pages: it loses nothing.
func TestAnswerWithAList(t *testing.T) {
	p := mustLoad(t, openRuntime(t, sandbox.Config{}), "t.js", handler(`return await ctx.crm.get()`))
	for _, reply := range []string{`{"$list":[1],"total":1}`, `{"id":7,"$list":[1],"truncated":true,"next":null}`, `{"$list":7}`} {
		got, err := call(p, hostFunc(func(context.Context, sandbox.HostCall) (json.RawMessage, error) { return json.RawMessage(reply), nil }))
		if err != nil || string(got) != reply {
			t.Errorf("%s, %v; want %s", got, err, reply)
		}
	}
}

// A list that was read in pages is an array, and knows how far it got.
func TestListsInPages(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	p := mustLoad(t, rt, "t.js", handler(`
		const all = await ctx.crm.list();
		let seen = [];
		for (const row of all) seen.push(row);
		return [Array.isArray(all), all.length, seen, all.truncated, all.next, JSON.stringify(all), Object.keys(all)]`))
	for reply, want := range map[string]string{
		`{"$list":[1,2],"truncated":true,"next":"c"}`: `[true,2,[1,2],true,"c","[1,2]",["0","1"]]`,
		`{"$list":[],"truncated":false,"next":null}`:  `[true,0,[],false,null,"[]",[]]`,
	} {
		got, err := call(p, hostFunc(func(context.Context, sandbox.HostCall) (json.RawMessage, error) { return json.RawMessage(reply), nil }))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", reply, got, err, want)
		}
	}
}
