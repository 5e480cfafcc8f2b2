package web

import (
	"html/template"
	"net/http"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/view"
)

// homeData is what the first page shows: what needs a person comes first.
type homeData struct {
	Questions []card // the newest, without their mutations
	More      int    // open questions that are not shown
	Failing   []*standing
	Doubts    []doubtRow // of items whose job continued without them
	Late      []view.Late
	Unlike    []api.Mismatch // connections that hosts don't have alike
	Totals    totals
	Today     today
	Workflows []workflowRow
	Inputs    []inputRow // the newest
}

// A doubtRow is a call with an unknown outcome that no open run waits for.
type doubtRow struct {
	keep.Mutation
	Why template.HTML
}

// A workflowRow is a workflow in a list.
type workflowRow struct {
	view.Workflow
	Standing *standing // nil: nothing under way
}

// Home shows this many of each.
const (
	homeQuestions = 5
	homeInputs    = 8
)

func (s *site) home(r *http.Request) (page, error) {
	ctx := r.Context()
	p := page{Title: "Home", Section: "home", Watch: feed.Kinds()}
	now := time.Now()
	o, err := view.Read(ctx, s.cfg.Store, now)
	if err != nil {
		return p, err
	}
	open, err := s.openQuestions(ctx)
	if err != nil {
		return p, err
	}
	st := situationOf(o.Situation)
	shown := o.Questions[:min(len(o.Questions), homeQuestions)]
	d := homeData{Workflows: workflowRows(o, st), Late: o.Late(), More: max(open-len(shown), 0)}
	for _, q := range shown {
		d.Questions = append(d.Questions, cardOf(q))
	}
	for _, r := range o.Failing() {
		d.Failing = append(d.Failing, &standing{r})
	}
	for _, m := range o.Doubts {
		d.Doubts = append(d.Doubts, doubtRow{m, waitHTML(o.Limits.WaitOfDoubt(m))})
	}
	if d.Totals, err = s.totals(ctx); err != nil {
		return p, err
	}
	if d.Today, err = s.today(ctx, now); err != nil {
		return p, err
	}
	ins, _, err := s.cfg.Store.Inputs(ctx, keep.InputFilter{}, keep.Page{Limit: homeInputs})
	if err != nil {
		return p, err
	}
	if d.Inputs, err = s.inputRows(ctx, ins, st); err != nil {
		return p, err
	}
	if s.cfg.Hosts != nil {
		if d.Unlike, err = api.ListMismatches(ctx, s.cfg.Hosts); err != nil {
			return p, err
		}
	}
	p.Data = d
	return p, nil
}

// workflowRows returns the workflows of an overview.
func workflowRows(o *view.Overview, st *situation) []workflowRow {
	rows := make([]workflowRow, 0, len(o.Workflows))
	for _, w := range o.Workflows {
		rows = append(rows, workflowRow{w, st.first(w.Name)})
	}
	return rows
}
