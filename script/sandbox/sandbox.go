package sandbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/keep-run/keep/internal/cputime"
)

// loopsPerTick is how many loop heads compiled code runs between two looks at
// the clock: well under a millisecond, so that neither a limit nor the garbage
// collector waits longer than that, and rare enough to cost under one percent.
const loopsPerTick = 20_000

//go:generate go run ./internal/generate

var (
	//go:embed prelude/globals.js
	globalsJS []byte
	//go:embed prelude/url.js
	urlJS []byte
	//go:embed prelude/keep.js
	keepJS []byte
)

// Config says how a runtime works.
type Config struct {
	// Limits bound every phase of every program.
	Limits Limits

	// CacheDir keeps the compiled engine between processes, which saves most
	// of Open's time. What lies there is run as native code: nobody else may
	// be able to write to it. It is made if it does not exist; damaged contents
	// are replaced, and a directory that cannot be used is done without. If
	// empty, the engine is compiled by Open, unless a runtime with the same
	// limit of memory is open: runtimes share it.
	CacheDir string

	// Processors is how many phases may compute at the same time. If zero,
	// runtime.GOMAXPROCS(0).
	Processors int
}

// Runtime is a compiled engine and its instances. All methods are safe for
// concurrent use.
type Runtime struct {
	limits Limits
	engine *engine
	base   *template
	entry  entries
	url    []byte // the compiled part of the prelude that few scripts need
	pool   *pool
	gate   *gate

	// processor is the processor time that the process has used; 0: the system does not say.
	processor func() time.Duration

	closed chan struct{}

	mu      sync.Mutex // protects closing
	closing bool
	running sync.WaitGroup // phases
}

// entries are handles of what the prelude left in the base, the same in every
// template that was made from it.
type entries struct {
	undefined                  value
	load, declare, start       value
	resume, begun, close, idle value
	fail, where                value

	scratch uint32 // scratchSize bytes that belong to the host
	origin  uint32 // the name of JSON that the host made
	context uint32 // the engine's JSContext
}

// Open compiles the engine, or loads it from the cache, and starts it once.
// Close must be called when the runtime is not needed any more.
func Open(ctx context.Context, cfg Config) (*Runtime, error) {
	limits, err := cfg.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	n := cfg.Processors
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	rt := &Runtime{limits: limits, gate: newGate(n), processor: cputime.Used, closed: make(chan struct{})}
	if rt.engine, err = acquireEngine(ctx, engineKey{cfg.CacheDir, limits.Memory}, n); err != nil {
		return nil, err
	}
	rt.pool = &pool{max: max(8, 4*n), limit: limits.Memory, open: func() (*instance, error) { return newInstance(rt.engine.wasm, rt.engine.module) }}
	if err := rt.boot(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("sandbox: boot: %w", err), rt.Close())
	}
	return rt, nil
}

// Close stops what computes, waits for all calls to return, and frees
// everything. A call that is with its host ends when the host returns: cancel
// the contexts of calls first. A second Close does nothing.
func (rt *Runtime) Close() error {
	rt.mu.Lock()
	again := rt.closing
	rt.closing = true
	rt.mu.Unlock()
	if again {
		return nil
	}
	close(rt.closed)
	rt.running.Wait()
	return errors.Join(rt.pool.close(), rt.engine.release())
}

// begin counts a phase in, unless the runtime is closing.
func (rt *Runtime) begin() error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closing {
		return ErrClosed
	}
	rt.running.Add(1)
	return nil
}

// boot starts the engine, evaluates the prelude, and freezes the result. What
// the compiler of JavaScript leaves behind stays in another instance: the base
// is copied at each call, so it pays to keep it small.
func (rt *Runtime) boot(ctx context.Context) error {
	parts := [][]byte{globalsJS, keepJS}
	err := rt.bootStep(ctx, func(in *instance) (err error) {
		for i, part := range parts {
			if parts[i], err = in.compile(part); err != nil {
				return err
			}
		}
		rt.url, err = in.compile(urlJS)
		return err
	})
	if err != nil {
		return err
	}
	return rt.bootStep(ctx, func(in *instance) (err error) {
		if err = rt.evalPrelude(in, parts); err != nil {
			return err
		}
		rt.base, err = freeze(in, nil)
		return err
	})
}

// bootTime is what the prelude may take, on however busy a machine.
const bootTime = time.Minute

// bootStep runs f with a fresh engine.
func (rt *Runtime) bootStep(ctx context.Context, f func(in *instance) error) error {
	in, err := rt.pool.open()
	if err != nil {
		return err
	}
	defer in.close()
	in.phase = &phase{rt: rt, ctx: ctx, in: in, limits: rt.limits}
	in.phase.limits.CPU, in.phase.limits.Wall = bootTime, bootTime // no script runs
	in.phase.resumeClock()
	if err := rt.initialize(in); err != nil {
		return err
	}
	return in.phase.explain(f(in))
}

// initialize starts the engine in a new instance and sets its limits, which
// are kept in its memory and so in every template.
func (rt *Runtime) initialize(in *instance) error {
	if _, err := in.setup("_initialize"); err != nil {
		return err
	}
	if r, err := in.setup("qjs_init"); err != nil || r != 0 {
		return fmt.Errorf("engine does not start: %d: %w", r, err)
	}
	for _, s := range []struct {
		name  string
		value int
	}{
		{"qjs_set_memory_limit", rt.limits.Heap},
		{"qjs_set_max_stack_size", rt.limits.Stack},
		{"qjs_set_interrupt_handler", 1},
		{"qjs_set_promise_rejection_handler", 1},
	} {
		if _, err := in.setup(s.name, uint64(s.value)); err != nil {
			return err
		}
	}
	var err error
	if rt.entry.scratch, err = in.do(in.fn.malloc, scratchSize); err != nil {
		return err
	}
	if rt.entry.origin, err = in.write([]byte("<input>")); err != nil {
		return err
	}
	if rt.entry.context, err = in.setup("qjs_get_context_ptr"); err != nil {
		return err
	}
	u, err := in.setup("qjs_get_undefined")
	rt.entry.undefined = value(u)
	return err
}

// evalPrelude evaluates the compiled parts of the prelude, each of which is a
// function of the object `host`, and takes the entries that the last returns.
func (rt *Runtime) evalPrelude(in *instance, parts [][]byte) error {
	host, err := in.setup("qjs_new_object")
	if err != nil {
		return err
	}
	for name := range hostFunctions {
		if err := in.setFunction(value(host), name); err != nil {
			return err
		}
	}
	var result value
	for _, part := range parts {
		fn, err := in.evalCompiled(part)
		if err != nil {
			return err
		}
		dup, err := in.do(in.fn.dup, uint64(host))
		if err != nil {
			return err
		}
		if result, err = in.invoke(rt.entry.scratch, fn, rt.entry.undefined, value(dup)); err != nil {
			return err
		}
	}
	for name, to := range map[string]*value{
		"load": &rt.entry.load, "start": &rt.entry.start, "resume": &rt.entry.resume, "begun": &rt.entry.begun, "close": &rt.entry.close, "idle": &rt.entry.idle,
		"declare": &rt.entry.declare, "where": &rt.entry.where, "fail": &rt.entry.fail,
	} {
		p, err := in.write([]byte(name))
		if err != nil {
			return err
		}
		v, err := in.do(in.fn.prop, uint64(result), uint64(p))
		if err != nil {
			return err
		}
		*to = value(v)
	}
	return nil
}

// setFunction puts a host function into a JavaScript object.
func (in *instance) setFunction(object value, name string) error {
	p, err := in.write([]byte(name))
	if err != nil {
		return err
	}
	fn, err := in.setup("qjs_new_host_function", uint64(p), uint64(len(name)), 0)
	if err != nil {
		return err
	}
	_, err = in.setup("qjs_set_prop_string", uint64(object), uint64(p), uint64(fn))
	return err
}
