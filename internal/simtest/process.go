package simtest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/engine/lease"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/operator"
)

// A process is one life of a host, from its start to its death or stop.
type process struct {
	w        *world
	name     string             // empty if there is one host at a time
	engine   *engine.Engine     // nil: it only decides
	operator *operator.Operator // what people do through it
	mortal   bool               // may die
	tools    *engine.Tools      // of the engine
	settings settings           // as the process took them

	met map[keep.MutationKey]time.Duration // how far its clock was behind when it met a call in doubt

	looked map[keep.WorkflowName]int // the grant that held when its engine last read what holds

	ctx    context.Context // of Run: ends with a stop or with death
	cancel context.CancelFunc
	gone   chan struct{} // closed at death
	dead   atomic.Bool
	wait   sync.WaitGroup // Run, and people who use this process

	// In a group; see there. They change in turns only.
	frozen bool
	cut    bool
	stops  int       // how often it was frozen
	wellAt time.Time // when it was last well again
}

// aProcess is the key of the process in its contexts.
type aProcess struct{}

// processOf returns the process that makes a call.
func processOf(ctx context.Context) *process { return ctx.Value(aProcess{}).(*process) }

// newProcess returns a process that does nothing yet.
func (w *world) newProcess(name string, mortal bool) *process {
	p := &process{w: w, name: name, mortal: mortal, gone: make(chan struct{}), met: make(map[keep.MutationKey]time.Duration), looked: make(map[keep.WorkflowName]int)}
	p.ctx, p.cancel = context.WithCancel(context.WithValue(context.Background(), aProcess{}, p))
	return p
}

// newHost returns a process with an engine that does not run yet.
func (w *world) newHost(name string) *process {
	p := w.newProcess(name, true)
	cfg := engine.Config{
		Policy: &w.policy, Budgets: w.budgets, Salt: "sim", Slow: w.slow, Entropy: w.entropy, Chance: w.seedPhase,
		Logger: silent(),
		Trace:  func(name keep.WorkflowName, at engine.Point) { p.point("at " + string(name) + " " + string(at)) },
	}
	if w.group != nil {
		cfg.Leases, cfg.Clock = &lessor{w.group.shared, p}, w.newClock()
	} else if w.edited {
		cfg.Clock = w.hostTime
	}
	p.tools = p.ownTools()
	e, err := engine.New(&store{Store: w.store, p: p}, scripts{p}, p.tools, cfg)
	if err != nil {
		panic(err) // the plan is wrong
	}
	p.engine = e
	p.decideBy(e.Now, e)
	return p
}

// newCommand returns a process that only decides, as a command beside a host.
func (w *world) newCommand(name string) *process {
	p := w.newProcess(name, false)
	clock := lease.NewClock(w.hostTime)
	if w.group != nil {
		clock = lease.NewClock(w.newClock())
		for clock.Read(p.ctx, &lessor{w.group.shared, p}, "") != nil {
		}
	}
	p.decideBy(clock.Now, nil)
	return p
}

// decideBy gives a process its operator.
func (p *process) decideBy(now func() time.Time, e operator.Executor) {
	o, err := operator.New(&store{Store: p.w.store, p: p}, operator.Config{
		Policy: &p.w.policy, Budgets: func() []budget.Rule { return p.w.budgets }, Now: now, Executor: e, Logger: silent(),
	})
	if err != nil {
		panic(err) // the plan is wrong
	}
	p.operator = o
}

func silent() *slog.Logger {
	return slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 1}))
}

// boot starts the host, and people beside it.
func (w *world) boot() *process { return w.bootAs("") }

// bootAs starts a host of that name.
func (w *world) bootAs(name string) *process {
	p := w.newHost(name)
	w.result.Boots++
	if w.group == nil {
		clear(w.answered)
	}
	w.putFileBack() // whoever starts a host does that first
	p.wait.Go(func() {
		switch err := p.engine.Run(p.ctx); {
		case errors.Is(err, keep.ErrReplaced) && w.fileGone:
			w.saw("files: a host ended")
			p.cancel()
		case err != nil:
			w.broken("explained", "Run ended with %v", err)
		}
	})
	if !w.calm && w.drill == nil {
		p.wait.Go(p.people)
	}
	return p
}

// turn waits for the caller's turn. In a dead process nobody gets one.
func (p *process) turn(who string) {
	who = p.name + who
	if !p.dead.Load() {
		p.w.turns.wait(p, who)
	}
	p.endIfDead()
	p.w.note(who)
}

// endIfDead ends the goroutine if the process is dead.
func (p *process) endIfDead() {
	if p.dead.Load() {
		runtime.Goexit()
	}
}

// point is a turn at which the process may die.
func (p *process) point(what string) {
	p.turn(what)
	p.w.result.Points++
	p.mayDie(what)
}

// mayDie kills the process if the seed says so. Like SIGKILL: no goroutine of
// it touches the world again.
func (p *process) mayDie(what string) {
	if !p.mortal || !p.w.maybe(p.w.rates.crash) && !p.w.drill.strikes(p.w, what) {
		return
	}
	p.w.result.Crashes++
	p.w.forget()
	p.w.note("CRASH " + what)
	p.dead.Store(true)
	p.cancel()
	close(p.gone)
	p.w.turns.release(p)
	runtime.Goexit()
}

// forget is called when answers that arrived may not get recorded.
func (w *world) forget() {
	clear(w.resting)
	clear(w.answered)
}

// sleep waits for d, for the end of ctx or for death, and takes a turn then. It
// reports whether the whole time passed.
func (p *process) sleep(ctx context.Context, d time.Duration, who string) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	whole := false
	select {
	case <-t.C:
		whole = true
	case <-ctx.Done():
	case <-p.gone:
	}
	p.turn(who)
	return whole
}

// seedPhase returns the seed of a phase: another for each, so that it names the phase.
func (w *world) seedPhase() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phases++
	return binary.LittleEndian.AppendUint64(nil, w.phases)
}

// entropy returns the bytes that make ids and jitter.
func (w *world) entropy() (b [10]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	binary.LittleEndian.PutUint64(b[:8], w.ids.Uint64())
	binary.LittleEndian.PutUint16(b[8:], uint16(w.ids.Uint32()))
	return b
}
