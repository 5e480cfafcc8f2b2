package view

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/store"
)

// An Overview is how everything stands at one time.
type Overview struct {
	*Situation                      // as ReadSituations returns it
	Groups     []keep.QuestionGroup // of the open questions, that with the newest first; at most MaxGroups
	Newest     []keep.Escalation    // question of each group, newest first
	Waiting    int                  // open runs that are not executed
	Asked      int                  // open questions
	Workflows  []Workflow           // by name
	GivenUp    []keep.Notice        // of open questions; at most MaxQuestions
	Doubts     []keep.Mutation      // calls in doubt that no open run waits for; at most MaxQuestions of a state
	Topics     []keep.TopicCount    // by workflow and topic

	Connections []Connection // that are limited or were shut, by name
	Limits      Limits
}

// A Workflow is a workflow in an overview.
type Workflow struct {
	keep.Workflow
	Deployed keep.Deployment // the version in force, without its code
	Handlers []Handler       // in the order of the script
	Open     []*Run          // oldest first
	Pending  int             // events that are free
	Reserved int             // events that a run has
	Late     []Late
}

// A Handler is a handler of the version in force, with what the host remembers of it.
type Handler struct {
	keep.Handler
	State keep.HandlerState // its zero value: it has not run yet
}

// Next returns when the handler is due; zero: when an event comes, or at once.
func (h Handler) Next() time.Time {
	switch {
	case !h.State.RequestedAt.IsZero():
		return h.State.RequestedAt
	case h.Kind == keep.Consumer:
		return h.State.WakeAt
	}
	return h.State.NextAt
}

// Next returns when the first producer or job is due; zero: none is planned.
func (w Workflow) Next() time.Time {
	var first time.Time
	for _, h := range w.Handlers {
		if at := h.Next(); h.Kind != keep.Consumer && !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// ReadWorkflows reads how the workflows stand at now: all of an overview but what is given up, in doubt and limited.
func ReadWorkflows(ctx context.Context, s Store, now time.Time) (*Overview, error) {
	all, err := s.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	o := new(Overview)
	if err = o.readOpen(ctx, s, all); err != nil {
		return nil, err
	}
	if o.Topics, err = s.TopicCounts(ctx, ""); err != nil {
		return nil, err
	}
	return o, o.join(ctx, s, all, now)
}

// Read reads how everything stands at now.
func Read(ctx context.Context, s Store, now time.Time) (*Overview, error) {
	o, err := ReadWorkflows(ctx, s, now)
	if err != nil {
		return nil, err
	}
	if o.GivenUp, err = s.GivenUp(ctx, MaxQuestions); err != nil {
		return nil, err
	}
	if o.Doubts, err = doubts(ctx, s, o.Situation); err != nil {
		return nil, err
	}
	var open []keep.Run
	for _, runs := range o.Runs {
		for _, r := range runs {
			open = append(open, r.Run)
		}
	}
	if o.Limits, err = readLimits(ctx, s); err != nil {
		return nil, err
	}
	o.Connections = connectionsOf(o.Limits, open)
	return o, nil
}

// readOpen reads what is under way, and counts it.
func (o *Overview) readOpen(ctx context.Context, s Store, all []keep.Workflow) (err error) {
	if o.Situation, o.Groups, o.Newest, err = situations(ctx, s, all); err != nil {
		return err
	}
	counts, err := s.CountRuns(ctx, keep.RunFilter{Open: true})
	if err != nil {
		return err
	}
	for status, n := range counts {
		if status != keep.StatusActive {
			o.Waiting += n
		}
	}
	for _, g := range o.Groups {
		o.Asked += g.Count
	}
	if len(o.Groups) < MaxGroups {
		return nil
	}
	kinds, err := s.CountEscalations(ctx, keep.EscalationFilter{Open: true})
	o.Asked = 0
	for _, n := range kinds {
		o.Asked += n
	}
	return err
}

// Causes returns what the open questions are about, the most frequent first.
func (o *Overview) Causes() []Cause { return CausesOf(o.Groups, "") }

// join reads what is in force, and joins it with what was read before.
func (o *Overview) join(ctx context.Context, s Store, all []keep.Workflow, now time.Time) error {
	current, err := s.Current(ctx)
	if err != nil {
		return err
	}
	states, err := s.Handlers(ctx, "")
	if err != nil {
		return err
	}
	deployed := make(map[keep.WorkflowName]keep.Deployment, len(current))
	for _, d := range current {
		deployed[d.Workflow] = d
	}
	remembered := make(map[keep.WorkflowName][]keep.HandlerState, len(all))
	for _, h := range states {
		remembered[h.Workflow] = append(remembered[h.Workflow], h)
	}
	waiting := make(map[keep.WorkflowName]keep.TopicCount, len(all))
	for _, t := range o.Topics {
		sum := waiting[t.Workflow]
		sum.Pending, sum.Reserved = sum.Pending+t.Pending, sum.Reserved+t.Reserved
		waiting[t.Workflow] = sum
	}
	for _, w := range all {
		v := WorkflowOf(w, deployed[w.Name], remembered[w.Name], o.Runs[w.Name], now)
		v.Pending, v.Reserved = waiting[w.Name].Pending, waiting[w.Name].Reserved
		o.Workflows = append(o.Workflows, v)
	}
	return nil
}

// WorkflowOf joins a workflow with its version in force, what the host remembers of
// its handlers, and its open runs.
func WorkflowOf(w keep.Workflow, d keep.Deployment, states []keep.HandlerState, open []*Run, now time.Time) Workflow {
	v := Workflow{Workflow: w, Deployed: d, Open: open}
	known := make(map[keep.HandlerName]keep.HandlerState, len(states))
	for _, h := range states {
		known[h.Handler] = h
	}
	for _, h := range d.Definition.Handlers {
		v.Handlers = append(v.Handlers, Handler{h, known[h.Name]})
	}
	v.Late = late(v, now)
	return v
}

// Readers returns the consumers that subscribe to a topic.
func (o *Overview) Readers(w keep.WorkflowName, t keep.TopicName) []keep.HandlerName {
	i := slices.IndexFunc(o.Workflows, func(v Workflow) bool { return v.Name == w })
	if i < 0 {
		return nil
	}
	return ReadersOf(o.Workflows[i].Deployed.Definition, t)
}

// Unread reports whether no consumer of the current version of a workflow subscribes to a
// topic. Of a workflow that is not there it is false.
func Unread(ctx context.Context, s store.Workflows, w keep.WorkflowName, t keep.TopicName) (bool, error) {
	_, d, err := inForce(ctx, s, w)
	return err == nil && d.Workflow != "" && len(ReadersOf(d.Definition, t)) == 0, err
}

// inForce returns a workflow with its version in force; the zero ones if it is not there.
func inForce(ctx context.Context, s store.Workflows, name keep.WorkflowName) (w keep.Workflow, d keep.Deployment, err error) {
	if w, err = s.Workflow(ctx, name); err == nil {
		d, err = s.Deployment(ctx, name, w.Version)
	}
	if errors.Is(err, keep.ErrNotFound) {
		err = nil
	}
	return w, d, err
}

// ReadersOf returns the consumers of a script that subscribe to a topic.
func ReadersOf(def keep.Definition, t keep.TopicName) []keep.HandlerName {
	var names []keep.HandlerName
	for _, h := range def.Handlers {
		if slices.Contains(h.Subscribe, t) {
			names = append(names, h.Name)
		}
	}
	return names
}

// Failing returns the open runs that have stopped and about which nobody is asked, by workflow: what the
// others wait for is in Questions.
func (o *Overview) Failing() []*Run {
	var out []*Run
	for _, w := range o.Workflows {
		for _, r := range w.Open {
			if r.Fails() && r.Question == nil {
				out = append(out, r)
			}
		}
	}
	return out
}

// Limited returns the runs that are executed and wait for the limits of a connection, by
// workflow. Those that stopped for that are among the failing ones.
func (o *Overview) Limited() []*Run {
	var out []*Run
	for _, w := range o.Workflows {
		for _, r := range w.Open {
			if r.Status == keep.StatusActive && r.Wait.Kind == lifecycle.WaitsForLimit {
				out = append(out, r)
			}
		}
	}
	return out
}

// Late returns what is late, by workflow.
func (o *Overview) Late() []Late {
	var out []Late
	for _, w := range o.Workflows {
		out = append(out, w.Late...)
	}
	return out
}

// doubts reads the calls in doubt of items that were detached from their runs, however many others are newer. Those
// of open runs are shown with the runs.
func doubts(ctx context.Context, s Store, st *Situation) ([]keep.Mutation, error) {
	var out []keep.Mutation
	for _, state := range lifecycle.Doubts() {
		found := 0
		for m, err := range store.All(ctx, s.Mutations, keep.MutationFilter{State: state}, keep.Page{Limit: MaxQuestions, Bare: true}) {
			if err != nil {
				return nil, err
			}
			if m.Item == "" || slices.ContainsFunc(st.Runs[m.Workflow], func(r *Run) bool { return r.Mutation == m.Key }) {
				continue
			}
			if out, found = append(out, m), found+1; found == MaxQuestions {
				break
			}
		}
	}
	return out, nil
}
