package simtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
)

// A Result is what one seed came to.
type Result struct {
	Seed   uint64
	Digest uint64 // hash of the trace
	Group  bool   // several hosts at once

	Points, Boots, Crashes, Faults, Stops  int
	Commits, Calls, Lookups, Effects, Runs int
	Acts, Decisions, Refusals              int

	Seen     map[string]int // how often each thing happened, by name
	Problems []string       // laws that were broken; empty: none
	Script   []string       // if a law was broken: the last things that went wrong or were decided
}

// Add counts other in.
func (r *Result) Add(other Result) {
	r.Points += other.Points
	r.Boots += other.Boots
	r.Crashes += other.Crashes
	r.Faults += other.Faults
	r.Stops += other.Stops
	r.Commits += other.Commits
	r.Calls += other.Calls
	r.Lookups += other.Lookups
	r.Effects += other.Effects
	r.Runs += other.Runs
	r.Acts += other.Acts
	r.Decisions += other.Decisions
	r.Refusals += other.Refusals
	if r.Seen == nil {
		r.Seen = make(map[string]int)
	}
	for what, n := range other.Seen {
		r.Seen[what] += n
	}
}

// String lists what the seed, or the sum of seeds, came to.
func (r Result) String() string {
	return fmt.Sprintf("%d crashes, %d faults, %d starts, %d stops, %d commits, %d calls, %d lookups, %d effects, %d runs, %d decisions taken, %d refused",
		r.Crashes, r.Faults, r.Boots, r.Stops, r.Commits, r.Calls, r.Lookups, r.Effects, r.Runs, r.Decisions, r.Refusals)
}

// Run simulates the world of a seed. Trace, if not nil, gets one line for each
// thing that happens. Broken laws are in the result; t is only needed for its
// bubbles.
func Run(t *testing.T, seed uint64, trace io.Writer) Result {
	return newWorld(seed, trace).run(t)
}

// run simulates the world, to its end.
func (w *world) run(t *testing.T) (res Result) {
	defer func() {
		// A bubble whose goroutines all wait for each other panics.
		if p := recover(); p != nil {
			w.broken("explained", "the world is deadlocked: %v", p)
			res = w.result
			res.Problems = w.problems
		}
	}()
	for n := range w.rates.stretch {
		synctest.Test(t, func(*testing.T) { w.bubble(n, w.chaos) })
	}
	synctest.Test(t, func(*testing.T) { w.bubble(-1, w.settle) })
	w.withStore(w.verify)
	w.result.Digest, w.result.Seen, w.result.Problems = w.digest, w.seen, w.problems
	return w.result
}

// bubble runs f in a bubble of its own. Between two bubbles the time of the
// services has passed, and the clock of the host may have been set back.
func (w *world) bubble(n int, f func()) {
	start := w.resume(n)
	time.Sleep(start)
	w.turns = newTurns(w.below)
	var turns sync.WaitGroup
	turns.Go(w.turns.run)
	w.withStore(f)
	w.stopped = time.Since(epoch)
	w.turns.stop()
	turns.Wait()
	w.turns = nil
}

// resume returns what the clock of the host shows when bubble n begins.
func (w *world) resume(n int) time.Duration {
	if n == 0 {
		w.stopped = w.offset
		return w.offset
	}
	past := w.stopped + w.span(12*time.Hour) // the host was off meanwhile
	if back := w.span(5 * time.Hour); w.chance(0.5) && past > back {
		w.fault("the clock was set back")
		w.forgetFailures()
		maps.DeleteFunc(w.resting, func(_ keep.WorkflowName, until time.Time) bool { return !until.After(epoch.Add(w.stopped)) }) // it is over
		w.offset -= back
		past -= back
	}
	return past
}

// chaos starts and ends processes until the world had its share.
func (w *world) chaos() {
	share := w.result.Points + w.rates.points/w.rates.stretch
	began := w.now()
	if w.group != nil {
		w.group.chaos(w, share)
		return
	}
	for w.result.Points < share && w.now()-began < 60*24*time.Hour {
		w.live()
		w.inspect()
		if w.chance(0.3) {
			w.aside()
		}
		if w.chance(0.2) {
			time.Sleep(w.span(time.Hour))
		}
	}
}

// live is one life of the host: it ends by death, or because it is stopped.
func (w *world) live() {
	p := w.boot()
	t := time.NewTimer(w.span(2*w.rates.life) + time.Second)
	defer t.Stop()
	select {
	case <-t.C:
		w.turns.wait(nil, "init")
		w.result.Stops++
		clear(w.resting)
		p.cancel() // SIGTERM; it may still die while it stops
	case <-p.ctx.Done(): // it was stopped, or died
	}
	p.wait.Wait()
	p.cancel()
	for _, key := range sorted(w.answered) {
		// A host that was only stopped has recorded the answers that it got.
		if m, ok := w.record(key); w.answered[key] && (!ok || m.State != keep.Applied) {
			w.broken("doubt-is-not-failure", "the service confirmed %s to a host that stopped in peace, and it is %q", key, m.State)
		}
	}
}

// aside is what people do while no host runs.
func (w *world) aside() {
	p := w.newCommand("")
	for range 1 + w.below(3) {
		p.act(p.operator)
	}
	p.cancel()
}

// inspect looks at the store after a death or a stop: Check is clean, and every
// run that is open explains itself.
func (w *world) inspect() {
	ctx := context.Background()
	for err := range w.store.Check(ctx) {
		w.broken("Check", "%v", err)
	}
	for _, f := range w.flows {
		w.inspectPause(f)
		runs, err := w.store.OpenRuns(ctx, f.name)
		w.must("read open runs", err)
		for _, r := range runs {
			var m keep.Mutation
			if r.Mutation != "" {
				if m, err = w.store.Mutation(ctx, r.Mutation); err != nil {
					w.broken("nothing-lost", "run %s: %v", r.ID, err)
				}
			}
			if text := lifecycle.WaitOf(r, m).String(); !strings.HasSuffix(text, ".") {
				w.broken("explained", "run %s explains itself by %q", r.ID, text)
			}
		}
	}
}

// inspectPause compares whether a workflow is paused with what is recorded that people did with it.
func (w *world) inspectPause(f *flow) {
	is, err := w.store.Workflow(context.Background(), f.name)
	if errors.Is(err, keep.ErrNotFound) {
		return
	}
	w.must("read a workflow", err)
	acts, err := w.store.Decided(context.Background(), f.name.Subject())
	w.must("read decisions", err)
	var last keep.Decision
	for _, a := range acts {
		if a.Decision.Action == keep.Pause || a.Decision.Action == keep.Resume {
			last = a.Decision
		}
	}
	if paused := last.Action == keep.Pause; is.Paused != paused || paused && (last.Note != is.PauseNote || last.By != "ann") {
		w.broken("explained", "workflow %s is paused %t, %q, and the last decision about it is %+v", f.name, is.Paused, is.PauseNote, last)
	}
}
