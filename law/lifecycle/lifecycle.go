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
//	failed, and was ever in doubt         → mutate: the key is never given up
//
// The package reads no clock and performs nothing.
package lifecycle

import (
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
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

// TreatedAsDone returns what a run knows of a call that it did not make, because a person
// treats it as done: by another record with that result, or outside of what the ledger knows,
// with the result that the person says.
func TreatedAsDone(result []byte) keep.Mutation {
	return keep.Mutation{State: keep.Applied, Result: result}
}

// DoneAlready returns r, which waits for a person, as it continues now because that person says that its call
// was done: outside of what the ledger knows, or by the call of another record. A consumer's run has its outcome with
// that: nothing that its script or a configuration says later can send the call. A record of an
// earlier attempt at it, which failed, says nothing about that. A job finds the answer when it
// comes to the call.
func DoneAlready(r keep.Run, now time.Time) keep.Run {
	if r.Kind == keep.Consumer {
		r.Phase, r.Mutation = keep.Mutated, ""
	}
	r.RetryAt, r.UpdatedAt = now, now
	return r
}

// SaysDone reports whether q is an approval of which a person said that its call was done outside
// of what the ledger knows.
func SaysDone(q keep.Escalation) bool {
	return q.Kind == keep.AskApproval && q.Decision != nil && q.Decision.Action == keep.TreatAsDone
}

// StoppedAtCall reports whether a consumer's run without a record that went through mutate stopped at its call: one without any is past it.
func StoppedAtCall(r keep.Run) bool { return r.Phase == keep.Prepared || r.Phase == keep.Mutating }

// Unmade returns the call that q asked about before a run made it: as one that had no effect, or, if a person treated it as done, as one of
// which the ledger does not know what it was.
func Unmade(r keep.Run, q keep.Escalation) (m keep.Mutation, is bool) {
	if q.Approval == nil {
		return m, false
	}
	m = keep.Mutation{Tool: q.Approval.Tool, Title: q.Title, State: keep.Failed}
	if SaysDone(q) {
		m.State = keep.Skipped
	}
	return m, SaysDone(q) || StoppedAtCall(r)
}

// Unknown reports whether nobody knows yet what became of the call.
func Unknown(s keep.MutationState) bool {
	return s == keep.InFlight || s == keep.NeedsReconcile || s == keep.Indeterminate
}

// OnlyForPerson returns m, of which nobody knows what became, as a call about which the service is not asked any more.
func OnlyForPerson(m keep.Mutation) keep.Mutation {
	m.State = keep.Indeterminate
	return m
}

// Doubts returns the states in which a service or a person must say what became of the
// call.
func Doubts() []keep.MutationState {
	return []keep.MutationState{keep.NeedsReconcile, keep.Indeterminate}
}

// A Consequence is what a failure does to a run.
type Consequence struct {
	Status   keep.RunStatus
	Retry    bool                // plan another attempt by itself
	Release  bool                // give the reserved events back
	Escalate keep.EscalationKind // empty: no question
}

// Classify returns what a failure of that class does to a run whose mutation is in
// m (zero: none) and whose retries are exhausted or not.
//
// A failure of class unknown belongs to a call, and its mutation is then in
// doubt; without one nobody could ever end the doubt, so that is internal. A run
// whose outcome is applied or skipped keeps its reservations whatever happens:
// only next is left to do.
func Classify(class keep.Class, m keep.Mutation, spent bool) Consequence {
	switch {
	case Unknown(m.State):
		class = keep.ClassUnknown // doubt outweighs everything else
	case class == keep.ClassUnknown:
		class = keep.ClassInternal
	}
	switch class {
	case keep.ClassTransient:
		if spent {
			return Consequence{Status: keep.StatusPerson, Escalate: keep.AskRetries}
		}
		return Consequence{Status: keep.StatusTransient, Retry: true}
	case keep.ClassLogic:
		return Consequence{Status: keep.StatusLogic, Release: !Settled(m.State) && !m.Doubted, Escalate: keep.AskLogic}
	case keep.ClassPermission:
		return Consequence{Status: keep.StatusPerson, Escalate: keep.AskPermission}
	case keep.ClassPrecondition:
		return Consequence{Status: keep.StatusPerson, Escalate: keep.AskPrecondition}
	case keep.ClassUnknown:
		v := Consequence{Status: keep.StatusReconciliation}
		if m.State == keep.Indeterminate {
			v.Escalate = DoubtKind(m)
		}
		return v
	default:
		return Consequence{Status: keep.StatusInternal, Escalate: keep.AskInternal}
	}
}

// AsksForAccount reports whether a failure is about an account that a person is asked to
// connect again. That question is one for all runs, so a run asks none of its own.
func AsksForAccount(f *keep.Failure) bool { return ledger.AsksForAccount(f) }

// AsksForUser reports whether a failure is about whose an account or a secret is. That question is one
// for all calls in doubt that it is about.
func AsksForUser(f *keep.Failure) bool { return ledger.AsksForUser(f) }

// AsksForTool reports whether a failure is about a tool that its server changed. That question is one for all calls in
// doubt of the tool, too.
func AsksForTool(f *keep.Failure) bool { return ledger.AsksForTool(f) }

// Reconnected returns r as it continues because an account that it waited for is another
// one than it was.
func Reconnected(r keep.Run, now time.Time) keep.Run {
	r.RetryAt, r.UpdatedAt = now, now
	return r
}

// DoubtKind returns what a person is asked about a record that nobody else can move: what
// became of the call, or for the right to ask that.
func DoubtKind(m keep.Mutation) keep.EscalationKind {
	if ledger.Refused(m.Error) {
		return keep.AskPermission
	}
	return keep.AskUnknownOutcome
}

// Fail returns r stopped by f as v says. RetryAt is when to try again if v asks
// for it. Reservations stay, also if v gives the events back: they say what r tried.
func Fail(r keep.Run, f *keep.Failure, v Consequence, retryAt, now time.Time) keep.Run {
	r.Status, r.Error, r.UpdatedAt = v.Status, f, now
	r.RetryAt = time.Time{}
	if v.Retry {
		r.RetryAt = retryAt
	}
	r.Crashes = 0
	return r
}

// Released reports whether a run that stopped gave its events back, so that its
// Reservations only say what it tried. m is its mutation, zero if it has none.
func Released(r keep.Run, m keep.Mutation) bool {
	return r.Status == keep.StatusLogic && Classify(keep.ClassLogic, m, false).Release
}

// A Start is where an attempt begins.
type Start string

const (
	FromPrepare Start = "prepare"   // nothing is pinned
	FromMutate  Start = "mutate"    // data is pinned, and the call is to be made
	FromDoubt   Start = "reconcile" // it is not known whether the call happened
	FromNext    Start = "next"      // the outcome of the call is known
	FromHandler Start = "handler"   // producers and jobs have one handler
)

// Completes reports whether the attempt after r makes no new call: it asks about the one that was made, or continues from
// its outcome. A pause does not hold it up.
func Completes(r keep.Run, m keep.Mutation) bool {
	start, _ := StartOf(r, m)
	return m.State != "" && (start == FromDoubt || start == FromNext)
}

// StartOf returns where the attempt after r begins, and whether it is a new
// chain. m is r's mutation, zero if it has none.
func StartOf(r keep.Run, m keep.Mutation) (start Start, newChain bool) {
	switch {
	case Unknown(m.State):
		return FromDoubt, false
	case r.Kind != keep.Consumer:
		return FromHandler, false
	case Settled(m.State):
		return FromNext, false
	case m.Doubted:
		return FromMutate, false // the key is never given up
	case r.Status == keep.StatusLogic:
		return FromPrepare, true
	case r.Phase == keep.Preparing:
		return FromPrepare, false
	case m.State == "" && (r.Phase == keep.Mutated || r.Phase == keep.Emitting):
		return FromNext, false // the outcome is none
	default:
		return FromMutate, false
	}
}

// NextAttempt returns the attempt after r, and r closed. The new attempt keeps what is
// pinned. m is r's mutation, zero if it has none.
func NextAttempt(r keep.Run, m keep.Mutation, id keep.RunID, v keep.Version, now time.Time) (next, closed keep.Run) {
	start, newChain := StartOf(r, m)
	next = r
	next.ID, next.RetryOf, next.Version = id, r.ID, v
	next.Status, next.Error, next.RetryAt = keep.StatusActive, nil, time.Time{}
	next.Rev, next.CreatedAt, next.UpdatedAt = 0, now, now
	switch {
	case Interrupted(r), r.Status == keep.StatusCrashed, Limited(r): // uses up no retry
	case r.Status == keep.StatusTransient:
		next.Retries++
	case r.Status == keep.StatusInternal:
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

// Before returns the attempt that r took up, empty if it is the first at its work.
func Before(r keep.Run) keep.RunID { return r.RetryOf }

// MaxCrashes is how many crashes in a row a chain survives before a person is
// asked. A run that kills its host must not do so forever.
const MaxCrashes = 10

// Crash returns r as it stands after its host died while it was active, and
// whether that happened too often. The caller plans the recovery.
func Crash(r keep.Run, now time.Time) (keep.Run, bool) {
	if Limited(r) { // it did nothing
		return Interrupt(r, "the host died while the run waited for "+r.Error.Message, now), false
	}
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

// Detached reports whether a question is about a call that is not that of its run
// any more: the run continued without the item that it was made for.
func Detached(q keep.Escalation, run keep.Run) bool {
	return q.AboutDoubt() && q.Item != "" && q.Mutation != run.Mutation
}

// ItemOver reports whether nothing more is done for an item by itself.
func ItemOver(it keep.Item) bool { return it.Over() }

// interrupted is the code of a run that was left in an orderly way.
const interrupted = "interrupted"

// Interrupt returns r as its host leaves it because it stops, loses its lease or a
// person paused the workflow: its work is taken up again as soon as that is possible,
// and no retry is used up.
func Interrupt(r keep.Run, why string, now time.Time) keep.Run {
	r.Status, r.RetryAt, r.UpdatedAt = keep.StatusTransient, now, now
	r.Error = &keep.Failure{Class: keep.ClassTransient, Code: interrupted, Message: why}
	return r
}

// Interrupted reports whether r was left in an orderly way, and did not fail.
func Interrupted(r keep.Run) bool {
	return r.Status == keep.StatusTransient && r.Error != nil && r.Error.Code == interrupted
}

// ByLimit reports whether f is no fault of what was tried: the connection may not be used
// now, the service named a time, or it does not answer.
func ByLimit(f *keep.Failure) bool {
	return f != nil && f.Class == keep.ClassTransient && (f.Code == keep.CodeLimit || f.RetryAfter > 0 || f.Outage)
}

// Limited reports whether r waits for the limits of a connection.
func Limited(r keep.Run) bool {
	return ByLimit(r.Error) && (r.Status == keep.StatusTransient || r.Status == keep.StatusActive)
}

// AwaitsApproval reports whether r waits for a person to agree to its call. The time of its
// next attempt is then the end of the question; after an answer it is that of the answer.
func AwaitsApproval(r keep.Run) bool {
	return r.Status == keep.StatusApproval && !OverBudget(r) && !r.Closed && (r.RetryAt.IsZero() || r.RetryAt.After(r.UpdatedAt))
}

// OverBudget reports whether r waits for room in a budget.
func OverBudget(r keep.Run) bool {
	return r.Status == keep.StatusApproval && r.Error != nil && r.Error.Code == keep.CodeBudget
}

// Stopped reports whether r waits until a person lets calls of its tool through.
func Stopped(r keep.Run) bool {
	return r.Status == keep.StatusPerson && r.Error != nil && r.Error.Code == keep.CodeBreaker
}

// RivalFailed reports whether m, which was the reason to ask q, is known not to have happened: since q was asked, and not by
// a clock that is ahead.
func RivalFailed(q keep.Escalation, m keep.Mutation, now time.Time) bool {
	return m.State == keep.Failed && m.UpdatedAt.After(q.CreatedAt) && !m.UpdatedAt.After(now)
}

// Deployed returns r as a new version of its workflow finds it, and whether the version
// unblocks it: a run that failed by logic is tried again at once, and one that waits for an
// approval asks again, since that was asked for another version. One whose handler was gone looks
// for it in the new version. Every other run continues as it would have.
func Deployed(r keep.Run, now time.Time) (keep.Run, bool) {
	if r.Closed || r.Status != keep.StatusLogic && !AwaitsApproval(r) && !IsHandlerGone(r) {
		return r, false
	}
	r.RetryAt, r.UpdatedAt = now, now
	return r, true
}

// handlerGone is the code of a run whose handler is in no version that its host can execute.
const handlerGone = "handler-gone"

// HandlerGone returns r, which is due, as it waits since version v has not its handler. What it pinned stays;
// one that failed by logic has given its events back already, and begins anew with another version. It has crashed
// as often as before, unless a person had it tried again after that.
func HandlerGone(r keep.Run, v keep.Version, now time.Time) keep.Run {
	if r.Status == keep.StatusInternal {
		r.Crashes = 0
	}
	if r.Status != keep.StatusLogic {
		r.Status = keep.StatusPerson
	}
	r.RetryAt, r.UpdatedAt = time.Time{}, now
	r.Error = keep.Failf(keep.ClassPrecondition, handlerGone, "version %s has no %s %s, and only another build of the program has it", v, r.Kind, r.Handler)
	return r
}

// IsHandlerGone reports whether r waits since its handler is gone.
func IsHandlerGone(r keep.Run) bool {
	return !r.Closed && r.Error != nil && r.Error.Code == handlerGone
}

// BeginsAnew reports whether a deploy, or a person, lets a run begin again whose script had failed.
func BeginsAnew(r keep.Run) bool { return r.Status == keep.StatusLogic && !r.RetryAt.IsZero() }

// NeedsScript reports whether r failed by logic, and only another script or a person moves it.
func NeedsScript(r keep.Run) bool {
	return !r.Closed && !IsHandlerGone(r) && r.Status == keep.StatusLogic && r.Error != nil && r.RetryAt.IsZero()
}

// WaitsForTime reports whether r continues by itself at a time, and not by what a person
// decides.
func WaitsForTime(r keep.Run) bool { return !AwaitsApproval(r) && !r.RetryAt.IsZero() }

// BringForward returns r, which waits for a time, as it continues now, and whether that is
// sooner.
func BringForward(r keep.Run, now time.Time) (keep.Run, bool) {
	if !r.RetryAt.After(now) {
		return r, false
	}
	r.RetryAt, r.UpdatedAt = now, now
	return r, true
}

// Resends reports whether the next attempt makes the call of m again: it is known not to
// have happened.
func Resends(m keep.Mutation) bool { return m.State == keep.Failed }

// Abort returns r ended by a person before its mutation.
func Abort(r keep.Run, now time.Time) keep.Run {
	r.Status, r.Closed, r.RetryAt, r.UpdatedAt = keep.StatusAborted, true, time.Time{}, now
	return r
}

// Reprocess returns an item as a person's wish to do it again leaves it: a new
// attempt, to which the mutations of the others mean nothing.
func Reprocess(it keep.Item, now time.Time) keep.Item {
	it.Status, it.Attempt, it.UpdatedAt = keep.ItemProcessing, it.Attempt+1, now
	return it
}

// CanUnskip returns why an event that was skipped cannot become pending again; empty: it
// can. chain are runs that had it as ReservedBy says, each with its mutation or zero. A
// run that was aborted before its call, or whose call is known to have failed, left
// nothing; whose outcome is not known, or was not for a while, keeps its key and its event.
func CanUnskip(ev keep.Event, chain []keep.Run, mutations map[keep.MutationKey]keep.Mutation) string {
	switch {
	case ev.Status != keep.EventSkipped:
		return "it is " + string(ev.Status) + ", not skipped"
	case ev.ReservedBy == "":
		return ""
	case ev.ReservedBy == keep.Swept:
		return "it is old, and its payload was deleted"
	}
	for _, r := range chain {
		switch m := mutations[r.Mutation]; {
		case m.Key != "" && (m.State != keep.Failed || m.Doubted):
			return fmt.Sprintf("its call %s is %s, after a doubt: another call might repeat it", m.Key, m.State)
		case !r.Closed || r.Status == keep.StatusCommitted:
			return fmt.Sprintf("run %s finished it and is %s", r.ID, r.Status)
		}
	}
	return ""
}

// Unskip returns an item as a person leaves it who undoes its skip.
func Unskip(it keep.Item, now time.Time) keep.Item {
	it.Status, it.UpdatedAt = keep.ItemProcessing, now
	return it
}
