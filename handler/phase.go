package handler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/internal/caller"
	"github.com/keep-run/keep/internal/utf8json"
	"github.com/keep-run/keep/internal/wall"
	"github.com/keep-run/keep/script/workflow"
)

// Limits bound one phase. The zero value of each field is its default, which is that of scripts.
type Limits struct {
	Wall    time.Duration // from start to end, calls included; of a job, each item. If zero, 5 min.
	Calls   int           // but publishes; of a job, in each item. If zero, 1000.
	Result  int           // bytes of JSON that a phase returns, or passes to one call. If zero, 1 MiB.
	LogLine int           // bytes of a log line, which is cut there. If zero, 4 KiB.
	Items   int           // that a job begins in one run. If zero, 100,000.
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Wall: cmp.Or(l.Wall, 5*time.Minute), Calls: cmp.Or(l.Calls, 1000), Result: cmp.Or(l.Result, 1<<20),
		LogLine: cmp.Or(l.LogLine, 4<<10), Items: cmp.Or(l.Items, 100_000),
	}
}

// grace is how long a function may take to return after its context has ended.
const grace = time.Second

// A function is one handler function: it is given the arguments after ctx, and returns JSON.
type function func(ctx context.Context, p *phase, args []json.RawMessage) (any, error)

// Script returns what calls the handlers of the workflow, as an engine wants it.
func (w *Workflow) Script(l Limits) engine.Script {
	s := script{limits: l.withDefaults(), functions: make(map[string]function), of: w}
	for _, h := range w.Handlers {
		for path, f := range h.functions() {
			s.functions[path] = f
		}
	}
	return s
}

type script struct {
	limits    Limits
	functions map[string]function
	of        *Workflow
}

// Locate implements engine.Script.
func (s script) Locate(_ context.Context, path []string) string {
	decl, _, err := s.of.Declare()
	if err != nil {
		return ""
	}
	p := workflow.Locate(decl, nil, path)
	if p.IsZero() {
		return ""
	}
	return caller.At(p.File, p.Line)
}

// A phase is one call of a handler function. The function runs in a goroutine of its own, and
// everything that it asks for is done by the goroutine of Call, one after another: so nothing
// of it reaches the host when Call has returned. All code of the author runs in the function's goroutine,
// methods that make JSON too: a panic of any other one would end the program.
type phase struct {
	call   engine.ScriptCall
	limits Limits
	wall   *wall.Wall
	ctx    context.Context // of the function and its calls
	asks   chan request
	over   chan struct{} // is closed when Call returns

	// What follows belongs to the goroutine of Call.
	err          error // why nothing is called any more; nil: the phase continues
	calls, items int
	at           string // of the last call

	scopes int // items that were begun, for the function's goroutine
}

// A request is what the function wants to have done.
type request struct {
	do   func()
	done chan struct{}
}

// An answer is how a function ended.
type answer struct {
	result json.RawMessage
	call   *hostCall // that Mutate returned
	err    error
}

// Call implements engine.Script.
func (s script) Call(ctx context.Context, c engine.ScriptCall) (json.RawMessage, error) {
	f := s.functions[strings.Join(c.Path, ".")]
	if f == nil {
		return nil, keep.Failf(keep.ClassInternal, "no-handler", "the program has no function %s", strings.Join(c.Path, "."))
	}
	p := &phase{call: c, limits: s.limits, asks: make(chan request), over: make(chan struct{})}
	p.wall = wall.New(ctx, time.Now().Add(s.limits.Wall), p.limit("wall", "the handler took more than %s, calls included: do less in one run", s.limits.Wall))
	p.ctx = p.wall.Context()
	defer p.wall.Stop()
	defer close(p.over)
	done := make(chan answer, 1)
	go p.run(f, done)
	ans := p.serve(done)
	switch cause := context.Cause(p.ctx); {
	case p.err != nil:
		return nil, p.placed(p.err)
	case ans.err != nil && cause != nil:
		return nil, p.placed(cause)
	case ans.err != nil:
		return nil, p.placed(ans.err)
	}
	return p.finish(ans)
}

// run calls the function.
func (p *phase) run(f function, done chan<- answer) {
	ans := answer{err: keep.Failf(keep.ClassLogic, "handler-exit", "the handler ended its goroutine with runtime.Goexit; return an error")}
	defer func() {
		if v := recover(); v != nil {
			ans = answer{err: &keep.Failure{Class: keep.ClassLogic, Code: "handler-panic", Message: readable(fmt.Sprintf("panic: %v", v)), At: callerPlace()}}
		}
		done <- ans
	}()
	result, err := f(p.ctx, p, p.call.Args)
	ans = p.answer(result, err)
}

// answer encodes what the function returned, in its goroutine.
func (p *phase) answer(result any, err error) answer {
	if err != nil || result == nil {
		return answer{err: err}
	}
	if c, ok := result.(terminal); ok {
		call := p.encoded(hostCall{at: c.at, name: string(c.Tool), args: []any{params(c.Params)}})
		return answer{call: &call}
	}
	raw, err := p.encode(result, "returned by the phase")
	return answer{result: raw, err: err}
}

// serve does what the function asks for until it returns, or is abandoned.
func (p *phase) serve(done <-chan answer) answer {
	ended := p.ctx.Done()
	var giveUp <-chan time.Time
	for {
		select {
		case ans := <-done:
			return ans
		case r := <-p.asks:
			r.do()
			close(r.done)
		case <-ended:
			t := time.NewTimer(grace)
			defer t.Stop()
			ended, giveUp = nil, t.C
		case <-giveUp:
			return answer{err: context.Cause(p.ctx)}
		}
	}
}

// finish returns the result as JSON, after the call that Mutate returned was made.
func (p *phase) finish(ans answer) (json.RawMessage, error) {
	c := ans.call
	if c == nil {
		return ans.result, nil
	}
	if _, err := p.perform(p.ctx, *c); err != nil {
		return nil, p.placed(err)
	}
	return nil, &keep.Failure{Class: keep.ClassLogic, Code: "not-a-mutation", Tool: keep.ToolName(c.name), At: c.at,
		Message: fmt.Sprintf("Mutate returned a call of %s, which changes nothing; read it with Getter.Read", c.name)}
}

// A terminal is the call that Mutate returned, and where Mutate is.
type terminal struct {
	Call
	at string
}

// ask has do done by the goroutine of Call. It returns an error if the phase is over.
func (p *phase) ask(do func() error) error {
	var err error
	r := request{do: func() { err = do() }, done: make(chan struct{})}
	select {
	case p.asks <- r:
	case <-p.over:
		return errOver
	}
	select {
	case <-r.done:
		return err
	case <-p.over: // what was under way ended the goroutine of Call
		return errOver
	}
}

// errOver is what an abandoned function gets.
var errOver = errors.New("the phase is over: Keep answers nothing any more")

// A hostCall is a call that a function makes on the host.
type hostCall struct {
	at      string // where; empty: found by host
	scope   int
	name    string
	reads   bool // it may change nothing
	changes bool // it is no read
	args    []any

	raw []json.RawMessage // args
	err error             // why there is no raw
}

// spelled are the methods that make calls on the host, and their parameters, by the names of the calls.
var spelled = map[string][]string{
	"publish":       {"Publish", "topic", "message"},
	"registerInput": {"RegisterInput", "input"},
	"kv.get":        {"Load", "key"},
	"kv.set":        {"Store", "key", "value"},
	"kv.delete":     {"Delete", "key"},
	"peek":          {"Peek", "topic", "limit"},
	"getByIds":      {"Events", "topic", "ids"},
	"item.begin":    {"Item", "id", "title"},
}

// inGo returns the name of the call in Go, with that of argument i if that has one.
func (c hostCall) inGo(i int) string {
	names, ok := spelled[c.name]
	switch {
	case !ok:
		return c.name
	case i < 0:
		return names[0]
	}
	return names[0] + " as " + names[i+1]
}

// host makes a call on the host for the function. It ends with ctx, too.
func (p *phase) host(ctx context.Context, c hostCall) (out json.RawMessage, err error) {
	c.at = callerPlace()
	c = p.encoded(c)
	within, end := context.WithCancelCause(p.ctx)
	defer end(nil)
	defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
	err = p.ask(func() (err error) {
		out, err = p.perform(within, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// perform makes a call on the host. The first error ends the phase.
func (p *phase) perform(ctx context.Context, c hostCall) (json.RawMessage, error) {
	if p.err == nil && p.ctx.Err() != nil {
		p.err = context.Cause(p.ctx)
	}
	if p.err != nil {
		return nil, p.err
	}
	p.at = c.at
	out, err := p.pass(ctx, c)
	if err == nil {
		return out, nil
	}
	// A read that the end of the phase cut off has not failed: the phase has.
	f, failed := errors.AsType[*keep.Failure](err)
	limit, over := errors.AsType[*keep.Failure](context.Cause(p.ctx))
	if failed && over && f.Class == keep.ClassTransient {
		err = limit
	}
	p.err = err
	p.wall.End(err)
	return nil, err
}

// pass counts a call and passes it on.
func (p *phase) pass(ctx context.Context, c hostCall) (json.RawMessage, error) {
	if c.err != nil {
		return nil, c.err
	}
	switch c.name {
	case "item.begin":
		if p.items++; p.items > p.limits.Items {
			return nil, p.limit("items", "the handler began more than %d items: do less in one run", p.limits.Items)
		}
		p.renew()
	case "item.end":
		p.renew()
	case "publish", "item.fail":
	default:
		if p.calls++; p.calls > p.limits.Calls {
			return nil, p.limit("host_calls", "the handler made more than %d calls: do less in one run", p.limits.Calls)
		}
	}
	out, err := p.call.Host.HostCall(ctx, engine.HostCall{Name: c.name, Args: c.raw, At: c.at, Scope: c.scope, ReadOnly: c.reads, Changes: c.changes, Pause: p.wall.Pause})
	return out, inGo(err)
}

// renew gives an item, or what comes after it, the limits of a phase.
func (p *phase) renew() {
	p.calls = 0
	p.wall.Renew(time.Now().Add(p.limits.Wall))
}

// encoded returns the call with its arguments as JSON, within the limit.
func (p *phase) encoded(c hostCall) hostCall {
	size := 0
	for i, a := range c.args {
		raw, err := p.encode(a, "passed to "+c.inGo(i))
		if err != nil {
			c.err = err
			return c
		}
		size += len(raw)
		c.raw = append(c.raw, raw)
	}
	if size > p.limits.Result {
		c.err = p.tooLarge("passed to " + c.inGo(-1))
	}
	return c
}

// encode returns v as JSON within the limit.
func (p *phase) encode(v any, what string) (json.RawMessage, error) {
	raw, err := utf8json.Marshal(v)
	if bad, ok := errors.AsType[*utf8json.Error](err); ok {
		return nil, keep.Failf(keep.ClassLogic, "not-utf-8", "what is %s: %v", what, bad)
	}
	if err != nil {
		return nil, keep.Failf(keep.ClassLogic, "handler-error", "what is %s is not JSON: %v", what, err)
	}
	if len(raw) > p.limits.Result {
		return nil, p.tooLarge(what)
	}
	return raw, nil
}

func (p *phase) tooLarge(what string) error {
	return p.limit("result", "more than %d bytes of JSON are "+what+": send less, and keep large data in a service", p.limits.Result)
}

// limit returns the failure of a phase that reached a limit. Call adds the place.
func (p *phase) limit(name, format string, args ...any) *keep.Failure {
	return &keep.Failure{Class: keep.ClassLogic, Code: "limit-" + name, Message: fmt.Sprintf(format, args...) + " (limit " + name + ")"}
}

// placed adds to a failure of this package where the function was last.
func (p *phase) placed(err error) error {
	f, ok := err.(*keep.Failure)
	if !ok || f.At != "" {
		return err
	}
	here := *f
	here.At = p.at
	return &here
}

// log adds a line to the log of the run.
func (p *phase) log(level, text string) {
	if len(text) > p.limits.LogLine {
		text = strings.ToValidUTF8(text[:p.limits.LogLine], "") + "…"
	}
	text, where := readable(text), callerPlace()
	_ = p.ask(func() error { p.call.Log(level, text, where); return nil }) // over: nobody reads it
}

// readable returns what an error or a line of a log says in UTF-8: it is for people, and names nothing.
func readable(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
