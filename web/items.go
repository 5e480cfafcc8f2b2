package web

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/view"
)

// itemsData is the list of items.
type itemsData struct {
	period
	Filter    keep.ItemFilter
	Workflows []keep.WorkflowName
	Statuses  []keep.ItemStatus
	Found     view.Found[keep.ItemStatus] // by the filter without status
	Rows      []keep.Item
	Pager     pager
}

func (s *site) items(r *http.Request) (page, error) {
	ctx, q := r.Context(), r.URL.Query()
	f := keep.ItemFilter{Workflow: keep.WorkflowName(q.Get("workflow")), Status: keep.ItemStatus(q.Get("status")), Text: q.Get("q")}
	p := page{Title: "Items", Section: "items", Of: f.Workflow, Watch: []feed.Kind{feed.Item}}
	if err := checkFilter(f.Text, f.Status, keep.ItemStatuses()); err != nil {
		return p, err
	}
	d := itemsData{Statuses: keep.ItemStatuses()}
	var err error
	if d.period, f.Made, err = periodOf(q); err != nil {
		return p, err
	}
	d.Filter = f
	if d.Workflows, err = s.names(ctx); err != nil {
		return p, err
	}
	// The other statuses are links, each with its number, so the counts must not follow the chosen one.
	every := f
	every.Status = ""
	by, err := s.cfg.Store.CountItems(ctx, every)
	if err != nil {
		return p, err
	}
	d.Found = view.FoundOf(every.Bounded(), by)
	var next string
	if d.Rows, next, err = s.cfg.Store.Items(ctx, f, keep.Page{Limit: pageSize, After: q.Get("after")}); err != nil {
		return p, err
	}
	d.Pager = pagerOf("/items", q.Get("after"), next, "q", f.Text, "workflow", string(f.Workflow), "status", string(f.Status), "since", d.Since, "until", d.Until)
	p.Data = d
	return p, nil
}

// itemData is one item, with the calls of all its attempts.
type itemData struct {
	keep.Item
	Query     string // names the item in links
	Attempts  []itemAttempt
	Older     bool // there are older calls, which are not in Attempts
	Question  *keep.Escalation
	Answers   []card     // questions about it that people answered, newest first
	Acts      []view.Act // what people did with it beside answers to questions, oldest first
	Reprocess string     // why it cannot be done; empty: it can
	Skip      string
	Unskip    string
}

// An itemAttempt is the calls of one attempt, oldest first.
type itemAttempt struct {
	N     int
	Calls []keep.Mutation
}

// itemQuery names an item in a link. Item ids are anything, so they are no part of
// a path.
func itemQuery(w keep.WorkflowName, id string) string {
	return "?" + url.Values{"workflow": {string(w)}, "id": {id}}.Encode()
}

// item shows an item. What may be done to it is asked of the operator, who decides it when a button
// is pressed, too: the page has no rules of its own that could differ.
func (s *site) item(r *http.Request) (page, error) {
	ctx, q := r.Context(), r.URL.Query()
	it, err := s.cfg.Store.Item(ctx, keep.WorkflowName(q.Get("workflow")), q.Get("id"))
	if err != nil {
		return page{}, err
	}
	p := page{Title: it.Title, Section: "items", Of: it.Workflow, Watch: []feed.Kind{feed.Item, feed.Mutation, feed.Escalation}}
	d := itemData{Item: it, Query: itemQuery(it.Workflow, it.ID)}
	d.Reprocess, d.Skip = s.refusal(it, keep.Reprocess), s.refusal(it, keep.Skip)
	d.Unskip = s.refusal(it, keep.Unskip)
	ms, next, err := s.cfg.Store.Mutations(ctx, keep.MutationFilter{Workflow: it.Workflow, Item: it.ID}, keep.Page{Limit: maxShown, Bare: true})
	if err != nil {
		return p, err
	}
	d.Attempts, d.Older = attempts(ms), next != ""
	for _, m := range ms {
		if err := operator.MayUnskip(it, m); d.Unskip == "" && err != nil {
			d.Unskip = refused(err)
		}
	}
	qs, _, err := s.cfg.Store.Escalations(ctx, keep.EscalationFilter{Workflow: it.Workflow, Item: it.ID, Open: true}, keep.Page{Limit: 1})
	if err != nil {
		return p, err
	}
	if len(qs) > 0 {
		d.Question = &qs[0]
	}
	answered, _, err := s.cfg.Store.Escalations(ctx, keep.EscalationFilter{Workflow: it.Workflow, Item: it.ID, Closed: true}, keep.Page{Limit: maxSkips})
	if err != nil {
		return p, err
	}
	for _, q := range answered {
		if q.Decision != nil {
			d.Answers = append(d.Answers, cardOf(q))
		}
	}
	d.Acts, err = view.Acts(ctx, s.cfg.Store, keep.Subject{Workflow: it.Workflow, Kind: keep.AboutItem, ID: it.ID})
	p.Data = d
	return p, err
}

// refusal says why an action cannot be taken; empty: it can.
func (s *site) refusal(it keep.Item, a keep.Action) string {
	return refused(s.cfg.Actor.CanDoItem(it, a))
}

// refused says why something is refused; empty: it is not.
func refused(err error) string {
	if refused, ok := errors.AsType[*operator.ItemError](err); ok {
		return "Not now: " + refused.Why + "."
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// attempts groups calls, given newest first, by attempt, newest first.
func attempts(ms []keep.Mutation) []itemAttempt {
	var out []itemAttempt
	for _, m := range ms {
		if len(out) == 0 || out[len(out)-1].N != m.Attempt {
			out = append(out, itemAttempt{N: m.Attempt})
		}
		last := &out[len(out)-1]
		last.Calls = append([]keep.Mutation{m}, last.Calls...)
	}
	return out
}

// confirmItemData is an item that would be done again, with what that sends again.
type confirmItemData struct {
	keep.Item
	Query string
	Note  string
	Calls []keep.Mutation // of the current attempt that were applied, oldest first
	Older bool            // the attempt may have older ones
}

// confirmItem asks for the second press before an item is done again.
func (s *site) confirmItem(r *http.Request) (page, error) {
	ctx, q := r.Context(), r.URL.Query()
	it, err := s.cfg.Store.Item(ctx, keep.WorkflowName(q.Get("workflow")), q.Get("id"))
	if err != nil {
		return page{}, err
	}
	p := page{Title: "Do it again?", Section: "items", Of: it.Workflow}
	// Else a person would confirm, and only then read that it was never possible.
	if why := s.refusal(it, keep.Reprocess); why != "" {
		return p, refusef("the item cannot be done again: %s", why)
	}
	ms, next, err := s.cfg.Store.Mutations(ctx, keep.MutationFilter{Workflow: it.Workflow, Item: it.ID}, keep.Page{Limit: maxShown, Bare: true})
	d := confirmItemData{Item: it, Query: itemQuery(it.Workflow, it.ID), Note: cut(4*maxNote, q.Get("note"))}
	for _, m := range slices.Backward(ms) {
		if m.Attempt == it.Attempt && m.State == keep.Applied {
			d.Calls = append(d.Calls, m)
		}
	}
	// Calls come newest first, so those of the attempt are whole once one of an attempt before came.
	d.Older = next != "" && ms[len(ms)-1].Attempt >= it.Attempt
	p.Data = d
	return p, err
}

// decideItem records what a person decided about an item. Only reprocess sends something a second
// time, so only it needs the second press.
func (s *site) decideItem(r *http.Request) (to, did string, err error) {
	q := r.URL.Query()
	w, id := keep.WorkflowName(q.Get("workflow")), q.Get("id")
	d, err := decisionOf(r)
	if err != nil {
		return "", "", err
	}
	to = "/item" + itemQuery(w, id)
	switch d.Action {
	case keep.Reprocess:
		if r.PostForm.Get("confirm") == "" {
			return "/item/confirm" + itemQuery(w, id) + "&" + url.Values{"note": {d.Note}}.Encode(), "", nil
		}
		// The second press is for the attempt that its page shows: a stale page does nothing a second time.
		attempt, err := shownAttempt(r)
		if err != nil {
			return "", "", err
		}
		return to, "reprocess", s.cfg.Actor.ReprocessAttempt(r.Context(), w, id, attempt, d)
	case keep.Skip:
		attempt, err := shownAttempt(r)
		if err != nil {
			return "", "", err
		}
		return to, "item-skipped", s.cfg.Actor.SkipShownItem(r.Context(), w, id, attempt, keep.EscalationID(r.PostForm.Get("question")), d)
	case keep.Unskip:
		attempt, err := shownAttempt(r)
		if err != nil {
			return "", "", err
		}
		return to, "item-unskipped", s.cfg.Actor.UnskipAttempt(r.Context(), w, id, attempt, d)
	}
	return "", "", refusef("an item can be reprocessed, or skipped, or its skip undone, not %q", cut(40, string(d.Action)))
}

// shownAttempt returns the attempt of an item or an event that the page of a form showed.
func shownAttempt(r *http.Request) (int, error) {
	attempt, err := shownNumber(r, "attempt")
	if err == nil && attempt < 1 {
		err = refusef("there is no attempt %d", attempt)
	}
	return attempt, err
}

// shownNumber returns a number by which a form says what its page showed.
func shownNumber(r *http.Request, field string) (int, error) {
	if err := parseForm(r); err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(r.PostForm.Get(field))
	if err != nil {
		return 0, refusef("what is decided is shown first")
	}
	return n, nil
}
