package web

import (
	"context"
	"net/http"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/view"
)

// proposalsData is what was proposed, newest first.
type proposalsData struct {
	Proposals []proposalRow
	More      bool // older ones are not shown
}

// A proposalRow is a proposal as a page has it.
type proposalRow struct {
	api.Proposal
	Began time.Time
	Spent int // tokens
	Tries []proposalTry
}

// A proposalTry is one conversation with the model.
type proposalTry struct {
	api.ProposalAttempt
	Began time.Time
	Spent int // tokens
}

// IsRepair reports whether a repair wrote it.
func (r proposalRow) IsRepair() bool { return r.Origin == keep.OriginRepair }

func proposalRowOf(p api.Proposal) proposalRow {
	row := proposalRow{Proposal: p, Began: time.Time(p.CreatedAt), Spent: int(p.Tokens)}
	for _, a := range p.Attempts {
		row.Tries = append(row.Tries, proposalTry{a, time.Time(a.BeganAt), int(a.Tokens)})
	}
	return row
}

// proposals lists proposals, of one workflow or origin if the query names it.
func (s *site) proposals(r *http.Request) (page, error) {
	p := page{Title: "Proposals", Section: "workflows", Watch: []feed.Kind{feed.Run, feed.Escalation, feed.Workflow}}
	q := r.URL.Query()
	list, next, err := api.ListProposals(r.Context(), s.cfg.Store,
		api.ProposalQuery{Workflow: keep.WorkflowName(q.Get("workflow")), Origin: keep.Origin(q.Get("origin"))}, keep.Page{Limit: maxShown})
	d := proposalsData{More: next != ""}
	for _, one := range list {
		d.Proposals = append(d.Proposals, proposalRowOf(one))
	}
	p.Data = d
	return p, err
}

// proposalData is one proposal.
type proposalData struct {
	proposalRow
	Diff    []view.DiffLine // of the script that it is made from and the newest one that was proposed; of a version, Changes has it
	Changes *scriptChanges  // of the version; nil: there is none
	Compare bool            // this host can say what the version would have done otherwise, and who looks may ask
}

// scriptChanges is what a version that was proposed changes.
type scriptChanges struct {
	Diffs []versionFile // the files that differ from those that it replaces; of a workflow that is new, all
	Entry string        // that another file declares the workflow; empty: it is the same
	New   bool          // the workflow is new
}

// changesOf compares the files of a version that was proposed with those that it replaces.
func (s *site) changesOf(ctx context.Context, w keep.WorkflowName, v keep.Version) (*scriptChanges, error) {
	p, err := s.cfg.Store.Proposal(ctx, w, v)
	if err != nil {
		return nil, err
	}
	var base keep.Deployment
	if !p.Over.IsZero() {
		base, err = s.cfg.Store.Deployment(ctx, w, p.Over)
	}
	before, after := filesOf(base), filesOf(p.Deployment)
	return &scriptChanges{Diffs: changed(filesBetween(before, after)), Entry: view.OtherEntry(before, after), New: p.Over.IsZero()}, err
}

// showProposal shows what was proposed, and for a repair what was tried.
func (s *site) showProposal(r *http.Request) (page, error) {
	shown, err := api.ShowProposal(r.Context(), s.cfg.Store, r.PathValue("id"))
	if err != nil {
		return page{}, err
	}
	d := proposalData{proposalRow: proposalRowOf(shown)}
	switch {
	case d.Version != nil:
		v, err := keep.ParseVersion(*d.Version)
		if err != nil {
			return page{}, err
		}
		if d.Changes, err = s.changesOf(r.Context(), d.Workflow, v); err != nil {
			return page{}, err
		}
	case d.Source != "" && d.BaseVersion != nil:
		d.Diff = view.Diff(d.BaseSource, d.Source)
	}
	who, _ := access.From(r.Context())
	d.Compare = s.cfg.Replayer != nil && d.Version != nil && d.BaseVersion != nil && who.Role.Covers(access.Author)
	title := "Proposal for "
	if d.IsRepair() {
		title = "Repair of "
	}
	return page{Title: title + string(d.Workflow), Section: "workflows", Data: d,
		Watch: []feed.Kind{feed.Run, feed.Escalation, feed.Workflow}}, nil
}
