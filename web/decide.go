package web

import (
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/law/approval"
)

// linkData is one question as whoever has a link to it sees it: nothing else of what Keep
// knows is on the page, and nothing leads from it to other pages.
type linkData struct {
	card
	Code    string // of the link
	Typed   string // the note of an answer that was refused
	Problem string // why nothing was decided; empty: nothing was tried
	Over    string // why nobody decides by this link; empty: the link is good
	Offered []keep.Choice
	Ends    time.Time
}

// Linked reports whether the card is on a page of a link, whose reader may have no login.
func (d linkData) Linked() bool { return true }

// Linked reports whether the card is on a page of a link.
func (c card) Linked() bool { return false }

// All is what was or would be sent, if a list would hide part of it. There is no download.
func (d linkData) All() payload {
	p := d.Whole()
	p.Link = ""
	return p
}

// byLink routes to pages of links. Package access has checked the code; an identity that
// came otherwise has none.
func (s *site) byLink(h func(http.ResponseWriter, *http.Request, keep.EscalationID, access.Identity)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Referrer-Policy", "no-referrer") // the address has the code
		header.Set("X-Robots-Tag", "noindex")
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		who, _ := access.From(r.Context())
		if who.Via != access.ViaLink || who.ID == "" || who.ID != r.PathValue("id") {
			s.linkPage(w, r, http.StatusNotFound, linkData{Over: "its code is not right, or its question is not there any more"})
			return
		}
		h(w, r, keep.EscalationID(who.ID), who)
	}
}

// linkShow shows the question of a link. It changes nothing: mail scanners and previews
// follow links.
func (s *site) linkShow(w http.ResponseWriter, r *http.Request, id keep.EscalationID, _ access.Identity) {
	s.linkAnswer(w, r, http.StatusOK, id, r.URL.Query().Get("code"), "")
}

// linkDecide records the decision of who pressed, and shows it.
func (s *site) linkDecide(w http.ResponseWriter, r *http.Request, id keep.EscalationID, who access.Identity) {
	code := r.PostForm.Get("code") // read where it was checked
	d := keep.Decision{Action: keep.Action(r.PostForm.Get("action")), By: who.Name, From: approval.FromLink}
	var noteErr error
	d.Note, noteErr = noteOf(r.PostForm)
	q, err := s.cfg.Store.Escalation(r.Context(), id)
	switch {
	case err != nil:
	case noteErr != nil:
		err = noteErr
	case d.Action == "":
		err = refusef("no action was chosen")
	case vouches(d.Action) && cardOf(q).Whole().Cut:
		err = refusef("this page does not show all of what would be sent; log in to answer that")
	default:
		if err = s.cfg.Actor.Decide(r.Context(), id, d); err != nil {
			err = s.afterAnswer(r.Context(), id, err)
		}
	}
	if err != nil {
		status, text := statusOf(err)
		if status == http.StatusInternalServerError {
			s.log.ErrorContext(r.Context(), "decide by a link", "question", string(id), "err", err)
		}
		s.linkAnswer(w, r, status, id, code, text.What+": "+text.Why)
		return
	}
	// As after every action: to load the page again decides nothing.
	http.Redirect(w, r, "/decide/"+pathEscape(string(id))+"?"+url.Values{"code": {code}}.Encode(), http.StatusSeeOther)
}

// linkAnswer shows a question, with what became of an answer to it. What would be sent is
// shown as long as the link is good.
func (s *site) linkAnswer(w http.ResponseWriter, r *http.Request, status int, id keep.EscalationID, code, problem string) {
	ctx := r.Context()
	q, err := s.cfg.Store.Escalation(ctx, id)
	if err != nil {
		s.linkPage(w, r, http.StatusNotFound, linkData{Over: "its question is not there any more"})
		return
	}
	d := linkData{card: card{Escalation: q}, Code: code, Problem: problem, Typed: r.PostForm.Get("note"), Ends: approval.LinkEnds(q)}
	if d.Over, err = s.linkOver(r, q); err == nil && d.Over == "" {
		d.card, err = s.card(ctx, q)
		d.Offered = approval.ByLink(q)
	}
	if err != nil {
		s.log.ErrorContext(ctx, "show the question of a link", "question", string(id), "err", err)
		s.linkPage(w, r, http.StatusInternalServerError, linkData{Problem: "Keep could not read the question. Try again"})
		return
	}
	if d.Whole().Cut { // nobody agrees to what he has not seen
		d.Offered = slices.DeleteFunc(d.Offered, func(c keep.Choice) bool { return vouches(c.Action) })
	}
	if d.Payload != nil {
		d.Payload.Link = ""
	}
	s.linkPage(w, r, status, d)
}

// linkOver returns why a link to q decides nothing any more; empty: it does.
func (s *site) linkOver(r *http.Request, q keep.Escalation) (string, error) {
	var current keep.Version
	if q.Approval != nil {
		w, err := s.cfg.Store.Workflow(r.Context(), q.Workflow)
		if err != nil {
			return "", err
		}
		current = w.Version
	}
	now := time.Now()
	if why := approval.Closed(q, current, now); why != "" {
		return why, nil
	}
	return approval.LinkEnded(q, now), nil
}

// linkPage writes a page of a link.
func (s *site) linkPage(w http.ResponseWriter, r *http.Request, status int, d linkData) {
	s.write(w, r, "decide", frame{page: page{Title: "A question of Keep", Data: d, Status: status}, Version: s.cfg.Version})
}
