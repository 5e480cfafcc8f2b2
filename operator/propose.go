package operator

import (
	"context"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/grant"
)

// maxUndecided is how many proposals of a workflow may follow each other before a person decides about one, or deploys:
// an author that goes round in a circle, mostly an agent, would fill the database, which keeps each of them.
const maxUndecided = 100

// maxWaiting is how many versions wait for a person before no workflow that has none yet may have one proposed.
const maxWaiting = 100

// A CrowdedError says that a person has to decide about proposals before there may be another one. Nothing was changed.
type CrowdedError struct {
	Workflow  keep.WorkflowName
	Undecided int // of the workflow; zero: too many workflows have one that waits
}

// Error says how many there are, and what to do.
func (e *CrowdedError) Error() string {
	if e.Undecided > 0 {
		return fmt.Sprintf("%d proposals of workflow %s followed each other, and a person decided about none of them: accept or reject the last one first (keep proposals)", e.Undecided, e.Workflow)
	}
	return fmt.Sprintf("%d versions wait for a person already, and workflow %s has none that does: accept or reject some of them first (keep proposals)", maxWaiting, e.Workflow)
}

// crowded returns an error if people have to decide before there may be another proposal. What a repair proposes is bounded by its
// attempts.
func (o *Operator) crowded(ctx context.Context, b beforeDeploy) error {
	if n := b.undecided(); n >= maxUndecided {
		return &CrowdedError{b.workflow.Name, n}
	}
	if b.waiting != nil {
		return nil // it takes that one's place
	}
	open, err := o.store.CountEscalations(ctx, keep.EscalationFilter{Kind: keep.AskProposal, Open: true})
	if err == nil && open[keep.AskProposal] >= maxWaiting {
		err = &CrowdedError{Workflow: b.workflow.Name}
	}
	return err
}

// undecided counts the proposals since the current version about which nobody decided, up to the last about which somebody did.
func (b beforeDeploy) undecided() (n int) {
	for _, p := range b.proposed { // newest first
		switch {
		case p.IsRepair():
		case p.State == keep.ProposalRejected, !p.Version.After(b.workflow.Version):
			return n
		default:
			n++
		}
	}
	return n
}

// propose stores a version that a person must agree to, mostly since it calls more than is granted, and asks. The version
// that is current continues.
func (o *Operator) propose(ctx context.Context, d keep.Deployment, b beforeDeploy, lacking []keep.GrantedTool, c Consent) (Deployed, error) {
	if c.Ask && !c.Repair {
		if err := o.crowded(ctx, b); err != nil {
			return Deployed{}, err
		}
	}
	p := keep.Proposal{Deployment: d, Over: b.workflow.Version, Tools: lacking, By: c.By, From: c.From, State: keep.ProposalWaiting}
	p.Question = grant.QuestionID(p)
	changes := append(b.replaced(), keep.PutProposal{Proposal: p}, keep.OpenEscalation{Escalation: grant.Question(p, c.Why)})
	if err := o.decided(ctx, d.Workflow, d.CreatedAt, changes...); err != nil {
		return Deployed{}, err
	}
	return Deployed{Version: b.workflow.Version, Waiting: &p}, nil
}

// settleProposal does what a person decided about a version that waits: it becomes current,
// with what it calls granted, or it is refused. Both are one commit.
func (o *Operator) settleProposal(ctx context.Context, q keep.Escalation, d keep.Decision) error {
	d.At = o.now()
	b, err := o.before(ctx, q.Workflow)
	if err != nil {
		return err
	}
	if b.waiting == nil || b.waiting.Question != q.ID {
		return &ActionError{q.ID, d.Action, "the version does not wait any more"}
	}
	ended := keep.CloseEscalation{ID: q.ID, Decision: &d}
	if d.Action == keep.Reject {
		return o.decided(ctx, q.Workflow, d.At, keep.EndProposal{Version: b.waiting.Version, State: keep.ProposalRejected}, ended)
	}
	p := *b.waiting
	if b.workflow.Version != p.Over {
		return &ActionError{q.ID, d.Action, fmt.Sprintf("version %s is current by now, and it was to replace %s", b.workflow.Version, p.Over)}
	}
	p.CreatedAt = d.At
	deploy, err := o.newVersion(ctx, p.Deployment, b.current, d.At)
	if err != nil {
		return err
	}
	changes := append([]keep.Change{keep.EndProposal{Version: p.Version, State: keep.ProposalApproved}, deployedBy(p.Deployment, d, d.At)}, deploy...)
	if !p.IsRepair() { // which is within the grant that holds, if there is one
		holds, err := o.currentGrant(ctx, b.workflow)
		if err != nil {
			return err
		}
		next := keep.Grant{Workflow: p.Workflow, N: b.workflow.Granted + 1, Version: p.Version, GivenBy: d.By, From: d.From, GivenAt: d.At}
		next.Tools = append(slices.Clone(holds.Tools), fresh(holds, keep.Grant{Tools: p.Tools})...)
		changes = append(changes, keep.PutGrant{Grant: next})
	}
	return o.decided(ctx, q.Workflow, d.At, append(changes, ended)...)
}
