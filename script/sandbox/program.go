package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-sourcemap/sourcemap"
)

// Program is a script that was evaluated once and can be called any number of
// times, each time from the same state. All methods are safe for concurrent
// use.
type Program struct {
	rt          *Runtime
	entry       string // as shown in errors
	code        code
	positions   *sourcemap.Consumer
	template    *template
	declaration json.RawMessage
	constant    bool
	closed      atomic.Bool
}

// Call is one call of a handler.
type Call struct {
	// Path leads to the handler in the workflow object, for example
	// {"consumers", "addRow", "prepare"}. What is there is a function, or an
	// object with a function named handler.
	Path []string

	// Args are the JSON arguments after ctx. A nil element is undefined.
	Args []json.RawMessage

	// Now is where the script's clock stands for the whole call: Date and
	// ctx.now() have its milliseconds, in UTC. If zero, 1970.
	Now time.Time

	// Seed is what chance comes from, Math.random and crypto alike: the same seed gives
	// the same numbers. If empty, they come from the system.
	Seed []byte

	// Pure calls a function of its arguments: it gets no ctx, Math.random gives the
	// same numbers in every call, and crypto gives none.
	Pure bool

	// Host serves the script's calls. If nil, the first call fails.
	Host Host

	// Log receives each line that the script logs, with a level of debug,
	// info, warn or error. It is called while the script runs and must be
	// quick. If nil, lines are dropped.
	Log func(level, text string, at Position)
}

// Host serves the calls that a script makes.
type Host interface {
	// Call performs one call and returns the JSON that the script gets; nil is
	// undefined. Calls of one phase come one after another, in the order in
	// which the script made them; while one is served, no JavaScript runs.
	//
	// ctx ends with the context of Program.Call, and at the phase's wall limit
	// with a *LimitError as its cause.
	//
	// If Call returns an error, the phase is over: nothing of the script runs
	// any more, and Program.Call returns a *HostError that wraps this error.
	Call(ctx context.Context, c HostCall) (json.RawMessage, error)
}

// HostCall is a call of a script to its host.
type HostCall struct {
	// Name is "crm.create" for ctx.crm.create(...) and "publish" for
	// ctx.publish(...). Scripts can make calls of any name. The names
	// "item.begin", "item.end" and "item.fail" come from ctx.withItem.
	Name string

	// Args are the arguments as JSON without whitespace. A nil element was
	// undefined. Those of "item.begin" are the id and the title; "item.end" has
	// none; that of "item.fail" is {"name", "message", "stack"}.
	Args []json.RawMessage

	// At is where the script made the call. For "item.end" it is that of
	// withItem, and for "item.fail" where the error was thrown.
	At Position

	// Scope is 0 for the ctx that the handler was called with, and n for that
	// of the n-th item: scopes count the answered "item.begin" calls of the
	// phase, from 1. "item.begin" itself has the scope of the ctx whose
	// withItem it is, so anything but 0 is an item inside of an item.
	Scope int

	// Waiting names the calls that the script has issued and that wait behind
	// this one.
	Waiting []string

	// Pause stops the clock of the wall limit until resume is called: the call waits for
	// what is no fault of the script.
	Pause func() (resume func())
}

// Load evaluates a script's top level once and keeps the state it leaves. The
// evaluation is a phase under the runtime's limits, without a host: the script
// gets no ctx. Its clock stands at Bundle.At, or at the time of the load.
//
// Load returns a *ScriptError if the script throws or its default export is
// not a workflow, and a *LimitError if it had to be stopped.
func (rt *Runtime) Load(ctx context.Context, b *Bundle) (*Program, error) {
	if err := rt.begin(); err != nil {
		return nil, err
	}
	defer rt.running.Done()
	prog := &Program{rt: rt, entry: b.Entry, code: newCode(b.Code)}
	if len(b.Map) > 0 {
		var err error
		if prog.positions, err = sourcemap.Parse("", b.Map); err != nil {
			return nil, fmt.Errorf("sandbox: source map of %s: %w", b.Entry, err)
		}
	}
	p := &phase{rt: rt, prog: prog, limits: rt.limits, now: time.Now(), ctx: ctx, loading: true, chance: newChance(b.Seed)}
	if !b.At.IsZero() {
		p.now = b.At
	}
	err := p.within(rt.base, func() error { return p.load(b) })
	if err != nil {
		return nil, err
	}
	return prog, nil
}

// Close ends the use of the program. Calls that run are finished; later ones return
// [ErrClosed]. Its memory is freed when nothing refers to the program any more.
func (prog *Program) Close() error {
	prog.closed.Store(true)
	return nil
}

// Declaration is the JSON of the object that the script gave to Keep.workflow
// and exports. Plain JSON is itself, except:
//
//   - a function is {"$function": {"at": position, "params": n, "source": text}},
//     the source being JavaScript, at most 64 KiB of it;
//   - any other value is {"$type": "Date"}, by the name of its class or type;
//   - an object that went through Keep.workflow or Keep.consumer has "$keep"
//     with that name and "$at" with the position of that call.
//
// A position is {"file", "line", "column"}, or null if unknown. Keys are in the
// script's order. The result must not be changed.
func (prog *Program) Declaration() json.RawMessage { return prog.declaration }

// Constant reports whether the evaluation asked for neither the time nor chance, so that it
// leaves the same state for every Bundle.At and Bundle.Seed.
func (prog *Program) Constant() bool { return prog.constant }

// Call calls a handler with a ctx and the arguments and returns the JSON of its
// result, nil for undefined. Global state is as the script's evaluation left
// it: nothing of an earlier or concurrent call can be seen.
//
// Call returns when the handler's promise has settled and all calls that the
// script issued have been served, whether it awaited them or not. If the
// handler throws, calls that have not been served by then are dropped.
//
// Errors are a *HostError for what the host refused, a *ScriptError for what
// the script did, a *LimitError for a limit it reached, and else the cause of
// ctx, or [ErrClosed].
func (prog *Program) Call(ctx context.Context, c Call) (json.RawMessage, error) {
	rt := prog.rt
	if err := rt.begin(); err != nil {
		return nil, err
	}
	defer rt.running.Done()
	if prog.closed.Load() {
		return nil, ErrClosed
	}
	if c.Host == nil {
		c.Host = noHost{}
	}
	if c.Now.IsZero() {
		c.Now = time.Unix(0, 0)
	}
	p := &phase{rt: rt, prog: prog, limits: rt.limits, now: c.Now, ctx: ctx, host: c.Host, logTo: c.Log, chance: newChance(c.Seed)}
	var result []byte
	err := p.within(prog.template, func() (err error) {
		result, err = p.call(&c)
		return err
	})
	return result, err
}

// noHost serves nothing.
type noHost struct{}

// Call refuses.
func (noHost) Call(context.Context, HostCall) (json.RawMessage, error) {
	return nil, errors.New("no calls are possible here")
}

// within runs f with an instance that holds t, and gives the instance back.
func (p *phase) within(t *template, f func() error) (err error) {
	if p.ctx.Err() != nil {
		return p.interrupted(context.Cause(p.ctx))
	}
	p.deadline = time.Now().Add(p.limits.Wall)
	if err := p.enter(false); err != nil {
		return err
	}
	defer p.leave()
	in, err := p.rt.pool.take(t.size)
	if err != nil {
		return err
	}
	p.in, in.phase = in, p
	defer func() {
		if p.cancel != nil {
			p.cancel()
		}
		in.phase = nil
		if in.wentDeep() {
			in.broken = true
		}
		size := t.size
		if p.loading {
			size = int(in.mem.Size())
		}
		if e := p.rt.pool.give(in, size); e != nil {
			err = errors.Join(err, e)
		}
	}()
	if err := t.restore(in); err != nil {
		return err
	}
	return f()
}

// load evaluates the script, takes its declaration and freezes the rest.
func (p *phase) load(b *Bundle) error {
	p.where = Position{File: b.Entry, Line: 1, Column: 1}
	name, err := p.in.newString([]byte(b.Entry))
	if err != nil {
		return p.explain(err)
	}
	if err := p.tell(p.rt.entry.load, name); err != nil {
		return p.explain(err)
	}
	if bytes.Contains(b.Code, []byte("URL")) {
		if _, err := p.in.eval([]byte("URL"), "keep"); err != nil {
			return p.explain(err)
		}
	}
	if _, err := p.in.eval(b.Code, b.Entry); err != nil {
		return p.explain(err)
	}
	if err := p.drain(); err != nil {
		return err
	}
	if _, err := p.in.invoke(p.rt.entry.scratch, p.rt.entry.declare, p.rt.entry.undefined); err != nil {
		return p.explain(err)
	}
	declaration, err := p.finish()
	if err != nil {
		return err
	}
	t, err := freeze(p.in, p.rt.base)
	if err != nil {
		return p.explain(err)
	}
	p.prog.declaration, p.prog.template, p.prog.constant = declaration, t, !p.asked
	return nil
}

// call starts the handler and sees it through.
func (p *phase) call(c *Call) ([]byte, error) {
	message, err := p.in.parse(&p.rt.entry, p.message(c))
	if err != nil {
		return nil, p.explain(err)
	}
	if err := p.in.apply(&p.rt.entry, p.rt.entry.start, message); err != nil {
		return nil, p.explain(err)
	}
	return p.finish()
}

// message is what the prelude's start takes: [path, a, b, c, d, args], where the
// numbers are the state of Math.random. A pure call has a 1 more.
func (p *phase) message(c *Call) []byte {
	b := append(p.in.buf[:0], '[', '[')
	for i, key := range c.Path {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(b, key)
	}
	b = append(b, ']')
	p.pure = c.Pure
	for i := range 4 {
		n := int64(i + 1)
		if !c.Pure {
			n = int64(int32(p.chance.uint32()))
		}
		b = strconv.AppendInt(append(b, ','), n, 10)
	}
	b = append(b, ",["...)
	if !c.Pure {
		b = append(b, "[],"...)
	}
	for _, arg := range c.Args {
		b = append(b, '[')
		b = append(b, arg...)
		b = append(b, "],"...)
	}
	if b[len(b)-1] == ',' {
		b = b[:len(b)-1]
	}
	b = append(b, ']')
	if c.Pure {
		b = append(b, ",1"...)
	}
	b = append(b, ']')
	p.in.buf = b
	return b
}

// appendJSON appends a string as JSON.
func appendJSON(b []byte, s string) []byte {
	q, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings always marshal
	}
	return append(b, q...)
}
