package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
)

// proposed reports whether a proposal of the workflow waits, or has the number of v, which is not
// to be deployed.
func (t *tx) proposed(v keep.Version, deploy bool) bool {
	return slices.ContainsFunc(t.s.proposals[t.workflow], func(p keep.Proposal) bool {
		return p.State == keep.ProposalWaiting || p.Version == v && !(deploy && p.State == keep.ProposalApproved)
	})
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
	if p.State != keep.ProposalWaiting || p.Over != current || !older(current, p.Version) || t.proposed(p.Version, false) {
		return fmt.Errorf("proposal %s: %w", p.ID(), keep.ErrStale)
	}
	put(t, t.s.proposals, t.workflow, append(slices.Clone(t.s.proposals[t.workflow]), p))
	return nil
}

// endProposal ends the wait of a proposal.
func (t *tx) endProposal(c keep.EndProposal) error {
	list := slices.Clone(t.s.proposals[t.workflow])
	i := slices.IndexFunc(list, func(p keep.Proposal) bool { return p.Version == c.Version && p.State == keep.ProposalWaiting })
	if i < 0 || c.State == keep.ProposalWaiting {
		return fmt.Errorf("end proposal %s: %w", c.Version, keep.ErrStale)
	}
	list[i].State, list[i].EndedAt = c.State, t.at
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
	for of, all := range s.proposals {
		if w != "" && of != w {
			continue
		}
		for _, p := range all {
			p = copyProposal(p)
			p.Code, p.Map = nil, nil
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b keep.Proposal) int {
		return cmp.Or(cmp.Compare(b.Workflow, a.Workflow), cmp.Compare(b.Version.Major, a.Version.Major), cmp.Compare(b.Version.Minor, a.Version.Minor))
	})
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
