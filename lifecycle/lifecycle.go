// Package lifecycle decides how a run may move: its phases, what a failure does
// to it, where the next attempt begins, and what it waits for.
//
// # Phases
//
//	consumer       preparing → prepared → mutating → mutated → emitting → committed
//	producer, job  running → committed
//
// Phases only go forward, and may be passed over (a run without reservations
// goes from prepared to mutated). A failure changes the status, never the phase.
//
// # Attempts
//
// Every attempt at the same pinned work is a run of its own in one chain, linked
// by RetryOf. At most one of them is not closed. The attempt after a failure
// begins where the one before can no longer be repeated safely:
//
//	nothing pinned                        → prepare
//	pinned, nothing sent, or it failed    → mutate, with the same data and key
//	outcome unknown                       → reconcile
//	outcome applied, skipped or none      → next, with the stored result
//	failed:logic before applied           → prepare, as a new chain with a new key
//
// The package reads no clock and performs nothing.
package lifecycle

import (
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// order is the law of phases, for each kind of handler.
var order = map[keep.Kind][]keep.Phase{
	keep.Consumer: {keep.Preparing, keep.Prepared, keep.Mutating, keep.Mutated, keep.Emitting, keep.Committed},
	keep.Producer: {keep.Running, keep.Committed},
	keep.Job:      {keep.Running, keep.Committed},
}

// First returns the phase in which a run of that kind begins.
func First(k keep.Kind) keep.Phase { return order[k][0] }

// A PhaseError is returned when a run would go back, or into a phase that its
// kind does not have.
type PhaseError struct {
	Run      keep.RunID
	Kind     keep.Kind
	From, To keep.Phase
}

// Error names the run, its kind and both phases.
func (e *PhaseError) Error() string {
	return fmt.Sprintf("run %s: a %s does not go from phase %s to %s", e.Run, e.Kind, e.From, e.To)
}

// Advance returns r in a later phase. Advancing to Committed commits and closes
// it; any other phase leaves it active.
func Advance(r keep.Run, to keep.Phase, now time.Time) (keep.Run, error) {
	phases := order[r.Kind]
	from, dest := slices.Index(phases, r.Phase), slices.Index(phases, to)
	if from < 0 || dest <= from || r.Closed {
		return r, &PhaseError{Run: r.ID, Kind: r.Kind, From: r.Phase, To: to}
	}
	r.Phase, r.Status, r.UpdatedAt = to, keep.StatusActive, now
	r.Error, r.RetryAt = nil, time.Time{}
	if to == keep.Committed {
		r.Status, r.Closed, r.Crashes = keep.StatusCommitted, true, 0
	}
	return r, nil
}

// Settled reports whether the mutation of a run leaves it only the way forward:
// its outcome is applied or skipped.
func Settled(s keep.MutationState) bool { return s == keep.Applied || s == keep.Skipped }

// Unknown reports whether nobody knows yet what became of the call.
func Unknown(s keep.MutationState) bool {
	return s == keep.InFlight || s == keep.NeedsReconcile || s == keep.Indeterminate
}

// A Verdict is what a failure does to a run.
type Verdict struct {
	Status   keep.RunStatus
	Retry    bool                // plan another attempt by itself
	Release  bool                // give the reserved events back
	Escalate keep.EscalationKind // empty: no question
}

// Judge returns what a failure of that class does to a run whose mutation is in
// state m (empty: none) and whose retries are spent or not.
//
// A failure of class unknown belongs to a call, and its mutation is then in
// doubt; without one nobody could ever end the doubt, so that is internal. A run
// whose outcome is applied or skipped keeps its reservations whatever happens:
// only next is left to do.
func Judge(class keep.Class, m keep.MutationState, spent bool) Verdict {
	switch {
	case Unknown(m):
		class = keep.ClassUnknown // doubt outweighs everything else
	case class == keep.ClassUnknown:
		class = keep.ClassInternal
	}
	switch class {
	case keep.ClassTransient:
		if spent {
			return Verdict{Status: keep.StatusPerson, Escalate: keep.AskRetries}
		}
		return Verdict{Status: keep.StatusTransient, Retry: true}
	case keep.ClassLogic:
		return Verdict{Status: keep.StatusLogic, Release: !Settled(m), Escalate: keep.AskLogic}
	case keep.ClassPermission:
		return Verdict{Status: keep.StatusPerson, Escalate: keep.AskPermission}
	case keep.ClassPrecondition:
		return Verdict{Status: keep.StatusPerson, Escalate: keep.AskPrecondition}
	case keep.ClassUnknown:
		v := Verdict{Status: keep.StatusReconciliation}
		if m == keep.Indeterminate {
			v.Escalate = keep.AskUnknownOutcome
		}
		return v
	default:
		return Verdict{Status: keep.StatusInternal, Escalate: keep.AskInternal}
	}
}

// Fail returns r stopped by f as v says. RetryAt is when to try again if v asks
// for it.
func Fail(r keep.Run, f *keep.Failure, v Verdict, retryAt, now time.Time) keep.Run {
	r.Status, r.Error, r.UpdatedAt = v.Status, f, now
	r.RetryAt = time.Time{}
	if v.Retry {
		r.RetryAt = retryAt
	}
	if v.Release {
		r.Reservations = nil
	}
	r.Crashes = 0
	return r
}

// A Start is where an attempt begins.
type Start string

const (
	FromPrepare Start = "prepare"
	FromMutate  Start = "mutate"
	FromDoubt   Start = "reconcile"
	FromNext    Start = "next"
	FromHandler Start = "handler" // producers and jobs have one handler
)

// StartOf returns where the attempt after r begins, and whether it is a new
// chain. m is the state of r's mutation, empty if it has none.
func StartOf(r keep.Run, m keep.MutationState) (start Start, newChain bool) {
	switch {
	case Unknown(m):
		return FromDoubt, false
	case r.Kind != keep.Consumer:
		return FromHandler, false
	case Settled(m):
		return FromNext, false
	case r.Status == keep.StatusLogic:
		return FromPrepare, true
	case r.Phase == keep.Preparing:
		return FromPrepare, false
	case m == "" && (r.Phase == keep.Mutated || r.Phase == keep.Emitting):
		return FromNext, false // the outcome is none
	default:
		return FromMutate, false
	}
}

// Again returns the attempt after r, and r closed. The new attempt keeps what is
// pinned. m is the state of r's mutation, empty if it has none.
func Again(r keep.Run, m keep.MutationState, id keep.RunID, v keep.Version, now time.Time) (next, closed keep.Run) {
	start, newChain := StartOf(r, m)
	next = r
	next.ID, next.RetryOf, next.Version = id, r.ID, v
	next.Status, next.Error, next.RetryAt = keep.StatusActive, nil, time.Time{}
	next.Rev, next.CreatedAt, next.UpdatedAt = 0, now, now
	switch r.Status {
	case keep.StatusTransient:
		next.Retries++
	case keep.StatusCrashed: // a crash uses up no retry
	case keep.StatusInternal:
		next.Retries = 0
		if start != FromDoubt { // a person looked at it: it may crash again
			next.Crashes = 0
		}
	default:
		next.Retries = 0
	}
	switch start {
	case FromPrepare, FromHandler:
		next.Phase = First(r.Kind)
		next.Trigger, next.Reservations, next.Prepared = keep.EventRef{}, nil, nil
		next.Title, next.WakeAt, next.Mutation, next.SeenSeq = "", time.Time{}, "", 0
	case FromMutate:
		next.Phase = keep.Prepared
	case FromDoubt:
		next.Status = keep.StatusReconciliation
	case FromNext:
		next.Phase = keep.Mutated
	}
	if newChain {
		next.Chain, next.Crashes = id, 0
	}
	r.Closed, r.RetryAt, r.UpdatedAt = true, time.Time{}, now
	return next, r
}

// MaxCrashes is how many crashes in a row a chain survives before a person is
// asked. A run that kills its host must not do so for ever.
const MaxCrashes = 10

// Crash returns r as it stands after its host died while it was active, and
// whether that happened too often. The caller plans the recovery.
func Crash(r keep.Run, now time.Time) (keep.Run, bool) {
	r.Crashes++
	r.UpdatedAt = now
	if r.Crashes >= MaxCrashes {
		r.Status = keep.StatusInternal
		r.Error = keep.Failf(keep.ClassInternal, "crash-loop",
			"the host died %d times in a row while it worked on this run", r.Crashes)
		return r, true
	}
	r.Status, r.RetryAt = keep.StatusCrashed, now
	return r, false
}

// Deployed returns r as a new version of its workflow finds it, and whether the
// version unblocks it: a run that failed by logic is tried again at once. Every
// other run goes on as it would have (DESIGN section 14).
func Deployed(r keep.Run, now time.Time) (keep.Run, bool) {
	if r.Closed || r.Status != keep.StatusLogic {
		return r, false
	}
	r.RetryAt, r.UpdatedAt = now, now
	return r, true
}

// Abort returns r ended by a person before its mutation.
func Abort(r keep.Run, now time.Time) keep.Run {
	r.Status, r.Closed, r.RetryAt, r.UpdatedAt = keep.StatusAborted, true, time.Time{}, now
	return r
}

// Reprocess returns an item as a person's wish to do it again leaves it: a new
// attempt, to which the mutations of the others mean nothing (S0 §14.3).
func Reprocess(it keep.Item, now time.Time) keep.Item {
	it.Status, it.Attempt, it.UpdatedAt = keep.ItemProcessing, it.Attempt+1, now
	return it
}
