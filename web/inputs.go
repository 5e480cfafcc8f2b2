package web

import (
	"cmp"
	"context"
	"html/template"
	"net/http"
	"net/url"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/view"
)

// pageSize is how many rows a list shows at once.
const pageSize = 50

// An inputRow is an input with what was done about it.
type inputRow struct {
	keep.Input
	State    string // in a word or two
	Tone     string
	Why      template.HTML   // a sentence, while it is pending
	Standing *standing       // the run that is about it; nil: none
	Bar      []segment       // its events, oldest first
	Outputs  []keep.Mutation // oldest first
	More     int             // outputs that are not shown
}

// A segment is one event of an input, as a part of its bar.
type segment struct{ Tone, Text string }

// A row shows this many events and outputs of an input.
const (
	maxBar     = view.NewestEvents
	maxOutputs = 4
)

// inputRows reads what was done about inputs.
func (s *site) inputRows(ctx context.Context, ins []keep.Input, st *situation) ([]inputRow, error) {
	progress := make(map[keep.InputID]keep.Progress)
	if len(ins) > 0 {
		ids := make([]keep.InputID, len(ins))
		for i, in := range ins {
			ids[i] = in.ID
		}
		var err error
		if progress, err = s.cfg.Store.Progress(ctx, ids, maxBar, maxOutputs); err != nil {
			return nil, err
		}
	}
	var chains []keep.RunID
	for _, done := range progress {
		for _, ev := range done.Events {
			if ev.Status == keep.EventPending {
				chains = append(chains, ev.ReservedBy)
			}
		}
	}
	if err := s.withChains(ctx, st, chains); err != nil {
		return nil, err
	}
	rows := make([]inputRow, 0, len(ins))
	for _, in := range ins {
		rows = append(rows, inputRowOf(in, progress[in.ID], st))
	}
	return rows, nil
}

// inputRowOf is the row of an input. The store has events and outputs newest first, and a bar reads
// from left to right.
func inputRowOf(in keep.Input, done keep.Progress, st *situation) inputRow {
	row := inputRow{Input: in, State: word(view.InputState(in.Status, view.SkippedOf(done.Events, maxBar))), Tone: tone(in.Status), Outputs: done.Outputs, More: done.Total - len(done.Outputs)}
	slices.Reverse(row.Outputs)
	for _, ev := range slices.Backward(done.Events) {
		row.Bar = append(row.Bar, segmentOf(ev, st.chains[ev.ReservedBy]))
	}
	if in.Status == keep.InputPending {
		row.explain(st, done.Events)
	}
	return row
}

// explain says what a pending input waits for: events are what it caused, newest first.
func (row *inputRow) explain(st *situation, events []keep.Event) {
	var r *standing
	for _, ev := range events {
		if ev.Status == keep.EventPending && ev.ReservedBy != "" {
			r = cmp.Or(st.chains[ev.ReservedBy], r) // of the oldest
		}
	}
	if r == nil {
		row.State, row.Why = "waiting", template.HTML(template.HTMLEscapeString(st.waits(row.Workflow)))
		return
	}
	row.Standing, row.Why = r, r.Why()
	row.State, row.Tone = word(r.Run.Status), tone(r.Run.Status)
	if r.Question != nil {
		row.State, row.Tone = "needs you", "bad"
	}
}

// segmentOf shows how far an event came. r is the open run that has it; nil: none has.
func segmentOf(ev keep.Event, r *standing) segment {
	switch {
	case ev.Status == keep.EventConsumed:
		return segment{"ok", string(ev.Topic) + ": consumed"}
	case ev.Status == keep.EventSkipped:
		return segment{"off", string(ev.Topic) + ": skipped"}
	case ev.ReservedBy == "":
		return segment{"", string(ev.Topic) + ": pending"}
	case r != nil && r.Run.Status != keep.StatusActive:
		return segment{"bad", string(ev.Topic) + ": reserved, " + word(r.Run.Status)}
	}
	return segment{"run", string(ev.Topic) + ": reserved"}
}

// inputsData is the list of inputs.
type inputsData struct {
	Filter    inputQuery
	Workflows []keep.WorkflowName
	Counts    []inputCount // of each status, with the rest of the filter
	More      bool         // there are more: the numbers are lower bounds
	Rows      []inputRow
	Pager     pager
	MaySkip   int // pending inputs that the filter matches; -1: not counted
}

// An inputCount is how many inputs have a status.
type inputCount struct {
	Status keep.InputStatus // empty: any
	Count  int
	Link   string
}

// An inputQuery is the filter of the list, as its URL says it.
type inputQuery struct {
	keep.InputFilter
	period
	After string
}

// parseInputQuery reads the filter of the list, and of the skip of all that match it.
func parseInputQuery(q url.Values) (inputQuery, error) {
	f := inputQuery{After: q.Get("after")}
	f.Workflow, f.Status = keep.WorkflowName(q.Get("workflow")), keep.InputStatus(q.Get("status"))
	f.Text = q.Get("q")
	var err error
	if f.period, f.Made, err = periodOf(q); err != nil {
		return f, err
	}
	return f, checkFilter(f.Text, f.Status, keep.InputStatuses())
}

// Query writes the filter with another status, from the first page on.
func (f inputQuery) Query(status keep.InputStatus) string {
	return query("q", f.Text, "workflow", string(f.Workflow), "status", string(status), "since", f.Since, "until", f.Until)
}

// query writes pairs of names and values, without those that are empty.
func query(pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// A pager leads through the pages of a list. To go back is the browser's.
type pager struct {
	First string // link to the first page; empty: this is it
	Next  string // link to the next page; empty: this is the last
}

// pagerOf makes the links of a list at path. pairs are its filter.
func pagerOf(path, after, next string, pairs ...string) pager {
	var p pager
	if after != "" {
		p.First = path + query(pairs...)
	}
	if next != "" {
		p.Next = path + query(append(pairs, "after", next)...)
	}
	return p
}

// inputs lists what came in. It watches more than inputs, since the row of a pending one says what its run,
// its call or its question waits for.
func (s *site) inputs(r *http.Request) (page, error) {
	ctx := r.Context()
	p := page{Title: "Inputs", Section: "inputs", Watch: []feed.Kind{feed.Input, feed.Run, feed.Mutation, feed.Escalation, feed.Workflow}}
	f, err := parseInputQuery(r.URL.Query())
	if err != nil {
		return p, err
	}
	p.Of = f.Workflow
	d := inputsData{Filter: f}
	if d.Workflows, err = s.names(ctx); err != nil {
		return p, err
	}
	if d.Counts, d.More, err = s.inputCounts(ctx, f); err != nil {
		return p, err
	}
	d.MaySkip = d.pending()
	ins, next, err := s.cfg.Store.Inputs(ctx, f.InputFilter, keep.Page{Limit: pageSize, After: f.After})
	if err != nil {
		return p, err
	}
	st, err := s.situation(ctx, f.Workflow)
	if err != nil {
		return p, err
	}
	if d.Rows, err = s.inputRows(ctx, ins, st); err != nil {
		return p, err
	}
	d.Pager = pagerOf("/inputs", f.After, next, "q", f.Text, "workflow", string(f.Workflow), "status", string(f.Status),
		"since", f.Since, "until", f.Until)
	p.Data = d
	return p, nil
}

// pending returns how many of the inputs that match are pending and may be skipped at once;
// -1: not counted. Those of a period are not skipped together.
func (d inputsData) pending() int {
	if !d.Filter.Made.IsZero() {
		return 0
	}
	if d.Filter.Status != "" && d.Filter.Status != keep.InputPending {
		return 0
	}
	if d.More {
		return -1
	}
	for _, c := range d.Counts {
		if c.Status == keep.InputPending {
			return c.Count
		}
	}
	return 0
}

// names returns the names of all workflows.
func (s *site) names(ctx context.Context) ([]keep.WorkflowName, error) {
	all, err := s.cfg.Store.Workflows(ctx)
	names := make([]keep.WorkflowName, 0, len(all))
	for _, w := range all {
		names = append(names, w.Name)
	}
	return names, err
}

// inputData is one input, and the whole chain from it to its outputs.
type inputData struct {
	inputRow
	Events   []keep.Event // newest first
	More     bool         // there are more events than shown
	Older    olderThan
	MaySkip  bool
	Redone   int        // how often its events were done again, which a form sends back
	Large    bool       // there are so many events that this is not counted, and no form is shown
	Attempts []keep.Run // that tried its events, newest first
	Acts     []view.Act // what people did with it beside answers to questions, oldest first
	Skips    []card     // questions by whose answers events were skipped, newest first
	Drawing  drawing
}

// An olderThan is what is left out of the lists of a page, which have the newest.
type olderThan struct{ Calls, Runs bool }

// newest returns the first of a list that was read with one more than a page shows, and whether there are more.
func newest[T any](list []T) ([]T, bool) {
	return list[:min(len(list), maxShown)], len(list) > maxShown
}

// maxShown bounds what belongs to one thing and is listed on its page.
const maxShown = 100

// input shows the whole chain of an input, each part of it up to maxShown. d.Outputs replaces the few
// that the row of a list has.
func (s *site) input(r *http.Request) (page, error) {
	ctx := r.Context()
	in, err := s.cfg.Store.Input(ctx, keep.InputID(r.PathValue("id")))
	if err != nil {
		return page{}, err
	}
	p := page{Title: in.Title, Section: "inputs", Of: in.Workflow,
		Watch: []feed.Kind{feed.Input, feed.Event, feed.Run, feed.Mutation, feed.Escalation, feed.Workflow}}
	st, err := s.situation(ctx, in.Workflow)
	if err != nil {
		return p, err
	}
	rows, err := s.inputRows(ctx, []keep.Input{in}, st)
	if err != nil {
		return p, err
	}
	d := inputData{inputRow: rows[0], MaySkip: in.Status == keep.InputPending}
	var next string
	if d.Outputs, next, err = s.cfg.Store.Mutations(ctx, keep.MutationFilter{Input: in.ID}, keep.Page{Limit: maxShown, Bare: true}); err != nil {
		return p, err
	}
	slices.Reverse(d.Outputs)
	d.Older.Calls = next != ""
	events, next, err := s.cfg.Store.Events(ctx, keep.EventFilter{Workflow: in.Workflow, Input: in.ID}, keep.Page{Limit: maxShown, Bare: true})
	if err != nil {
		return p, err
	}
	d.Events, d.More = events, next != ""
	if d.Redone, d.Large, err = s.redone(ctx, in, events, next); err != nil {
		return p, err
	}
	runs, err := s.cfg.Store.RunsOf(ctx, in.ID, maxShown+1)
	if err != nil {
		return p, err
	}
	d.Attempts, d.Older.Runs = newest(runs)
	if d.Acts, err = view.Acts(ctx, s.cfg.Store, keep.Subject{Workflow: in.Workflow, Kind: keep.AboutInput, ID: string(in.ID)}); err != nil {
		return p, err
	}
	d.Drawing = drawChain(d)
	if view.SkippedOf(events, maxShown) != view.SkippedNone {
		d.Skips, err = s.skips(ctx, d.Attempts)
	}
	p.Data = d
	return p, err
}

// redone returns how often the events of an input were done again, of which the newest are read already. If there are more than fit one
// page after those, large is set.
func (s *site) redone(ctx context.Context, in keep.Input, events []keep.Event, next string) (n int, large bool, err error) {
	n = operator.Redone(events)
	if next == "" {
		return n, false, nil
	}
	older, next, err := s.cfg.Store.Events(ctx, keep.EventFilter{Workflow: in.Workflow, Input: in.ID}, keep.Page{Limit: keep.MaxPage, After: next, Bare: true})
	return n + operator.Redone(older), next != "", err
}

// maxSkips bounds the chains of which an input says who skipped their events.
const maxSkips = 20

// skips reads by which answers events of an input were skipped, of up to maxSkips chains of its runs.
func (s *site) skips(ctx context.Context, attempts []keep.Run) ([]card, error) {
	var chains []keep.RunID
	for _, r := range attempts {
		if !slices.Contains(chains, r.Chain) && len(chains) < maxSkips {
			chains = append(chains, r.Chain)
		}
	}
	var out []card
	for _, chain := range chains {
		qs, err := s.cfg.Store.EscalationsOf(ctx, chain, maxSkips)
		if err != nil {
			return nil, err
		}
		for _, q := range qs {
			if q.Decision != nil && (q.Decision.Action == keep.Skip || q.Decision.Action == keep.Reject) {
				out = append(out, cardOf(q))
			}
		}
	}
	return out, nil
}

// skipInput leaves an input undone, as skipEvent does an event.
func (s *site) skipInput(r *http.Request) (to, did string, err error) {
	in, err := s.cfg.Store.Input(r.Context(), keep.InputID(r.PathValue("id")))
	if err != nil {
		return "", "", err
	}
	redone, err := shownNumber(r, "redone")
	if err != nil {
		return "", "", err
	}
	d, err := decisionOf(r)
	if err != nil {
		return "", "", err
	}
	res, err := s.cfg.Actor.SkipShownInput(r.Context(), in.Workflow, in.ID, redone, d)
	if err != nil {
		return "", "", err
	}
	did = "skipped"
	if res.TooLate > 0 {
		did = "too-late"
	}
	return "/inputs/" + url.PathEscape(string(in.ID)), did, nil
}

// unskipInput undoes the skip of an input. Events whose calls are in doubt stay skipped, and the notice
// says so.
func (s *site) unskipInput(r *http.Request) (to, did string, err error) {
	in, err := s.cfg.Store.Input(r.Context(), keep.InputID(r.PathValue("id")))
	if err != nil {
		return "", "", err
	}
	redone, err := shownNumber(r, "redone")
	if err != nil {
		return "", "", err
	}
	d, err := decisionOf(r)
	if err != nil {
		return "", "", err
	}
	res, err := s.cfg.Actor.UnskipShownInput(r.Context(), in.Workflow, in.ID, redone, d)
	if did = "unskipped"; len(res.Kept) > 0 {
		did = "some-unskipped"
	}
	return "/inputs/" + url.PathEscape(string(in.ID)), did, err
}
