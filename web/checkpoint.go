package web

import (
	"net/http"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/view"
)

// checkpointData is what a person should know before a producer forgets how far it
// came. Its values are not shown.
type checkpointData struct {
	keep.Workflow
	Handler handlerRow
	Topics  []keep.TopicCount // that it may publish to
	Busy    bool              // it runs now
}

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
	topics, err := s.cfg.Store.TopicCounts(ctx, w.Name)
	if err != nil {
		return p, err
	}
	for _, t := range topics {
		if d.Handler.MayPublish(t.Topic) {
			d.Topics = append(d.Topics, t)
		}
	}
	for _, run := range st.runs[w.Name] {
		d.Busy = d.Busy || run.Run.Status == keep.StatusActive && run.Run.Handler == d.Handler.Name
	}
	p.Data = d
	return p, nil
}

func (s *site) resetCheckpoint(r *http.Request) (to, did string, err error) {
	name := keep.WorkflowName(r.PathValue("name"))
	if err := r.ParseForm(); err != nil {
		return "", "", err
	}
	err = s.cfg.Actor.ResetCheckpoint(r.Context(), name, keep.HandlerName(r.PostForm.Get("handler")))
	return "/workflows/" + string(name), "reset", err
}
