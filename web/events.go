package web

import (
	"net/http"
	"net/url"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/view"
)

// eventsData is the list of events.
type eventsData struct {
	period
	Filter    keep.EventFilter
	Workflows []keep.WorkflowName
	Counts    []keep.TopicCount // of the workflow; nil: all workflows are listed
	Unread    bool              // the topic is given, and no consumer of the current version reads it
	Rows      []keep.Event
	Pager     pager
}

// events lists events by what the address says. It also serves topics that the current version does
// not declare any more: their events are still there, and may be skipped.
func (s *site) events(r *http.Request) (page, error) {
	ctx, q := r.Context(), r.URL.Query()
	f := keep.EventFilter{Workflow: keep.WorkflowName(q.Get("workflow")), Topic: keep.TopicName(q.Get("topic")), Status: keep.EventStatus(q.Get("status")), Text: q.Get("q")}
	p := page{Title: "Events", Section: "workflows", Of: f.Workflow, Watch: []feed.Kind{feed.Event}}
	if err := checkFilter(f.Text, f.Status, keep.ListedEventStatuses()); err != nil {
		return p, err
	}
	var d eventsData
	var err error
	if d.period, f.Made, err = periodOf(q); err != nil {
		return p, err
	}
	d.Filter = f
	if d.Workflows, err = s.names(ctx); err != nil {
		return p, err
	}
	// Topics have names within a workflow: without one there is nothing to count by.
	if f.Workflow != "" {
		if d.Counts, err = s.cfg.Store.TopicCounts(ctx, f.Workflow); err != nil {
			return p, err
		}
	}
	// A topic that nobody reads looks like one that is blocked; the page tells them apart.
	if f.Workflow != "" && f.Topic != "" {
		if d.Unread, err = view.Unread(ctx, s.cfg.Store, f.Workflow, f.Topic); err != nil {
			return p, err
		}
	}
	var next string
	if d.Rows, next, err = s.cfg.Store.Events(ctx, f, keep.Page{Limit: pageSize, After: q.Get("after"), Bare: true}); err != nil {
		return p, err
	}
	d.Pager = pagerOf("/events", q.Get("after"), next, "workflow", string(f.Workflow), "topic", string(f.Topic), "status", string(f.Status), "q", f.Text,
		"since", d.Since, "until", d.Until)
	p.Data = d
	return p, nil
}

// eventData is one event.
type eventData struct {
	keep.Event
	Payload payload
	Inputs  []keep.Input
	Runs    []keep.Run // that worked on it, newest first
	Acts    []view.Act // what people did with it, oldest first
	Older   bool       // there are older ones
	Query   string     // names the event in links
	MaySkip bool
	Skipped bool
}

// MoreInputs is how many inputs the event comes from that the page does not list.
func (d eventData) MoreInputs() int { return max(len(d.CausedBy)-maxShown, 0) }

// eventQuery names an event in a link. Message ids are anything, so they are no
// part of a path.
func eventQuery(ev keep.Event) string {
	return "?" + url.Values{"workflow": {string(ev.Workflow)}, "topic": {string(ev.Topic)}, "id": {string(ev.MessageID)}}.Encode()
}

// eventOf reads the event that an address names, of pages and of actions alike: the forms carry it
// in their address, so no field of theirs can name another one.
func (s *site) eventOf(r *http.Request) (keep.Event, error) {
	q := r.URL.Query()
	return s.cfg.Store.Event(r.Context(), keep.WorkflowName(q.Get("workflow")), keep.TopicName(q.Get("topic")), keep.MessageID(q.Get("id")))
}

// event shows one event with the inputs that it comes from and the runs that worked on it.
func (s *site) event(r *http.Request) (page, error) {
	ev, err := s.eventOf(r)
	if err != nil {
		return page{}, err
	}
	p := page{Title: "Event", Section: "workflows", Of: ev.Workflow, Watch: []feed.Kind{feed.Event, feed.Run}}
	d := eventData{Event: ev, Query: eventQuery(ev), MaySkip: ev.Status == keep.EventPending, Skipped: ev.Status == keep.EventSkipped}
	d.Payload = payloadOf("Payload", ev.Payload, "/event/payload"+d.Query)
	if d.Inputs, err = s.inputsByID(r.Context(), ev.CausedBy); err != nil {
		return p, err
	}
	if d.Acts, err = view.ActsOfEvent(r.Context(), s.cfg.Store, ev); err != nil {
		return p, err
	}
	runs, err := s.cfg.Store.RunsOfEvent(r.Context(), ev.Workflow, ev.Topic, ev.MessageID, maxShown+1)
	if err != nil {
		return p, err
	}
	d.Runs, d.Older = newest(runs)
	p.Data = d
	return p, nil
}

// skipEvent leaves an event undone. One whose run is past its call completes all the same, and the
// notice must not say that it was skipped.
func (s *site) skipEvent(r *http.Request) (to, did string, err error) {
	ev, err := s.eventOf(r)
	if err != nil {
		return "", "", err
	}
	attempt, err := shownAttempt(r)
	if err != nil {
		return "", "", err
	}
	d, err := decisionOf(r)
	if err != nil {
		return "", "", err
	}
	res, err := s.cfg.Actor.SkipEventAttempt(r.Context(), ev.Workflow, ev.Topic, ev.MessageID, attempt, d)
	if err != nil {
		return "", "", err
	}
	did = "skipped"
	if res.TooLate > 0 {
		did = "too-late"
	}
	return "/event" + eventQuery(ev), did, nil
}

// unskipEvent undoes a skip. Somebody else may have done so first: then the event is pending, nothing
// was undone, and that is no error.
func (s *site) unskipEvent(r *http.Request) (to, did string, err error) {
	ev, err := s.eventOf(r)
	if err != nil {
		return "", "", err
	}
	attempt, err := shownAttempt(r)
	if err != nil {
		return "", "", err
	}
	d, err := decisionOf(r)
	if err != nil {
		return "", "", err
	}
	res, err := s.cfg.Actor.UnskipEventAttempt(r.Context(), ev.Workflow, ev.Topic, ev.MessageID, attempt, d)
	if did = "unskipped"; res.Unskipped == 0 {
		did = "not-skipped"
	}
	return "/event" + eventQuery(ev), did, err
}

func (s *site) eventFile(w http.ResponseWriter, r *http.Request) error {
	ev, err := s.eventOf(r)
	if err != nil {
		return err
	}
	return download(w, "event-payload.json", ev.Payload)
}
