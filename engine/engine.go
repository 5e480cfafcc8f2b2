// Package engine performs what the law decides: it runs handlers, makes calls,
// records outcomes, asks about those that are unknown, and recovers what a crash
// left. The law itself is in ledger, lifecycle, schedule and policy; the engine
// decides nothing that they can decide.
//
// # One workflow, one actor
//
// Every workflow has one actor, a goroutine that does one step after another
// (law: one-at-a-time). Several of its runs may be unfinished, each in a lane of its
// own, but one is executed at a time. Actors share the store and nothing else, so a workflow
// that is blocked, slow or broken delays no other.
//
// # Durable steps of a consumer run
//
//	prepare, head of mutate     nothing outside has changed
//	commit 1                    run, reservations, record in_flight
//	the call                    from here only evidence ends the doubt
//	next                        with the outcome
//	commit 2                    outcome, events, handler state, run committed
//
// A crash before commit 1 leaves nothing. After it, the record says that the
// call may have been made, and recovery asks. The outcome is committed on its
// own before next if the tool cannot be asked again, or if next takes long.
//
// # Memory and disk
//
// What an actor holds in memory is a cache of the store. After a commit whose
// fate is not known it forgets everything and reads again; a run that it then
// finds active was left by a crash, its own or another's, and is recovered.
package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"encoding/binary"

	"go.opentelemetry.io/otel/trace"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine/lease"
	"github.com/keep-run/keep/internal/commitlog"
	"github.com/keep-run/keep/internal/pause"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/store"
)

// Config configures an Engine. The zero value is usable.
type Config struct {
	// Policy holds the numbers. If nil, policy.Default().
	Policy *policy.Policy

	// Budgets bound what calls may spend; see Engine.SetBudgets.
	Budgets []budget.Rule

	// Salt separates the idempotency tokens of this database from those of
	// others. If empty, tokens depend on the ledger key alone.
	Salt string

	// SecretKey makes the fingerprints by which records tell one secret of a connection from another.
	// Who does not have it learns nothing from them. If empty, Salt is used.
	SecretKey []byte

	// Only names the workflows to work on. If nil, all of them.
	Only []keep.WorkflowName

	// Leases shares the workflows of the store out between hosts. If nil, the
	// store belongs to this host alone. If Only is set as well, this host has
	// no share: it takes those that Only names.
	Leases store.Leaser

	// Host names this host to the others and to people; only Name and Version
	// are read, and only with Leases.
	Host keep.Host

	// Presence knows which hosts of this machine have ended; see package host/presence. If
	// nil, their leases are waited for.
	Presence lease.Presence

	// Clock is the clock of this machine, with its monotonic part. If nil,
	// time.Now. With Leases only its pace matters. Tests set it wrong.
	Clock func() time.Time

	// Reach makes Clock show at least t. If it is not nil, nothing waits for the end of a backoff or of
	// a limit: the clock reaches it. A rehearsal has such a clock.
	Reach func(t time.Time)

	// Slow is how long a phase may take before the run is made visible, or its
	// outcome committed on its own. If zero, 10 ms after the call and 200 ms
	// before it.
	Slow time.Duration

	// Repairs reports whether somebody else tries to mend scripts that fail: runs that fail by
	// logic then ask nobody, until AskAbout does. If nil, they ask at once.
	Repairs func() bool

	// Logger receives what a person should hear of. If nil, slog.Default().
	Logger *slog.Logger

	// Tracer makes a span for each run, phase, call and lookup. If nil, none.
	Tracer trace.Tracer

	// Measured is notified of how long things took, by several goroutines at once, and holds
	// their runs up. If nil, nobody is.
	Measured func(Measure)

	// Entropy returns random bytes for ids and jitter. If nil, crypto/rand.
	Entropy func() [10]byte

	// Chance returns what the random numbers of one phase of a script come from: another
	// for each. If nil, bytes of crypto/rand.
	Chance func() []byte

	// Trace is called at every point between durable steps. If nil, nothing is
	// called. Tests die there.
	Trace func(w keep.WorkflowName, p Point)
}

// A Point is a place between durable steps, where a crash may happen.
type Point string

const (
	Bought         Point = "bought"          // a read that costs was answered, nothing is written
	AtGate         Point = "at-gate"         // the connection is limited or shut, and a place is asked for
	BeforeCall     Point = "before-call"     // the call is known, nothing is written
	Recorded       Point = "recorded"        // commit 1 returned
	Answered       Point = "answered"        // the call returned, nothing is written
	OutcomeWritten Point = "outcome-written" // the outcome was committed on its own
	BeforeCommit   Point = "before-commit"   // next returned, nothing is written
	AfterCommit    Point = "after-commit"    // commit 2 returned
)

// Points returns every point, in the order in which a run passes them.
func Points() []Point {
	return []Point{Bought, BeforeCall, AtGate, Recorded, Answered, OutcomeWritten, BeforeCommit, AfterCommit}
}

// An Engine works on the workflows of one store. Create one with New and drive
// it with Run. What people decide is recorded by package operator.
type Engine struct {
	store   Store
	scripts Scripts
	tools   *Tools
	policy  policy.Policy
	cfg     Config
	log     *slog.Logger
	hard    context.Context // ends when calls in flight must be given up

	clock            *lease.Clock  // of the database
	changed          chan struct{} // a workflow may have appeared
	starting, asking slots         // see slots.go
	ages             keyAges       // of keys in doubt
	users            users

	budgets atomic.Pointer[[]budget.Rule] // nil: there are none

	breakers breakers

	gatesMu sync.Mutex       // protects gates
	gates   map[string]*gate // by connection

	mu     sync.Mutex // protects the fields below, and some of each actor
	actors map[keep.WorkflowName]*actor
	leases *lease.Manager // nil: every workflow is this host's, for good
	unseen bool           // a workflow may have appeared since the last listing
	listed bool           // every workflow has its actor
	idle   *sync.Cond

	overdue   map[keep.MutationKey]*overdue // calls that the engine does not wait for any more
	abandoned map[string]int                // by connection: reads whose results are discarded
	started   time.Time                     // when Run began

	// spawn begins a goroutine that Run waits for, whose context ends with Run or earlier;
	// nil: nothing runs.
	spawn func(func(context.Context)) context.CancelFunc
}

// New returns an engine. It starts nothing.
func New(store Store, scripts Scripts, tools *Tools, cfg Config) (*Engine, error) {
	p := policy.Default()
	if cfg.Policy != nil {
		p = *cfg.Policy
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.Entropy == nil {
		cfg.Entropy = func() (b [10]byte) {
			rand.Read(b[:]) // never fails
			return b
		}
	}
	if cfg.Chance == nil {
		cfg.Chance = func() []byte {
			b := make([]byte, 16)
			rand.Read(b) // never fails
			return b
		}
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Leases != nil {
		cfg.Host.ID = keep.HostID(keep.NewID("host", cfg.Clock(), cfg.Entropy()))
	}
	if cfg.Trace == nil {
		cfg.Trace = func(keep.WorkflowName, Point) {}
	}
	e := &Engine{
		store: store, scripts: scripts, tools: tools, policy: p, cfg: cfg, log: cfg.Logger,
		hard:    context.Background(),
		clock:   lease.NewClock(cfg.Clock),
		changed: make(chan struct{}, 1),
		actors:  make(map[keep.WorkflowName]*actor),
		overdue: make(map[keep.MutationKey]*overdue), abandoned: make(map[string]int),
		gates: make(map[string]*gate),

		starting: make(slots, maxStarting), asking: make(slots, maxAsking),
	}
	e.users = users{store, cfg.SecretKey}
	if len(cfg.SecretKey) == 0 {
		e.users.key = []byte(cfg.Salt)
	}
	e.SetBudgets(cfg.Budgets)
	e.SetBreaker(p.Breaker)
	e.idle = sync.NewCond(&e.mu)
	return e, nil
}

// HostID returns the id by which this host is known where there are leases.
func (e *Engine) HostID() keep.HostID { return e.cfg.Host.ID }

// Run works until ctx is done, and returns nil then. Calls in flight are waited
// for, up to policy.Shutdown; what is still out after that stays in_flight and
// is asked about at the next start. All goroutines have ended when Run returns, but those of reads
// whose connectors ignored the end of their context; a call that does so is waited for.
// With leases, Run gives each back as soon as nothing of its workflow is executed, and has given back all when it returns. It ends by itself, with
// keep.ErrNewerDatabase, when a newer version has changed the database into one that
// this one cannot work on, and with keep.ErrReplaced and keep.ErrClosed.
func (e *Engine) Run(ctx context.Context) error {
	ctx, quit := context.WithCancelCause(ctx)
	defer quit(nil)
	hard, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(errStopping)
	e.hard = hard
	e.mu.Lock()
	clear(e.actors) // those of an earlier Run have ended, and so have their calls
	clear(e.overdue)
	again := !e.started.IsZero()
	e.started = e.Now()
	e.leases = nil
	if e.cfg.Leases != nil {
		e.leases = lease.New(lease.Config{
			Store: e.cfg.Leases, Host: e.cfg.Host, Only: e.cfg.Only, Rules: e.policy.Lease,
			Clock: e.clock, Logger: e.log, Presence: e.cfg.Presence, Again: again, Changed: e.lookAgain, Gates: e.reloadLimits,
		})
	}
	leases := e.leases
	e.relist()
	e.mu.Unlock()
	if err := e.loadGates(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(e.policy.Shutdown, func() { giveUp(errStopping) })
	})
	defer stop()
	if leases == nil {
		return endOf(ctx, e.work(ctx, nil, quit))
	}
	e.WarnOfShortLeases(ctx)
	renewing, enough := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { leases.Run(renewing, quit) }) // as long as anything is worked on
	err := e.work(ctx, leases, quit)
	enough()
	wg.Wait()
	return endOf(ctx, err)
}

// endOf returns why ctx ended if the database must not be touched any more, and otherwise err.
func endOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); lease.Ends(cause) {
		return cause
	}
	return err
}

// Sync learns the time from the database, for who needs it before Run. It does nothing
// without leases.
func (e *Engine) Sync(ctx context.Context) error {
	if e.cfg.Leases == nil {
		return nil
	}
	return e.clock.Read(ctx, e.cfg.Leases, e.cfg.Host.ID)
}

// work runs an actor for each workflow of this host, until ctx is done. A database that was
// replaced under the host ends all of them.
func (e *Engine) work(ctx context.Context, leases *lease.Manager, quit context.CancelCauseFunc) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if leases != nil {
		defer leases.Drain() // no actor begins from here on
	}
	e.mu.Lock()
	e.spawn = func(f func(context.Context)) context.CancelFunc {
		own, cancel := context.WithCancel(ctx)
		wg.Go(func() { defer cancel(); f(own) })
		return cancel
	}
	e.mu.Unlock()
	for failures, listed := 0, false; ; listed = true {
		fresh, err := e.newActors(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			failures = 0
		case !listed, lease.Ends(err):
			quit(err)
			return fmt.Errorf("list workflows: %w", err)
		default:
			failures++
			e.listLater(ctx, err, failures)
		}
		for _, a := range fresh {
			if leases == nil {
				wg.Go(func() {
					if err := a.run(ctx); lease.Ends(err) {
						quit(err)
					}
				})
				continue
			}
			soft := a.bind(ctx, leases)
			wg.Go(func() {
				err := a.run(soft)
				if lease.Ends(err) {
					quit(err)
				}
				e.ended(a, err, ctx.Err() != nil)
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.changed:
		}
	}
}

// listLater makes Run list the workflows again after a pause, since one listing failed: another
// workflow may have appeared.
func (e *Engine) listLater(ctx context.Context, err error, failures int) {
	e.log.ErrorContext(ctx, "the workflows were not listed, which is tried again", "err", err)
	_ = pause.For(ctx, e.policy.Retry.Delay(min(failures, 6)-1, time.Second, e.jitter()))
	e.lookAgain()
}

// WarnOfShortLeases names the tools whose calls the leases cut short, if there are leases. Run does it; who
// replaces the tools does it again.
func (e *Engine) WarnOfShortLeases(ctx context.Context) {
	if e.cfg.Leases == nil {
		return
	}
	rules := e.policy.Lease
	longest := lease.LongestCall(rules)
	for _, name := range e.tools.now.Load().names {
		spec := e.tools.get(keep.ToolName(name)).spec
		if spec.Effect == connector.Mutate && spec.Timeout > longest {
			e.log.WarnContext(ctx, "calls of this tool are given up before its timeout, since they must end before the lease; raise the ttl of policy.lease",
				"tool", name, "timeout", spec.Timeout, "after", longest, "ttl", rules.TTL)
		}
	}
}

// newActors makes an actor for each workflow that has none.
func (e *Engine) newActors(ctx context.Context) ([]*actor, error) {
	e.mu.Lock()
	e.unseen = false
	e.mu.Unlock()
	mine, settled, err := e.mine(ctx)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.idle.Broadcast()
	e.listed = !e.unseen && settled
	var fresh []*actor
	for _, l := range mine {
		if e.actors[l.Workflow] != nil || l.Workflow == keep.DirectWorkflow {
			continue
		}
		a := newActor(e, l)
		e.actors[l.Workflow] = a
		fresh = append(fresh, a)
	}
	return fresh, nil
}

// ended notes that an actor has ended with err: nothing works on its workflow now.
func (e *Engine) ended(a *actor, err error, stops bool) {
	a.leases.Ended(a.lease, err, stops)
	e.tools.unfollow(a.name, func(keep.HandlerName) bool { return false })
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.actors, a.name)
	a.cancel(errStopping) // frees its contexts
	e.relist()
}

// mine returns the workflows that this host works on now, and whether there can be no
// other. Without leases they have no epoch.
func (e *Engine) mine(ctx context.Context) (mine []keep.Lease, settled bool, err error) {
	if e.leases != nil {
		mine, settled = e.leases.Held()
		return mine, settled, nil
	}
	all, err := e.store.Workflows(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, w := range all {
		if e.wants(w.Name) {
			mine = append(mine, keep.Lease{Workflow: w.Name})
		}
	}
	return mine, true, nil
}

func (e *Engine) wants(w keep.WorkflowName) bool {
	if e.cfg.Only == nil {
		return true
	}
	for _, n := range e.cfg.Only {
		if n == w {
			return true
		}
	}
	return false
}

// Reload makes every actor read its workflow again. The host calls it when
// another process changed the store.
func (e *Engine) Reload() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.actors {
		a.poke(true)
	}
	e.relist()
}

// lookAgain makes Run look for new workflows.
func (e *Engine) lookAgain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.relist()
}

// relist makes Run look for new workflows. The caller holds mu.
func (e *Engine) relist() {
	e.unseen, e.listed = true, false
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// Executing reports whether this engine is at a run of w, which the store may not
// show before its first commit.
func (e *Engine) Executing(w keep.WorkflowName) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.actors[w]
	return a != nil && a.isBusy
}

// Epoch returns the epoch under which this engine commits to a workflow, and false
// if that is another host's.
func (e *Engine) Epoch(w keep.WorkflowName) (epoch int64, ours bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leases == nil {
		return 0, true
	}
	a := e.actors[w]
	if a == nil {
		return 0, false
	}
	return a.lease.Epoch, true
}

// Wake makes the actor of w look again, after a commit of this process to it.
func (e *Engine) Wake(w keep.WorkflowName) {
	e.mu.Lock()
	a, leases := e.actors[w], e.leases
	if a != nil {
		a.poke(true)
	}
	e.mu.Unlock()
	if a != nil {
		return
	}
	if leases != nil {
		leases.Expect() // it may have to be claimed yet
	}
	e.lookAgain()
}

// WaitIdle waits until no workflow runs, nothing is due, and no backoff and no
// lookup is pending. Workflows that wait for a person, for an event or for a
// later tick are idle. It returns the cause if ctx ends first.
func (e *Engine) WaitIdle(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.idle.Broadcast()
	})
	defer stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		if e.allIdle() {
			return nil
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		e.idle.Wait()
	}
}

func (e *Engine) allIdle() bool {
	if !e.listed {
		return false
	}
	for _, a := range e.actors {
		if !a.isIdle {
			return false
		}
	}
	return true
}

// commit makes c durable, whatever becomes of ctx: once something happened
// outside, stopping must not keep it from being recorded. The epoch is that of
// the lease under which an actor commits, 0 for what people decide.
func (e *Engine) commit(ctx context.Context, w keep.WorkflowName, epoch int64, now time.Time, changes ...keep.Change) error {
	ctx = context.WithoutCancel(ctx)
	if epoch != 0 { // a store that cannot be reached must not hold the actor forever
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, e.policy.Lease.TTL, &keep.TimeoutError{Op: "commit", After: e.policy.Lease.TTL})
		defer cancel()
	}
	c := keep.Commit{Workflow: w, Epoch: epoch, At: now, Changes: changes}
	err := e.store.Commit(ctx, c)
	if err == nil {
		commitlog.Write(ctx, e.log, c)
		e.ages.forget(changes)
	}
	return err
}

// Now returns the time as stores keep it: that of the database, if several hosts
// share one.
func (e *Engine) Now() time.Time { return e.clock.Now() }

func (e *Engine) newID(prefix string, now time.Time) string {
	return keep.NewID(prefix, now, e.cfg.Entropy())
}

// jitter returns a number in [0,1).
func (e *Engine) jitter() float64 {
	b := e.cfg.Entropy()
	return float64(binary.LittleEndian.Uint32(b[:4])) / (math.MaxUint32 + 1)
}
