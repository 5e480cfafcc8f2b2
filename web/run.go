package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/view"
)

// runsData is the list of runs: those that need a look, then all.
type runsData struct {
	period
	Filter    keep.RunFilter
	Workflows []keep.WorkflowName
	Handlers  []keep.HandlerName
	Statuses  []keep.RunStatus
	Found     view.Found[keep.RunStatus] // by the filter without status; without counts for unfinished ones
	Blocked   []runRow                   // that need a look; only on the first page, if nothing else is looked for
	MoreOpen  bool                       // there are more unfinished runs than were looked at for Blocked
	Rows      []runRow
	Each      bool // every attempt and every idle run has a row of its own
	Pager     pager
}

// A runRow is a run in a list, in the place of all attempts of its chain, or of idle runs.
type runRow struct {
	keep.Run
	Standing *standing // nil: it is over
	Attempts int       // of its chain
	Polls    []idleRow // runs that found nothing, one after another; not nil: the row is about them
}

// An idleRow is how often a handler found nothing.
type idleRow struct {
	Workflow keep.WorkflowName
	Handler  keep.HandlerName
	N        int
	Last     keep.Run // the newest
}

// Lasted is how long the run took; empty: it is not over.
func (r runRow) Lasted() string { return lasted(r.Run) }

// Count is how many idle runs the row stands for.
func (r runRow) Count() int {
	n := 0
	for _, one := range r.Polls {
		n += one.N
	}
	return n
}

// query writes the address of the list with the same filter.
func (d runsData) query(open bool, each string, more ...string) string {
	f, only := d.Filter, ""
	if open {
		only = "1"
	}
	return query(append([]string{"workflow", string(f.Workflow), "status", string(f.Status), "handler", string(f.Handler), "open", only, "q", f.Text,
		"error", f.Error, "since", d.Since, "until", d.Until, "each", each}, more...)...)
}

// Link leads to the list with the same filter, of unfinished runs or of all.
func (d runsData) Link(open bool) string { return "/runs" + d.query(open, "") }

// EachLink leads to the list in which every attempt and every idle run has a row.
func (d runsData) EachLink() string { return "/runs" + d.query(false, "1") }

// mostBlocked bounds the runs that the list shows before all others.
const mostBlocked = 20

// runs lists runs. Numbers are of the filter without its status, since each status is a link with its own.
func (s *site) runs(r *http.Request) (page, error) {
	ctx, q := r.Context(), r.URL.Query()
	f := keep.RunFilter{Workflow: keep.WorkflowName(q.Get("workflow")), Status: keep.RunStatus(q.Get("status")),
		Handler: keep.HandlerName(q.Get("handler")), Open: q.Get("open") != "", Error: q.Get("error"), Text: q.Get("q")}
	p := page{Title: "Runs", Section: "runs", Of: f.Workflow, Watch: []feed.Kind{feed.Run, feed.Escalation}}
	if err := checkFilter(f.Text, f.Status, keep.RunStatuses()); err != nil {
		return p, err
	}
	// Who looks for a state or an error looks for attempts.
	d := runsData{Statuses: keep.RunStatuses(), Each: q.Get("each") != "" || f.Status != "" || f.Error != "" || f.Open}
	var err error
	if d.period, f.Made, err = periodOf(q); err != nil {
		return p, err
	}
	d.Filter = f
	if d.Workflows, err = s.names(ctx); err != nil {
		return p, err
	}
	if d.Handlers, err = s.handlers(ctx, f.Workflow); err != nil {
		return p, err
	}
	if !f.Open {
		every := f
		every.Status = ""
		if d.Found, err = view.CountRuns(ctx, s.cfg.Store, every); err != nil {
			return p, err
		}
	}
	if err := s.listRuns(ctx, &d, q.Get("after"), q.Get("each")); err != nil {
		return p, err
	}
	p.Data = d
	return p, nil
}

// listRuns reads one page of the list.
func (s *site) listRuns(ctx context.Context, d *runsData, after, each string) error {
	// Attempts and idle runs are folded into fewer rows.
	size, f := 2*pageSize, d.Filter
	if d.Each {
		size = pageSize
	}
	runs, next, err := s.cfg.Store.Runs(ctx, view.RunsIn(f), keep.Page{Limit: size, After: after, Bare: true})
	if err != nil {
		return err
	}
	d.Pager = pagerOf("/runs", after, next, "workflow", string(f.Workflow), "status", string(f.Status), "handler", string(f.Handler),
		"open", map[bool]string{true: "1"}[f.Open], "q", f.Text, "error", f.Error, "since", d.Since, "until", d.Until, "each", each)
	if d.Each {
		d.Rows, err = s.runRows(ctx, runs)
		return err
	}
	if after == "" {
		open := f
		open.Open = true
		blocked, _, err := s.cfg.Store.Runs(ctx, open, keep.Page{Limit: mostBlocked + 1, Bare: true})
		if err != nil {
			return err
		}
		d.MoreOpen = len(blocked) > mostBlocked
		blocked = blocked[:min(len(blocked), mostBlocked)]
		blocked = slices.DeleteFunc(blocked, func(r keep.Run) bool { return r.Status == keep.StatusActive })
		if d.Blocked, err = s.runRows(ctx, blocked); err != nil {
			return err
		}
	}
	shown := make(map[keep.RunID]bool)
	for _, r := range d.Blocked {
		shown[r.ID] = true
	}
	runs = slices.DeleteFunc(runs, func(r keep.Run) bool { return replaced(r) || shown[r.ID] })
	rows, err := s.runRows(ctx, runs)
	d.Rows = foldIdle(rows)
	return err
}

// replaced reports whether another attempt took over from a run: the row of that one stands for
// both.
func replaced(r keep.Run) bool {
	return r.Closed && r.Status != keep.StatusCommitted && r.Status != keep.StatusAborted
}

// foldIdle puts idle runs that follow one another into one row.
func foldIdle(rows []runRow) []runRow {
	var out []runRow
	for _, r := range rows {
		if !r.Idle {
			out = append(out, r)
			continue
		}
		// Handlers that poll take turns, so one row has the idle runs of several.
		if n := len(out); n == 0 || out[n-1].Polls == nil {
			out = append(out, runRow{Run: r.Run, Polls: []idleRow{}})
		}
		row := &out[len(out)-1]
		i := slices.IndexFunc(row.Polls, func(o idleRow) bool { return o.Workflow == r.Workflow && o.Handler == r.Handler })
		if i < 0 {
			i = len(row.Polls)
			row.Polls = append(row.Polls, idleRow{r.Workflow, r.Handler, 0, r.Run})
		}
		row.Polls[i].N++
	}
	return out
}

// handlers returns the names of the handlers of a workflow, or of all, sorted.
func (s *site) handlers(ctx context.Context, w keep.WorkflowName) ([]keep.HandlerName, error) {
	states, err := s.cfg.Store.Handlers(ctx, w)
	var names []keep.HandlerName
	for _, h := range states {
		names = append(names, h.Handler)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), maxPlaces)], err
}

// runRows says of each unfinished run what it waits for, and of each how many attempts its
// chain has.
func (s *site) runRows(ctx context.Context, runs []keep.Run) ([]runRow, error) {
	var open []keep.Run
	var chains []keep.RunID
	for _, r := range runs {
		if !r.Closed {
			open = append(open, r)
		}
		if r.ID != r.Chain {
			chains = append(chains, r.Chain)
		}
	}
	explained, err := view.Explain(ctx, s.cfg.Store, open)
	if err != nil {
		return nil, err
	}
	slices.Sort(chains)
	attempts, err := s.cfg.Store.Attempts(ctx, slices.Compact(chains))
	rows := make([]runRow, 0, len(runs))
	for _, r := range runs {
		row := runRow{Run: r, Attempts: attempts[r.Chain]}
		// Explain answers in the order of open, which is that of runs.
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
	Attempt   int        // its place in the chain; 0: before those in Attempts
	Attempts  []keep.Run // the newest of the chain, oldest first
	Made      int        // attempts of the chain
	Standing  *standing  // nil: finished
	Mutations []keep.Mutation
	Moves     map[keep.MutationKey][]keep.Move
	Questions []keep.Escalation // oldest first
	Logs      []keep.LogLine
	Saw       saw
	Inputs    []keep.Input
	Causes    int // inputs that it is about, with those that are not in Inputs
	Older     olderThan
	Story     []entry
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
		// A preview: the page says in the operator's words what the press will cause, and offers nothing
		// that he refuses.
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

// run shows one run with all that belongs to its chain. Attempts come first: mutations, questions and
// the story are told by them.
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
	p.Data = d
	return p, nil
}

// readAttempts reads the newest runs of the chain that the run belongs to, and counts all.
func (s *site) readAttempts(ctx context.Context, d *runData) error {
	chain, _, err := s.cfg.Store.Runs(ctx, keep.RunFilter{Chain: d.Chain}, keep.Page{Limit: maxShown, Bare: true})
	if err != nil {
		return err
	}
	made, err := s.cfg.Store.Attempts(ctx, []keep.RunID{d.Chain})
	if err != nil {
		return err
	}
	slices.Reverse(chain)
	d.Attempts, d.Made = chain, max(made[d.Chain], len(chain)) // one may have come between the two reads
	if i := slices.IndexFunc(chain, func(r keep.Run) bool { return r.ID == d.ID }); i >= 0 {
		d.Attempt = d.Made - len(chain) + i + 1
	}
	return nil
}

// readMutations reads the mutations of the chain, with their history. A retry owns
// the mutation of the attempt before it.
func (s *site) readMutations(ctx context.Context, d *runData) error {
	calls, err := s.cfg.Store.Calls(ctx, d.Chain, maxShown+1)
	if err != nil {
		return err
	}
	d.Mutations, d.Older.Calls = newest(calls)
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
	if d.Closed {
		return nil
	}
	explained, err := view.Explain(ctx, s.cfg.Store, []keep.Run{d.Run})
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
	d.Causes = len(ids)
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
	d.Source = quote(v.Sources(), d.Error.At)
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

// lasted is how long an attempt that is over took; empty: it is not over.
func lasted(r keep.Run) string {
	if !r.Closed {
		return ""
	}
	return took(float64(r.UpdatedAt.Sub(r.CreatedAt).Milliseconds()))
}

// Later is the attempt that took over from the run; nil: none did, or it is not among the newest.
func (d *runData) Later() *keep.Run {
	i := slices.IndexFunc(d.Attempts, func(r keep.Run) bool { return lifecycle.Before(r) == d.ID })
	if i < 0 {
		return nil
	}
	return &d.Attempts[i]
}

// MoreInputs is how many inputs the run is about that the page does not list.
func (d *runData) MoreInputs() int { return max(d.Causes-maxShown, 0) }

// Short reports whether what the page tells of the chain begins in its middle.
func (d *runData) Short() bool {
	return d.Made > len(d.Attempts) || d.Older.Calls || len(d.Questions) == maxShown
}

// Said reports whether the page says the message of the last error already, where it says what
// the run waits for.
func (d *runData) Said() bool {
	return d.Standing != nil && d.Error != nil && strings.Contains(d.Standing.Wait.String(), d.Error.Message)
}

// Others are the attempts, without the error of this one, which the page has said.
func (d *runData) Others() []keep.Run {
	list := slices.Clone(d.Attempts)
	for i, r := range list {
		if r.ID == d.ID {
			list[i].Error = nil
		}
	}
	return list
}
