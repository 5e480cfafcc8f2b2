package web

import (
	"context"
	"net/http"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/feed"
)

// homeData is what the first page shows: what needs somebody comes first.
type homeData struct {
	Questions []card // the newest, without their mutations
	More      int    // open questions that are not shown
	Failing   []*standing
	Late      []late
	Totals    totals
	Today     today
	Workflows []workflowRow
	Inputs    []inputRow // the newest
}

// A late is something that should have happened by now.
type late struct {
	Workflow keep.WorkflowName
	What     string
	Run      keep.RunID // empty: a handler
	Due      time.Time
}

// A workflowRow is a workflow in a list.
type workflowRow struct {
	keep.Workflow
	Standing *standing // nil: nothing under way
	Pending  int       // events that wait or are reserved
	Next     time.Time // when a producer or job is due; zero: none is
}

// lateAfter is how far behind its time something may be.
const lateAfter = time.Minute

// Home shows this many of each.
const (
	homeQuestions = 5
	homeInputs    = 8
)

func (s *site) home(r *http.Request) (page, error) {
	ctx := r.Context()
	p := page{Title: "Home", Section: "home", Watch: feed.Kinds()}
	st, err := s.situation(ctx, nil)
	if err != nil {
		return p, err
	}
	d := homeData{More: max(len(st.questions)-homeQuestions, 0)}
	for _, q := range st.questions[:min(len(st.questions), homeQuestions)] {
		d.Questions = append(d.Questions, cardOf(q))
	}
	if d.Workflows, d.Late, err = s.workflowRows(ctx, st, time.Now()); err != nil {
		return p, err
	}
	for _, w := range d.Workflows {
		if r := w.Standing; r != nil && r.Question == nil && (r.Run.Error != nil || r.Run.Status != keep.StatusActive) {
			d.Failing = append(d.Failing, r)
		}
	}
	if d.Totals, err = s.totals(ctx); err != nil {
		return p, err
	}
	if d.Today, err = s.today(ctx, time.Now()); err != nil {
		return p, err
	}
	ins, _, err := s.cfg.Store.Inputs(ctx, keep.InputFilter{}, keep.Page{Limit: homeInputs})
	if err != nil {
		return p, err
	}
	if d.Inputs, err = s.inputRows(ctx, ins, st); err != nil {
		return p, err
	}
	p.Data = d
	return p, nil
}

// workflowRows reads the list of workflows, and what of them is late.
func (s *site) workflowRows(ctx context.Context, st *situation, now time.Time) (rows []workflowRow, lates []late, err error) {
	all, err := s.cfg.Store.Workflows(ctx)
	if err != nil {
		return nil, nil, err
	}
	counts, err := s.cfg.Store.TopicCounts(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	pending := make(map[keep.WorkflowName]int)
	for _, c := range counts {
		pending[c.Workflow] += c.Pending + c.Reserved
	}
	for _, w := range all {
		row := workflowRow{Workflow: w, Standing: st.runs[w.Name], Pending: pending[w.Name]}
		states, err := s.cfg.Store.Handlers(ctx, w.Name)
		if err != nil {
			return nil, nil, err
		}
		for _, h := range states {
			if !h.NextAt.IsZero() && (row.Next.IsZero() || h.NextAt.Before(row.Next)) {
				row.Next = h.NextAt
			}
		}
		rows = append(rows, row)
		lates = append(lates, lateOf(row, states, now)...)
	}
	return rows, lates, nil
}

// lateOf returns what of a workflow should have happened by now. While a run is
// open the handlers are not late: they wait for it.
func lateOf(w workflowRow, states []keep.HandlerState, now time.Time) []late {
	overdue := func(t time.Time) bool { return !t.IsZero() && now.Sub(t) > lateAfter }
	if r := w.Standing; r != nil {
		if overdue(r.Run.RetryAt) {
			return []late{{w.Name, "the next attempt of " + string(r.Run.Handler), r.Run.ID, r.Run.RetryAt}}
		}
		return nil
	}
	if w.Paused {
		return nil
	}
	var out []late
	for _, h := range states {
		if h.Kind != keep.Consumer && overdue(h.NextAt) {
			out = append(out, late{w.Name, string(h.Handler), "", h.NextAt})
		}
	}
	return out
}
