// Package schedule decides what a workflow does next, given a snapshot of it and
// a time. It reads no clock and starts nothing.
//
// # Order
//
// An unfinished run that is due goes before everything (law: one-at-a-time): it is retried
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
// # Lanes
//
// An unfinished run that waits holds up the whole workflow, or less: a run in the lane
// of an order key only the events of that key, which its consumer's backlog then
// leaves out. While the whole workflow is held up, a definition with on_blocked "poll"
// still begins producers.
//
// A paused workflow begins nothing, but the outcome of a call that was already
// sent is still asked for and the consumer run that sent it completed.
package schedule

import (
	"cmp"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
)

// A Snapshot is what the decision rests on.
type Snapshot struct {
	Paused   bool
	Open     []Open // the runs that are not closed
	Poll     bool   // producers continue while the workflow is held up
	Handlers []Handler

	// Detach: a doubt about an item is to be detached from its run, so that the job
	// continues without that item.
	Detach bool

	// Detached are the doubts about items that are not those of open runs.
	Detached []keep.Mutation
}

// An Open is a run that is not closed.
type Open struct {
	Run   keep.Run
	Doubt keep.Mutation // its mutation; zero: none

	// By is the handler of the current version that carries on with it, or else, of a consumer, the one that reads the
	// topic of its events now, and so has to wait for it as the one before; empty: there is none.
	By keep.HandlerName

	// Strict: the current version declares the handler with another order than that
	// of the lane, by which the workflow waits for the run.
	Strict bool

	// Asked: it waits for a connection that does not answer, and a person was asked about
	// that. It continues by itself when the connection answers.
	Asked bool
}

// IsStrict reports whether a version orders all events of the consumer of a run, whatever the lane of that is.
func IsStrict(def keep.Definition, r keep.Run) bool {
	h, ok := def.Carrier(r.Kind, r.Handler)
	if !ok {
		h, ok = ReaderOf(def, r)
	}
	return ok && h.Kind == keep.Consumer && h.Order == keep.OrderAll
}

// ReaderOf returns the consumer of a version that reads the topic of the events of a run.
func ReaderOf(def keep.Definition, r keep.Run) (keep.Handler, bool) {
	if r.Kind != keep.Consumer {
		return keep.Handler{}, false
	}
	topics := make([]keep.TopicName, 0, 1+len(r.Reservations))
	if r.Trigger.Topic != "" {
		topics = append(topics, r.Trigger.Topic)
	}
	for _, list := range r.Reservations {
		topics = append(topics, list.Topic)
	}
	return def.Reader(topics...)
}

// MaxOpen is how many runs of a workflow may be unfinished before its ordered consumers
// begin no more of them (law: bounded).
const MaxOpen = 100

// A Handler is one handler of the current version.
type Handler struct {
	keep.Handler
	State   keep.HandlerState // zero: never written
	Backlog keep.Backlog      // consumers: what waits in the subscribed topics, and is not held up
	More    bool              // ordered consumers: Backlog has no event, and not all were looked at
	Fresh   bool              // has not run since the host started
}

// Do says what to do.
type Do string

const (
	Run         Do = "run"      // begin a run of Handler
	NextAttempt Do = "attempt"  // begin the attempt after Run
	Ask         Do = "ask"      // ask what became of the call of Run
	AskItem     Do = "ask-item" // ask what became of Mutation, which is detached
	Detach      Do = "detach"   // detach the doubt from Run
	ReadMore    Do = "read"     // read more of the events that wait
	Idle        Do = "idle"     // nothing is due
	Backoff     Do = "backoff"  // something that failed or is in doubt has its time coming
	NeedsHelp   Do = "person"   // a person must act first
	IsPaused    Do = "paused"   // a person paused the workflow
)

// A Step is the decision.
type Step struct {
	Do      Do
	Handler keep.HandlerName // for Run
	Run     keep.RunID       // for NextAttempt, Ask and Detach

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
	step, due := s.unfinished(now)
	if due || s.HoldsUp() && !s.Poll {
		return step
	}
	if s.Paused {
		return sooner(step, Step{Do: IsPaused})
	}
	handlers := s.Handlers
	if len(s.Open) > 0 {
		handlers = slices.DeleteFunc(slices.Clone(handlers), func(h Handler) bool { return !s.Free(h.Handler) })
	}
	for _, claimed := range []claim{s.requested, s.hasEvents, isDue} {
		if h := first(handlers, now, claimed); h != nil {
			return Step{Do: Run, Handler: h.Name}
		}
	}
	if slices.ContainsFunc(handlers, func(h Handler) bool { return h.More }) {
		return Step{Do: ReadMore}
	}
	return sooner(step, Step{Do: Idle, At: s.soonest(handlers, now)})
}

// unfinished returns what is to be done about the open runs: first that which has been
// due longest. due is false if all of them wait, or there is none.
func (s *Snapshot) unfinished(now time.Time) (step Step, due bool) {
	var best time.Time
	step.Do = Idle
	for i, o := range s.Open {
		this := attend(o, s.Paused, now)
		at := o.Run.RetryAt
		if s.Detach && detachable(o.Run, o.Doubt) {
			this, at = Step{Do: Detach}, time.Time{}
		}
		this.Run = o.Run.ID
		if this.Do == Ask {
			at = o.Doubt.NextReconcileAt
		}
		switch {
		case this.Waits():
			this.Run = ""
			if i == 0 {
				step = this
			} else if !due {
				step = sooner(step, this)
			}
		case !due || at.Before(best) || at.Equal(best) && this.Run < step.Run:
			step, best, due = this, at, true
		}
	}
	return step, due
}

// sooner joins what two parts of a workflow wait for: what ends by itself counts more
// than what a person must do, and that more than nothing.
func sooner(a, b Step) Step {
	rank := []Do{Idle, NeedsHelp, IsPaused, Backoff}
	if slices.Index(rank, b.Do) > slices.Index(rank, a.Do) {
		a.Do = b.Do
	}
	if a.At.IsZero() || !b.At.IsZero() && b.At.Before(a.At) {
		a.At = b.At
	}
	return a
}

// HoldsUp reports whether an open run holds up the whole workflow.
func (s *Snapshot) HoldsUp() bool { return slices.ContainsFunc(s.Open, Open.HoldsUp) }

// HoldsUp reports whether the whole workflow waits for the run.
func (o Open) HoldsUp() bool {
	return o.Strict || o.Run.Lane == keep.WorkflowLane || o.Run.Lane.IsHandler() && o.Run.Kind != keep.Consumer
}

// Free reports whether a handler may begin a run beside those that are open.
func (s *Snapshot) Free(h keep.Handler) bool {
	switch {
	case len(s.Open) == 0:
		return true
	case s.HoldsUp():
		return s.Poll && h.Kind == keep.Producer && !s.has(h.Name)
	}
	return h.Order == keep.OrderAll || len(s.Open) < MaxOpen
}

// has reports whether a run of a handler is open.
func (s *Snapshot) has(name keep.HandlerName) bool {
	return slices.ContainsFunc(s.Open, func(o Open) bool { return o.Run.Handler == name })
}

// Lane returns the lane of a run of h that is not about an event.
func (s *Snapshot) Lane(h keep.Handler) keep.Lane {
	if h.Order != keep.OrderAll || s.Poll && h.Kind == keep.Producer {
		return keep.HandlerLane(h.Name)
	}
	return keep.WorkflowLane
}

// woken reports whether the alarm of a consumer rang. One without an event is not
// begun beside another that has none either.
func (s *Snapshot) woken(h *Handler, now time.Time) bool {
	at := h.State.WakeAt
	return !at.IsZero() && !at.After(now) && !h.More && !s.occupied(h)
}

// occupied reports whether a run of an ordered consumer is open that has no event.
func (s *Snapshot) occupied(h *Handler) bool {
	return slices.ContainsFunc(s.Open, func(o Open) bool {
		return o.Run.Lane == keep.HandlerLane(h.Name) || o.By == h.Name && o.Run.Lane.IsHandler()
	})
}

// detachable reports whether r waits for the outcome of a call in an item.
func detachable(r keep.Run, m keep.Mutation) bool {
	return r.Kind == keep.Job && r.Status == keep.StatusReconciliation && m.Item != "" &&
		(m.State == keep.NeedsReconcile || m.State == keep.Indeterminate)
}

// attend returns what is to be done about one open run.
func attend(o Open, paused bool, now time.Time) Step {
	r, m := o.Run, o.Doubt
	switch {
	case r.Status == keep.StatusReconciliation && m.State == keep.NeedsReconcile:
		if m.NextReconcileAt.After(now) {
			return Step{Do: o.backoff(), At: m.NextReconcileAt}
		}
		return Step{Do: Ask}
	case r.RetryAt.IsZero():
		return Step{Do: NeedsHelp}
	case paused && !lifecycle.Completes(r, m):
		return Step{Do: IsPaused}
	case r.RetryAt.After(now):
		return Step{Do: o.backoff(), At: r.RetryAt}
	default:
		return Step{Do: NextAttempt}
	}
}

// backoff returns how the run waits for its time.
func (o Open) backoff() Do {
	if o.Asked || lifecycle.AwaitsApproval(o.Run) {
		return NeedsHelp
	}
	return Backoff
}

// A claim reports whether h should run now, and a rank: the lowest goes first.
type claim func(h *Handler, now time.Time) (rank int64, ok bool)

// requested reports whether a person caused a run of h. An ordered consumer first looks
// for an event, and begins none without an event beside another that has none either.
func (s *Snapshot) requested(h *Handler, _ time.Time) (int64, bool) {
	waits := h.Order != keep.OrderAll && (h.More || h.Backlog.Oldest.Seq == 0 && s.occupied(h))
	return h.State.RequestedAt.UnixMilli(), !h.State.RequestedAt.IsZero() && !waits
}

func (s *Snapshot) hasEvents(h *Handler, now time.Time) (int64, bool) {
	if h.Kind != keep.Consumer {
		return 0, false
	}
	oldest := h.Backlog.Oldest.Seq
	oldest = cmp.Or(oldest, 1<<63-1) // only its alarm rang: after those with events
	return oldest, s.woken(h, now) || h.Backlog.Newest > h.State.IdleSeq
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
func (s *Snapshot) soonest(handlers []Handler, now time.Time) time.Time {
	var times []time.Time
	for i := range handlers {
		at := handlers[i].State.WakeAt
		if handlers[i].Kind != keep.Consumer {
			at = dueAt(&handlers[i], now)
		}
		if !at.IsZero() && !s.occupied(&handlers[i]) {
			times = append(times, at)
		}
	}
	if len(times) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(times, time.Time.Compare)
}
