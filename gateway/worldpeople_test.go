//go:build unix

package gateway_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/repeat"
)

// People who hold calls up. In some worlds one pauses and resumes the calls of agents, and in some of them these have a budget.

// A holdKind is what a world is like in which people hold calls up.
type holdKind struct {
	rng     *rand.Rand // of who edits
	people  *rand.Rand
	pauses  bool
	budgets bool
	slow    chan struct{} // holds a token when a commit takes long
}

func newHoldKind(seed uint64) *holdKind {
	r := rand.New(rand.NewPCG(seed, 40))
	if chance(r, 0.6) {
		return nil
	}
	return &holdKind{rng: rand.New(rand.NewPCG(seed, 41)), people: rand.New(rand.NewPCG(seed, 42)), slow: make(chan struct{}, 1), pauses: chance(r, 0.7), budgets: chance(r, 0.7)}
}

// budgetNames are those that the budget has had, and has.
var budgetNames = []string{"calls", "spend"}

// first says what the first files say.
func (k *holdKind) first(f *keepFile) {
	if k != nil && k.budgets {
		f.budget = budgetNames[0]
		k.edit(f)
	}
}

// edit changes what a file says of the budget.
func (k *holdKind) edit(f *keepFile) {
	if k == nil || !k.budgets {
		return
	}
	f.limit, f.per = 2+k.rng.IntN(5), pick(k.rng, 20*time.Second, 90*time.Second, 10*time.Minute)
	if chance(k.rng, 0.2) {
		f.budget = pick(k.rng, budgetNames...)
	}
}

// rules are the budgets of a file.
func (f keepFile) rules() []budget.Rule {
	if f.budget == "" {
		return nil
	}
	was := slices.DeleteFunc(slices.Clone(budgetNames), func(n string) bool { return n == f.budget })
	return []budget.Rule{{Name: f.budget, Was: was, Tools: []string{"*"}, Limit: keep.Amount(f.limit) * keep.AmountUnit, Per: f.per}}
}

// pauseAll has a person pause and resume the calls of agents until all is to be well.
func (k *holdKind) pauseAll(w *world) {
	if k == nil || !k.pauses {
		return
	}
	ctx := context.Background()
	for over := false; !over; {
		wait := span(k.people, 40*time.Second)
		if len(w.gatewaysNow()) == 0 {
			wait += 10 * time.Minute
		}
		select {
		case <-w.calm:
			over = true
		case <-time.After(wait):
		case <-k.slow: // just then
			time.Sleep(span(k.people, 500*time.Millisecond))
		}
		if _, err := w.store.Workflow(ctx, keep.DirectWorkflow); over || err != nil {
			continue
		}
		if err := w.op.Pause(ctx, keep.DirectWorkflow, keep.Decision{By: "ann", Note: "to look"}); err != nil {
			w.t.Error(err)
		}
		w.holds(true)
		select {
		case <-w.calm:
			over = true
		case <-time.After(span(k.people, 25*time.Second)):
		}
		k.resume(w)
	}
	k.resume(w)
}

// commitIsSlow notes that a commit takes long.
func (k *holdKind) commitIsSlow() {
	if k == nil {
		return
	}
	select {
	case k.slow <- struct{}{}:
	default:
	}
}

// resume has a person resume the calls of agents, also if another one stopped them for the budget.
func (k *holdKind) resume(w *world) {
	w.holds(false)
	if err := w.op.Resume(context.Background(), keep.DirectWorkflow, keep.Decision{By: "ann"}); err != nil {
		w.notes("person: %v", err)
	}
}

// holds notes that a person paused the calls of agents, or is about to resume them.
func (w *world) holds(paused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("person: paused %t", paused)
	if paused {
		w.saw("person: pauses the calls of agents")
	}
	w.paused = paused
}

// spent decides about a call for which the budget has no room. mu is held.
func (k *holdKind) spent(w *world, q keep.Escalation) keep.Action {
	run, err := w.store.Run(context.Background(), q.Run)
	if err != nil {
		w.t.Fatal(err)
	}
	action := keep.Allow
	if chance(k.people, w.rough(0.5)) {
		action = pick(k.people, keep.Skip, keep.Stop)
	}
	if action == keep.Stop && !k.pauses { // nobody would resume them
		action = keep.Skip
	}
	if !q.Allows(action) {
		action = keep.Allow
	}
	if action == keep.Allow {
		w.allowed[repeat.Ref(run)] = true
	}
	return action
}

// recordedWithin looks whether an attempt at a call that was recorded had room in the budget of its gateway, and whether nobody had paused the
// calls of agents when it was committed. mu is held.
func (w *world) recordedWithin(p *process, rec *record, paused bool) {
	if paused {
		w.broken("permitted", "gateway %d records %s after a person paused the calls of agents", p.n, rec)
	}
	if p.file.budget == "" || w.allowed[rec.ref] {
		return
	}
	counts := 0
	for _, other := range w.records {
		mut := w.mutation(other)
		at, _ := ledger.LastAttempt(w.history(other))
		unknown := mut.State == keep.InFlight || mut.State == keep.NeedsReconcile || mut.State == keep.Indeterminate
		if unknown || mut.State != keep.Failed && time.Since(at) < p.file.per {
			counts++
		}
	}
	if counts > p.file.limit {
		w.broken("within-budget", "gateway %d records %s as number %d of %d in %s", p.n, rec, counts, p.file.limit, p.file.per)
	}
}
