package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/view"
)

// inboxData is the list of open questions by cause, of those of one cause, or of those that are
// decided.
type inboxData struct {
	Cards     []causeCard
	Decided   bool // shows the closed ones
	Each      bool // every question has a card of its own
	causes    []view.Cause
	More      int  // causes that are not shown
	Cut       bool // there may be more causes, and more questions of each, than were read
	Cause     *causeRow
	Only      bool // the list is of one cause, which may be gone
	Workflow  keep.WorkflowName
	Workflows []keep.WorkflowName
	Pager     pager
	Others    bool   // other questions are open than the reader has before them
	Here      string // the list as it is now
}

// A causeCard is a question in the place of all that have its cause.
type causeCard struct {
	card
	Cause *causeRow // nil: the card is of one question
}

// Card is the question.
func (c causeCard) Card() card { return c.card }

// IsNewest reports whether the card shows the newest question of its cause.
func (c causeCard) IsNewest() bool { return c.Cause != nil && c.Cause.Example == c.ID }

// Query writes the filter of the list, with what is to be shown.
func (d inboxData) Query(show string) string {
	return query("show", show, "workflow", string(d.Workflow))
}

// inboxSize is how many questions one page shows.
const inboxSize = 20

// inbox lists questions, by default one for each cause: a service that is down asks about many runs,
// which a person answers together.
func (s *site) inbox(r *http.Request) (page, error) {
	ctx, q := r.Context(), r.URL.Query()
	d := inboxData{Decided: q.Get("show") == "decided", Workflow: keep.WorkflowName(q.Get("workflow")), Each: q.Get("show") == "each"}
	p := page{Title: "Inbox", Section: "inbox", Watch: []feed.Kind{feed.Escalation, feed.Mutation}, Of: d.Workflow}
	var err error
	if d.Workflows, err = s.names(ctx); err != nil {
		return p, err
	}
	switch key := q.Get("cause"); {
	case key != "":
		err = s.listCause(ctx, &d, key, q.Get("from"))
	case d.Decided || d.Each:
		err = s.listQuestions(ctx, &d, q.Get("show"), q.Get("after"))
	default:
		err = s.listCauses(ctx, &d)
	}
	if on := q["on"]; err == nil && len(on) > 0 {
		err = s.stay(ctx, &d, on)
	}
	d.Here = listOf(r.URL.RawQuery)
	p.Data = d
	return p, err
}

// listOf returns the address of the list that a query of it names, without a place in it, and of no other page.
func listOf(raw string) string {
	q, _ := url.ParseQuery(raw) // what cannot be read is left out
	return "/inbox" + query("show", q.Get("show"), "workflow", q.Get("workflow"), "cause", q.Get("cause"))
}

// stay puts the questions that the reader has before them in the place of those of the list. An open
// page is read again with them: what a person reads, writes about or is about to press does not become
// another question, and nothing moves. One that is over stays as a card that says so.
func (s *site) stay(ctx context.Context, d *inboxData, on []string) error {
	listed := make(map[keep.EscalationID]bool, len(d.Cards))
	for _, c := range d.Cards {
		listed[c.ID] = true
	}
	var qs []keep.Escalation
	for _, id := range on[:min(len(on), inboxSize)] {
		q, err := s.cfg.Store.Escalation(ctx, keep.EscalationID(id))
		if errors.Is(err, keep.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		qs = append(qs, q)
		delete(listed, q.ID)
	}
	cards, err := s.cards(ctx, qs)
	d.Others, d.Cards = len(listed) > 0, nil
	for _, c := range cards {
		d.Cards = append(d.Cards, causeCard{card: c})
	}
	return errors.Join(err, s.addCauses(ctx, d))
}

// addCauses says of the cards of a list of causes which cause each has, if others have it, too.
func (s *site) addCauses(ctx context.Context, d *inboxData) error {
	if len(d.causes) == 0 {
		return nil
	}
	var ids []keep.RunID
	for _, c := range d.Cards {
		if c.ClosedAt.IsZero() && c.Run != "" {
			ids = append(ids, c.Run)
		}
	}
	list, err := s.cfg.Store.RunsByID(ctx, ids)
	runs := make(map[keep.RunID]keep.Run, len(list))
	for _, r := range list {
		runs[r.ID] = r
	}
	for i, c := range d.Cards {
		var m keep.Mutation
		if c.Mutation != nil {
			m = *c.Mutation
		}
		of := c.CauseOf(runs[c.Run], m)
		d.Cards[i].Account = of.Code == keep.CodeAccount
		if at := slices.IndexFunc(d.causes, func(c view.Cause) bool { return c.QuestionCause == of }); c.ClosedAt.IsZero() && at >= 0 && d.causes[at].Count > 1 {
			d.Cards[i].Cause = &causeRow{Cause: d.causes[at], Of: d.Workflow}
		}
	}
	return err
}

// listQuestions reads one page of questions.
func (s *site) listQuestions(ctx context.Context, d *inboxData, show, after string) error {
	f := keep.EscalationFilter{Workflow: d.Workflow, Open: !d.Decided, Closed: d.Decided}
	qs, next, err := s.cfg.Store.Escalations(ctx, f, keep.Page{Limit: inboxSize, After: after})
	if err != nil {
		return err
	}
	cards, err := s.cards(ctx, qs)
	for _, c := range cards {
		d.Cards = append(d.Cards, causeCard{card: c})
	}
	d.Pager = pagerOf("/inbox", after, next, "show", show, "workflow", string(d.Workflow))
	return err
}

// listCauses reads what the open questions are about, with the newest of each cause.
//
// Of each cause one question is read with its evidence, however many have it.
func (s *site) listCauses(ctx context.Context, d *inboxData) error {
	groups, err := s.cfg.Store.QuestionGroups(ctx, view.MaxGroups)
	if err != nil {
		return err
	}
	causes := view.CausesOf(groups, d.Workflow)
	d.causes = causes
	d.More, d.Cut = max(len(causes)-inboxSize, 0), len(groups) == view.MaxGroups
	shown, err := s.readCauseRows(ctx, causes[:len(causes)-d.More])
	if err != nil {
		return err
	}
	var qs []keep.Escalation
	for _, c := range shown {
		qs = append(qs, c.Newest.Escalation)
	}
	cards, err := s.cards(ctx, qs)
	for i, c := range cards {
		one := causeCard{card: c}
		one.Account = shown[i].Code == keep.CodeAccount
		if shown[i].Of = d.Workflow; shown[i].Count > 1 {
			one.Cause = &shown[i]
		}
		d.Cards = append(d.Cards, one)
	}
	return err
}

// listCause reads the questions of one cause, from a place on.
func (s *site) listCause(ctx context.Context, d *inboxData, key, from string) error {
	at, err := strconv.Atoi(cmp.Or(from, "0"))
	if err != nil || at < 0 {
		return refusef("there is no place %q", cut(20, from))
	}
	cause, cards, err := s.ofCause(ctx, key, d.Workflow, at, inboxSize)
	if err != nil {
		return err
	}
	// A cause that is gone, because all of it was answered, is an empty list and no error: the reader may
	// have answered it just now.
	d.Each, d.Only, d.Cause = true, true, cause
	for _, c := range cards {
		c.Account = cause != nil && cause.Code == keep.CodeAccount
		d.Cards = append(d.Cards, causeCard{card: c})
	}
	if cause != nil && at+inboxSize < cause.Count {
		d.Pager.Next = "/inbox" + query("cause", key, "workflow", string(d.Workflow), "from", strconv.Itoa(at+inboxSize))
	}
	if at > 0 {
		d.Pager.First = "/inbox" + query("cause", key, "workflow", string(d.Workflow))
	}
	return nil
}

// ofCause reads up to limit of the open questions of a cause, in a workflow or in all, newest first; nil: there are none.
func (s *site) ofCause(ctx context.Context, key string, w keep.WorkflowName, from, limit int) (*causeRow, []card, error) {
	of, ok := view.ParseCause(key)
	if !ok {
		return nil, nil, refusef("there is no cause %q", cut(80, key))
	}
	groups, err := s.cfg.Store.QuestionGroups(ctx, view.MaxGroups)
	if err != nil {
		return nil, nil, err
	}
	groups = slices.DeleteFunc(groups, func(g keep.QuestionGroup) bool { return g.QuestionCause != of })
	rows, err := s.readCauseRows(ctx, view.CausesOf(groups, w))
	if err != nil || len(rows) == 0 {
		return nil, nil, err
	}
	rows[0].Of = w
	qs, err := s.cfg.Store.QuestionsLike(ctx, w, of, from, limit)
	if err != nil {
		return nil, nil, err
	}
	cards, err := s.cards(ctx, qs)
	return &rows[0], cards, err
}
