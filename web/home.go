package web

import (
	"cmp"
	"context"
	"html/template"
	"net/http"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/view"
)

// homeData is what the first page shows: what needs a person comes first.
type homeData struct {
	Causes    []causeRow // of the open questions, the most frequent first
	More      int        // causes that are not shown
	Over      overTime
	Failing   []*standing
	Doubts    []doubtRow // of items whose job continued without them
	Late      []view.Late
	Refusal   *refusedSetting // by the store, of what the host writes; nil: it takes that
	Refused   *refusedSetting // a change of keep.toml that is not in force; nil: there is none
	Unlike    []api.Mismatch  // connections that hosts don't have alike
	Missing   []view.Missing  // workflows that no host can execute
	Stranded  []view.Stranded
	Totals    totals
	Today     today
	Workflows []workflowRow // those that need a look first
	Others    int           // workflows that are not shown
	Inputs    []inputRow    // the newest

	MoreFailing int // runs that are not shown
}

// A causeRow is what several open questions have in common, with the newest of them.
type causeRow struct {
	view.Cause
	Newest card
	Of     keep.WorkflowName // the only one whose questions are meant; empty: all
}

// Word is the kind in words.
func (c causeRow) Word() string { return kindWord(c.Kind) }

// Alike reports whether the questions are of one kind and about different things, such as versions of different workflows: nothing
// caused all of them.
func (c causeRow) Alike() bool {
	return c.OfVersions() || c.Kind == keep.AskToolChanged
}

// OfVersions reports whether the questions are about versions, of which each is answered on its page alone.
func (c causeRow) OfVersions() bool { return c.Kind == keep.AskGrant || c.Kind == keep.AskProposal }

// Query names the cause in an address.
func (c causeRow) Query() string { return query("cause", c.Key(), "workflow", string(c.Of)) }

// Link leads to the question, or to all of the cause.
func (c causeRow) Link() string {
	if c.Count == 1 {
		return "/inbox/" + pathEscape(string(c.Example))
	}
	return "/inbox" + c.Query()
}

// A doubtRow is a call with an unknown outcome that no open run waits for.
type doubtRow struct {
	keep.Mutation
	Why template.HTML
}

// A workflowRow is a workflow in a list.
type workflowRow struct {
	view.Workflow
	Standing *standing     // nil: nothing under way
	Heat     template.HTML // what it did over time; empty: nothing was counted
}

// Home shows this many of each.
const (
	homeCauses    = 6
	homeFailing   = 5
	homeWorkflows = 40
	homeInputs    = 8
)

// home shows what needs a person before anything else. Runs, questions and workflows come from one
// overview, which the other lists of pages are made of, too.
func (s *site) home(r *http.Request) (page, error) {
	ctx := r.Context()
	p := page{Title: "Home", Section: "home", Watch: feed.Kinds()}
	now := time.Now()
	o, err := view.Read(ctx, s.cfg.Store, now)
	if err != nil {
		return p, err
	}
	st := situationOf(o.Situation)
	d := homeData{Late: o.Late(), Refused: s.refused(), Stranded: o.Stranded()}
	if s.cfg.Refusal != nil {
		if r := s.cfg.Refusal(); r != nil {
			d.Refusal = &refusedSetting{time.Time(r.Since), r.Reason}
		}
	}
	if d.Over, err = s.overTime(ctx, r.URL.Query().Get("over"), waitsNow(o), now); err != nil {
		return p, err
	}
	causes := o.Causes()
	d.Causes = causeRows(causes[:min(len(causes), homeCauses)], o.Newest)
	d.More = len(causes) - len(d.Causes)
	rows := workflowRows(o, st, d.Over)
	slices.SortStableFunc(rows, func(a, b workflowRow) int { return cmp.Compare(b.urgency(), a.urgency()) })
	d.Workflows = rows[:min(len(rows), homeWorkflows)]
	d.Others = len(rows) - len(d.Workflows)
	failing := o.Failing()
	d.MoreFailing = max(len(failing)-homeFailing, 0)
	for _, r := range failing[:len(failing)-d.MoreFailing] {
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
	if d.Missing, err = s.cfg.Executors.Missing(ctx, s.cfg.Store, o.Workflows...); err != nil {
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
func workflowRows(o *view.Overview, st *situation, over overTime) []workflowRow {
	rows := make([]workflowRow, 0, len(o.Workflows))
	for _, w := range o.Workflows {
		rows = append(rows, workflowRow{w, st.first(w.Name), over.Heat(w.Name)})
	}
	return rows
}

// urgency says how much a workflow needs a look: 2 if it is blocked, 1 if it moves.
func (w workflowRow) urgency() int {
	switch {
	case w.Standing == nil:
		return 0
	case w.Standing.Status == keep.StatusActive:
		return 1
	}
	return 2
}

// causeRows returns causes with the newest question of each, which is among these. One that was deleted meanwhile is left out.
func causeRows(causes []view.Cause, newest []keep.Escalation) []causeRow {
	var rows []causeRow
	for _, c := range causes {
		if i := slices.IndexFunc(newest, func(q keep.Escalation) bool { return q.ID == c.Example }); i >= 0 {
			rows = append(rows, causeRow{Cause: c, Newest: cardOf(newest[i])})
		}
	}
	return rows
}

// readCauseRows is causeRows with questions that it reads.
func (s *site) readCauseRows(ctx context.Context, causes []view.Cause) ([]causeRow, error) {
	ids := make([]keep.EscalationID, 0, len(causes))
	for _, c := range causes {
		ids = append(ids, c.Example)
	}
	newest, err := s.cfg.Store.QuestionsByID(ctx, ids)
	return causeRows(causes, newest), err
}
