package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/outcome"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/schedule"
)

// DirectHandler is the one handler of keep.DirectWorkflow. Its runs have a call and nothing else; no actor executes it.
const DirectHandler keep.HandlerName = "call"

// DirectDeployment is the one version of keep.DirectWorkflow.
func DirectDeployment(now time.Time) keep.Deployment {
	code := []byte("// The calls of agents: nothing is executed here. See docs/gateway.md.\n")
	return keep.Deployment{
		Workflow: keep.DirectWorkflow, Version: keep.Version{Major: 1}, Hash: ledger.Hash(code), Entry: "gateway.js", Code: code, CreatedAt: now,
		Definition: keep.Definition{Name: keep.DirectWorkflow, Handlers: []keep.Handler{{Name: DirectHandler, Kind: keep.Consumer, HasMutate: true, IgnoresResult: true}}},
	}
}

// A DirectCall is one call of a mutate tool that no script makes.
type DirectCall struct {
	Lane  keep.Lane // of calls that are the same: one is open at a time
	Agent string    // who makes it
	Tool  keep.ToolName

	// As is what the record and the runs of the call call its tool, which has another name since; empty: Tool. Known is the name of the tool by
	// which the call is known, and of which its lane is made; empty: As.
	As, Known keep.ToolName

	Params   json.RawMessage // canonical
	Identity json.RawMessage // canonical

	// Ask is why a person must agree to the call, beside what its tool says; empty: nothing.
	Ask string

	// Prev is the run before, of the same call: one that waited for a person, or whose
	// call is known to have failed. Zero: there is none.
	Prev keep.Run

	// With returns what becomes durable together with the run. It is called at the first commit.
	With func(keep.Run) []keep.Change
}

// prepared is what the run keeps of the call, which may be without a record: who makes it, and what it says.
func (d DirectCall) prepared() json.RawMessage {
	return marshal(map[string]any{"data": map[string]any{"agent": d.Agent, "tool": cmp.Or(d.As, d.Tool), "known": cmp.Or(d.Known, d.As, d.Tool), "ask": d.Ask, "content": ledger.Hash(d.Params)}, "reservations": []any{}})
}

// A DirectOutcome is what became of a DirectCall: its run and its record as they are stored.
// A run without a revision was refused before anything was recorded, as Failure says.
type DirectOutcome struct {
	Run      keep.Run
	Mutation keep.Mutation // zero: nothing was recorded
	Failure  *keep.Failure // why it is not applied; nil: it is
}

// A Caller makes calls that no script makes, each in a run of its own, and finds out what
// became of those in doubt.
type Caller struct {
	e *Engine

	// Ready reports whether a call in doubt can be asked about whose tool a person was to look at first. It may be asked often.
	Ready func(keep.Mutation) bool

	hard context.Context // ends when calls in flight must be given up

	mu        sync.Mutex
	executing map[keep.RunID]bool // runs of calls under way here
	since     time.Time           // that of its actors, which live for one call
}

// Caller returns a Caller whose calls are given up when hard ends.
func (e *Engine) Caller(hard context.Context) *Caller {
	return &Caller{e: e, hard: hard, executing: make(map[keep.RunID]bool), since: e.Now(), Ready: func(keep.Mutation) bool { return false }}
}

// execute notes that a run is executed here until done is called.
func (c *Caller) execute(id keep.RunID) (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.executing[id] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.executing, id)
	}
}

// isExecuting reports whether a run is executed here.
func (c *Caller) isExecuting(id keep.RunID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.executing[id]
}

// values is a context that ends with one and has the values of another.
type values struct {
	context.Context
	of context.Context
}

// Value implements context.Context.
func (v values) Value(key any) any {
	if found := v.of.Value(key); found != nil {
		return found
	}
	return v.Context.Value(key)
}

// actor returns one for one call: nothing that an actor has is shared between calls.
func (c *Caller) actor(ctx context.Context) (*actor, error) {
	a := newActor(c.e, keep.Lease{Workflow: keep.DirectWorkflow})
	c.mu.Lock()
	a.since = c.since
	c.mu.Unlock()
	a.hard = values{c.hard, ctx}
	a.states = make(map[keep.HandlerName]keep.HandlerState)
	var err error
	if a.workflow, err = c.e.store.Workflow(ctx, keep.DirectWorkflow); err != nil {
		return nil, err
	}
	a.current = version{Deployment: DirectDeployment(time.Time{})}
	_, err = a.learnGrant(ctx, a.workflow.Granted)
	return a, err
}

// execution returns that of a run.
func (c *Caller) execution(a *actor, r keep.Run) *execution {
	x := a.execution(a.current, a.current.Definition.Handlers[0], r)
	x.direct, x.seen = true, nil
	return x
}

// Call makes a call and records what became of it, whatever becomes of ctx. Values of ctx
// reach the tool. An error that is no failure says that the store could not be written; what
// is on disk is then what counts.
func (c *Caller) Call(ctx context.Context, d DirectCall) (DirectOutcome, error) {
	ctx = context.WithoutCancel(ctx)
	a, err := c.actor(ctx)
	if err != nil {
		return DirectOutcome{}, err
	}
	defer a.calls.Wait()
	if a.workflow.Paused {
		return DirectOutcome{Failure: callsPaused()}, nil
	}
	t := c.e.tools.get(d.Tool)
	if t == nil || t.spec.Effect != connector.Mutate {
		return DirectOutcome{Failure: keep.Failf(keep.ClassPrecondition, "unknown-tool", "there is no tool %s", d.Tool)}, nil
	}
	x, err := c.begin(ctx, a, d)
	if err != nil {
		return DirectOutcome{}, err
	}
	defer c.execute(x.run.ID)()
	target, f := t.target(d.Params, "")
	if f != nil {
		return DirectOutcome{Run: x.run, Failure: f}, nil
	}
	call := &takenCall{tool: t, params: d.Params, identity: d.Identity, payload: d.Params, target: target, ask: d.Ask}
	lc := call.ledgerCall(x, ledger.RunKey(x.run.Chain), ledger.Hash(d.Params))
	lc.Pin, lc.Tool = c.pin(t, d.Agent), cmp.Or(d.As, d.Tool)
	answers, err := x.answers(ctx, keep.AskApproval)
	if err != nil {
		return DirectOutcome{}, err
	}
	if i := slices.IndexFunc(answers, func(q keep.Escalation) bool { return lifecycle.SaysDone(q) && q.Approval != nil }); i >= 0 {
		call.said = &answers[i]
	}
	if call.answers, err = x.answers(ctx, keep.AskAlreadyDone); err != nil {
		return DirectOutcome{}, err
	}
	return c.conclude(ctx, x, call, lc)
}

// callsPaused says why no call is made: a person paused keep.DirectWorkflow, or a restore or a failover did, after which calls of before are not known.
func callsPaused() *keep.Failure {
	return keep.Failf(keep.ClassPrecondition, "paused", "a person paused the calls of agents (the workflow %s), and resumes them", keep.DirectWorkflow)
}

// pin is that of a tool with the agent that calls it.
func (c *Caller) pin(t *tool, agent string) json.RawMessage {
	p := t.sentAs
	p.Agent = agent
	return marshal(p)
}

// begin returns the execution of the next attempt at a call.
func (c *Caller) begin(ctx context.Context, a *actor, d DirectCall) (*execution, error) {
	now := c.e.Now()
	id := keep.RunID(c.e.newID("run", now))
	if d.Prev.ID == "" {
		x := c.execution(a, keep.Run{
			ID: id, Chain: id, Workflow: keep.DirectWorkflow, Version: a.current.Version, Handler: DirectHandler, Kind: keep.Consumer,
			Phase: keep.Prepared, Status: keep.StatusActive, Lane: d.Lane, CreatedAt: now, UpdatedAt: now,
			Prepared: d.prepared(),
		})
		x.with = d.With
		return x, nil
	}
	// One that a person said was done already names no record, and there may be one of an earlier attempt.
	m, err := c.e.store.Mutation(ctx, cmp.Or(d.Prev.Mutation, ledger.RunKey(d.Prev.Chain)))
	if err != nil && (d.Prev.Mutation != "" || !isNotFound(err)) {
		return nil, err
	}
	next, closed := lifecycle.NextAttempt(d.Prev, m, id, a.current.Version, now)
	next.Prepared, next.Lane = d.prepared(), d.Lane
	next.Closed, next.Phase = false, keep.Prepared // it has no next: each attempt begins at its call
	x := c.execution(a, next)
	x.mut, x.closes = m, &closed
	if m.Key == "" {
		x.run.Mutation = ""
	}
	if x.questions, err = a.openQuestions(ctx, d.Prev); err != nil {
		return nil, err
	}
	x.with = d.With
	return x, nil
}

// conclude makes the call and records what became of it.
func (c *Caller) conclude(ctx context.Context, x *execution, call *takenCall, lc ledger.Call) (DirectOutcome, error) {
	mutating := func() ([]keep.Change, error) {
		return []keep.Change{keep.SetPaused{If: new(keep.PauseState)}}, x.transition(keep.Mutating) // a person may pause the calls meanwhile
	}
	err := x.makeCall(ctx, call, lc, x.mut, mutating)
	if done, ok := errors.AsType[*treatedError](err); ok {
		x.mut, x.run.Mutation = done.outcome(), ""
		return c.settle(ctx, x, nil)
	}
	if err != nil {
		return c.refused(ctx, x, err)
	}
	return c.settle(ctx, x, nil)
}

// refused records why a call was not made. One that a person decides about waits; every other
// one is over, and leaves a record only if there was one before. What a person agreed to and that has none stays open: it may be made
// later, and nobody rejected it.
func (c *Caller) refused(ctx context.Context, x *execution, err error) (DirectOutcome, error) {
	if e, ok := errors.AsType[*storeError](err); ok {
		return DirectOutcome{}, e.err
	}
	_, rival := errors.AsType[*rivalError](err)
	_, budget := errors.AsType[*overBudgetError](err)
	if unapproved(err) != nil || rival || budget {
		if err := x.fail(ctx, err); err != nil {
			return DirectOutcome{}, err
		}
		return DirectOutcome{x.run, x.mut, x.run.Error}, nil
	}
	if errors.Is(err, errPaused) {
		err = callsPaused()
	}
	if errors.Is(err, errStopping) {
		return DirectOutcome{}, err
	}
	f := asFailure(err)
	if x.run.Rev == 0 && (x.closes == nil || x.mut.Key == "") {
		return DirectOutcome{Run: x.run, Failure: f}, nil
	}
	return c.settle(ctx, x, f)
}

// settle records the outcome of a run: it commits if its call was applied or a person skipped
// it, is over if the call failed, and waits if nobody knows.
func (c *Caller) settle(ctx context.Context, x *execution, f *keep.Failure) (DirectOutcome, error) {
	now := c.e.Now()
	switch {
	case f == nil && lifecycle.Settled(x.mut.State):
		x.run = direct(x.run, now)
		if err := x.commit(ctx); err != nil {
			return DirectOutcome{}, err
		}
		x.trace(AfterCommit)
		return DirectOutcome{Run: x.run, Mutation: x.mut}, nil
	case f == nil && lifecycle.Unknown(x.mut.State):
		if err := x.fail(ctx, x.callFailure()); err != nil {
			return DirectOutcome{}, err
		}
		return DirectOutcome{x.run, x.mut, x.run.Error}, nil
	case f == nil:
		f = x.callFailure()
	}
	// It does not count towards the breaker of the tool: an agent that gets its arguments wrong says
	// nothing about the calls of others.
	x.run = lifecycle.Abort(x.run, now)
	x.run.Error = f
	if err := x.commit(ctx); err != nil {
		return DirectOutcome{}, err
	}
	return DirectOutcome{x.run, x.mut, f}, nil
}

// direct returns a run committed whose call has its outcome. It has no next.
func direct(r keep.Run, now time.Time) keep.Run {
	for _, to := range []keep.Phase{keep.Mutated, keep.Emitting, keep.Committed} {
		if next, err := lifecycle.Advance(r, to, now); err == nil {
			r = next
		}
	}
	return r
}

// Known returns what is known of the call of a run: its record, or what a person treats it as done by. Zero: there is neither.
func (c *Caller) Known(ctx context.Context, r keep.Run) (keep.Mutation, error) {
	if r.Status == keep.StatusCommitted {
		r.Phase = keep.Mutated // what was known of its call then still is
	}
	m, err := outcome.Of(ctx, c.e.store, r)
	if isNotFound(err) { // it waits for a person before its call is recorded
		return keep.Mutation{}, nil
	}
	return m, err
}

// Recover takes over the runs that a process left while their calls were out. Alone says that
// no other process can be at work on the store; else a call is taken over after its deadline,
// at which the one that made it gave it up. Calls that this Caller makes are left to it, whatever the clock says.
func (c *Caller) Recover(ctx context.Context, alone bool) error {
	open, err := c.e.store.OpenRuns(ctx, keep.DirectWorkflow)
	if err != nil {
		return err
	}
	for _, r := range open {
		if err := c.RecoverRun(ctx, r, alone); err != nil {
			return err
		}
	}
	return nil
}

// RecoverRun is Recover of one run.
func (c *Caller) RecoverRun(ctx context.Context, r keep.Run, alone bool) error {
	if r.Status != keep.StatusActive || c.isExecuting(r.ID) {
		return nil
	}
	if err := c.recover(ctx, r, alone); err != nil && !errors.Is(err, keep.ErrStale) {
		return fmt.Errorf("recover run %s: %w", r.ID, err)
	}
	return nil
}

// endedWithCall is all that is known of a call that a gateway recorded and did not settle: it may be one that was killed, or that
// ended since its configuration changed or its database was away.
const endedWithCall = "the gateway that recorded the call ended, or lost the database, before the call was over, and may have sent it"

// recover takes over one run.
func (c *Caller) recover(ctx context.Context, r keep.Run, alone bool) error {
	x, err := c.resume(ctx, r)
	if err != nil {
		return err
	}
	now := c.e.Now()
	ends := r.UpdatedAt.Add(time.Minute) // its call is not recorded: it waits for a limit, or its process ended
	if x.mut.Key != "" {
		ends = x.mut.CallDeadline.Add(overtime)
	}
	if !alone && now.Before(ends) {
		return nil
	}
	switch {
	case x.mut.State == keep.InFlight:
		fact := ledger.Fact{Evidence: ledger.Unsure, By: "recovery", Detail: endedWithCall, Failure: keep.Failf(keep.ClassUnknown, "crash", endedWithCall)}
		if !x.mut.CanReconcile {
			fact.Evidence = ledger.CannotAsk
		}
		x.mut = ledger.Died(x.mut)
		if err := x.learn(fact); err != nil {
			return err
		}
		_, err = c.settle(ctx, x, nil)
	case x.mut.Key == "" || lifecycle.Resends(x.mut):
		_, err = c.settle(ctx, x, keep.Failf(keep.ClassTransient, "crash", "the gateway ended before the call was recorded; nothing was sent"))
	default:
		_, err = c.settle(ctx, x, nil)
	}
	return err
}

// resume returns the execution of an open run.
func (c *Caller) resume(ctx context.Context, r keep.Run) (*execution, error) {
	a, err := c.actor(ctx)
	if err != nil {
		return nil, err
	}
	x := c.execution(a, r)
	if r.Mutation != "" {
		if x.mut, err = c.e.store.Mutation(ctx, r.Mutation); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// Ask finds out what became of the calls in doubt about which a lookup is due, and ends the runs
// whose calls a person decided about. It returns when to ask next; zero: nothing is planned.
func (c *Caller) Ask(ctx context.Context) (next time.Time, err error) {
	open, err := c.e.store.OpenRuns(ctx, keep.DirectWorkflow)
	if err != nil {
		return next, err
	}
	for _, r := range open {
		if r.Status == keep.StatusActive || ctx.Err() != nil {
			continue
		}
		at, err := c.ask(ctx, r)
		if err != nil && !errors.Is(err, keep.ErrStale) {
			return next, fmt.Errorf("ask about run %s: %w", r.ID, err)
		}
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, nil
}

// AskAbout is Ask about one run.
func (c *Caller) AskAbout(ctx context.Context, r keep.Run) error {
	if r.Closed || r.Status == keep.StatusActive {
		return nil
	}
	_, err := c.ask(ctx, r)
	if errors.Is(err, keep.ErrStale) {
		return nil
	}
	return err
}

// isDue reports whether a call in doubt is to be asked about now: its lookup was planned for that, or waited for a tool that is there now, or that
// a person agreed to. One that is being sent again waits, as each of several processes would send it once more then, and only the last one records it.
func (c *Caller) isDue(m keep.Mutation, now time.Time) bool {
	if !m.NextReconcileAt.After(now) {
		return true
	}
	return !m.SentAgainUntil().After(now) && (ledger.AsksForTool(m.Error) && c.Ready(m) || !c.e.dueByTool(m).NextReconcileAt.After(now))
}

// ask moves one open run on, if it can be.
func (c *Caller) ask(ctx context.Context, r keep.Run) (next time.Time, err error) {
	defer func() {
		if err != nil { // what was sent again may not be recorded
			c.mu.Lock()
			defer c.mu.Unlock()
			c.since = c.e.Now()
		}
	}()
	x, err := c.resume(ctx, r)
	if err != nil {
		return next, err
	}
	now := c.e.Now()
	switch m := x.mut; {
	case lifecycle.Settled(m.State), lifecycle.Resends(m) && r.Status == keep.StatusReconciliation:
		_, err = c.settle(ctx, x, nil)
		return next, err
	case m.NextReconcileAt.IsZero():
		return next, nil // it waits for a person
	case !c.isDue(m, now):
		return m.NextReconcileAt, nil
	}
	x.a.open = []schedule.Open{{Run: r, Doubt: x.mut}}
	doubt, fact, until, err := x.a.find(ctx, x.mut)
	switch {
	case err != nil:
		return next, err
	case !until.IsZero():
		return until, nil
	}
	now = c.e.Now()
	x.mut = doubt
	m, move, err := ledger.AfterLookup(x.mut, fact, c.e.askLimit(x.mut, fact, now), now)
	if err != nil {
		return next, err
	}
	x.mut, x.moves = m, []keep.Move{move}
	if lifecycle.Settled(m.State) {
		if x.questions, err = x.a.openQuestions(ctx, r); err != nil {
			return next, err
		}
	}
	_, err = c.settle(ctx, x, nil)
	return m.NextReconcileAt, err
}
