package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/access"
	"github.com/keep-run/keep/feed"
)

// A card is a question with its evidence.
type card struct {
	keep.Escalation
	Mutation *keep.Mutation // nil: it is not about one
	Moves    []keep.Move    // what happened to it, oldest first; on the question's own page
	Edits    []string       // where two payloads differ; nil: nothing to compare
	Reason   string         // Why without the edits
	Payload  *payload       // what was or would be sent; nil: nothing
	Note     string         // id of the field for a note
}

// kindWord is what a question is about, in a word or two.
func kindWord(k keep.EscalationKind) string {
	switch k {
	case keep.AskUnknownOutcome:
		return "Outcome unknown"
	case keep.AskPermission:
		return "Permission"
	case keep.AskPrecondition:
		return "Something is missing"
	case keep.AskRetries:
		return "Failed too often"
	case keep.AskLogic:
		return "Script failed"
	case keep.AskInternal:
		return "Internal failure"
	case keep.AskApproval:
		return "Approval"
	case keep.AskItem:
		return "Item changed"
	}
	return word(k)
}

// Kind in words, for templates.
func (c card) Word() string { return kindWord(c.Kind) }

// DecidedLabel is what the button said that was pressed.
func (c card) DecidedLabel() string { return label(c.Escalation) }

// ItemLink is the page of the item that the question is about; empty: of none.
func (c card) ItemLink() string {
	if c.Item == "" {
		return ""
	}
	return "/item" + itemQuery(c.Workflow, c.Item)
}

// cardOf is a question without its mutation.
func cardOf(q keep.Escalation) card {
	c := card{Escalation: q, Reason: q.Why, Note: "note-" + string(q.ID)}
	if q.Kind == keep.AskItem {
		reason, edits, ok := strings.Cut(q.Why, "\n")
		if c.Reason = reason; ok {
			c.Edits = strings.Split(edits, "\n")
		}
	}
	return c
}

// card reads what a question is about.
func (s *site) card(ctx context.Context, q keep.Escalation) (card, error) {
	c := cardOf(q)
	if q.Mutation == "" {
		return c, nil
	}
	m, err := s.cfg.Store.Mutation(ctx, q.Mutation)
	if errors.Is(err, keep.ErrNotFound) {
		return c, nil // it was to be made, and was not
	}
	if err != nil {
		return c, err
	}
	c.Mutation = &m
	p := payloadOf("What was sent", m.Payload, mutationPath(m.Key)+"/payload")
	c.Payload = &p
	return c, nil
}

// inboxData is the list of open questions, or of those that are decided.
type inboxData struct {
	Cards     []card
	Decided   bool // shows the closed ones
	Workflow  keep.WorkflowName
	Workflows []keep.WorkflowName
	Pager     pager
}

// Query writes the filter of the list, with what is to be shown.
func (d inboxData) Query(show string) string {
	return query("show", show, "workflow", string(d.Workflow))
}

// inboxSize is how many questions one page shows.
const inboxSize = 20

func (s *site) inbox(r *http.Request) (page, error) {
	ctx, q := r.Context(), r.URL.Query()
	d := inboxData{Decided: q.Get("show") == "decided", Workflow: keep.WorkflowName(q.Get("workflow"))}
	p := page{Title: "Inbox", Section: "inbox", Watch: []feed.Kind{feed.Escalation, feed.Mutation}, Of: d.Workflow}
	var err error
	if d.Workflows, err = s.names(ctx); err != nil {
		return p, err
	}
	qs, next, err := s.cfg.Store.Escalations(ctx, keep.EscalationFilter{Workflow: d.Workflow, Open: !d.Decided},
		keep.Page{Limit: inboxSize, After: q.Get("after")})
	if err != nil {
		return p, err
	}
	for _, e := range qs {
		if d.Decided && e.ClosedAt.IsZero() {
			continue
		}
		c, err := s.card(ctx, e)
		if err != nil {
			return p, err
		}
		d.Cards = append(d.Cards, c)
	}
	d.Pager = pagerOf("/inbox", q.Get("after"), next, "show", q.Get("show"), "workflow", string(d.Workflow))
	p.Data = d
	return p, nil
}

func (s *site) question(r *http.Request) (page, error) {
	ctx := r.Context()
	q, err := s.cfg.Store.Escalation(ctx, keep.EscalationID(r.PathValue("id")))
	if err != nil {
		return page{}, err
	}
	p := page{Title: kindWord(q.Kind), Section: "inbox", Of: q.Workflow, Watch: []feed.Kind{feed.Escalation, feed.Mutation, feed.Run}}
	c, err := s.card(ctx, q)
	if err != nil {
		return p, err
	}
	if c.Mutation != nil {
		if c.Moves, err = s.cfg.Store.History(ctx, c.Mutation.Key); err != nil {
			return p, err
		}
	}
	p.Data = c
	return p, nil
}

// maxNote bounds what is recorded of a person's words, in bytes.
const maxNote = 4000

// decide records an answer. Whoever is second is told who was first.
func (s *site) decide(r *http.Request) (to, did string, err error) {
	id := keep.EscalationID(r.PathValue("id"))
	d, err := decisionOf(r)
	if err != nil {
		return "", "", err
	}
	if d.Action == "" {
		return "", "", refusef("no action was chosen")
	}
	if err := s.cfg.Actor.Decide(r.Context(), id, d); err != nil {
		return "", "", s.beaten(r.Context(), id, err)
	}
	to = "/inbox"
	if r.PostForm.Get("from") == "question" {
		to += "/" + url.PathEscape(string(id))
	}
	return to, "decided", nil
}

// decisionOf reads a form with an action and a note.
func decisionOf(r *http.Request) (keep.Decision, error) {
	if err := r.ParseForm(); err != nil {
		return keep.Decision{}, err
	}
	who, _ := access.From(r.Context())
	d := keep.Decision{Action: keep.Action(r.PostForm.Get("action")), By: who.Name, From: "web", Note: strings.TrimSpace(r.PostForm.Get("note"))}
	if len(d.Note) > maxNote {
		return d, refusef("a note has at most %d bytes", maxNote)
	}
	return d, nil
}

// A beatenError says that somebody else decided first. It is keep.ErrDecided.
type beatenError struct {
	id keep.EscalationID
	by keep.Escalation
}

// Error says who was first, and when.
func (e *beatenError) Error() string {
	at := e.by.ClosedAt.UTC().Format(exactTime)
	d := e.by.Decision
	if d == nil {
		return fmt.Sprintf("the question was closed at %s, since it no longer applied; your answer was not recorded", at)
	}
	return fmt.Sprintf("%s decided “%s” at %s; your answer was not recorded", d.By, label(e.by), at)
}

// Is makes it a keep.ErrDecided.
func (e *beatenError) Is(target error) bool { return target == keep.ErrDecided }

// beaten returns err, or who decided before if that is why.
func (s *site) beaten(ctx context.Context, id keep.EscalationID, err error) error {
	q, readErr := s.cfg.Store.Escalation(ctx, id)
	if readErr != nil || q.ClosedAt.IsZero() {
		return err
	}
	return &beatenError{id, q}
}
