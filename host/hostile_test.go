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
	hostileWall   = 20 * time.Second // what is not stopped by its own limit ends by this one, and the test fails
	hostileMemory = 512 << 20        // that the process may take, all in all

	// harmlessTries is how often a harmless script may come to its limit by waiting for a
	// processor.
	harmlessTries = 30
)

// Laws no-ambient-power and bounded: a hostile script is stopped by its limit
// wherever it runs, by a failure that names it, while the garbage collector runs all the
// time; a workflow beside it does its next run, and the process stays small. How much later
// than its limit a script may be stopped is for TestHostileScriptIsStopped of package sandbox.
func TestHostileScripts(t *testing.T) {
	w := newWorld(t)
	w.limits = sandbox.Limits{CPU: hostileCPU, Wall: hostileWall}
	w.deploy(script("good", `consumers: { c: Keep.consumer({ subscribe: ["in"], prepare: take,
		async mutate(ctx, p) { await ctx.svc.create({ id: p.data.id }) } }) }`))
	collect(t)
	w.start()
	for _, h := range hostile {
		t.Run(h.name, func(t *testing.T) {
			t.Run("load", func(t *testing.T) { w.loadHostile(t, hostileBundle(t, h.code), h.limits) })
			for _, phase := range []string{"prepare", "next"} {
				t.Run(phase, func(t *testing.T) {
					defer func(was testing.TB) { w.t = was }(w.t)
					w.t = t
					code := map[string]string{phase: h.code}
					name := keep.WorkflowName(h.name + "-" + phase)
					w.deployHarmless(script(string(name), fmt.Sprintf(`consumers: { c: Keep.consumer({ subscribe: ["in"],
						async prepare(ctx, trigger) { %s; return take(ctx, trigger) }, async next(ctx) { %s } }) }`, code["prepare"], code["next"])))
					w.idle()
					w.runHostile(t, name, h.limits)
				})
			}
		})
	}
	if n, runs := w.service.total(), 2*len(hostile); n != runs {
		t.Errorf("the workflow beside them made %d effects, want %d", n, runs)
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

// deployHarmless deploys a script that does nothing when it is loaded. On a busy
// machine it may come to its limit by waiting for a processor alone.
func (w *world) deployHarmless(source string) {
	w.t.Helper()
	for range harmlessTries {
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
	w.t.Fatalf("a harmless script was stopped %d times when it was loaded", harmlessTries)
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

// loadHostile loads a script that is hostile at its top level.
func (w *world) loadHostile(t *testing.T, b *sandbox.Bundle, limits string) {
	t.Helper()
	_, err := w.open().LoadBundle(t.Context(), b)
	name := "script-error"
	if l, ok := errors.AsType[*sandbox.LimitError](err); ok {
		name = l.Limit
	} else if _, ok := errors.AsType[*sandbox.ScriptError](err); !ok {
		t.Fatalf("load: %v, want a limit or what the script threw", err)
	}
	if !strings.Contains(limits, name) {
		t.Errorf("load: stopped by %s (%v), want one of %s", name, err, limits)
	}
}

// runHostile lets a workflow run into its hostile phase, and another one run
// beside it.
func (w *world) runHostile(t *testing.T, wf keep.WorkflowName, limits string) {
	t.Helper()
	w.publish(wf, "in", "a")
	w.publish("good", "in", string(wf))
	w.idle()
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
