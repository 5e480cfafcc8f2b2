package view

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	law "github.com/keep-run/keep/law/repair"
)

// proposal looks for a repair, and for a version that did not become current: one that did is
// a version.
func (t *teller) proposal(id string) error {
	r, err := t.s.Repair(t.ctx, id)
	if err == nil {
		t.add(IsProposal, id, func() (Story, error) { return t.ofRepair(r) })
	}
	if !errors.Is(err, keep.ErrNotFound) {
		return err
	}
	name, text, _ := strings.Cut(id, "@")
	v, err := keep.ParseVersion(text)
	if err != nil {
		return nil // not the name of a version
	}
	p, err := t.s.Proposal(t.ctx, keep.WorkflowName(name), v)
	if err == nil && p.State != keep.ProposalApproved {
		t.add(IsProposal, id, func() (Story, error) { return t.ofProposal(p) })
	}
	return err
}

// ofProposal tells of a version that a person agrees to, or not.
func (t *teller) ofProposal(p keep.Proposal) (Story, error) {
	by, over := p.By, "the first one"
	if p.IsRepair() {
		by = "a repair"
	}
	if !p.Over.IsZero() {
		over = "in the place of " + p.Over.String()
	}
	out := Story{Workflow: p.Workflow,
		Sentence: fmt.Sprintf("Version %s of %s, proposed by %s %s, %s.", p.Version, p.Workflow, by, at(p.CreatedAt), over)}
	switch p.State {
	case keep.ProposalWaiting:
		out.Wait = "Waits for a person to accept or reject it; see keep proposals."
	case keep.ProposalReplaced:
		out.Became = []string{fmt.Sprintf("Another version came first %s.", at(p.EndedAt))}
	case keep.ProposalApproved:
		out.Became = []string{fmt.Sprintf("It became current %s.", at(p.EndedAt))}
	}
	q, err := t.s.Escalation(t.ctx, p.Question)
	if err != nil {
		return out, ignoreMissing(err) // nobody was asked
	}
	if out.Questions = []keep.EscalationID{q.ID}; q.Decision != nil {
		out.Became = append(out.Became, decisionOn(q))
	}
	return out, nil
}

// ofRepair tells of a repair, and of the version that it made.
func (t *teller) ofRepair(r keep.Repair) (Story, error) {
	rec, err := law.ReadRecord(r)
	if err != nil {
		return Story{}, err
	}
	sig := rec.Signature
	out := Story{Workflow: r.Workflow, Runs: []keep.RunID{rec.Run}, Sentence: fmt.Sprintf("Repair of %s in %s %s: %s, attempt %d of %d.",
		sig.Handler, r.Workflow, sig.Version, strings.TrimSuffix(sig.Code+" at "+sig.At, " at "), len(rec.Attempts), rec.Limit)}
	for _, a := range rec.Attempts {
		if a.Why != "" {
			out.Became = append(out.Became, a.Why+".")
		}
	}
	if rec.Stage == law.Trying {
		out.Wait = "Waits for the model."
	}
	ended := []string{}
	if rec.Why != "" {
		ended = append(ended, "It ended: "+rec.Why+".")
	}
	versions, err := t.s.Proposals(t.ctx, r.Workflow)
	i := slices.IndexFunc(versions, func(p keep.Proposal) bool { return p.IsRepair() && p.By == r.ID })
	if err != nil || i < 0 {
		out.Became = append(out.Became, ended...)
		return out, err
	}
	made, err := t.ofProposal(versions[i])
	out.Wait, out.Questions = made.Wait, made.Questions
	out.Became = slices.Concat(out.Became, []string{"It wrote version " + versions[i].Version.String() + "."}, made.Became, ended)
	return out, err
}
