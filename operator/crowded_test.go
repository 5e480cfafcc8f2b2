package operator_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// Of a workflow a hundred proposals may follow each other before a person decides about one of them, or deploys: an agent that goes round
// in a circle does not fill the database. The same proposal again is none more.
func TestProposalsUntilAPersonDecides(t *testing.T) {
	s := memory.New()
	o := newOperator(t, s)
	ctx := t.Context()
	n := 0
	ask := calls(false, "a.x")
	ask.Ask = true
	propose := func(hash string) (*keep.Proposal, error) {
		out, err := o.DeployGranted(ctx, script(hash), nil, ask)
		return out.Waiting, err
	}
	fill := func(least int) (last *keep.Proposal) {
		t.Helper()
		for made := 0; ; made++ {
			n++
			p, err := propose(fmt.Sprint(n))
			if crowded, ok := errors.AsType[*operator.CrowdedError](err); ok && made >= least && crowded.Undecided == made {
				return last
			}
			if err != nil || made >= 1000 {
				t.Fatalf("after %d proposals: %v", made, err)
			}
			last = p
		}
	}
	last := fill(100)
	if again, err := propose(last.Hash); err != nil || again.Version != last.Version {
		t.Errorf("the same again is %v, %v", again, err)
	}
	if err := o.Decide(ctx, last.Question, keep.Decision{Action: keep.Reject, By: "ann"}); err != nil {
		t.Fatal(err)
	}
	last = fill(100)
	if err := o.Decide(ctx, last.Question, keep.Decision{Action: keep.Approve, By: "ann"}); err != nil {
		t.Fatal(err)
	}
	last = fill(100)
	if _, err := o.DeployGranted(ctx, script("by hand"), nil, calls(true, "a.x")); err != nil {
		t.Fatal(err)
	}
	fill(100)
	if waiting, err := s.Proposal(ctx, "w", last.Version); err != nil || waiting.State != keep.ProposalReplaced {
		t.Errorf("the last proposal is %s, %v", waiting.State, err)
	}
}

// A hundred versions may wait for a person before an author proposes a workflow that is not there, or has none that waits. One that has takes another still.
func TestProposalsOfManyWorkflows(t *testing.T) {
	s := memory.New()
	o := newOperator(t, s)
	ask := calls(false, "a.x")
	ask.Ask, ask.From = true, string(keep.OriginAgent)
	var first operator.Deployed
	propose := func(name, hash string) error {
		d := script(hash)
		d.Workflow, d.Definition.Name = keep.WorkflowName(name), keep.WorkflowName(name)
		out, err := o.DeployGranted(t.Context(), d, nil, ask)
		if first.Waiting == nil {
			first = out
		}
		return err
	}
	for i := range 100 {
		if err := propose(fmt.Sprintf("w%d", i), "1"); err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
	}
	if _, crowded := errors.AsType[*operator.CrowdedError](propose("more", "1")); !crowded {
		t.Fatal("a workflow more is proposed")
	}
	if err := propose("w7", "2"); err != nil {
		t.Errorf("another version of one that waits: %v", err)
	}
	if err := o.Decide(t.Context(), first.Waiting.Question, keep.Decision{Action: keep.Reject, By: "ann"}); err != nil {
		t.Fatal(err)
	}
	if err := propose("more", "1"); err != nil {
		t.Errorf("after a decision: %v", err)
	}
}
