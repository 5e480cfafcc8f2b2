package keep

import "time"

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
	AskItem           EscalationKind = "item_attention"    // an item cannot go on
)

// EscalationKinds returns every kind.
func EscalationKinds() []EscalationKind {
	return []EscalationKind{AskUnknownOutcome, AskPermission, AskPrecondition, AskRetries,
		AskLogic, AskInternal, AskApproval, AskItem}
}

// An Action is something that a person can decide (DESIGN section 8).
type Action string

const (
	CheckAgain   Action = "check-again"    // ask the service again; sends nothing
	DidNotHappen Action = "did-not-happen" // the person vouches that nothing happened
	Skip         Action = "skip"           // go on without it
	Reprocess    Action = "reprocess"      // do the item once more, as a new attempt
	Approve      Action = "approve"        // let this very payload be sent once
	Reject       Action = "reject"         // do not send it
	Retry        Action = "retry"          // a new attempt under the rules of runs
)

// Actions returns every action.
func Actions() []Action {
	return []Action{CheckAgain, DidNotHappen, Skip, Reprocess, Approve, Reject, Retry}
}

// A Choice is an action as offered: what the button says, what it will cause.
type Choice struct {
	Action Action `json:"action"`
	Label  string `json:"label"`
	Effect string `json:"effect"`
}

// An Escalation is an open question to a person, with its evidence.
type Escalation struct {
	ID           EscalationID
	Kind         EscalationKind
	Workflow     WorkflowName
	Run          RunID
	Mutation     MutationKey // empty: not about a mutation
	Item         string      // empty: not about an item
	Title        string      // the script's claim
	Question     string
	Attempted    string // tool, target and params as the host saw them
	Why          string
	CanVerify    bool
	VerifyByHand string
	Choices      []Choice
	PayloadHash  string // approvals: what was asked about
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
	From   string    `json:"from"` // by which surface: "cli", "api", "web"
	Note   string    `json:"note"`
	At     time.Time `json:"at"`
}
