package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/view"
)

// checkpointData is what a person should know before a producer forgets how far it
// came. Its values are shown to admins.
type checkpointData struct {
	keep.Workflow
	Handler handlerRow
	Topics  []keep.TopicCount // that it may publish to
	Busy    bool              // it runs now
	Admin   bool              // sees and sets values
	Values  []keep.SetKV      // for admins
}

// checkpoint shows a producer that forgets on request, and what its topics know already: those
// events are what a producer that reads everything again does not cause once more. Only handlers
// of the current version are found, since no other reads its checkpoint.
func (s *site) checkpoint(r *http.Request) (page, error) {
	ctx := r.Context()
	w, err := s.cfg.Store.Workflow(ctx, keep.WorkflowName(r.PathValue("name")))
	if err != nil {
		return page{}, err
	}
	p := page{Title: "Checkpoint", Section: "workflows", Of: w.Name, Watch: []feed.Kind{feed.Workflow, feed.Run, feed.Event}}
	v, err := s.cfg.Store.Deployment(ctx, w.Name, w.Version)
	if err != nil {
		return p, err
	}
	states, err := s.cfg.Store.Handlers(ctx, w.Name)
	if err != nil {
		return p, err
	}
	d := checkpointData{Workflow: w}
	st, err := s.situation(ctx, w.Name)
	if err != nil {
		return p, err
	}
	for _, h := range s.handlerRows(view.WorkflowOf(w, v, states, nil, time.Now())) {
		if h.Producer() && string(h.Name) == r.FormValue("handler") {
			d.Handler = h
		}
	}
	if d.Handler.Name == "" {
		return p, &keep.NotFoundError{What: "producer", ID: string(w.Name) + "/" + cut(80, r.FormValue("handler"))}
	}
	// Scripts may keep anything there, so for others the values are not even read.
	if who, _ := access.From(ctx); who.Role.Covers(access.Admin) {
		d.Admin = true
		if d.Values, err = s.cfg.Store.KVs(ctx, w.Name, keep.HandlerName(d.Handler.ItemsOf())); err != nil {
			return p, err
		}
	}
	topics, err := s.cfg.Store.TopicCounts(ctx, w.Name)
	if err != nil {
		return p, err
	}
	for _, t := range topics {
		if d.Handler.MayPublish(t.Topic) {
			d.Topics = append(d.Topics, t)
		}
	}
	// A hint for the buttons, no lock: the operator refuses a producer that began since.
	for _, run := range st.runs[w.Name] {
		d.Busy = d.Busy || run.Run.Status == keep.StatusActive && run.Run.Handler == d.Handler.Name
	}
	p.Data = d
	return p, nil
}

// resetCheckpoint empties a checkpoint. An operator may, since that shows him no value, while
// setting one is for admins. The handler is looked up by the operator, not here.
func (s *site) resetCheckpoint(r *http.Request) (to, did string, err error) {
	name := keep.WorkflowName(r.PathValue("name"))
	if err := parseForm(r); err != nil {
		return "", "", err
	}
	d, err := decisionOf(r)
	if err != nil {
		return "", "", err
	}
	err = s.cfg.Actor.ResetCheckpoint(r.Context(), name, keep.HandlerName(r.PostForm.Get("handler")), d)
	return "/workflows/" + string(name), "reset", err
}

// Field is the name of the field that says which value of a key was shown: by a mark, since a key may have characters that no field keeps.
func (d checkpointData) Field(key string) string { return "of:" + noteMark(key) }

// Mark tells the values of a key apart, in the field that says which one was shown.
func (d checkpointData) Mark(value json.RawMessage) string { return noteMark(string(value)) }

// setCheckpoint sets one value of a checkpoint, or deletes it, if it is the one that the page showed.
func (s *site) setCheckpoint(r *http.Request) (to, did string, err error) {
	name := keep.WorkflowName(r.PathValue("name"))
	d, err := decisionOf(r)
	if err != nil {
		return "", "", err
	}
	handler, key := r.PostForm.Get("handler"), r.PostForm.Get("key")
	var value json.RawMessage
	// nil deletes. An empty field is not nil but no JSON, which is refused: only the button that says so
	// deletes.
	if r.PostForm.Get("verb") != "delete" {
		value = json.RawMessage(strings.TrimSpace(r.PostForm.Get("value")))
	}
	p, err := s.checkpoint(r)
	if err != nil {
		return "", "", err
	}
	shown := p.Data.(checkpointData)
	var was json.RawMessage
	if i := slices.IndexFunc(shown.Values, func(kv keep.SetKV) bool { return kv.Key == key }); i >= 0 {
		was = shown.Values[i].Value
	}
	if of := r.PostForm.Get(shown.Field(key)); of != "" && was == nil || was != nil && of != shown.Mark(was) {
		return "", "", fmt.Errorf("%s of %s is not what was shown: %w", cut(80, key), cut(80, handler), keep.ErrStale)
	}
	err = s.cfg.Actor.SetShownCheckpoint(r.Context(), name, keep.HandlerName(handler), key, was, value, d)
	// A value that is too large or no JSON is the reader's to correct, no failure for the log.
	if wrong, ok := errors.AsType[*operator.CheckpointError](err); ok {
		err = refusef("%s", wrong)
	}
	return "/workflows/" + string(name) + "/checkpoint?handler=" + url.QueryEscape(handler), "checkpoint-set", err
}
