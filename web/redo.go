package web

import (
	"net/http"
	"net/url"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/operator"
)

// redoData is what doing events again will cause. The button confirms what the page shows.
type redoData struct {
	Workflow keep.WorkflowName
	Back     string // the page of the event or input
	Query    string // names it
	Plan     operator.RedoPlan
	Events   []redoRow
	More     int    // events that are not shown
	Refused  string // why nothing can be done; empty: it can
}

// redoRow is one event that is done again.
type redoRow struct {
	operator.RedoEvent
	Query string
	Calls []redoCall
	Next  int // its attempt
}

// redoCall is a call that an attempt before made.
type redoCall struct {
	keep.Mutation
	Twice, Unknown bool
}

// maxRedoRows is how many events a page shows.
const maxRedoRows = 50

// redoRequest reads what is to be done again: an event, or an input.
func (s *site) redoRequest(r *http.Request) (req operator.RedoRequest, back, query string, err error) {
	if id := keep.InputID(r.URL.Query().Get("input")); id != "" {
		in, err := s.cfg.Store.Input(r.Context(), id)
		return operator.RedoRequest{Workflow: in.Workflow, Input: id}, "/inputs/" + url.PathEscape(string(id)), "?" + url.Values{"input": {string(id)}}.Encode(), err
	}
	ev, err := s.eventOf(r)
	query = eventQuery(ev)
	return operator.RedoRequest{Workflow: ev.Workflow, Topic: ev.Topic, IDs: []keep.MessageID{ev.MessageID}}, "/event" + query, query, err
}

// redo shows what doing something again will cause.
//
// The plan has a mark, which the button sends back: what was not shown is not done, and a button that is
// pressed twice does nothing a second time. Every event is in the plan, also those that the page leaves out.
func (s *site) redo(r *http.Request) (page, error) {
	req, back, query, err := s.redoRequest(r)
	if err != nil {
		return page{}, err
	}
	p := page{Title: "Do it again", Section: "workflows", Of: req.Workflow, Watch: []feed.Kind{feed.Event, feed.Mutation, feed.Run}}
	d := redoData{Workflow: req.Workflow, Back: back, Query: query}
	if d.Plan, err = s.cfg.Actor.PlanRedo(r.Context(), req); err != nil {
		return p, err
	}
	for _, e := range d.Plan.Events {
		// All are done, or none: one that is refused holds up the others.
		if d.Refused == "" && e.Refused != "" {
			d.Refused = "Event " + cut(80, string(e.MessageID)) + ": " + e.Refused
		}
		row := redoRow{RedoEvent: e, Query: eventQuery(e.Event), Next: e.Attempt() + 1}
		for _, m := range e.Calls {
			repeat := lifecycle.RepeatOf(m)
			row.Calls = append(row.Calls, redoCall{m, repeat == lifecycle.SecondTime, repeat == lifecycle.PerhapsTwo})
		}
		d.Events = append(d.Events, row)
	}
	if len(d.Events) == 0 {
		d.Refused = "None of its events came from outside."
	}
	if d.More = len(d.Events) - maxRedoRows; d.More > 0 {
		d.Events = d.Events[:maxRedoRows]
	}
	p.Data = d
	return p, nil
}

// doRedo does again what the page showed.
func (s *site) doRedo(r *http.Request) (to, did string, err error) {
	d, err := decisionOf(r)
	if err != nil {
		return "", "", err
	}
	req, back, _, err := s.redoRequest(r)
	if err != nil {
		return "", "", err
	}
	if req.Mark = r.PostForm.Get("mark"); req.Mark == "" {
		return "", "", refusef("what is done again is shown first")
	}
	_, err = s.cfg.Actor.Redo(r.Context(), req, d)
	return back, "redone", err
}
