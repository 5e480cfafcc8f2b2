// Package schedule decides what a workflow does next, given a snapshot of it and
// a time. It reads no clock and starts nothing.
//
// # Order
//
// An unfinished run goes before everything (law: one-at-a-time): it is retried
// when its time has come, its outcome is asked for, or it waits for a person.
// Then come runs that a person asked for, then consumers before producers and
// jobs; among consumers the one with the oldest free event; among the others the
// one that has been due longest. Ties go by name.
//
// # Waking
//
// A consumer wakes on an event that is newer than those its last empty prepare
// saw, at its wakeAt, and after its own commit as long as it keeps reserving.
// An empty prepare remembers what it saw, so that it never spins. A publish that
// only replaces the payload of a waiting event wakes nobody.
//
// # Detached doubts
//
// A doubt about an item that was detached from its run is asked about when it is
// due, before anything else. As long as it is to be asked about, the workflow is
// not idle.
//
// A paused workflow begins nothing, but the outcome of a call that was already
// sent is still asked for and the consumer run that sent it completed.
package schedule

import (
	"cmp"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/lifecycle"
)

// A Snapshot is what the decision rests on.
type Snapshot struct {
	Paused   bool
	Open     *keep.Run     // the run that is not closed; nil: none
	Doubt    keep.Mutation // the mutation of Open; zero: none
	Handlers []Handler

	// Detach: a doubt about an item is to be detached from Open, so that the job
	// goes on without that item.
	Detach bool

	// Detached are the doubts about items that are not Open's.
	Detached []keep.Mutation
}

// A Handler is one handler of the current version.
type Handler struct {
	keep.Handler
	State   keep.HandlerState // zero: never written
	Backlog keep.Backlog      // consumers: what waits in the subscribed topics
	Fresh   bool              // has not run since the host started
}

// Do says what to do.
type Do string

const (
	Run       Do = "run"      // begin a run of Handler
	Again     Do = "again"    // begin the attempt after Open
	Ask       Do = "ask"      // ask what became of Open's call
	AskItem   Do = "ask-item" // ask what became of Mutation, which is detached
	Detach    Do = "detach"   // detach the doubt from Open
	Idle      Do = "idle"     // nothing is due
	Backoff   Do = "backoff"  // something that failed or is in doubt has its time coming
	NeedsHelp Do = "person"   // a person must act first
	IsPaused  Do = "paused"   // a person paused the workflow
)

// A Step is the decision.
type Step struct {
	Do      Do
	Handler keep.HandlerName // for Run

	Mutation keep.MutationKey // for AskItem

	// At is when to decide again if nothing happens before; zero: nothing
	// will become due by itself.
	At time.Time
}

// Waits reports whether the step starts nothing.
func (s Step) Waits() bool {
	switch s.Do {
	case Idle, Backoff, NeedsHelp, IsPaused:
		return true
	}
	return false
}

// Next decides what the workflow does at time now.
func Next(s Snapshot, now time.Time) Step {
	key, at := nextDoubt(s.Detached)
	if key != "" && !at.After(now) {
		return Step{Do: AskItem, Mutation: key}
	}
	step := next(s, now)
	if key != "" && step.Waits() {
		step.Do = Backoff
		if step.At.IsZero() || at.Before(step.At) {
			step.At = at
		}
	}
	return step
}

// nextDoubt returns the detached doubt that is to be asked about next, and when;
// empty: none.
func nextDoubt(doubts []keep.Mutation) (key keep.MutationKey, at time.Time) {
	for _, m := range doubts {
		if m.State != keep.NeedsReconcile {
			continue
		}
		if c := m.NextReconcileAt.Compare(at); key == "" || c < 0 || c == 0 && m.Key < key {
			key, at = m.Key, m.NextReconcileAt
		}
	}
	return key, at
}

// next decides what is to be done besides asking about detached doubts.
func next(s Snapshot, now time.Time) Step {
	if s.Open != nil {
		if s.Detach && detachable(*s.Open, s.Doubt) {
			return Step{Do: Detach}
		}
		return unfinished(*s.Open, s.Doubt, s.Paused, now)
	}
	if s.Paused {
		return Step{Do: IsPaused}
	}
	if h := first(s.Handlers, now, requested); h != nil {
		return Step{Do: Run, Handler: h.Name}
	}
	if h := first(s.Handlers, now, hasEvents); h != nil {
		return Step{Do: Run, Handler: h.Name}
	}
	if h := first(s.Handlers, now, isDue); h != nil {
		return Step{Do: Run, Handler: h.Name}
	}
	return Step{Do: Idle, At: soonest(s.Handlers, now)}
}

// detachable reports whether r waits for the outcome of a call in an item.
func detachable(r keep.Run, m keep.Mutation) bool {
	return r.Kind == keep.Job && r.Status == keep.StatusReconciliation && m.Item != "" &&
		(m.State == keep.NeedsReconcile || m.State == keep.Indeterminate)
}

func unfinished(r keep.Run, m keep.Mutation, paused bool, now time.Time) Step {
	switch {
	case r.Status == keep.StatusReconciliation && m.State == keep.NeedsReconcile:
		if m.NextReconcileAt.After(now) {
			return Step{Do: Backoff, At: m.NextReconcileAt}
		}
		return Step{Do: Ask}
	case r.RetryAt.IsZero():
		return Step{Do: NeedsHelp}
	case paused && !completes(r, m):
		return Step{Do: IsPaused}
	case r.RetryAt.After(now):
		return Step{Do: Backoff, At: r.RetryAt}
	default:
		return Step{Do: Again}
	}
}

// completes reports whether the attempt after r makes no new call: it asks about
// the one that was made, or goes on from its outcome.
func completes(r keep.Run, m keep.Mutation) bool {
	start, _ := lifecycle.StartOf(r, m.State)
	return m.State != "" && (start == lifecycle.FromDoubt || start == lifecycle.FromNext)
}

// A claim reports whether h should run now, and a rank: the lowest goes first.
type claim func(h *Handler, now time.Time) (rank int64, ok bool)

func requested(h *Handler, _ time.Time) (int64, bool) {
	return h.State.RequestedAt.UnixMilli(), !h.State.RequestedAt.IsZero()
}

func hasEvents(h *Handler, now time.Time) (int64, bool) {
	if h.Kind != keep.Consumer {
		return 0, false
	}
	woken := !h.State.WakeAt.IsZero() && !h.State.WakeAt.After(now)
	oldest := h.Backlog.Oldest.Seq
	if oldest == 0 {
		oldest = 1<<63 - 1 // only its alarm rang: after those with events
	}
	return oldest, woken || h.Backlog.Newest > h.State.IdleSeq
}

func isDue(h *Handler, now time.Time) (int64, bool) {
	if h.Kind == keep.Consumer {
		return 0, false
	}
	at := dueAt(h, now)
	return at.UnixMilli(), !at.IsZero() && !at.After(now)
}

// dueAt returns when a producer or job is due; zero: never by itself. A bare one
// is due at every start of the host. One without a plan is due now, unless it ran
// and its schedule has no more ticks: then "now" would spin.
func dueAt(h *Handler, now time.Time) time.Time {
	switch {
	case h.Schedule.IsZero() && h.Fresh:
		return now
	case h.State.NextAt.IsZero() && h.Schedule.Cron != "" && h.State.LastRun != "":
		return time.Time{}
	case h.State.NextAt.IsZero():
		return now
	}
	return h.State.NextAt
}

func first(handlers []Handler, now time.Time, c claim) *Handler {
	var best *Handler
	var bestRank int64
	for i := range handlers {
		h := &handlers[i]
		rank, ok := c(h, now)
		if ok && (best == nil || rank < bestRank || rank == bestRank && h.Name < best.Name) {
			best, bestRank = h, rank
		}
	}
	return best
}

// soonest returns the first time at which a handler becomes due by itself.
func soonest(handlers []Handler, now time.Time) time.Time {
	var times []time.Time
	for i := range handlers {
		at := handlers[i].State.WakeAt
		if handlers[i].Kind != keep.Consumer {
			at = dueAt(&handlers[i], now)
		}
		if !at.IsZero() {
			times = append(times, at)
		}
	}
	if len(times) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(times, func(a, b time.Time) int { return cmp.Compare(a.UnixNano(), b.UnixNano()) })
}
