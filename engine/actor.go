package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine/lease"
	"github.com/keep-run/keep/internal/outcome"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/schedule"
)

// An actor works on one workflow, one step after another.
type actor struct {
	e    *Engine
	name keep.WorkflowName
	log  *slog.Logger

	// Without leases: without epoch, nil and that of the engine.
	lease  keep.Lease
	leases *lease.Manager
	hard   context.Context         // ends when its calls in flight must be given up
	since  time.Time               // see lastSent
	cancel context.CancelCauseFunc // ends everything that it does

	granted atomic.Pointer[permits] // see permit.go; nil: not read
	inGo    atomic.Pointer[version] // the version in force, if it is written in Go; nil: it is not, or was not read

	calls sync.WaitGroup // calls of tools that can be asked; run ends after them

	// wakeup holds a token when something may have changed.
	wakeup chan struct{}

	// Guarded by Engine.mu.
	isIdle bool                      // it waits, and nothing becomes due soon
	stale  bool                      // the cache below must be read again
	pokes  int                       // how often it became so
	read   int                       // pokes as of the cache
	isBusy bool                      // it executes a run that the store may not show yet
	yields bool                      // it ends after the step that it is at
	news   map[keep.HandlerName]bool // see watch.go

	// The cache; only the actor's goroutine touches it.
	loaded   bool
	workflow keep.Workflow
	current  version
	items    *itemSpace   // of the version that executed last; nil: not read
	settled  keep.Version // see overtaken
	states   map[keep.HandlerName]keep.HandlerState
	ran      map[keep.HandlerName]bool // has run since the host started
	open     []schedule.Open           // sorted by id
	detached []keep.Mutation           // see detach.go
	ahead    map[keep.HandlerName]ahead
	scans    map[keep.HandlerName]*scan // see order.go
	known    bool                       // open was read once
	last     *execution                 // of this turn; for the log
	firsts   map[versionHandler]string  // see firstName; versions do not change
	missed   string                     // hash of the version that was last logged to be missing
}

// A version is a deployment with its script loaded.
type version struct {
	keep.Deployment
	script Script
}

func newActor(e *Engine, l keep.Lease) *actor {
	return &actor{
		e: e, name: l.Workflow, lease: l, hard: e.hard, log: e.log.With("workflow", string(l.Workflow)), since: e.Now(),
		cancel: func(error) {},
		wakeup: make(chan struct{}, 1),
		news:   make(map[keep.HandlerName]bool),
		ran:    make(map[keep.HandlerName]bool),
		ahead:  make(map[keep.HandlerName]ahead),
		scans:  make(map[keep.HandlerName]*scan),
		firsts: make(map[versionHandler]string),
	}
}

// bind makes the actor the worker of its lease, and returns the context in which it
// runs.
func (a *actor) bind(ctx context.Context, leases *lease.Manager) context.Context {
	soft, endSoft := context.WithCancelCause(ctx)
	hard, endHard := context.WithCancelCause(a.e.hard)
	a.leases, a.hard = leases, hard
	a.cancel = func(why error) {
		endSoft(why)
		endHard(why)
	}
	leases.Bind(a.lease, a)
	return soft
}

// Stop implements lease.Worker.
func (a *actor) Stop() { a.cancel(errLeaseLost) }

// Yield implements lease.Worker.
func (a *actor) Yield() {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	a.yields = true
	a.poke(false)
}

// Reload implements lease.Worker.
func (a *actor) Reload() {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	a.poke(true)
}

// Idle implements lease.Worker.
func (a *actor) Idle() bool {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	return a.isIdle
}

// InGo implements lease.Worker.
func (a *actor) InGo() (hash string, here bool) {
	if v := a.inGo.Load(); v != nil {
		return v.Hash, v.script != nil
	}
	return "", true
}

// poke makes the actor look again. The caller holds Engine.mu.
func (a *actor) poke(stale bool) {
	a.isIdle = false
	if stale {
		a.stale = true
		a.pokes++
	}
	select {
	case a.wakeup <- struct{}{}:
	default:
	}
}

// run steps until ctx is done, another host has the workflow, or another host
// should get it.
func (a *actor) run(ctx context.Context) error {
	defer a.calls.Wait()
	failures := 0
	for ctx.Err() == nil {
		err := a.turn(ctx)
		if err == nil {
			failures, a.last = 0, nil
			continue
		}
		if ctx.Err() != nil || endsActor(err) {
			return err
		}
		// Somebody else moved a record, the store failed, or the fate of a
		// commit is unknown. Nothing in memory can be trusted: read again, at
		// once the first time that a record merely moved.
		a.loaded, a.since = false, a.e.Now()
		failures++
		if errors.Is(err, keep.ErrStale) && failures < 3 {
			continue
		}
		if _, here := a.InGo(); !here && errors.Is(err, ErrNotHere) {
			a.lacks(ctx, err)
			continue
		}
		a.log.ErrorContext(ctx, "step failed", a.facts("err", err)...)
		a.sleep(ctx, a.e.policy.Retry.Delay(min(failures, 6)-1, time.Second, a.e.jitter()))
	}
	return nil
}

// endsActor reports whether an actor ends with err though its context has not ended.
func endsActor(err error) bool {
	for _, end := range []error{errYields, errGone, errLeaseLost, keep.ErrFenced, keep.ErrReplaced, keep.ErrClosed} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// turn decides and does one thing, or waits until there may be one.
func (a *actor) turn(ctx context.Context) error {
	a.last = nil
	a.e.mu.Lock()
	if a.stale {
		a.stale, a.loaded = false, false
	}
	yields := a.yields
	a.read = a.pokes
	a.e.mu.Unlock()
	if yields {
		return errYields
	}
	if !a.loaded {
		if err := a.load(ctx); err != nil {
			return err
		}
	}
	now := a.e.Now()
	snap, err := a.snapshot(ctx)
	if err != nil {
		return err
	}
	step := schedule.Next(snap, now)
	switch step.Do {
	case schedule.Run:
		a.busy(true)
		defer a.busy(false)
		return a.begin(ctx, step.Handler, snap, now)
	case schedule.NextAttempt:
		return a.again(ctx, a.openRun(step.Run), now)
	case schedule.Ask:
		return a.ask(ctx, a.openRun(step.Run))
	case schedule.AskItem:
		return a.askDetached(ctx, step.Mutation)
	case schedule.Detach:
		return a.detach(ctx, a.openRun(step.Run), now)
	case schedule.ReadMore:
		return nil // the next snapshot has looked at more
	}
	a.wait(ctx, step, now)
	return nil
}

// lacks waits until the workflow has another version, or this program has this one. The
// leases give it to a host that has it, if there is one.
func (a *actor) lacks(ctx context.Context, err error) {
	if hash, _ := a.InGo(); hash != a.missed {
		a.log.WarnContext(ctx, "the workflow is not executed by this host", "err", err)
		a.missed = hash
	}
	a.wait(ctx, schedule.Step{}, a.e.Now())
}

// commit makes changes of this host durable.
func (a *actor) commit(ctx context.Context, now time.Time, changes ...keep.Change) error {
	return a.e.commit(ctx, a.name, a.lease.Epoch, now, changes...)
}

func (a *actor) busy(is bool) {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	a.isBusy = is
}

// wait waits until the step is due, or something happens.
func (a *actor) wait(ctx context.Context, step schedule.Step, now time.Time) {
	a.e.mu.Lock()
	select {
	case <-a.wakeup: // something happened while we decided
		a.e.mu.Unlock()
		return
	default:
	}
	if a.isIdle = step.Do != schedule.Backoff; a.isIdle {
		a.e.idle.Broadcast()
	}
	a.e.mu.Unlock()
	defer func() {
		a.e.mu.Lock()
		a.isIdle = false
		a.e.mu.Unlock()
	}()
	if step.At.IsZero() {
		select {
		case <-ctx.Done():
		case <-a.wakeup:
		}
		return
	}
	// Now is rounded down to milliseconds, and At may not be: what is left of one is waited for as a
	// whole. The clock may be set back while we wait; looking once an hour costs nothing and keeps a
	// tick from being lost.
	if step.Do == schedule.Backoff && a.e.reach(step.At) {
		return
	}
	left := (step.At.Sub(now) + time.Millisecond - 1).Truncate(time.Millisecond)
	a.sleep(ctx, min(left, time.Hour))
}

// reach makes the clock show t, if it can be set, and reports whether it did.
func (e *Engine) reach(t time.Time) bool {
	if e.cfg.Reach == nil {
		return false
	}
	e.cfg.Reach(t)
	return true
}

func (a *actor) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-a.wakeup:
	case <-t.C:
	}
}

// load reads the workflow, and recovers the runs that a crash left active.
func (a *actor) load(ctx context.Context) error {
	if err := a.e.starting.take(ctx); err != nil {
		return errStopping
	}
	defer a.e.starting.give()
	var err error
	if a.workflow, err = a.e.store.Workflow(ctx, a.name); err != nil {
		return err
	}
	if a.current.Version != a.workflow.Version || a.current.script == nil {
		current, err := a.version(ctx, a.workflow.Version)
		a.inGo.Store(nil)
		if current.Definition.Go {
			a.inGo.Store(&current)
		}
		if err != nil {
			return err
		}
		a.current = current
		a.e.tools.unfollow(a.name, func(name keep.HandlerName) bool {
			h, ok := a.current.Definition.Handler(name)
			return ok && polls(h)
		})
	}
	if _, err := a.learnGrant(ctx, a.workflow.Granted); err != nil {
		return err
	}
	states, err := a.e.store.Handlers(ctx, a.name)
	if err != nil {
		return err
	}
	a.states = make(map[keep.HandlerName]keep.HandlerState, len(states))
	for _, s := range states {
		a.states[s.Handler] = s
	}
	before := a.open
	if err := a.loadOpen(ctx); err != nil {
		return err
	}
	a.wakeOrdered(before)
	for i := slices.IndexFunc(a.open, isActive); i >= 0; i = slices.IndexFunc(a.open, isActive) {
		if err := a.recover(ctx, a.open[i]); err != nil {
			return err
		}
	}
	if err := a.overtaken(ctx); err != nil {
		return err
	}
	if err := a.loadDetached(ctx); err != nil {
		return err
	}
	clear(a.ahead)
	for _, s := range a.scans {
		s.restart()
	}
	a.loaded = true
	return nil
}

func isActive(o schedule.Open) bool { return o.Run.Status == keep.StatusActive }

// loadOpen reads the runs that are not closed.
func (a *actor) loadOpen(ctx context.Context) error {
	runs, err := a.e.store.OpenRuns(ctx, a.name)
	if err != nil {
		return err
	}
	var open []schedule.Open
	for _, run := range runs {
		o := schedule.Open{Run: a.e.dueByLimits(run)}
		if o.Doubt, err = outcome.Of(ctx, a.e.store, run); err != nil {
			return err
		}
		o.Doubt = a.e.dueByTool(o.Doubt)
		a.e.meetKey(o.Doubt)
		h, carried, err := a.successor(ctx, run)
		if err != nil {
			return err
		}
		if !carried {
			h, _ = schedule.ReaderOf(a.current.Definition, run)
		}
		o.By = h.Name
		open = append(open, o)
	}
	a.open = open
	return nil
}

// openRun returns the open run of an id.
func (a *actor) openRun(id keep.RunID) schedule.Open {
	for _, o := range a.open {
		if o.Run.ID == id {
			return o
		}
	}
	panic("engine: no open run " + id) // a step names one of the snapshot
}

// version loads a version of the workflow with its script. If the error wraps ErrNotHere, the rest of the
// version is returned.
func (a *actor) version(ctx context.Context, v keep.Version) (version, error) {
	if a.current.script != nil && a.current.Version == v {
		return a.current, nil
	}
	d, err := a.e.store.Deployment(ctx, a.name, v)
	if err != nil {
		return version{}, err
	}
	s, err := a.e.scripts.Script(ctx, d)
	if err != nil {
		return version{d, nil}, fmt.Errorf("load version %s: %w", v, err)
	}
	return version{d, s}, nil
}

func (a *actor) snapshot(ctx context.Context) (schedule.Snapshot, error) {
	snap := schedule.Snapshot{
		Paused: a.workflow.Paused, Open: a.strict(), Poll: a.current.Definition.OnBlocked == keep.BlockedPoll,
		Detach: a.mayDetach(), Detached: a.detached,
	}
	if snap.HoldsUp() && !snap.Poll {
		return snap, nil
	}
	for _, h := range a.current.Definition.Handlers {
		if !snap.Free(h) {
			continue
		}
		sh := schedule.Handler{Handler: h, State: a.states[h.Name], Fresh: !a.ran[h.Name]}
		var err error
		switch {
		case polls(h) && a.hasNews(h.Name):
			sh.State.NextAt = time.Time{} // now
		case h.Kind != keep.Consumer:
		case h.Order == keep.OrderAll:
			sh.Backlog, err = a.backlog(ctx, h)
		default:
			sh.Backlog, sh.More, err = a.orderedBacklog(ctx, h)
		}
		if err != nil {
			return snap, err
		}
		snap.Handlers = append(snap.Handlers, sh)
	}
	return snap, nil
}

// begin starts a first attempt.
func (a *actor) begin(ctx context.Context, name keep.HandlerName, snap schedule.Snapshot, now time.Time) error {
	var sh schedule.Handler
	for _, h := range snap.Handlers {
		if h.Name == name {
			sh = h
		}
	}
	id := keep.RunID(a.e.newID("run", now))
	x := a.execution(a.current, sh.Handler, keep.Run{
		ID: id, Chain: id, Workflow: a.name, Version: a.current.Version,
		Handler: name, Kind: sh.Kind, Phase: lifecycle.First(sh.Kind),
		Status: keep.StatusActive, CreatedAt: now, UpdatedAt: now, Lane: snap.Lane(sh.Handler),
	})
	x.backlog = sh.Backlog
	if sh.Kind == keep.Consumer && sh.Order != keep.OrderAll && sh.Backlog.Oldest.Seq != 0 {
		x.pick(a.scans[name].next)
	}
	return x.perform(ctx, lifecycle.FromPrepare)
}

// again starts the attempt after an open run.
func (a *actor) again(ctx context.Context, o schedule.Open, now time.Time) error {
	prev, m := o.Run, o.Doubt
	start, _ := lifecycle.StartOf(prev, m)
	if start == lifecycle.FromDoubt {
		return a.handOver(ctx, prev, m, now)
	}
	v, h, err := a.versionFor(ctx, prev)
	if errors.Is(err, ErrNotHere) {
		return a.handlerGone(ctx, o, now)
	}
	if err != nil {
		return err
	}
	probe, may, err := a.mayTry(ctx, prev)
	if err != nil || !may {
		return err
	}
	if probe != nil {
		defer probe.done(ctx, nil, true) // unless it was used
	}
	if err := a.withdrawLeft(ctx, prev); err != nil {
		return err
	}
	next, closed := lifecycle.NextAttempt(prev, m, keep.RunID(a.e.newID("run", now)), v.Version, now)
	if _, known := v.Definition.Carrier(next.Kind, next.Handler); !known || h.Kind == keep.Consumer {
		next.Handler = h.Name // of this version, which alone would not know the name before
	}
	x := a.execution(v, h, next)
	x.closes, x.probe = &closed, probe
	x.mut = m
	x.reserved = len(next.Reservations) > 0
	if next.Mutation == "" && m.Key != "" {
		x.mut = keep.Mutation{}
	}
	if h.Kind == keep.Consumer && start == lifecycle.FromPrepare {
		if x.backlog, err = a.e.store.Backlog(ctx, a.name, h.Subscribe); err != nil {
			return err
		}
		if err := a.repick(ctx, x, prev); err != nil {
			return err
		}
	}
	if prev.Status != keep.StatusTransient && prev.Status != keep.StatusCrashed {
		if x.questions, err = a.openQuestions(ctx, prev); err != nil {
			return err
		}
	}
	return x.perform(ctx, start)
}

// versionFor returns the version that carries on with the work of r: the current
// one if it still declares the handler, else the one that began it. The error wraps ErrNotHere if
// only another program has that one.
func (a *actor) versionFor(ctx context.Context, r keep.Run) (version, keep.Handler, error) {
	if h, ok, err := a.successor(ctx, r); ok || err != nil {
		return a.current, h, err
	}
	v, err := a.version(ctx, r.Version)
	if err != nil {
		return version{}, keep.Handler{}, err
	}
	h, ok := v.Definition.Carrier(r.Kind, r.Handler)
	if !ok {
		return version{}, keep.Handler{}, fmt.Errorf("run %s: version %s has no handler %s", r.ID, r.Version, r.Handler)
	}
	return v, h, nil
}

// openQuestions returns the open questions that are answered when the run continues.
func (a *actor) openQuestions(ctx context.Context, run keep.Run) ([]keep.EscalationID, error) {
	es, _, err := a.e.store.Escalations(ctx, keep.EscalationFilter{Workflow: a.name, Run: run.ID, Open: true}, keep.Page{})
	if err != nil {
		return nil, err
	}
	ids := make([]keep.EscalationID, 0, len(es))
	for _, q := range es {
		if !lifecycle.Detached(q, run) && !q.Kind.Shared() { // that one is not about the run alone
			ids = append(ids, q.ID)
		}
	}
	return ids, nil
}
