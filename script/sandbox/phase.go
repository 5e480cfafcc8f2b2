package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keep-run/keep/internal/wall"
)

// Bounds that are not settings, in bytes.
const (
	maxMessage     = 4 << 10
	maxName        = 256
	maxFailure     = 64 << 10
	maxDeclaration = 16 << 20 // the prelude stops earlier, counting characters
	maxWaiting     = 64 << 20 // arguments of calls that were issued and not served
)

// grace is what a stopped script gets to unwind before it is trapped.
const grace = 100 * time.Millisecond

// phase is one run of JavaScript in an instance: the evaluation of a script,
// or one call of a handler. It lives on one goroutine.
type phase struct {
	rt     *Runtime
	in     *instance
	prog   *Program // whose positions; nil while the base is made
	host   Host
	logTo  func(level, text string, at Position)
	limits Limits
	now    time.Time // where the script's clock stands
	pure   bool      // see Call.Pure
	chance *chance   // nil: the system's
	asked  bool      // for the time, or for chance

	// ctx is the caller's context. A phase is a call: it ends with it.
	ctx      context.Context
	wall     *wall.Wall      // ends hostCtx
	hostCtx  context.Context // ctx with the wall limit; made at the first host call
	cancel   context.CancelFunc
	deadline time.Time // the wall limit

	// CPU time: what was used in earlier stretches, and when this one began.
	inside  bool // holds a slot of the gate
	used    time.Duration
	entered time.Time
	sampled bool          // the processor time of the process was asked for
	ahead   time.Duration // what is to be added to it for an upper bound of the phase's own
	turned  time.Time     // start of the current turn at the gate

	stop    error // why the script must end; the first reason stays
	stopped time.Time
	located bool // where has been asked for

	places  map[callSite]Position // that were looked up
	queue   []request
	names   []string // of the calls in queue; what a host was shown of it does not change
	issued  int      // calls, for the limit
	waiting int      // bytes of the arguments in queue
	loading bool     // the result is a declaration

	begun   int      // items that the script has begun
	scopes  int      // those of them that the host has let begin
	open    bool     // the last of those may be open
	ending  bool     // its handler has settled
	begunAt Position // where it was begun

	rejected []rejected // promises that nothing handles, in order

	settled bool
	result  []byte
	failure string   // JSON of what the handler threw
	where   Position // the handler, or the last place that is known
}

// request is a host call that the script has issued.
type request struct {
	id, scope int
	name      string
	at        Position
	args      []json.RawMessage
}

// rejected is a promise that was rejected and that nothing handles so far.
type rejected struct {
	object          uint64 // the promise, as the engine writes it
	promise, reason value
}

// maxRejected is how many such promises are told apart. What comes later is
// kept as unhandled for good, which is wrong only for scripts that have a
// thousand failures under way.
const maxRejected = 1000

// resumeClock starts counting CPU time.
func (p *phase) resumeClock() {
	p.entered = time.Now()
	p.turned = p.entered
	if p.deadline.IsZero() {
		p.deadline = p.entered.Add(p.limits.Wall)
	}
}

// enter waits for a processor and starts counting CPU time. comesBack says that
// the phase was with its host.
func (p *phase) enter(comesBack bool) error {
	if err := p.rt.gate.enter(p.ctx, p.rt.closed, comesBack); err != nil {
		return p.interrupted(err)
	}
	p.inside = true
	p.resumeClock()
	return nil
}

// leave gives the processor back, if the phase has one.
func (p *phase) leave() {
	if !p.inside {
		return
	}
	p.inside = false
	p.used += time.Since(p.entered)
	p.rt.gate.leave()
}

// interrupted is the error of a phase that ended for no fault of the script.
func (p *phase) interrupted(err error) error {
	return fmt.Errorf("sandbox: %s interrupted: %w", p.prog.name(), err)
}

// check looks at the clock and at whoever may want the phase to end.
func (p *phase) check(now time.Time) {
	if p.stop != nil {
		return
	}
	switch {
	case p.overtime(now):
		p.halt(&LimitError{Limit: "cpu", Value: int64(p.limits.CPU)}, now)
	case now.After(p.deadline):
		p.halt(&LimitError{Limit: "wall", Value: int64(p.limits.Wall)}, now)
	default:
		select {
		case <-p.ctx.Done():
			p.halt(p.interrupted(context.Cause(p.ctx)), now)
		case <-p.rt.closed:
			p.halt(p.interrupted(ErrClosed), now)
		default:
		}
	}
}

// overtime reports whether the script has computed for longer than it may. Both the time that passed
// while it held a processor and what the whole process used of processors are at least what the script used, and
// on a machine with much other work the second is less. It is asked for once an eighth of the limit has passed.
func (p *phase) overtime(now time.Time) bool {
	passed := p.used + now.Sub(p.entered)
	if passed <= p.limits.CPU/8 {
		return false
	}
	if !p.sampled {
		p.sampled, p.ahead = true, passed-p.rt.processor()
	}
	if passed <= p.limits.CPU {
		return false
	}
	used := p.rt.processor()
	return used == 0 || used+p.ahead > p.limits.CPU // 0: the system does not say
}

// halt notes why the script must end. It takes effect at the next interrupt.
func (p *phase) halt(err error, now time.Time) {
	if p.stop == nil {
		p.stop, p.stopped = err, now
	}
}

// limit halts the phase at one of its limits.
func (p *phase) limit(name string, value int64, at Position, call string) {
	p.halt(&LimitError{Limit: name, Value: value, At: at, Call: call}, time.Now())
}

// interrupt is asked by the engine now and then while JavaScript runs. True
// makes it throw an error that JavaScript cannot catch.
func (p *phase) interrupt(now time.Time) bool {
	p.check(now)
	if p.stop == nil {
		return false
	}
	p.locate()
	return true
}

// tick is called from inside loops of compiled code. True traps, which is for
// native code that does not look at interrupts.
func (p *phase) tick(now time.Time) bool {
	p.check(now)
	if p.stop != nil {
		return now.Sub(p.stopped) > grace
	}
	if p.rt.gate.contended() && now.Sub(p.turned) > turn && p.inside {
		p.leave()
		if err := p.enter(false); err != nil {
			p.halt(err, now) // unwinds without a slot, which takes a moment
		}
	}
	return false
}

// enqueue takes a call that the script made.
func (p *phase) enqueue(q request) {
	if p.stop != nil {
		return
	}
	switch q.name {
	case "item.end":
	case "item.fail": // nothing that the item left behind is served any more
		p.queue, p.names, p.waiting = p.queue[:0], nil, 0
	case "publish":
	case "item.begin":
		// A job may have many items: each has the limits of a phase for itself,
		// those of time too (see serve).
		p.issued = 0
		if p.begun++; p.begun > p.limits.Items {
			p.limit("items", int64(p.limits.Items), q.at, "")
			return
		}
		fallthrough
	default:
		if p.issued++; p.issued > p.limits.HostCalls {
			p.limit("host_calls", int64(p.limits.HostCalls), q.at, "")
			return
		}
	}
	// However many calls a script may make, those that wait take the host's memory.
	if p.waiting += q.size(); p.waiting > maxWaiting {
		p.limit("waiting", maxWaiting, q.at, "")
		return
	}
	p.queue, p.names = append(p.queue, q), append(p.names, q.name)
}

// size returns about how many bytes the request takes.
func (q request) size() int {
	n := 100
	for _, arg := range q.args {
		n += len(arg)
	}
	return n
}

// write takes a log line, of which text may be only the beginning.
func (p *phase) write(level string, at Position, text string, length int) {
	if p.stop != nil {
		return
	}
	if p.logTo == nil {
		return
	}
	if length > len(text) {
		for i := 0; i < utf8.UTFMax && !utf8.ValidString(text); i++ {
			text = text[:len(text)-1]
		}
		text += fmt.Sprintf("… (cut, %d bytes)", length)
	}
	p.logTo(level, strings.ToValidUTF8(p.mapText(text), "\uFFFD"), at)
}

// rejection keeps a rejected promise until something handles it.
func (p *phase) rejection(promise, reason value, handled bool) {
	object, _ := p.in.mem.ReadUint64Le(uint32(promise))
	switch {
	case !handled && len(p.rejected) < maxRejected:
		p.rejected = append(p.rejected, rejected{object, promise, reason})
		return
	case handled:
		for i, r := range p.rejected {
			if r.object == object {
				p.rejected = append(p.rejected[:i], p.rejected[i+1:]...)
				p.in.free(r.promise)
				p.in.free(r.reason)
				break
			}
		}
	}
	p.in.free(promise)
	p.in.free(reason)
}

// unhandled is the error of the first promise that was rejected and never
// handled: the script failed in a place that it does not look at.
func (p *phase) unhandled() error {
	if len(p.rejected) == 0 {
		return nil
	}
	reason := p.rejected[0].reason
	p.rejected = nil
	err := p.explain(&thrown{reason})
	if s, ok := errors.AsType[*ScriptError](err); ok {
		s.Message += " (in a promise that the script does not await)"
	}
	return err
}

// finish runs jobs and serves calls until the handler has settled and nothing
// is left to do, and returns the handler's result.
func (p *phase) finish() ([]byte, error) {
	for {
		if err := p.drain(); err != nil {
			return nil, err
		}
		if p.failure != "" {
			return nil, p.thrown(p.failure)
		}
		if len(p.queue) == 0 {
			if err := p.unhandled(); err != nil {
				return nil, err
			}
			if err := p.idle(); err != nil {
				return nil, err
			}
		}
		switch {
		case len(p.queue) > 0:
			q := p.queue[0]
			p.queue, p.names = p.queue[1:], p.names[1:]
			p.waiting -= q.size()
			if err := p.serve(q); err != nil {
				return nil, err
			}
		case p.settled:
			return p.result, nil
		default:
			return nil, &ScriptError{
				Name: "UnsettledError", Message: "the handler " + ErrUnsettled.Error(),
				At: p.where, cause: ErrUnsettled,
			}
		}
	}
}

// drain runs jobs until none is runnable.
func (p *phase) drain() error {
	for n := 1; ; n++ {
		more, err := p.step()
		if err != nil {
			return p.explain(err)
		}
		if n%64 == 0 || !more { // many short jobs are nothing that the engine interrupts
			p.check(time.Now())
		}
		if p.stop != nil {
			return p.explain(p.stop)
		}
		if !more {
			return nil
		}
	}
}

// step runs one job, if there is one.
func (p *phase) step() (more bool, err error) {
	r, err := p.in.do(p.in.fn.job)
	if err != nil {
		return false, err
	}
	if int32(r) < 0 {
		return false, p.in.pending()
	}
	return r > 0, nil
}

// idle is where an item ends, or is found to wait for one inside of it.
func (p *phase) idle() error {
	switch {
	case !p.open:
		return nil
	case p.ending:
		end := request{name: "item.end", scope: p.scopes, at: p.begunAt}
		p.queue, p.names = append(p.queue, end), append(p.names, end.name)
		p.waiting += end.size()
		return nil
	}
	return p.explain(p.tell(p.rt.entry.idle))
}

// serve takes a call to the host, without holding a processor, and its answer to
// the script.
func (p *phase) serve(q request) error {
	c := HostCall{Name: q.name, At: q.at, Scope: q.scope, Args: q.args, Waiting: slices.Clip(p.names)}
	if p.hostCtx == nil {
		p.wall = wall.New(p.ctx, p.deadline, &LimitError{Limit: "wall", Value: int64(p.limits.Wall), At: c.At})
		p.hostCtx, p.cancel = p.wall.Context(), p.wall.Stop
	}
	c.Pause = p.wall.Pause
	p.leave()
	answer, err := p.host.Call(p.hostCtx, c)
	p.deadline = p.deadline.Add(p.wall.Stood())
	if err != nil {
		return &HostError{Call: q.name, At: c.At, Err: err}
	}
	if err := p.enter(true); err != nil {
		return err
	}
	if p.check(time.Now()); p.stop != nil {
		return p.explain(p.stop)
	}
	return p.explain(p.answer(q, answer))
}

// answer resumes the script with the result of a call.
func (p *phase) answer(q request, result []byte) error {
	in, entry := p.in, p.rt.entry
	switch {
	case q.name == "item.end":
		p.renewTime()
		p.open, p.ending = false, false
		return p.tell(entry.close)
	case q.id == 0:
		p.renewTime()
		p.open, p.begunAt = true, q.at
		p.scopes++
		text, err := in.newString(result)
		if err != nil {
			return err
		}
		return p.tell(entry.begun, text)
	}
	v := rawUndefined
	if len(result) > 0 {
		var err error
		if v, err = in.parse(&entry, result); err != nil {
			return err
		}
	}
	return in.apply(&entry, entry.resume, rawInt(q.id), v)
}

// tell calls an entry of the prelude that returns nothing.
func (p *phase) tell(entry value, args ...value) error {
	v, err := p.in.invoke(p.rt.entry.scratch, entry, p.rt.entry.undefined, args...)
	if err != nil {
		return err
	}
	return p.in.free(v)
}

// renewTime gives an item, or what comes after it, the time of a phase.
func (p *phase) renewTime() {
	p.entered = time.Now()
	p.used, p.sampled, p.deadline = 0, false, p.entered.Add(p.limits.Wall)
	// A context with a timer for each of many short items costs more than they
	// do: a call may be cut off a tenth of the limit early instead.
	if p.deadline.Sub(p.wall.Until()) > p.limits.Wall/10 {
		p.cancel()
		p.hostCtx, p.cancel, p.wall = nil, nil, nil
	}
}

// arguments splits the JSON of a call's arguments, which has no newlines of
// its own.
func arguments(text []byte) []json.RawMessage {
	if len(text) == 0 {
		return nil
	}
	args := make([]json.RawMessage, 0, bytes.Count(text, []byte{'\n'}))
	for len(text) > 0 {
		arg := text[1:]
		if i := bytes.IndexByte(arg, '\n'); i >= 0 {
			arg = arg[:i]
		}
		text = text[1+len(arg):]
		if len(arg) == 0 {
			arg = nil
		}
		args = append(args, json.RawMessage(arg[:len(arg):len(arg)]))
	}
	return args
}

// explain turns what went wrong inside of the engine into an error for people:
// the limit that was reached, or what the script threw.
func (p *phase) explain(err error) error {
	if err == nil {
		return nil
	}
	if p.in.broken {
		p.locate()
	}
	if p.stop != nil {
		return p.halted()
	}
	if t, ok := errors.AsType[*thrown](err); ok {
		// The prelude describes the error. If not even that works, the script's time
		// ended meanwhile, or the engine has no memory left for it.
		if _, err := p.in.invoke(p.rt.entry.scratch, p.rt.entry.fail, p.rt.entry.undefined, t.value); err != nil {
			if p.stop != nil {
				return p.halted()
			}
			return p.outOfMemory(p.where)
		}
	}
	switch {
	case p.failure != "":
		return p.thrown(p.failure)
	case errors.Is(err, errHeap):
		return p.outOfMemory(p.where)
	case errors.Is(err, errTrap):
		return p.trapped(err)
	}
	return err
}

// halted is the error of a phase that was asked to stop.
func (p *phase) halted() error {
	if l, ok := errors.AsType[*LimitError](p.stop); ok && l.At.IsZero() {
		l.At = p.where
	}
	return p.stop
}

// locate asks the engine where the script is, once. That is possible in an
// interrupt, and even after a trap: the script's frames are still there. (It
// may then trap again, which changes nothing.)
func (p *phase) locate() {
	if p.located || p.in.fn.inner == nil {
		return
	}
	p.located = true
	stop := p.stop
	p.stop, p.stopped = nil, time.Time{}
	used := p.used
	p.used -= grace // a little time, whatever has been used up
	argv := uint64(p.rt.entry.scratch + 8)
	_, _ = p.in.do(p.in.fn.inner, uint64(p.rt.entry.where), uint64(p.rt.entry.undefined), 0, argv)
	p.used = used
	p.stop, p.stopped = stop, time.Now()
}
