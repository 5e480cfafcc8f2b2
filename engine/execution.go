package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/schedule"
	"github.com/keep-run/keep/law/trace"
)

// An execution is one run while an actor performs it. The actor's goroutine
// owns it; while a phase runs, the host calls of that phase touch only the
// buffers of their own scriptHost.
type execution struct {
	a   *actor
	e   *Engine
	v   version
	def keep.Handler

	run       keep.Run
	closes    *keep.Run           // the attempt before, to be closed with the first commit
	questions []keep.EscalationID // open questions about it, to be closed too
	answered  *[]keep.Escalation  // see answers; nil: not read
	reserved  bool                // the reservations of the run are in the store
	backlog   keep.Backlog        // consumers: what waited when the run began
	keyless   *keep.Failure       // why backlog.Oldest has no order key; nil: it has one, or needs none
	looked    bool                // consumers: prepare was called, for what the actor knew when the run began

	mut     keep.Mutation
	moves   []keep.Move       // of mut, not yet stored
	unlike  *keep.Unlike      // what the next commit must not repeat; nil: anything
	setting *keep.Setting     // what it must not come into; nil: anything
	as      map[string]string // whose credentials the call is sent with
	under   *keep.UnderGrant  // what the next commit was decided under; nil: nothing

	approvedUntil time.Time // when the approval of the call ends; zero: it needs none, or never

	spent  limitsOf     // by which it was found that there is room for the call
	takes  []keep.Spent // what the call counts in budgets, if the next commit records it
	callAt string       // where in the script the call was made
	item   string       // jobs: the item that stopped the run; empty: none
	pokes  int          // jobs: see actor.pokes; what it was when the run last looked

	wouldSend []byte // jobs: what the script now wants to send instead of what mut did; nil: nothing

	paid     bool          // the chain has answers that it paid for, as far as this run saw
	asks     chan request  // of host calls to the goroutine that owns the execution
	callOver chan struct{} // is closed when that goroutine does not wait for the phase any more

	logs     []keep.LogLine               // not yet stored
	logged   logged                       // by this run, stored or not
	phaseLog *runLog                      // of the phase under way, for its goroutine alone
	called   []string                     // path of the function that ran last; nil: none did
	extra    []keep.Change                // not yet stored, besides all that
	with     func(keep.Run) []keep.Change // returns more of them at the next commit; nil: there are none

	pass     *pass // of the call under way
	probe    *pass // with which the run began: it finds out whether a service answers
	inScript bool  // a phase runs in a goroutine of its own
	direct   bool  // no script makes its call; see Caller

	seen *trace.Recorder // what the run saw; nil: it is not recorded
	mark trace.Mark      // how much of it the commit under way holds

	again *recorded // answers of a replay; nil: the run is executed

	spanCtx oteltrace.SpanContext // of the run; zero: nobody traces
}

// stillSlow is how long the reads of a phase that is slow are out before the run says so.
const stillSlow = 500 * time.Millisecond

func (a *actor) execution(v version, h keep.Handler, r keep.Run) *execution {
	a.last = &execution{a: a, e: a.e, v: v, def: h, run: r, pokes: a.read, asks: make(chan request), seen: trace.NewRecorder(a.e.policy.Limits.Trace)}
	return a.last
}

// perform executes the run from start. The error is nil when the run ended in
// any state that is on record.
func (x *execution) perform(ctx context.Context, start lifecycle.Start) error {
	x.a.ran[x.run.Handler] = true
	x.a.takesNews(x.run.Handler)
	ctx, end := x.span(ctx)
	defer end()
	switch x.run.Kind {
	case keep.Producer:
		return x.produce(ctx)
	case keep.Job:
		return x.work(ctx)
	}
	switch start {
	case lifecycle.FromMutate:
		return x.mutate(ctx)
	case lifecycle.FromNext:
		return x.next(ctx)
	default:
		x.measureQueue()
		return x.prepare(ctx)
	}
}

// changes returns what must be written for the run to stand as it does: the
// attempt before is closed, the run itself, its mutation, its log. What the run
// lists as reserved is reserved with the first commit that says so: whoever
// takes the run over believes the list (law: pinned).
func (x *execution) changes() []keep.Change {
	var cs []keep.Change
	if x.closes != nil {
		cs = append(cs, keep.PutRun{Run: *x.closes})
	}
	for _, id := range x.questions {
		cs = append(cs, keep.CloseEscalation{ID: id})
	}
	cs = append(cs, keep.PutRun{Run: x.run})
	if x.under != nil { // before the record that it guards, as the next
		cs = append(cs, *x.under)
	}
	if x.unlike != nil {
		cs = append(cs, *x.unlike)
	}
	if x.setting != nil {
		cs = append(cs, *x.setting)
	}
	for _, s := range x.takes {
		if !s.Allowed {
			cs = append(cs, keep.Within{Key: x.mut.Key, Spent: s})
		}
	}
	if len(x.moves) > 0 {
		cs = append(cs, keep.PutMutation{Mutation: x.mut, Moves: x.moves})
	}
	if len(x.logs) > 0 {
		cs = append(cs, keep.AppendLogs{Lines: x.logs})
	}
	if part := x.tracePart(); part != nil {
		cs = append(cs, keep.AppendTrace{Part: keep.TracePart{Run: x.run.ID, At: x.run.UpdatedAt, Data: part}})
	}
	if !x.reserved {
		for _, r := range x.run.Reservations {
			cs = append(cs, keep.Reserve{Chain: x.run.Chain, Reservation: r})
		}
	}
	if x.run.Phase == keep.Committed {
		cs = append(cs, x.forgetPaid()...)
	}
	if x.with != nil {
		cs = append(cs, x.with(x.run)...)
	}
	return append(cs, x.extra...)
}

// tracePart returns what the next commit stores of what the run saw. The times of phases and calls by
// themselves wait for a commit after which the run may not be executed: the one before its call is such
// a one, or a run that dies in its call could not be replayed.
func (x *execution) tracePart() (part []byte) {
	x.mark = trace.Mark{}
	if x.seen.Due() || x.run.Closed || x.run.Status != keep.StatusActive || x.run.Phase == keep.Mutating {
		part, x.mark = x.seen.Part()
	}
	return part
}

// commit makes the run durable as it stands, with more changes behind.
func (x *execution) commit(ctx context.Context, more ...keep.Change) error {
	now := x.run.UpdatedAt
	changes := append(x.changes(), more...)
	if err := x.a.commit(ctx, now, changes...); err != nil {
		return &commitError{lostRace(err)}
	}
	x.a.forget(changes)
	x.run.Rev++
	x.reserved = len(x.run.Reservations) > 0
	if len(x.moves) > 0 {
		x.mut.Rev++
	}
	x.seen.Stored(x.mark)
	x.closes, x.questions, x.moves, x.unlike, x.setting, x.under, x.takes, x.logs, x.extra, x.with = nil, nil, nil, nil, nil, nil, nil, nil, nil, nil
	return nil
}

// before returns the attempt that this one follows; empty: none.
func (x *execution) before() keep.RunID { return x.run.RetryOf }

// remember makes the actor's cache say what was just committed.
func (x *execution) remember(state *keep.HandlerState) {
	a := x.a
	a.open = slices.DeleteFunc(a.open, func(o schedule.Open) bool { return o.Run.ID == x.run.ID || o.Run.ID == x.before() })
	if !x.run.Closed {
		a.open = append(a.open, schedule.Open{Run: x.run, Doubt: x.mut, By: x.calledNow()})
		slices.SortFunc(a.open, func(a, b schedule.Open) int { return cmp.Compare(a.Run.ID, b.Run.ID) })
		clear(a.ahead) // it may be long until the next look
	}
	if state != nil {
		a.states[state.Handler] = *state
	}
}

// calledNow returns the name of the handler of the current version that carries on with the run, or reads its events; empty: there is none.
func (x *execution) calledNow() keep.HandlerName {
	h, ok := x.a.current.Definition.Carrier(x.run.Kind, x.run.Handler)
	if !ok {
		h, ok = x.a.current.Definition.FirstNamed(x.run.Kind, x.def.ItemsOf())
	}
	if !ok {
		h, _ = schedule.ReaderOf(x.a.current.Definition, x.run)
	}
	return h.Name
}

// call runs one phase of the script. If it takes longer than the engine's idea
// of slow, meanwhile is called once, beside it; after that the run says for which read it waits. Without meanwhile,
// as in a job, whose own calls commit while its phase runs, nothing else does.
func (x *execution) call(ctx context.Context, phase string, args []json.RawMessage, host *scriptHost, slow time.Duration, meanwhile func() error) (json.RawMessage, error) {
	type answer struct {
		result json.RawMessage
		err    error
	}
	ctx, end := x.phaseSpan(ctx, phase)
	done := make(chan answer, 1)
	now, began, seed := x.e.Now(), time.Now(), x.e.cfg.Chance()
	log := runLog{x: x, logged: x.logged}
	x.phaseLog, x.called = &log, x.path(phase)
	x.inScript, x.callOver, host.phaseCtx = true, make(chan struct{}), ctx
	defer close(x.callOver)
	go func() { // ends before call returns
		ans := answer{err: errGone}
		defer func() { done <- ans }()
		ans.result, ans.err = x.v.script.Call(ctx, ScriptCall{
			Path: x.called, Args: args, Now: now, Seed: seed, Host: host, Log: log.add,
		})
	}()
	timer := new(time.Timer) // one that never fires
	if meanwhile != nil {
		timer = time.NewTimer(slow)
		defer timer.Stop()
	}
	var ans answer
	var slowErr error
	first := true
	for waiting := true; waiting; {
		select {
		case ans = <-done:
			waiting = false
		case <-timer.C:
			waits := x.seen.Waits()
			if first {
				slowErr = meanwhile()
			} else if waits && ctx.Err() == nil {
				slowErr = x.announce(ctx)()
			}
			if first = false; slowErr == nil {
				timer.Reset(stillSlow)
			}
		case q := <-x.asks:
			if slowErr == nil {
				q.done <- q.do()
			} else {
				q.done <- &storeError{slowErr}
			}
		}
	}
	x.inScript = false
	end(ans.err)
	x.sawPhase(phase, began, ans.err, &trace.Script{Clock: now, Seed: seed}, args, ans.result, host)
	x.logs, x.logged = append(x.logs, log.lines...), log.logged
	if slowErr != nil {
		return nil, &storeError{slowErr}
	}
	if ans.err != nil && ctx.Err() != nil && !errors.Is(ans.err, errGone) && !x.wasRefused(ans.err) {
		return nil, errStopping
	}
	return ans.result, ans.err
}

// wasRefused reports whether err is what a service said to the call of this very
// phase. It is read also while the host stops: how long to wait, and that the
// call was made, must not be forgotten.
func (x *execution) wasRefused(err error) bool {
	_, failed := errors.AsType[*keep.Failure](err)
	return failed && x.mut.State == keep.Failed && len(x.moves) > 0
}

// path returns where the function of that phase is in the declaration.
func (x *execution) path(phase string) []string {
	switch x.run.Kind {
	case keep.Producer:
		return []string{"producers", string(x.def.Name)}
	case keep.Job:
		return []string{"jobs", string(x.def.Name)}
	default:
		return []string{"consumers", string(x.def.Name), phase}
	}
}

// announce makes a run visible that has taken long before its first commit.
func (x *execution) announce(ctx context.Context) func() error {
	return func() error {
		x.run.UpdatedAt = x.e.Now()
		return x.commit(ctx)
	}
}

// A storeError is a commit or read that went wrong beside or within a phase. It
// is no failure of the run: the actor reads everything again.
type storeError struct{ err error }

// Error is that of the store.
func (e *storeError) Error() string { return e.err.Error() }

// Unwrap returns the error of the store.
func (e *storeError) Unwrap() error { return e.err }

// A commitError is a commit of a run that went wrong, or what went wrong after one: what is in
// memory may not be what is stored.
type commitError struct{ err error }

// Error is that of the store.
func (e *commitError) Error() string { return e.err.Error() }

// Unwrap returns the error of the store.
func (e *commitError) Unwrap() error { return e.err }

// fail records that err stopped the run, and routes it by its class.
func (x *execution) fail(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*storeError](err); ok {
		return e.err
	}
	switch {
	case errors.Is(err, errGone):
		return err
	case errors.Is(err, errItemChanged):
		x.a.loaded = false
		return x.leave(ctx, "a person changed the item")
	case errors.Is(err, errPaused):
		x.a.loaded = false // read again that it is paused
		return x.leave(ctx, "a person paused the workflow")
	case errors.Is(err, errLeaseLost), errors.Is(err, errStopping) && errors.Is(context.Cause(ctx), errLeaseLost):
		return cmp.Or(x.leave(ctx, "the host lost its lease"), err)
	case errors.Is(err, errStopping):
		return cmp.Or(x.leave(ctx, "the host was stopped"), err)
	}
	if u := unapproved(err); u != nil {
		return x.askApproval(ctx, u)
	}
	if e, ok := errors.AsType[*rivalError](err); ok {
		return x.askAlreadyDone(ctx, e)
	}
	if e, ok := errors.AsType[*overBudgetError](err); ok {
		return x.askBudget(ctx, e)
	}
	f := x.inWords(x.located(ctx, asFailure(err)))
	if f.Code == keep.CodeBreaker {
		return x.waitForBreaker(ctx, f)
	}
	now := x.e.Now()
	retry := x.e.policy.Retry
	v, err := x.routeLimit(ctx, consequence{
		Consequence: lifecycle.Classify(f.Class, x.mut, retry.Exhausted(x.run.Retries)), why: f,
		retryAt: now.Add(retry.Delay(x.run.Retries, f.RetryAfter, x.e.jitter())),
	})
	if err != nil {
		return err
	}
	more, err := x.trip(ctx, v.why, v.Escalate != "")
	if err != nil {
		return err
	}
	if v.question == nil {
		return x.stop(ctx, v.why, v.Consequence, v.retryAt, more...)
	}
	if err := x.stop(ctx, v.why, v.Consequence, v.retryAt, append(more, keep.OpenEscalation{Escalation: *v.question})...); err != nil {
		return err
	}
	return x.e.gate(f.Tool).asked(ctx, v.question.ID)
}

// located returns f with the place of the function that ran last, if f is a mistake of the script
// that is no call of it: it is about what the function returned, or did in all.
func (x *execution) located(ctx context.Context, f *keep.Failure) *keep.Failure {
	if f.Class != keep.ClassLogic || f.At != "" || x.called == nil {
		return f
	}
	at := *f
	at.At = x.v.script.Locate(ctx, x.called)
	return &at
}

// inWords returns f as the author of the handlers knows the names in it. What the author or a service says is left as it is.
func (x *execution) inWords(f *keep.Failure) *keep.Failure {
	w, ok := x.v.script.(Wording)
	said := f.Code == "handler-error" || f.Code == "handler-panic" || f.Code == "script-error"
	if !ok || said || f.Class != keep.ClassLogic && f.Class != keep.ClassPrecondition {
		return f
	}
	in := *f
	in.Message = w.InWords(f.Message)
	return &in
}

// stop records that the run stopped because of f, as the verdict says.
func (x *execution) stop(ctx context.Context, f *keep.Failure, v lifecycle.Consequence, retryAt time.Time, more ...keep.Change) error {
	now := x.e.Now()
	x.run = lifecycle.Fail(x.run, f, v, retryAt, now)
	if v.Release && x.run.Kind == keep.Consumer {
		more = append(more, x.release())
	}
	switch {
	case v.Escalate == "", v.Escalate == keep.AskPermission && lifecycle.AsksForAccount(f):
	case v.Escalate == keep.AskLogic && x.e.cfg.Repairs != nil && x.e.cfg.Repairs() && !x.v.Definition.Go:
		x.run.Error = x.aboutItem(f)
	default:
		more = append(more, keep.OpenEscalation{Escalation: x.question(ctx, v.Escalate, f, now, x.moves)})
	}
	state := x.state(now)
	more = append(more, keep.PutHandler{State: state, Served: x.served()})
	if err := x.commit(ctx, more...); err != nil {
		return err
	}
	x.remember(&state)
	x.a.log.WarnContext(ctx, "run stopped", x.facts("phase", x.run.Phase, "status", x.run.Status, "err", f)...)
	return nil
}

// release returns the change that gives the events of a failed run back. It names the
// trigger: a run that failed in prepare has reserved nothing.
func (x *execution) release() keep.Release {
	r := keep.Release{Chain: x.run.Chain}
	if !x.run.Trigger.IsZero() {
		r.Tried = []keep.EventRef{x.run.Trigger}
	}
	return r
}

// leave gives up a run because the host stops, or a person paused the workflow. What
// was never stored needs no record, and what is in doubt has the right one; what was
// announced begins again at the next start, and counts as no crash.
func (x *execution) leave(ctx context.Context, why string) error {
	if x.run.Rev == 0 || lifecycle.Unknown(x.mut.State) {
		return nil
	}
	x.run = lifecycle.Interrupt(x.run, why, x.e.Now())
	return x.commit(ctx)
}

// lostRace turns a refused reservation into keep.ErrStale: the events were free
// when prepare had named them, so somebody took them since, and the actor must
// look again. Other errors pass.
func lostRace(err error) error {
	if r, ok := errors.AsType[*keep.ReservationError](err); ok {
		return fmt.Errorf("%w: %w", keep.ErrStale, r)
	}
	return err
}

// state returns what the host remembers of the handler after this run ended.
func (x *execution) state(now time.Time) keep.HandlerState {
	name := cmp.Or(x.calledNow(), x.run.Handler)
	s := x.a.states[name]
	s.Workflow, s.Handler, s.Kind = x.a.name, name, x.run.Kind
	s.LastRun, s.LastAt = x.run.ID, now
	if s.RequestedAt.UnixMilli() <= x.served().UnixMilli() { // as the store does
		s.RequestedAt = time.Time{}
	}
	if x.run.Phase != keep.Committed {
		return s
	}
	if x.run.Kind == keep.Consumer {
		s.WakeAt, s.IdleSeq = x.run.WakeAt, x.run.SeenSeq
		if len(x.run.Reservations) > 0 {
			s.IdleSeq = 0 // it continues as long as it keeps reserving
		}
		return s
	}
	s.NextAt = x.e.nextTick(x.def.Schedule, x.run.CreatedAt, now)
	return s
}

// served returns up to when a request, as a person's "run now", is answered by this run: that of which the actor knew when the run began,
// whatever the clock said when that was made. One that came later is served by the next run, also if the clock of who made it is behind.
// Where another execution looked at the events of a consumer it is none: it may have come since.
func (x *execution) served() time.Time {
	if x.run.Kind == keep.Consumer && !x.looked {
		return time.Time{}
	}
	return x.a.states[x.run.Handler].RequestedAt
}

// transition moves the run to a later phase. An error is a bug of ours.
func (x *execution) transition(to keep.Phase) error {
	r, err := lifecycle.Advance(x.run, to, x.e.Now())
	if err != nil {
		return keep.Failf(keep.ClassInternal, "phase", "%v", err)
	}
	x.run = r
	return nil
}

// trace tells tests where the run is.
func (x *execution) trace(p Point) { x.e.cfg.Trace(x.a.name, p) }

func marshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("engine: marshal %T: %v", v, err)) // only our own types come here
	}
	return b
}
