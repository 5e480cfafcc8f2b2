package keep

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// An EscalationKind says why a person is asked.
type EscalationKind string

const (
	AskUnknownOutcome EscalationKind = "unknown_outcome"   // nobody can tell whether it happened
	AskPermission     EscalationKind = "permission"        // the service or a grant said no
	AskPrecondition   EscalationKind = "precondition"      // something it needs is gone
	AskRetries        EscalationKind = "retries_exhausted" // it failed too often
	AskLogic          EscalationKind = "logic"             // the script is wrong
	AskInternal       EscalationKind = "internal"          // Keep is wrong
	AskApproval       EscalationKind = "approval"          // a person must agree first
	AskItem           EscalationKind = "item_attention"    // an item cannot continue
	AskAlreadyDone    EscalationKind = "already_done"      // another run did the same, or may have
	AskReconnect      EscalationKind = "reconnect"         // an account is to be connected again; no workflow's
	AskConnection     EscalationKind = "connection"        // a service does not answer or takes no calls, and runs wait for it
	AskGrant          EscalationKind = "grant"             // a version calls more than is granted; no run's
	AskProposal       EscalationKind = "proposal"          // a version that a repair, a model or an agent wrote waits for a person; no run's
	AskBudget         EscalationKind = "budget"            // a budget is spent, and runs wait for it
	AskBreaker        EscalationKind = "breaker"           // calls of a tool failed too often, and none is made
	AskToolChanged    EscalationKind = "tool_changed"      // a server of the gateway changed a tool; no run's
)

// EscalationKinds returns every kind.
func EscalationKinds() []EscalationKind {
	return []EscalationKind{AskUnknownOutcome, AskPermission, AskPrecondition, AskRetries,
		AskLogic, AskInternal, AskApproval, AskItem, AskAlreadyDone, AskReconnect, AskConnection, AskGrant, AskProposal, AskBudget, AskBreaker, AskToolChanged}
}

// An Action is something that a person can decide.
type Action string

const (
	CheckAgain   Action = "check-again"    // ask the service again, without a new effect
	DidNotHappen Action = "did-not-happen" // the person vouches that nothing happened
	Happened     Action = "happened"       // the person vouches that it happened, and says with which result
	Skip         Action = "skip"           // continue without it
	Reprocess    Action = "reprocess"      // do the item once more, as a new attempt
	Approve      Action = "approve"        // let this very payload be sent once
	Reject       Action = "reject"         // do not send it
	Retry        Action = "retry"          // a new attempt under the rules of runs
	DoAgain      Action = "do-again"       // make the call although another run made an equal one
	TreatAsDone  Action = "treat-as-done"  // take the call as done: by the other run, or outside of what the ledger knows
	Allow        Action = "allow"          // make this very call once, beside the limit of its budget
	Raise        Action = "raise"          // give the budget another limit
	Stop         Action = "stop"           // pause the workflow; the question stays
)

// Unskip undoes the skip of an item. It is no answer to a question.
const Unskip Action = "unskip"

// DoneAgain has an event, or an input, done again. It is no answer to a question.
const DoneAgain Action = "redo"

// Cancel ends a run before its call. It is no answer to a question.
const Cancel Action = "cancel"

// What a person does with a workflow, or with one of its producers and jobs. They are no answers to questions.
const (
	Pause           Action = "pause"            // begin nothing new
	Resume          Action = "resume"           // continue after a pause
	Trigger         Action = "trigger"          // run now
	Deployed        Action = "deploy"           // have a version become current, which the note names
	SetCheckpoint   Action = "set-checkpoint"   // set one value of the checkpoint, or delete it
	ResetCheckpoint Action = "reset-checkpoint" // begin where it began at first
)

// What a person does with hosts, tokens, accounts and secrets, which are of no workflow. They are no answers to questions.
const (
	Drain     Action = "drain"   // let a host give its workflows to the others
	Undrain   Action = "undrain" // let it take workflows again
	Issue     Action = "issue"   // make a token
	Revoke    Action = "revoke"  // end a token, a session or an account
	Connect   Action = "connect" // store an account, in the place of one of that name
	Export    Action = "export"  // write an account to a file
	MoveAway  Action = "move"    // write an account to a file, and forget it here
	SetSecret Action = "set"     // store a secret, in the place of one of that name
	Remove    Action = "remove"  // delete a secret, or an account that no key opens
)

// Actions returns every action that answers a question.
func Actions() []Action {
	return []Action{CheckAgain, DidNotHappen, Happened, Skip, Reprocess, Approve, Reject, Retry, DoAgain, TreatAsDone,
		Allow, Raise, Stop}
}

// NeedsConfirmation reports whether a person confirms a before it is done: it leads
// to a call that may have been made before, so a slip would do something twice.
func (a Action) NeedsConfirmation() bool { return a == DidNotHappen || a == Reprocess || a == DoAgain }

// A ResultNeed says whether an answer carries the result of a call. Values are
// stored; do not rename them.
type ResultNeed string

const (
	ResultNone     ResultNeed = ""         // the answer has no result
	ResultOptional ResultNeed = "optional" // it may have one
	ResultRequired ResultNeed = "required" // it has one, or is refused
)

// A Choice is an action as offered: what the button says, what it will cause.
type Choice struct {
	Action Action     `json:"action"`
	Label  string     `json:"label"`
	Effect string     `json:"effect"`
	Result ResultNeed `json:"result,omitempty"`
}

// TakesResult reports whether an answer by c may carry the result of the call.
func (c Choice) TakesResult() bool { return c.Action == Happened || c.Result != ResultNone }

// An Escalation is an open question to a person, with its evidence.
type Escalation struct {
	ID           EscalationID
	Kind         EscalationKind
	Workflow     WorkflowName // empty: about an account, which several may use
	Run          RunID        // empty: about an account, or a version
	Mutation     MutationKey  // empty: not about a mutation
	Item         string       // empty: not about an item
	Connection   string       // empty: not about a connection
	Budget       string       // empty: not about a budget
	Title        string       // the script's claim
	Question     string
	Attempted    string // tool, target and params as the host saw them
	Why          string
	CanVerify    bool
	VerifyByHand string
	Choices      []Choice
	PayloadHash  string    // approvals: what was asked about
	Approval     *Approval // approvals: the call, as a person reads it; nil: another kind, or asked by an older Keep
	ExpiresAt    time.Time // approvals: when the question, and an approval that was not used, ends; zero: never
	CreatedAt    time.Time

	ClosedAt time.Time // zero: open
	Decision *Decision // nil: open, or closed by the host
}

// Allows reports whether a is among the choices.
func (e Escalation) Allows(a Action) bool {
	for _, c := range e.Choices {
		if c.Action == a {
			return true
		}
	}
	return false
}

// A Decision is what a person decided. Decisions are only appended.
type Decision struct {
	Action Action    `json:"action"`
	By     string    `json:"by"`   // who
	From   string    `json:"from"` // by which surface: "cli", "api", "web", "link"
	Note   string    `json:"note"`
	At     time.Time `json:"at"`

	// Result is what a call brought that a person says happened; null is said, nil is
	// not. It is stored with the mutation, or, where there is none, with the decision: of a
	// call that waited for an approval, and is treated as done.
	Result json.RawMessage `json:"-"`

	// Limit and Until are what Raise gives to a budget: a positive limit, and when it ends; zero:
	// it has no end. They are stored with the budget.
	Limit Amount    `json:"-"`
	Until time.Time `json:"-"`
}

// A Decided is a decision that answers no question: of who skipped an input, took up an item again, paused a workflow, and so on.
type Decided struct {
	About    Subject
	Decision Decision // its At is to the millisecond
}

// A Subject is what a decision is about that answers no question.
type Subject struct {
	Workflow WorkflowName // empty: of none
	Kind     SubjectKind
	Topic    TopicName // of an event; else empty
	ID       string    // of the input, of the event's message, of the item, host or token; of a handler Handler.ItemsOf; of others their name
}

// Validate reports what is wrong with the decision.
func (d Decided) Validate() error {
	switch {
	case d.About.ID == "" || d.Decision.Action == "":
		return fmt.Errorf("decision %q about %s %q: it needs an action and something that it is about", d.Decision.Action, d.About.Kind, d.About.ID)
	case !slices.Contains(SubjectKinds(), d.About.Kind):
		return fmt.Errorf("decision about %s %q: there is no such kind", d.About.Kind, d.About.ID)
	case d.About.Kind.OfWorkflow() != (d.About.Workflow != ""):
		return fmt.Errorf("decision about %s %q: it cannot be one of workflow %q", d.About.Kind, d.About.ID, d.About.Workflow)
	}
	return nil
}

// A SubjectKind says what a Subject is. Values are stored; do not rename them.
type SubjectKind string

const (
	AboutInput    SubjectKind = "input"    // an Input
	AboutEvent    SubjectKind = "event"    // an Event
	AboutItem     SubjectKind = "item"     // an Item
	AboutWorkflow SubjectKind = "workflow" // a Workflow
	AboutHandler  SubjectKind = "handler"  // a producer or job
	AboutHost     SubjectKind = "host"     // a Host; of no workflow, as those below
	AboutToken    SubjectKind = "token"    // a Credential that is no session
	AboutSession  SubjectKind = "session"  // a Credential of a browser
	AboutAccount  SubjectKind = "account"  // an Account
	AboutSecret   SubjectKind = "secret"   // an Account that holds a secret of keep.toml
)

// SubjectKinds returns every kind.
func SubjectKinds() []SubjectKind {
	return []SubjectKind{AboutInput, AboutEvent, AboutItem, AboutWorkflow, AboutHandler, AboutHost, AboutToken, AboutSession, AboutAccount, AboutSecret}
}

// OfWorkflow reports whether what is of the kind belongs to a workflow.
func (k SubjectKind) OfWorkflow() bool {
	return !slices.Contains([]SubjectKind{AboutHost, AboutToken, AboutSession, AboutAccount, AboutSecret}, k)
}

// Subject returns the subject of decisions about the workflow as a whole.
func (n WorkflowName) Subject() Subject {
	return Subject{Workflow: n, Kind: AboutWorkflow, ID: string(n)}
}

// MaxDecided is how many decisions about a Subject are read: the newest.
const MaxDecided = 100

// A QuestionCause is what questions may have in common: a service that fails, or a script with a
// mistake, asks once for each workflow, item or order key that meets it.
type QuestionCause struct {
	Kind EscalationKind
	Tool string // that was called, or that failed; the handler of the run, if no tool was; empty: there is no run
	Code string // of the error of the run, or else of the call; empty: there is none
}

// CauseOf returns what the question may have in common with others. r is the run that it is about and m the call; each is zero
// if there is none. Stores that group questions in their own language do as this does.
func (e Escalation) CauseOf(r Run, m Mutation) QuestionCause {
	var failed, refused Failure
	if r.Error != nil {
		failed = *r.Error
	}
	if m.Error != nil {
		refused = *m.Error
	}
	return QuestionCause{Kind: e.Kind, Tool: cmp.Or(string(m.Tool), string(failed.Tool), string(r.Handler)), Code: cmp.Or(failed.Code, refused.Code)}
}

// A QuestionGroup is the open questions of a workflow, or of none, that have one cause.
type QuestionGroup struct {
	QuestionCause
	Workflow WorkflowName // empty: of none
	Count    int
	Newest   EscalationID
}

// A Sink names a way in which people are notified of questions.
type Sink string

// A NoticeStatus says what became of telling one sink of one question. Values
// are stored; do not rename them.
type NoticeStatus string

const (
	// NoticePending means that the sink is tried again at NextAt. It may have
	// been told already: what it answered is recorded after it answers.
	NoticePending NoticeStatus = "pending"

	// NoticeDelivered means that the sink took it.
	NoticeDelivered NoticeStatus = "delivered"

	// NoticeGivenUp means that the sink was tried as often as is allowed.
	NoticeGivenUp NoticeStatus = "given_up"

	// NoticeMoot means that the question was closed first.
	NoticeMoot NoticeStatus = "moot"
)

// NoticeStatuses returns every status.
func NoticeStatuses() []NoticeStatus {
	return []NoticeStatus{NoticePending, NoticeDelivered, NoticeGivenUp, NoticeMoot}
}

// A Notice is the record of telling one sink of one question. There is none
// before the first attempt: that an open question has none is what is owed.
type Notice struct {
	Escalation EscalationID
	Sink       Sink
	Status     NoticeStatus
	Attempts   int       // begun so far
	NextAt     time.Time // when it is tried again; zero: never
	Error      string    // of the last attempt; empty: none, or not known yet
	UpdatedAt  time.Time
	Rev        int // stored revision; 0: not stored yet
}

// An Owed is an open question that a sink has not taken yet.
type Owed struct {
	Escalation Escalation
	Notice     Notice // its Rev is 0 if the sink was never tried
}

// AboutDoubt reports whether the question is about a call of which nobody knows whether it
// happened: what became of it, or for the right to ask.
func (e Escalation) AboutDoubt() bool {
	return e.Kind == AskUnknownOutcome || e.Kind == AskPermission && e.Allows(DidNotHappen)
}
