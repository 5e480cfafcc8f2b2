package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep/script/sandbox"
)

// Good and hostile calls side by side, while the garbage collector runs all
// the time: nothing leaks, nothing is wrong, nothing hangs.
func TestStress(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{Limits: sandbox.Limits{CPU: 40 * time.Millisecond, Heap: 8 << 20}})
	roomy := openRuntime(t, sandbox.Config{})
	const body = `globalThis.n = (globalThis.n ?? 0) + x; const r = await ctx.crm.find({ q: x }); return [n, r, "y".repeat(100 * x).length]`
	programs := []*sandbox.Program{
		mustLoad(t, roomy, "a.js", handler(body)),
		mustLoad(t, roomy, "b.js", handler(body)+"globalThis.big = 'z'.repeat(3e6);"),
	}
	bad := []*sandbox.Program{
		mustLoad(t, rt, "spin.js", handler(`for (;;) ;`)),
		mustLoad(t, rt, "join.js", handler(`new Array(2 ** 32 - 2).join("")`)),
		mustLoad(t, rt, "bomb.js", handler(`const a = []; for (;;) a.push(new Uint8Array(1 << 20))`)),
		mustLoad(t, rt, "deep.js", handler(`const f = () => 1 + f(); f()`)),
		mustLoad(t, rt, "await.js", handler(`for (;;) await 0`)),
		mustLoad(t, rt, "throw.js", handler(`await ctx.fail.now()`)),
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			runtime.GC()
		}
	})
	host := hostFunc(func(_ context.Context, c sandbox.HostCall) (json.RawMessage, error) {
		if c.Name == "fail.now" {
			return nil, errRefused
		}
		runtime.Gosched()
		return c.Args[0], nil
	})
	var good, hostileCalls atomic.Int64
	for g := range 6 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 1))
			for ctx.Err() == nil {
				if random.IntN(30) == 0 {
					if _, err := call(bad[random.IntN(len(bad))], host); err == nil {
						t.Error("a hostile call was not stopped")
					}
					hostileCalls.Add(1)
					continue
				}
				x := random.IntN(1000)
				got, err := call(programs[random.IntN(len(programs))], host, fmt.Sprint(x))
				if want := fmt.Sprintf(`[%d,{"q":%d},%d]`, x, x, 100*x); got != want || err != nil {
					t.Errorf("call(%d) = %s, %v, want %s", x, got, err, want)
				}
				good.Add(1)
			}
		})
	}
	wg.Wait()
	t.Logf("%d good calls, %d hostile ones", good.Load(), hostileCalls.Load())
}

// As many calls wait for their host as like: they hold no processor.
func TestSlowToolsDoNotStarveOthers(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{Processors: 1})
	slow := mustLoad(t, rt, "slow.js", handler(`return await ctx.slow.tool()`))
	quick := mustLoad(t, rt, "quick.js", handler(`return 1`))
	const n = 20
	entered, release := make(chan bool), make(chan bool)
	host := hostFunc(func(context.Context, sandbox.HostCall) (json.RawMessage, error) {
		entered <- true
		<-release
		return json.RawMessage("2"), nil
	})
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if got, err := call(slow, host); got != "2" || err != nil {
				t.Errorf("slow call = %s, %v, want 2", got, err)
			}
		})
	}
	for range n {
		<-entered
	}
	if got, err := call(quick, nil); got != "1" || err != nil {
		t.Errorf("quick call = %s, %v, want 1", got, err)
	}
	close(release)
	wg.Wait()
}

// A script that computes gives others their turn, even on one processor.
func TestBusyScriptsTakeTurns(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{Processors: 1})
	busy := mustLoad(t, rt, "busy.js", handler(`ctx.log("on it"); for (;;) ;`))
	quick := mustLoad(t, rt, "quick.js", handler(`return 1`))
	ctx, cancel := context.WithCancelCause(context.Background())
	running := make(chan bool)
	done := make(chan error)
	go func() {
		_, err := busy.Call(ctx, sandbox.Call{Path: []string{"f"}, Now: epoch, Log: func(string, string, sandbox.Position) { close(running) }})
		done <- err
	}()
	<-running
	if got, err := call(quick, nil); got != "1" || err != nil {
		t.Errorf("quick call = %s, %v, want 1", got, err)
	}
	cancel(errRefused)
	if err := <-done; !errors.Is(err, errRefused) {
		t.Errorf("busy call: %v, want that it ran until it was cancelled", err)
	}
}

// A hundred workflows cost a hundred small templates and a few instances.
func TestManyProgramsShareInstances(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{Processors: 2})
	var programs []*sandbox.Program
	total := 0
	for i := range 100 {
		p := mustLoad(t, rt, "t.js", handler(fmt.Sprintf("return %d", i)))
		own, _, _ := p.Footprint()
		total += own
		programs = append(programs, p)
	}
	if perProgram := total / len(programs); perProgram > 160<<10 {
		t.Errorf("a template takes %d KiB of its own, want at most 160", perProgram>>10)
	}
	for i, p := range programs {
		if got, err := call(p, nil); got != fmt.Sprint(i) || err != nil {
			t.Errorf("program %d = %s, %v", i, got, err)
		}
	}
	if n := rt.Idle(); n > 2 {
		t.Errorf("%d instances are idle after calls one by one, want at most 2", n)
	}
	rt.Reap(time.Now())
	if n := rt.Idle(); n != 0 {
		t.Errorf("%d instances are idle after all were freed", n)
	}
	if got, err := call(programs[7], nil); got != "7" || err != nil {
		t.Errorf("program 7 = %s, %v", got, err)
	}
}

// The memory of a phase that needs much does not stay.
func TestGrownInstanceIsDropped(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	p := mustLoad(t, rt, "t.js", handler(`return "x".repeat(x).length`))
	rt.Reap(time.Now())
	if _, err := call(p, nil, "10"); err != nil {
		t.Fatal(err)
	}
	if n := rt.Idle(); n != 1 {
		t.Errorf("%d instances idle after a small call, want 1", n)
	}
	if got, err := call(p, nil, "9000000"); got != "9000000" || err != nil {
		t.Fatalf("large call = %s, %v", got, err)
	}
	if n := rt.Idle(); n != 0 {
		t.Errorf("%d instances idle after a large call, want 0", n)
	}
}

// What a phase grew its memory by is gone when the next one begins, and comes back as zeros.
func TestMemoryIsMadeSmaller(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	p := mustLoad(t, rt, "t.js", handler(`return "x".repeat(x).length`))
	large := mustLoad(t, rt, "large.js", handler(`return kept.length`)+`const kept = "y".repeat(700_000);`)
	_, _, template := p.Footprint()
	rt.Reap(time.Now())
	for range 3 {
		if got, err := call(p, nil, "500000"); got != "500000" || err != nil {
			t.Fatalf("call that grows = %s, %v", got, err)
		}
		size, given, left, err := p.Restored()
		if err != nil || rt.Idle() != 1 || size != template || given <= size || left != 0 {
			t.Errorf("memory of %d of %d bytes, %d behind its end not zero, in %d instances (%v), want %d, more, 0, 1", size, given, left, rt.Idle(), err, template)
		}
		if got, err := call(large, nil); got != "700000" || err != nil {
			t.Errorf("call of the larger program = %s, %v", got, err)
		}
	}
}

// Deep recursion grows a native stack of megabytes, even if it is caught.
func TestInstanceThatRecursedIsDropped(t *testing.T) {
	rt := openRuntime(t, sandbox.Config{})
	for _, tt := range []struct {
		body string
		idle int
	}{
		{`const f = () => 1 + f(); try { f() } catch {}`, 0},
		{`const f = () => [1].map(f); try { f() } catch {}`, 0},
		{`const f = () => 1 + f(); f()`, 0},
		{`const f = (n) => n && f(n - 1); return f(100)`, 1},
		{`return JSON.stringify(JSON.parse("[".repeat(50) + "]".repeat(50)))`, 1},
	} {
		p := mustLoad(t, rt, "t.js", handler(tt.body))
		rt.Reap(time.Now())
		_, err := call(p, nil)
		if n := rt.Idle(); n != tt.idle {
			t.Errorf("%s (%v): %d instances idle, want %d", tt.body, err, n, tt.idle)
		}
	}
}

func TestOpenRefusesLimitsThatCannotWork(t *testing.T) {
	for _, l := range []sandbox.Limits{{Memory: 1 << 20}, {Heap: 1 << 20}, {Heap: 65 << 20}, {Stack: 1 << 20}, {CPU: -1}, {HostCalls: -1}} {
		rt, err := sandbox.Open(context.Background(), sandbox.Config{Limits: l})
		if err == nil || !strings.HasPrefix(err.Error(), "sandbox: ") {
			t.Errorf("Open(%+v): %v, want an error", l, err)
		}
		if rt != nil {
			t.Errorf("Open(%+v) returns a runtime", l)
		}
	}
}
