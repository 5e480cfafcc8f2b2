package web

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/view"
)

// runsData is the list of runs.
type runsData struct {
	period
	Filter    keep.RunFilter
	Workflows []keep.WorkflowName
	Statuses  []keep.RunStatus
	Found     view.Found[keep.RunStatus] // by the filter without status; without counts for unfinished ones
	Rows      []runRow
	Pager     pager
}

// A runRow is a run in a list; an unfinished one says what it waits for.
type runRow struct {
	keep.Run
	Standing *standing
}

// Link leads to the list with the same filter, of unfinished runs or of all.
func (d runsData) Link(open bool) string {
	f, only := d.Filter, ""
	if open {
		only = "1"
	}
	return "/runs" + query("workflow", string(f.Workflow), "status", string(f.Status), "handler", string(f.Handler), "open", only, "q", f.Text, "error", f.Error, "since", d.Since, "until", d.Until)
}

func (s *site) runs(r *http.Request) (page, error) {
	ctx, q := r.Context(), r.URL.Query()
	f := keep.RunFilter{Workflow: keep.WorkflowName(q.Get("workflow")), Status: keep.RunStatus(q.Get("status")),
		Handler: keep.HandlerName(q.Get("handler")), Open: q.Get("open") != "", Error: q.Get("error"), Text: q.Get("q")}
	p := page{Title: "Runs", Section: "runs", Of: f.Workflow, Watch: []feed.Kind{feed.Run, feed.Escalation}}
	if err := checkFilter(f.Text, f.Status, keep.RunStatuses()); err != nil {
		return p, err
	}
	d := runsData{Statuses: keep.RunStatuses()}
	var err error
	if d.period, f.Made, err = periodOf(q); err != nil {
		return p, err
	}
	d.Filter = f
	if d.Workflows, err = s.names(ctx); err != nil {
		return p, err
	}
	if !f.Open {
		every := f
		every.Status = ""
		by, err := s.cfg.Store.CountRuns(ctx, every)
		if err != nil {
			return p, err
		}
		d.Found = view.FoundOf(every.Bounded(), by)
	}
	runs, next, err := s.cfg.Store.Runs(ctx, f, keep.Page{Limit: pageSize, After: q.Get("after"), Bare: true})
	if err != nil {
		return p, err
	}
	if d.Rows, err = s.runRows(ctx, runs); err != nil {
		return p, err
	}
	d.Pager = pagerOf("/runs", q.Get("after"), next, "workflow", string(f.Workflow), "status", string(f.Status),
		"handler", string(f.Handler), "open", q.Get("open"), "q", f.Text, "error", f.Error, "since", d.Since, "until", d.Until)
	p.Data = d
	return p, nil
}

// runRows says of each unfinished run what it waits for.
func (s *site) runRows(ctx context.Context, runs []keep.Run) ([]runRow, error) {
	var open []keep.Run
	for _, r := range runs {
		if !r.Closed {
			open = append(open, r)
		}
	}
	explained, err := view.Explain(ctx, s.cfg.Store, open, nil)
	rows := make([]runRow, 0, len(runs))
	for _, r := range runs {
		row := runRow{Run: r}
		if !r.Closed && len(explained) > 0 {
			row.Standing, explained = &standing{explained[0]}, explained[1:]
		}
		rows = append(rows, row)
	}
	return rows, err
}

// runData is one run, with the other attempts at the same work.
type runData struct {
	keep.Run
	Attempt   int
	Attempts  []keep.Run // of the chain, oldest first
	Standing  *standing  // nil: finished
	Mutations []keep.Mutation
	Moves     map[keep.MutationKey][]keep.Move
	Questions []keep.Escalation // oldest first
	Logs      []keep.LogLine
	Saw       saw
	Inputs    []keep.Input
	Story     []entry
	Timeline  template.HTML
	Source    *excerpt // where it failed; nil: unknown
	Prepared  *payload
	Versions  []keep.Version // that the run can be gone through with; nil: this host replays none
	Offers    []runOffer     // nil: nothing can be done to it
}

// A runOffer is what a person may do to a run now, with what that causes.
type runOffer struct {
	Action keep.Action
	Label  string
	Effect string
}

// offers returns what a person may do to an unfinished run, as it is now.
func (s *site) offers(ctx context.Context, d *runData) error {
	if d.Closed || d.Status == keep.StatusActive {
		return nil
	}
	for _, o := range []runOffer{{Action: keep.Retry, Label: "Try now"}, {Action: keep.Cancel, Label: "Cancel the run"}} {
		done, err := s.cfg.Actor.DoRun(ctx, d.ID, keep.Decision{Action: o.Action}, true)
		if _, refused := errors.AsType[*operator.RunError](err); refused {
			continue
		}
		if err != nil {
			return err
		}
		o.Effect = done.Effect
		d.Offers = append(d.Offers, o)
	}
	return nil
}

// doRun cancels a run, or brings its next attempt or lookup forward.
func (s *site) doRun(r *http.Request) (to, did string, err error) {
	id := keep.RunID(r.PathValue("id"))
	d, err := decisionOf(r)
	if err != nil {
		return "", "", err
	}
	if d.Action != keep.Cancel && d.Action != keep.Retry {
		return "", "", refusef("a run is cancelled or tried now, and nothing else")
	}
	_, err = s.cfg.Actor.DoRun(r.Context(), id, d, false)
	return runPath(id), "run-" + string(d.Action), err
}

func (s *site) run(r *http.Request) (page, error) {
	ctx := r.Context()
	v, err := s.cfg.Store.Run(ctx, keep.RunID(r.PathValue("id")))
	if err != nil {
		return page{}, err
	}
	p := page{Title: "Run of " + string(v.Handler), Section: "runs", Of: v.Workflow,
		Watch: []feed.Kind{feed.Run, feed.Mutation, feed.Escalation}}
	d := &runData{Run: v}
	for _, read := range []func(context.Context, *runData) error{
		s.readAttempts, s.readMutations, s.readQuestions, s.readCauses, s.readSource, s.readVersions,
	} {
		if err := read(ctx, d); err != nil {
			return p, err
		}
	}
	if d.Logs, err = s.cfg.Store.Logs(ctx, v.ID); err != nil {
		return p, err
	}
	if err := s.readSaw(ctx, d); err != nil {
		return p, err
	}
	if len(v.Prepared) > 0 {
		prepared := payloadOf("What prepare returned", v.Prepared, runPath(v.ID)+"/prepared")
		d.Prepared = &prepared
	}
	if err := s.offers(ctx, d); err != nil {
		return p, err
	}
	d.Story = history(d)
	d.Timeline = timeline(d, time.Now())
	p.Data = d
	return p, nil
}

// readAttempts reads the chain that the run belongs to.
func (s *site) readAttempts(ctx context.Context, d *runData) error {
	chain, _, err := s.cfg.Store.Runs(ctx, keep.RunFilter{Chain: d.Chain}, keep.Page{Limit: maxShown, Bare: true})
	if err != nil {
		return err
	}
	slices.Reverse(chain)
	d.Attempts = chain
	d.Attempt = 1 + slices.IndexFunc(chain, func(r keep.Run) bool { return r.ID == d.ID })
	return nil
}

// readMutations reads the mutations of the chain, with their history. A retry owns
// the mutation of the attempt before it.
func (s *site) readMutations(ctx context.Context, d *runData) error {
	var err error
	if d.Mutations, err = s.cfg.Store.Calls(ctx, d.Chain, maxShown); err != nil {
		return err
	}
	slices.Reverse(d.Mutations)
	keys := make([]keep.MutationKey, len(d.Mutations))
	for i, m := range d.Mutations {
		keys[i] = m.Key
	}
	d.Moves, err = s.cfg.Store.Histories(ctx, keys)
	return err
}

// readQuestions reads what people were asked about the chain, and what the run
// waits for.
func (s *site) readQuestions(ctx context.Context, d *runData) error {
	var err error
	if d.Questions, err = s.cfg.Store.EscalationsOf(ctx, d.Chain, maxShown); err != nil {
		return err
	}
	slices.Reverse(d.Questions)
	var open []keep.Escalation
	for _, q := range d.Questions {
		if q.ClosedAt.IsZero() {
			open = append(open, q)
		}
	}
	if d.Closed {
		return nil
	}
	explained, err := view.Explain(ctx, s.cfg.Store, []keep.Run{d.Run}, open)
	if err == nil {
		d.Standing = &standing{explained[0]}
	}
	return err
}

// readCauses reads the inputs that the run is about.
func (s *site) readCauses(ctx context.Context, d *runData) error {
	ids, err := s.cfg.Store.Causes(ctx, d.Chain)
	if err != nil {
		return err
	}
	d.Inputs, err = s.inputsByID(ctx, ids)
	return err
}

// inputsByID returns the first of the named inputs, in the order of their ids.
func (s *site) inputsByID(ctx context.Context, ids []keep.InputID) ([]keep.Input, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	ins, err := s.cfg.Store.InputsByID(ctx, ids[:min(len(ids), maxShown)])
	slices.SortFunc(ins, func(a, b keep.Input) int { return cmp.Compare(a.ID, b.ID) })
	return ins, err
}

// readSource quotes the script where the run failed.
func (s *site) readSource(ctx context.Context, d *runData) error {
	if d.Error == nil || d.Error.At == "" {
		return nil
	}
	v, err := s.cfg.Store.Deployment(ctx, d.Workflow, d.Version)
	if err != nil {
		return err
	}
	d.Source = quote(sources(v), d.Error.At)
	return nil
}

func (s *site) preparedFile(w http.ResponseWriter, r *http.Request) error {
	v, err := s.cfg.Store.Run(r.Context(), keep.RunID(r.PathValue("id")))
	if err != nil {
		return err
	}
	return download(w, string(v.ID)+"-prepared.json", v.Prepared)
}

func runPath(id keep.RunID) string { return "/runs/" + pathEscape(string(id)) }

// pathEscape escapes an id for a path.
func pathEscape(s string) string { return url.PathEscape(s) }
