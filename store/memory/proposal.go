package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
)

// lastProposal returns the newest proposal of the workflow.
func (t *tx) lastProposal() (keep.Proposal, bool) {
	list := t.s.proposals[t.workflow]
	if len(list) == 0 {
		return keep.Proposal{}, false
	}
	return list[len(list)-1], true
}

// putProposal stores a version that waits for a person.
func (t *tx) putProposal(p keep.Proposal) error {
	if err := t.own("proposal", p.ID(), p.Workflow); err != nil {
		return err
	}
	if err := p.Validate(); err != nil {
		return err
	}
	current := t.s.workflows[t.workflow].Version
	last, exists := t.lastProposal()
	waits := exists && last.State == keep.ProposalWaiting
	if p.State != keep.ProposalWaiting || waits || p.Over != current || !older(current, p.Version) || exists && !older(last.Version, p.Version) {
		return fmt.Errorf("proposal %s: %w", p.ID(), keep.ErrStale)
	}
	put(t, t.s.proposals, t.workflow, append(slices.Clone(t.s.proposals[t.workflow]), p))
	return nil
}

// endProposal ends the wait of the newest proposal.
func (t *tx) endProposal(c keep.EndProposal) error {
	last, exists := t.lastProposal()
	if !exists || last.Version != c.Version || last.State != keep.ProposalWaiting || c.State == keep.ProposalWaiting {
		return fmt.Errorf("end proposal %s: %w", c.Version, keep.ErrStale)
	}
	list := slices.Clone(t.s.proposals[t.workflow])
	list[len(list)-1].State, list[len(list)-1].EndedAt = c.State, t.at
	put(t, t.s.proposals, t.workflow, list)
	return nil
}

// Proposal returns a version that waits or waited; see store.Proposals.
func (s *Store) Proposal(ctx context.Context, w keep.WorkflowName, v keep.Version) (keep.Proposal, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, p := range s.proposals[w] {
		if p.Version == v {
			return copyProposal(p), context.Cause(ctx)
		}
	}
	return keep.Proposal{}, &keep.NotFoundError{What: "version", ID: string(w) + " " + v.String()}
}

// Proposals returns those of a workflow; see store.Proposals.
func (s *Store) Proposals(ctx context.Context, w keep.WorkflowName) ([]keep.Proposal, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Proposal
	for _, p := range slices.Backward(s.proposals[w]) {
		p = copyProposal(p)
		p.Code, p.Map = nil, nil
		list = append(list, p)
	}
	return list, context.Cause(ctx)
}

// copyProposal returns p as stores keep it.
func copyProposal(p keep.Proposal) keep.Proposal {
	p.Deployment, p.EndedAt = copyDeployment(p.Deployment), clean(p.EndedAt)
	if p.Tools = slices.Clone(p.Tools); len(p.Tools) == 0 {
		p.Tools = nil
	}
	return p
}

// proposals checks that whatever waits is asked about, and what was approved deployed.
func (c *checker) proposals() {
	for _, name := range sortedKeys(c.s.proposals) {
		for _, p := range c.s.proposals[name] {
			q, asked := c.s.escalations[p.Question]
			open := asked && q.v.ClosedAt.IsZero()
			c.broken(open == (p.State == keep.ProposalWaiting), "permitted", "proposal "+p.ID(), "it is %s, and that its question is open is %t", p.State, open)
			deployed := slices.ContainsFunc(c.s.deployments[name], func(d row[keep.Deployment]) bool { return d.v.Version == p.Version })
			c.broken(deployed == (p.State == keep.ProposalApproved), "permitted", "proposal "+p.ID(), "it is %s, and that it was deployed is %t", p.State, deployed)
		}
	}
}
