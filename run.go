package keep

import (
	"encoding/json"
	"strings"
	"time"
)

// A Phase is how far a run has come. Phases only go forward. Values are stored;
// do not rename them.
type Phase string

const (
	// Preparing means that nothing outside was touched and nothing is pinned.
	Preparing Phase = "preparing"

	// Prepared means that data and events are pinned.
	Prepared Phase = "prepared"

	// Mutating means that the call may have been sent. Only evidence ends it.
	Mutating Phase = "mutating"

	// Mutated means that the outcome is applied, skipped or none. The run can
	// only go forward.
	Mutated Phase = "mutated"

	// Emitting means that downstream events are being computed.
	Emitting Phase = "emitting"

	// Committed means that consumption, events and state are one durable fact.
	Committed Phase = "committed"

	// Running is the one phase of producer and job runs before Committed.
	Running Phase = "running"
)

// Phases returns every phase: those of a consumer run in order, then Running.
func Phases() []Phase {
	return []Phase{Preparing, Prepared, Mutating, Mutated, Emitting, Committed, Running}
}

// A RunStatus says whether a run moves, and if not, what it waits for. It is
// orthogonal to the phase. Values are stored; do not rename them.
type RunStatus string

const (
	// StatusActive means that a host is executing the run, or was when it died.
	StatusActive RunStatus = "active"

	// StatusTransient means that the run is tried again at RetryAt.
	StatusTransient RunStatus = "paused:transient"

	// StatusApproval means that a person is asked before the call.
	StatusApproval RunStatus = "paused:approval"

	// StatusReconciliation means that the outcome of the call is unknown.
	StatusReconciliation RunStatus = "paused:reconciliation"

	// StatusPerson means that a person must act: permission, precondition,
	// spent retries, an item that needs attention.
	StatusPerson RunStatus = "paused:person"

	// StatusLogic means that the script is wrong.
	StatusLogic RunStatus = "failed:logic"

	// StatusInternal means that Keep is wrong.
	StatusInternal RunStatus = "failed:internal"

	// StatusCommitted means that the run did all it had to.
	StatusCommitted RunStatus = "committed"

	// StatusCrashed means that the host died while it executed the run.
	StatusCrashed RunStatus = "crashed"

	// StatusAborted means that it is over without a commit: a person skipped its input, or the call of
	// an agent did not happen, as Error says.
	StatusAborted RunStatus = "aborted"
)

// RunStatuses returns every status.
func RunStatuses() []RunStatus {
	return []RunStatus{StatusActive, StatusTransient, StatusApproval, StatusReconciliation,
		StatusPerson, StatusLogic, StatusInternal, StatusCommitted, StatusCrashed, StatusAborted}
}

// Waits reports whether s says what a run does or waits for, and not what became of it. A run that is
// closed still has the last one that it had, and means nothing by it: another attempt took over.
func (s RunStatus) Waits() bool {
	switch s {
	case StatusActive, StatusTransient, StatusApproval, StatusReconciliation, StatusPerson:
		return true
	}
	return false
}

// Fails reports whether s says that the script, Keep or the host of a run failed.
func (s RunStatus) Fails() bool {
	return s == StatusLogic || s == StatusInternal || s == StatusCrashed
}

// A Run is one execution attempt of a handler. Attempts at the same pinned work
// form a chain, linked by RetryOf.
type Run struct {
	ID       RunID
	Chain    RunID // first run of the chain; its own ID if it is the first
	RetryOf  RunID // the attempt before; empty: none
	Workflow WorkflowName
	Version  Version
	Handler  HandlerName
	Kind     Kind
	Phase    Phase
	Status   RunStatus

	Trigger      EventRef        // zero: none
	Reservations []Reservation   // what prepare reserved
	Prepared     json.RawMessage // what prepare returned; nil before
	Mutation     MutationKey     // empty: none
	Title        string          // ui.title of prepare; the script's claim
	WakeAt       time.Time       // wakeAt of prepare, clamped; zero: none
	SeenSeq      int64           // newest event when prepare began

	Error   *Failure  // why it stopped last; nil: did not
	RetryAt time.Time // when a new attempt is due; zero: not planned
	Retries int       // transient repeats in this chain so far
	Crashes int       // crashes in a row in this chain

	// Lane is what the run has to itself while it is not closed.
	Lane Lane

	// Closed means that nothing more will happen to this run: it committed,
	// was aborted, or another attempt took over. Each lane of a workflow has at
	// most one run that is not closed.
	Closed bool

	// Idle means that the run committed and found nothing to do: nothing came in, nothing
	// was reserved, called or published. Most polls are like that.
	Idle bool

	// Rev counts the stored changes of this row. A store writes a run only if
	// its stored Rev is the one that was read; 0 means not stored yet.
	Rev int

	CreatedAt time.Time
	UpdatedAt time.Time
}

// MadeIDs is what the ids begin with that the host makes for events which a run publishes
// without one: they are those of its chain, so that an attempt that runs again makes the
// same, and another attempt at its events others.
func (r Run) MadeIDs() string { return string(r.Chain) + "/" }

// MadeID reports whether the host made the id of an event for the chain of r.
func (r Run) MadeID(id MessageID) bool { return strings.HasPrefix(string(id), r.MadeIDs()) }

// A LogLine is one line that a script wrote with ctx.log or console.
type LogLine struct {
	Run   RunID
	At    time.Time
	Level string // "log", "info", "warn", "error", "debug"
	Text  string
	Where string // file:line:column; empty: unknown
}

// A TracePart is what a run saw between two of its commits, as package law/trace packs it.
// Stores do not look into it.
type TracePart struct {
	Run  RunID
	At   time.Time // of the commit
	Data []byte
}

// An ItemStatus is how far the work on an item came.
type ItemStatus string

const (
	ItemProcessing ItemStatus = "processing"      // a handler is at work, or was when the host died
	ItemDone       ItemStatus = "done"            // the handler completed
	ItemFailed     ItemStatus = "failed"          // the handler did not complete; it will run again
	ItemSkipped    ItemStatus = "skipped"         // a person decided to leave it
	ItemAttention  ItemStatus = "needs_attention" // a person must decide
)

// ItemStatuses returns every status.
func ItemStatuses() []ItemStatus {
	return []ItemStatus{ItemProcessing, ItemDone, ItemFailed, ItemSkipped, ItemAttention}
}

// An Item is one unit of work of a job. Items belong to the workflow, not to a
// version of it.
type Item struct {
	Workflow  WorkflowName
	ID        string
	Title     string
	Status    ItemStatus
	Attempt   int // from 1; rises only when a person asks to reprocess
	Swept     int // the last attempt of which a Sweep forgot calls; 0: none
	Rev       int // see Run.Rev
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Over reports whether nothing more is done for the item by itself.
func (it Item) Over() bool { return it.Status == ItemDone || it.Status == ItemSkipped }

// between stands in the id of an item between the name under which a job keeps its items
// and the id that its script gives.
const between = "::"

// ItemID returns the id under which an item is stored whose job is not the first that its
// workflow had.
func ItemID(of, id string) string { return of + between + id }

// CutItemID returns the id that the script of a job gives to an item that is stored as
// stored, and whether it is an item of that job.
func CutItemID(of, stored string) (id string, ok bool) { return strings.CutPrefix(stored, of+between) }

// PaidAnswers names the checkpoint of the answers that a chain of runs has paid for. No
// producer has such a name.
func PaidAnswers(chain RunID) HandlerName { return HandlerName("paid:" + string(chain)) }
