package host_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/script/sandbox"
)

// hostile scripts, and the limits at which they may be stopped.
var hostile = []struct{ name, code, limits string }{
	{"Loop", `for (;;) {}`, "cpu"},
	{"LoopThatCatches", `for (;;) { try { for (;;) {} } catch {} finally { for (;;) {} } }`, "cpu"},
	{"Jobs", `for (;;) await 0`, "cpu heap"},
	{"Then", `const f = () => Promise.resolve().then(f); await f()`, "cpu heap"},
	{"Arrays", `const a = []; for (;;) a.push(new Array(100000).fill(0))`, "heap memory cpu"},
	{"Strings", `let s = "xy"; const a = []; for (;;) { s += s; a.push(s + "z") }`, "heap memory cpu script-error"},
	{"Bytes", `const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1))`, "heap memory cpu"},
	{"OneBlock", `new Uint8Array(1 << 30).fill(1)`, "heap memory script-error"},
	{"Recursion", `const f = (x) => f(x + 1) + 1; f(0)`, "stack cpu"},
	{"RecursionInReplace", `const f = () => "a".replace(/a/, f); f()`, "stack cpu"},
	{"JSON", `let o = {}; for (let i = 0; i < 1e6; i++) o = { o }; JSON.stringify(o)`, "stack heap cpu"},
	{"Regexp", `/(a+)+$/.test("a".repeat(60) + "b")`, "cpu"},
	{"IndexOf", `new Array(2 ** 32 - 2).indexOf(1)`, "cpu heap"},
	{"Join", `new Array(2 ** 32 - 2).join("")`, "cpu heap memory script-error"},
	{"Repeat", `"x".repeat(2 ** 29)`, "heap memory cpu script-error"},
	{"Sort", `[..."x".repeat(100000)].sort(() => { for (;;) {} })`, "cpu"},
}

const (
	hostileCPU    = 300 * time.Millisecond
	hostileSlack  = 200 * time.Millisecond // that a stop may take after the limit
	hostileMemory = 512 << 20              // that the process may take, all in all

	// hostileTries is how often a script may run until it is stopped in time: the
	// machine may be busy with other things, and what is tested is what the
	// stopping takes by itself.
	hostileTries = 30
)

// Laws no-ambient-power and bounded: a hostile script is stopped within its limit
// and 200 ms wherever it runs, by a failure that names the limit, while the
// garbage collector runs all the time; a workflow beside it does its next run,
// and the process stays small.
func TestHostileScripts(t *testing.T) {
	w := newWorld(t)
	w.limits = sandbox.Limits{CPU: hostileCPU, Wall: 20 * time.Second}
	w.deploy(script("good", `consumers: { c: Keep.consumer({ subscribe: ["in"], prepare: take,
		async mutate(ctx, p) { await ctx.svc.create({ id: p.data.id }) } }) }`))
	collect(t)
	w.start()
	tries := 0
	for _, h := range hostile {
		t.Run(h.name, func(t *testing.T) {
			t.Run("load", func(t *testing.T) {
				b := hostileBundle(t, h.code)
				inTime(t, func(int) {}, func(int) time.Duration { return w.loadHostile(t, b, h.limits) })
			})
			for _, phase := range []string{"prepare", "next"} {
				t.Run(phase, func(t *testing.T) {
					defer func(was testing.TB) { w.t = was }(w.t)
					w.t = t
					code := map[string]string{phase: h.code}
					name := func(try int) keep.WorkflowName { return keep.WorkflowName(fmt.Sprintf("%s-%s-%d", h.name, phase, try)) }
					inTime(t, func(try int) {
						w.deployAtLast(script(string(name(try)), fmt.Sprintf(`consumers: { c: Keep.consumer({ subscribe: ["in"],
							async prepare(ctx, trigger) { %s; return take(ctx, trigger) }, async next(ctx) { %s } }) }`, code["prepare"], code["next"])))
						w.idle()
					}, func(try int) time.Duration {
						tries++
						return w.runHostile(t, name(try), h.limits)
					})
				})
			}
		})
	}
	if n := w.service.total(); n != tries {
		t.Errorf("the workflow beside them made %d effects, want %d", n, tries)
	}
	if rss := residentMemory(); rss > hostileMemory {
		t.Errorf("the process takes %d MiB, want less than %d", rss>>20, hostileMemory>>20)
	}
}

// collect runs the garbage collector until the test is over.
func collect(t *testing.T) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	t.Cleanup(func() { close(stop); wg.Wait() })
}

// inTime tries something hostile, which begin prepares, until it is stopped in
// time. What try returns is how long that took.
func inTime(t *testing.T, begin func(n int), try func(n int) time.Duration) {
	t.Helper()
	var best time.Duration
	for n := range hostileTries {
		begin(n)
		took := try(n)
		t.Logf("stopped after %s", took)
		if t.Failed() || took <= hostileCPU+hostileSlack {
			return
		}
		if best == 0 || took < best {
			best = took
		}
	}
	t.Errorf("the best of %d tries took %s with a limit of %s", hostileTries, best, hostileCPU)
}

// deployAtLast deploys a script that does nothing when it is loaded. On a busy
// machine it may come to its limit by waiting for a processor alone.
func (w *world) deployAtLast(source string) {
	w.t.Helper()
	for range hostileTries {
		wf, err := w.load(source)
		if _, ok := errors.AsType[*sandbox.LimitError](err); ok {
			continue
		}
		if err == nil {
			_, err = w.open().Deploy(w.t.Context(), wf)
		}
		if err != nil {
			w.t.Fatal(err)
		}
		return
	}
	w.t.Fatalf("a harmless script was stopped %d times when it was loaded", hostileTries)
}

// hostileBundle returns a script that is hostile at its top level.
func hostileBundle(t *testing.T, code string) *sandbox.Bundle {
	t.Helper()
	if strings.Contains(code, "await") {
		code = "(async () => { " + code + " })()"
	}
	b, err := sandbox.BuildSource("w.js", []byte(code+"\n"+script("w", `jobs: { async j() {} }`)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// loadHostile loads a script that is hostile at its top level, and returns how
// long that took.
func (w *world) loadHostile(t *testing.T, b *sandbox.Bundle, limits string) time.Duration {
	t.Helper()
	start := time.Now()
	_, err := w.open().LoadBundle(t.Context(), b)
	took := time.Since(start)
	name := "script-error"
	if l, ok := errors.AsType[*sandbox.LimitError](err); ok {
		name = l.Limit
	} else if _, ok := errors.AsType[*sandbox.ScriptError](err); !ok {
		t.Fatalf("load: %v, want a limit or what the script threw", err)
	}
	if !strings.Contains(limits, name) {
		t.Errorf("load: stopped by %s (%v), want one of %s", name, err, limits)
	}
	return took
}

// runHostile lets a workflow run into its hostile phase, and another one run
// beside it. It returns how long both took.
func (w *world) runHostile(t *testing.T, wf keep.WorkflowName, limits string) time.Duration {
	t.Helper()
	start := time.Now()
	w.publish(wf, "in", "a")
	w.publish("good", "in", string(wf))
	w.idle()
	took := time.Since(start)
	r := w.lastRun(wf)
	if r.Status != keep.StatusLogic || r.Error == nil || !strings.Contains(limits, strings.TrimPrefix(r.Error.Code, "limit-")) {
		t.Errorf("run is %s (%v), want failed:logic by one of %s", r.Status, r.Error, limits)
	}
	if r.Error != nil && !strings.HasPrefix(r.Error.At, "w.js:") {
		t.Errorf("the failure is at %q, want a place in w.js", r.Error.At)
	}
	if ev := w.event("good", "in", string(wf)); ev.Status != keep.EventConsumed {
		t.Errorf("the event of the workflow beside it is %s, want consumed", ev.Status)
	}
	return took
}

// residentMemory returns what the process takes of the memory; 0 if the system
// does not tell.
func residentMemory() int {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		return 0
	}
	return pages * os.Getpagesize()
}
