package web

import (
	"context"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/feed"
)

// runsData is the list of runs.
type runsData struct {
	Filter    keep.RunFilter
	Workflows []keep.WorkflowName
	Statuses  []keep.RunStatus
	Counts    map[keep.RunStatus]int // of the filter without status; nil: not counted
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
	return "/runs" + query("workflow", string(f.Workflow), "status", string(f.Status), "handler", string(f.Handler), "open", only, "q", f.Text)
}

func (s *site) runs(r *http.Request) (page, error) {
	ctx, q := r.Context(), r.URL.Query()
	f := keep.RunFilter{Workflow: keep.WorkflowName(q.Get("workflow")), Status: keep.RunStatus(q.Get("status")),
		Handler: keep.HandlerName(q.Get("handler")), Open: q.Get("open") != "", Text: q.Get("q")}
	p := page{Title: "Runs", Section: "runs", Of: f.Workflow, Watch: []feed.Kind{feed.Run, feed.Escalation}}
	if f.Status != "" && !slices.Contains(keep.RunStatuses(), f.Status) {
		return p, refusef("there is no status %q", cut(40, string(f.Status)))
	}
	d := runsData{Filter: f, Statuses: keep.RunStatuses()}
	var err error
	if d.Workflows, err = s.names(ctx); err != nil {
		return p, err
	}
	if !f.Open {
		d.Counts, err = counted(ctx, f.Text, false, func(ctx context.Context) (map[keep.RunStatus]int, error) {
			return s.cfg.Store.CountRuns(ctx, keep.RunFilter{Workflow: f.Workflow, Handler: f.Handler, Text: f.Text})
		})
		if err != nil {
			return p, err
		}
	}
	runs, next, err := s.cfg.Store.Runs(ctx, f, keep.Page{Limit: pageSize, After: q.Get("after"), Bare: true})
	if err != nil {
		return p, err
	}
	for _, v := range runs {
		row := runRow{Run: v}
		if !v.Closed {
			if row.Standing, err = s.standing(ctx, v, nil); err != nil {
				return p, err
			}
		}
		d.Rows = append(d.Rows, row)
	}
	d.Pager = pagerOf("/runs", q.Get("after"), next, "workflow", string(f.Workflow), "status", string(f.Status),
		"handler", string(f.Handler), "open", q.Get("open"), "q", f.Text)
	p.Data = d
	return p, nil
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
	Inputs    []keep.Input
	Story     []moment
	Timeline  template.HTML
	Source    *excerpt // where it failed; nil: unknown
	Prepared  *payload
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
		s.readAttempts, s.readMutations, s.readQuestions, s.readCauses, s.readSource,
	} {
		if err := read(ctx, d); err != nil {
			return p, err
		}
	}
	if d.Logs, err = s.cfg.Store.Logs(ctx, v.ID); err != nil {
		return p, err
	}
	if len(v.Prepared) > 0 {
		prepared := payloadOf("What prepare returned", v.Prepared, runPath(v.ID)+"/prepared")
		d.Prepared = &prepared
	}
	d.Story = story(d)
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
	d.Moves = make(map[keep.MutationKey][]keep.Move)
	for _, r := range d.Attempts {
		ms, _, err := s.cfg.Store.Mutations(ctx, keep.MutationFilter{Run: r.ID}, keep.Page{Limit: maxShown, Bare: true})
		if err != nil {
			return err
		}
		slices.Reverse(ms)
		d.Mutations = append(d.Mutations, ms...)
	}
	d.Mutations = d.Mutations[:min(len(d.Mutations), maxShown)]
	for _, m := range d.Mutations {
		moves, err := s.cfg.Store.History(ctx, m.Key)
		if err != nil {
			return err
		}
		d.Moves[m.Key] = moves
	}
	return nil
}

// readQuestions reads what people were asked about the chain, and how the run stands.
func (s *site) readQuestions(ctx context.Context, d *runData) error {
	var open []keep.Escalation
	for _, r := range d.Attempts {
		qs, _, err := s.cfg.Store.Escalations(ctx, keep.EscalationFilter{Run: r.ID}, keep.Page{Limit: maxShown, Bare: true})
		if err != nil {
			return err
		}
		slices.Reverse(qs)
		d.Questions = append(d.Questions, qs...)
	}
	for _, q := range d.Questions {
		if q.ClosedAt.IsZero() {
			open = append(open, q)
		}
	}
	if d.Closed {
		return nil
	}
	var err error
	d.Standing, err = s.standing(ctx, d.Run, open)
	return err
}

// readCauses reads the inputs that the run is about.
func (s *site) readCauses(ctx context.Context, d *runData) error {
	ids, err := s.cfg.Store.Causes(ctx, d.Chain)
	if err != nil {
		return err
	}
	for _, id := range ids[:min(len(ids), maxShown)] {
		in, err := s.cfg.Store.Input(ctx, id)
		if err != nil {
			return err
		}
		d.Inputs = append(d.Inputs, in)
	}
	return nil
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
