package web

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/approval"
)

// togetherData is the approvals that are alike, each with what it sends.
type togetherData struct {
	Tool     keep.ToolName
	Workflow keep.WorkflowName
	Cards    []card
	Whole    []card // of Cards: those that the list shows all of
}

// mostTogether bounds what one press answers.
const mostTogether = 100

// ShownWhole reports whether a list shows all that is to be approved: nobody agrees to many
// calls of which he has not seen each.
func (c card) ShownWhole() bool {
	return c.Approval != nil && !c.Hidden() && !slices.ContainsFunc(c.Marks(), func(m approval.Mark) bool { return m.Mark == approval.Long })
}

// Several reports whether the list has approvals that can be answered together.
func (d inboxData) Several() bool {
	n := 0
	for _, c := range d.Cards {
		if c.Kind == keep.AskApproval && c.ClosedAt.IsZero() && c.Approval != nil {
			n++
		}
	}
	return n > 1
}

// together lists the open approvals of a tool, or of a workflow, or all.
func (s *site) together(r *http.Request) (page, error) {
	q := r.URL.Query()
	d := togetherData{Tool: keep.ToolName(q.Get("tool")), Workflow: keep.WorkflowName(q.Get("workflow"))}
	p := page{Title: "Approve several", Section: "inbox"}
	open, _, err := s.cfg.Store.Escalations(r.Context(), keep.EscalationFilter{Workflow: d.Workflow, Open: true}, keep.Page{Limit: 1000})
	if err != nil {
		return p, err
	}
	for _, e := range open {
		if e.Kind != keep.AskApproval || e.Approval == nil || d.Tool != "" && e.Approval.Tool != d.Tool || len(d.Cards) == mostTogether {
			continue
		}
		c := cardOf(e)
		if d.Cards = append(d.Cards, c); c.ShownWhole() {
			d.Whole = append(d.Whole, c)
		}
	}
	p.Data = d
	return p, nil
}

// decideTogether answers the questions that the form names, and no other. Each is answered
// for itself: one that is refused keeps none of the others.
func (s *site) decideTogether(r *http.Request) (to, did string, err error) {
	d, err := decisionOf(r)
	if err != nil {
		return "", "", err
	}
	ids := r.PostForm["id"]
	switch {
	case d.Action != keep.Approve && d.Action != keep.Reject:
		return "", "", refusef("several questions are approved or rejected together, and nothing else")
	case len(ids) == 0:
		return "", "", refusef("no question was chosen")
	case len(ids) > mostTogether:
		return "", "", refusef("%d questions were chosen, want at most %d", len(ids), mostTogether)
	}
	var refused []string
	for _, id := range ids {
		if err := s.decideOne(r, keep.EscalationID(id), d); err != nil {
			refused = append(refused, fmt.Sprintf("%s: %v", cut(80, id), err))
		}
	}
	if len(refused) > 0 {
		return "", "", refusef("%d of %d were answered; these were not: %s", len(ids)-len(refused), len(ids), strings.Join(refused, "; "))
	}
	return "/inbox", "decided", nil
}

// decideOne answers one of several questions.
func (s *site) decideOne(r *http.Request, id keep.EscalationID, d keep.Decision) error {
	q, err := s.cfg.Store.Escalation(r.Context(), id)
	switch {
	case err != nil:
		return err
	case q.Kind != keep.AskApproval:
		return refusef("it is no approval")
	case d.Action == keep.Approve && !cardOf(q).ShownWhole():
		return refusef("the list does not show all of what would be sent; approve it on the page of the question")
	}
	return s.cfg.Actor.Decide(r.Context(), id, d)
}
