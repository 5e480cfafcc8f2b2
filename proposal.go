package keep

import (
	"fmt"
	"slices"
	"time"
)

// A ProposalState says what became of a proposal. Values are stored; do not rename them.
type ProposalState string

const (
	ProposalWaiting  ProposalState = "waiting"  // its question is open
	ProposalApproved ProposalState = "approved" // a person agreed: the version was deployed
	ProposalRejected ProposalState = "rejected" // a person refused it
	ProposalReplaced ProposalState = "replaced" // a later version came first
)

// ProposalStates returns every state.
func ProposalStates() []ProposalState {
	return []ProposalState{ProposalWaiting, ProposalApproved, ProposalRejected, ProposalReplaced}
}

// A Proposal is a version that somebody wrote who may not decide about it, or that was deployed
// by somebody who may not give what it calls. It is stored and executed by nobody, until a person agrees. A workflow has one that waits
// at most.
type Proposal struct {
	// Deployment is what becomes current. Its version is later than Over, and no other proposal
	// or deployment has it: the number of one that was refused is not used again.
	Deployment

	Over     Version       // current when it was proposed; zero: the workflow is new
	Tools    []GrantedTool // what it calls and was not granted: what a person agrees to
	By       string        // who deployed it
	From     string        // by which way, or by which Origin
	Question EscalationID
	State    ProposalState
	EndedAt  time.Time // when it ceased to wait; zero: it waits
}

// An Origin says who wrote the version of a proposal. Values are stored; do not rename them.
type Origin string

const (
	OriginRepair Origin = "repair" // a repair: By is its id, and nothing is called that was not granted
	OriginWrite  Origin = "write"  // a model, for keep write
	OriginEdit   Origin = "edit"   // a model, for keep edit
	OriginAgent  Origin = "agent"  // an agent
	OriginDeploy Origin = "deploy" // a person, who may not give what it calls
)

// Origins returns every origin.
func Origins() []Origin {
	return []Origin{OriginRepair, OriginWrite, OriginEdit, OriginAgent, OriginDeploy}
}

// Origin returns who wrote the version: From names each but a person.
func (p Proposal) Origin() Origin {
	if slices.Contains(Origins(), Origin(p.From)) {
		return Origin(p.From)
	}
	return OriginDeploy
}

// IsRepair reports whether a repair wrote the version.
func (p Proposal) IsRepair() bool { return p.Origin() == OriginRepair }

// ID names the proposal for people.
func (p Proposal) ID() string { return fmt.Sprintf("%s %s", p.Workflow, p.Version) }

// Validate reports what is wrong with a proposal.
func (p Proposal) Validate() error {
	switch {
	case p.Workflow == "" || p.Version.IsZero():
		return fmt.Errorf("proposal %s: workflow and version required", p.ID())
	case p.Question == "" || p.CreatedAt.IsZero():
		return fmt.Errorf("proposal %s: question and time required", p.ID())
	case !slices.Contains(ProposalStates(), p.State), (p.State == ProposalWaiting) != p.EndedAt.IsZero():
		return fmt.Errorf("proposal %s: state %q, ended %s", p.ID(), p.State, p.EndedAt)
	}
	return nil
}
