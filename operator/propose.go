package operator

import (
	"context"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/grant"
)

// propose stores a version that a person must agree to, mostly since it calls more than is granted, and asks. The version
// that is current continues.
func (o *Operator) propose(ctx context.Context, d keep.Deployment, b beforeDeploy, lacking []keep.GrantedTool, c Consent) (Deployed, error) {
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
