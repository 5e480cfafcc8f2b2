package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/approval"
	"github.com/keep-run/keep/store"
)

// togetherData is questions that are alike, each with what it is about.
type togetherData struct {
	Tool     keep.ToolName
	Workflow keep.WorkflowName
	Cause    *causeRow // nil: approvals, of any cause
	Cards    []card
	More     bool     // there are more approvals than are here
	Whole    []card   // of Cards: those that the list shows all of
	Actions  []button // that each of Whole offers
}

// mostTogether bounds what one press answers.
const mostTogether = 100

// ShownWhole reports whether a list shows all that is to be decided: nobody agrees to many
// calls of which he has not seen each.
func (c card) ShownWhole() bool {
	if c.OfVersion() {
		return false
	}
	if c.Kind != keep.AskApproval {
		return len(c.Attempted) <= listShows
	}
	return c.Approval != nil && !c.Hidden() && !slices.ContainsFunc(c.Marks(), func(m approval.Mark) bool { return m.Mark == approval.Long })
}

// together lists the open questions of a cause, or the open approvals of a tool, of a workflow, or all.
func (s *site) together(r *http.Request) (page, error) {
	q := r.URL.Query()
	d := togetherData{Tool: keep.ToolName(q.Get("tool")), Workflow: keep.WorkflowName(q.Get("workflow"))}
	p := page{Title: "Answer several", Section: "inbox"}
	var err error
	if key := q.Get("cause"); key != "" {
		if d.Cause, d.Cards, err = s.ofCause(r.Context(), key, d.Workflow, 0, mostTogether); err != nil {
			return p, err
		}
	} else if d.Cards, err = s.approvals(r.Context(), d); err != nil {
		return p, err
	}
	if d.Cause == nil && len(d.Cards) > mostTogether {
		d.Cards, d.More = d.Cards[:mostTogether], true
	}
	for _, c := range d.Cards {
		if c.ShownWhole() {
			d.Whole = append(d.Whole, c)
		}
	}
	d.Actions = inCommon(d.Whole)
	p.Data = d
	return p, nil
}

// approvals reads the newest of the open approvals that are asked for: one more than are answered together tells that there are more.
func (s *site) approvals(ctx context.Context, d togetherData) ([]card, error) {
	var cards []card
	for e, err := range store.All(ctx, s.cfg.Store.Escalations, keep.EscalationFilter{Workflow: d.Workflow, Kind: keep.AskApproval, Open: true}, keep.Page{Limit: 1000}) {
		if err != nil || len(cards) > mostTogether {
			return cards, err
		}
		if e.Approval != nil && (d.Tool == "" || e.Approval.Tool == d.Tool) {
			cards = append(cards, cardOf(e))
		}
	}
	return cards, nil
}

// inCommon returns the actions that all questions offer, and that need nothing but a press for one of them at least: of
// the others the list says that they need a result.
func inCommon(cards []card) []button {
	if len(cards) == 0 {
		return nil
	}
	offered := slices.DeleteFunc(cards[0].Buttons("together"), func(b button) bool {
		return b.Action == keep.Raise || slices.ContainsFunc(cards, func(c card) bool { return !c.Allows(b.Action) }) ||
			!slices.ContainsFunc(cards, func(c card) bool { return c.allowsBare(b.Action) })
	})
	for i := range offered {
		offered[i].Effect = effects(cards, offered[i].Action)
	}
	return offered
}

// effects says what an action does to each of the questions: it may differ, as between a job and a consumer.
func effects(cards []card, a keep.Action) string {
	var all []string
	for _, c := range cards {
		for _, choice := range c.Choices {
			if choice.Action == a && !slices.Contains(all, choice.Effect) {
				all = append(all, choice.Effect)
			}
		}
	}
	return strings.Join(all, "; or ")
}

// NeedsResultFor is the label of an answer that needs the result of the call; empty: none does.
func (c card) NeedsResultFor() string {
	if i := slices.IndexFunc(c.Choices, func(c keep.Choice) bool { return c.Result == keep.ResultRequired }); i >= 0 {
		return c.Choices[i].Label
	}
	return ""
}

// allowsBare reports whether c offers an action that needs no result.
func (c card) allowsBare(a keep.Action) bool {
	return slices.ContainsFunc(c.Choices, func(c keep.Choice) bool { return c.Action == a && c.Result != keep.ResultRequired })
}

// vouches reports whether who chooses an action must have seen the whole call: it is sent, or was done.
func vouches(a keep.Action) bool {
	return a == keep.Approve || a == keep.Allow || a == keep.Happened || a == keep.TreatAsDone || a.NeedsConfirmation()
}

// decideTogether answers the questions that the form names, and no other. Each is answered
// for itself: one that is refused keeps none of the others.
func (s *site) decideTogether(r *http.Request) (to, did string, err error) {
	d, err := decisionOf(r)
	if err != nil {
		return "", "", err
	}
	d.Result = nil // that of one call is not that of another
	ids := r.PostForm["id"]
	switch {
	case d.Action == "" || d.Action == keep.Raise:
		return "", "", refusef("that is not answered for several questions together")
	case len(ids) == 0:
		return "", "", refusef("no question was chosen")
	case len(ids) > mostTogether:
		return "", "", refusef("%d questions were chosen, want at most %d", len(ids), mostTogether)
	case d.Action.NeedsConfirmation() && r.PostForm.Get("confirm") == "":
		return "/inbox/together/confirm?" + url.Values{"action": {string(d.Action)}, "note": {d.Note}, "id": ids}.Encode(), "", nil
	}
	var refused []string
	failed := false
	for _, id := range ids {
		err := s.decideOne(r, keep.EscalationID(id), d)
		if err == nil {
			continue
		}
		why := err.Error()
		if status, t := statusOf(err); status == http.StatusInternalServerError {
			failed = true
			s.log.ErrorContext(r.Context(), "answer one of several questions", "question", id, "err", err)
			why = t.What + ": " + strings.TrimSuffix(t.Why, ".")
		}
		refused = append(refused, cut(80, id)+": "+why)
	}
	// Those that were answered stay answered; the person reads which were not, and why.
	if len(refused) > 0 {
		why := fmt.Sprintf("%d of %d were answered; these were not: %s", len(ids)-len(refused), len(ids), strings.Join(refused, "; "))
		if failed {
			return "", "", &partlyError{why}
		}
		return "", "", refusef("%s", why)
	}
	return "/inbox", "decided", nil
}

// confirmTogetherData is an answer to several questions that may send something again.
type confirmTogetherData struct {
	Label  string
	Action keep.Action
	Note   string
	Asks   []confirmData
	Left   []leftOut
}

// A leftOut is a question that was chosen and is not answered by the second press.
type leftOut struct {
	ID            keep.EscalationID
	Question, Why string
}

// leaves returns why the second press is not for a question; empty: it is.
func (d confirmTogetherData) leaves(q keep.Escalation) string {
	switch {
	case !q.ClosedAt.IsZero():
		return "it was answered meanwhile"
	case !d.Action.NeedsConfirmation() || !q.Allows(d.Action):
		return "it does not offer that"
	case !cardOf(q).ShownWhole():
		return "it is too long for a list"
	}
	return ""
}

// confirmTogether asks for the second press, and shows what would be sent. It has what is
// still open and offers the action: the second press answers what this page shows.
func (s *site) confirmTogether(r *http.Request) (page, error) {
	form := r.URL.Query()
	p := page{Title: "Send again?", Section: "inbox"}
	d := confirmTogetherData{Action: keep.Action(form.Get("action")), Note: cut(4*maxNote, form.Get("note"))}
	for _, id := range form["id"][:min(len(form["id"]), mostTogether)] {
		q, err := s.cfg.Store.Escalation(r.Context(), keep.EscalationID(id))
		if err != nil {
			return p, err
		}
		if why := d.leaves(q); why != "" {
			d.Left = append(d.Left, leftOut{q.ID, q.Question, why})
			continue
		}
		i := slices.IndexFunc(q.Choices, func(c keep.Choice) bool { return c.Action == d.Action })
		d.Label = q.Choices[i].Label
		d.Asks = append(d.Asks, confirmData{card: cardOf(q), Choice: q.Choices[i]})
	}
	if len(d.Asks) == 0 {
		return p, refusef("none of these questions offers %q now", cut(40, form.Get("action")))
	}
	p.Data = d
	return p, nil
}

// decideOne answers one of several questions.
func (s *site) decideOne(r *http.Request, id keep.EscalationID, d keep.Decision) error {
	q, err := s.cfg.Store.Escalation(r.Context(), id)
	switch {
	case err != nil:
		return err
	case !q.Allows(d.Action):
		return refusef("it does not offer that")
	// The page has no box for such a question; a form may name any.
	case vouches(d.Action) && !cardOf(q).ShownWhole():
		return refusef("%s", cardOf(q).unseen())
	case !cardOf(q).allowsBare(d.Action) && q.ClosedAt.IsZero():
		return refusef("it needs what the call would have answered; answer it on the page of the question")
	}
	if err := s.mayAnswer(r.Context(), id); err != nil {
		return err
	}
	return s.cfg.Actor.Decide(r.Context(), id, d)
}
