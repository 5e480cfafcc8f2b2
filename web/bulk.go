package web

import (
	"net/http"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

// bulkData is a skip of all inputs that a filter matches: before it, under way,
// and after it. The page asks to continue after each part: nothing runs on behind a
// page that was closed.
type bulkData struct {
	api.SkipPlan
	Filter inputQuery
	Rows   []keep.Input // the first of them, in the plan
	Begun  bool
	Note   string // of who began it, kept with each
	Failed string // why the part ended, after some of it was done; empty: it did not fail
}

// Left returns how many are not done; others may have done some of them meanwhile.
func (d bulkData) Left() int { return max(d.Total-d.Done.Inputs-d.Done.Late, 0) }

// bulkPreview shows what would be skipped.
func (s *site) bulkPreview(r *http.Request) (page, error) {
	f, err := parseInputQuery(r.URL.Query())
	if err != nil {
		return page{}, err
	}
	if !f.Made.IsZero() { // a plan knows none, and would skip more than is shown
		return page{}, refusef("inputs of a period are not skipped together: leave since and until out")
	}
	// Only pending inputs can be skipped, and the plan is of all of them, whichever page was shown.
	f.Status, f.After = keep.InputPending, ""
	p := page{Title: "Skip all that match", Section: "inputs"}
	d := bulkData{Filter: f}
	if d.SkipPlan, err = api.PlanSkip(r.Context(), s.cfg.Store, f.Workflow, f.Text, s.cfg.Clock()); err != nil {
		return p, err
	}
	if d.Rows, _, err = s.cfg.Store.Inputs(r.Context(), f.InputFilter, keep.Page{Limit: 10}); err != nil {
		return p, err
	}
	p.Data = d
	return p, nil
}

// bulkSkip does one part of what bulkPreview showed.
func (s *site) bulkSkip(r *http.Request) (page, error) {
	if err := parseForm(r); err != nil {
		return page{}, err
	}
	// The form has the plan as its cursor, and no filter: a part never skips what came in after the preview.
	plan, err := api.ParseSkipPlan(r.PostForm.Get("cursor"))
	if err != nil {
		return page{}, err
	}
	who, err := decisionOf(r)
	if err != nil {
		return page{}, err
	}
	d := bulkData{Begun: true, Note: who.Note}
	d.SkipPlan, err = api.SkipPart(r.Context(), s.cfg.Store, s.cfg.Actor, plan, who, time.Now().Add(api.PartTime))
	d.Filter.Workflow, d.Filter.Text = plan.Workflow, plan.Text
	p := page{Title: "Skip all that match", Section: "inputs"}
	if err != nil && (d.Done == plan.Done || r.Context().Err() != nil) {
		return page{}, err
	}
	if err != nil { // how many were skipped is said nowhere else
		status, t := statusOf(err)
		s.log.ErrorContext(r.Context(), "skip inputs", "path", r.URL.Path, "err", err)
		p.Status, d.Failed = status, t.What+": "+t.Why
	}
	p.Data = d
	return p, nil
}
