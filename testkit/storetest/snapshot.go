package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// A State is everything that can be read of a store, so that two can be compared.
type State struct {
	Workflows   []keep.Workflow
	Deployments []keep.Deployment
	Code        []keep.Deployment
	Handlers    []keep.HandlerState
	Topics      []keep.TopicCount
	Open        []keep.Run
	Free        []keep.MessageID // a few free events after the oldest
	Backlogs    []keep.Backlog
	Runs        []keep.Run
	Logs        [][]keep.LogLine
	Traces      [][]keep.TracePart
	Causes      [][]keep.InputID
	Mutations   []keep.Mutation
	History     [][]keep.Move
	Events      []keep.Event
	Tried       [][]keep.RunID // runs of each event
	Inputs      []keep.Input
	Outputs     [][]keep.MutationKey
	Items       []keep.Item
	Decided     [][]keep.Decided // about each input, event, item, workflow and handler
	Escalations []keep.Escalation
	Notices     [][]keep.Notice
	Owed        []keep.Owed
}

// Snapshot reads everything but checkpoints, which have no list.
func Snapshot(tb testing.TB, s store.Store) State {
	tb.Helper()
	r := reader{tb: tb, ctx: context.Background(), s: s}
	var st State
	st.Workflows = read(r, s.Workflows)
	for _, w := range st.Workflows {
		if one, err := s.Workflow(r.ctx, w.Name); err != nil || one != w {
			tb.Fatalf("Workflow(%s) = %+v, %v, the list has %+v", w.Name, one, err, w)
		}
	}
	st.Deployments = read1(r, s.Deployments, "")
	st.Topics = read1(r, s.TopicCounts, "")
	r.workflows(&st)
	st.Runs = all(r, s.Runs, keep.RunFilter{})
	st.Mutations = all(r, s.Mutations, keep.MutationFilter{})
	st.Events = all(r, s.Events, keep.EventFilter{})
	st.Inputs = all(r, s.Inputs, keep.InputFilter{})
	st.Items = all(r, s.Items, keep.ItemFilter{})
	st.Escalations = all(r, s.Escalations, keep.EscalationFilter{})
	r.decided(&st)
	r.notices(&st)
	for _, run := range st.Runs {
		st.Logs = append(st.Logs, read1(r, s.Logs, run.ID))
		st.Traces = append(st.Traces, read1(r, s.Trace, run.ID))
		st.Causes = append(st.Causes, read1(r, s.Causes, run.Chain))
	}
	for _, m := range st.Mutations {
		st.History = append(st.History, read1(r, s.History, m.Key))
	}
	for _, e := range st.Events {
		runs, err := s.RunsOfEvent(r.ctx, e.Workflow, e.Topic, e.MessageID, keep.MaxPage)
		r.ok(err)
		var ids []keep.RunID
		for _, run := range runs {
			ids = append(ids, run.ID)
		}
		st.Tried = append(st.Tried, ids)
	}
	for _, in := range st.Inputs {
		st.Outputs = append(st.Outputs, read1(r, s.Outputs, in.ID))
	}
	return st
}

type reader struct {
	tb  testing.TB
	ctx context.Context
	s   store.Store
}

func (r reader) decided(st *State) {
	for _, in := range st.Inputs {
		st.Decided = append(st.Decided, read1(r, r.s.Decided, keep.Subject{Workflow: in.Workflow, Kind: keep.AboutInput, ID: string(in.ID)}))
	}
	for _, e := range st.Events {
		st.Decided = append(st.Decided, read1(r, r.s.Decided, keep.Subject{Workflow: e.Workflow, Kind: keep.AboutEvent, Topic: e.Topic, ID: string(e.MessageID)}))
	}
	for _, it := range st.Items {
		st.Decided = append(st.Decided, read1(r, r.s.Decided, keep.Subject{Workflow: it.Workflow, Kind: keep.AboutItem, ID: it.ID}))
	}
	for _, w := range st.Workflows {
		st.Decided = append(st.Decided, read1(r, r.s.Decided, w.Name.Subject()))
	}
	for _, h := range st.Handlers {
		st.Decided = append(st.Decided, read1(r, r.s.Decided, keep.Handler{Name: h.Handler}.Subject(h.Workflow)))
	}
}

func (r reader) notices(st *State) {
	for _, e := range st.Escalations {
		st.Notices = append(st.Notices, read1(r, r.s.Notices, e.ID))
	}
	for _, sink := range sinks {
		owed, err := r.s.Owed(r.ctx, sink, keep.MaxPage)
		r.ok(err)
		st.Owed = append(st.Owed, owed...)
	}
}

func (r reader) workflows(st *State) {
	names := make(map[keep.WorkflowName]bool)
	for _, d := range st.Deployments {
		full, err := r.s.Deployment(r.ctx, d.Workflow, d.Version)
		r.ok(err)
		st.Code = append(st.Code, full)
	}
	for _, t := range st.Topics { // sorted
		b, err := r.s.Backlog(r.ctx, t.Workflow, []keep.TopicName{t.Topic})
		r.ok(err)
		st.Backlogs = append(st.Backlogs, b)
		if names[t.Workflow] {
			continue
		}
		names[t.Workflow] = true
		st.Open = append(st.Open, read1(r, r.s.OpenRuns, t.Workflow)...)
		free, err := r.s.FreeAfter(r.ctx, t.Workflow, []keep.TopicName{t.Topic}, b.Oldest.Seq, 3)
		r.ok(err)
		for _, e := range free {
			st.Free = append(st.Free, e.MessageID)
		}
		st.Handlers = append(st.Handlers, read1(r, r.s.Handlers, t.Workflow)...)
	}
}

func (r reader) ok(err error) {
	r.tb.Helper()
	if err != nil {
		r.tb.Fatalf("read: %v", err)
	}
}

func read[T any](r reader, f func(context.Context) (T, error)) T {
	r.tb.Helper()
	v, err := f(r.ctx)
	r.ok(err)
	return v
}

func read1[A, T any](r reader, f func(context.Context, A) (T, error), a A) T {
	r.tb.Helper()
	v, err := f(r.ctx, a)
	r.ok(err)
	return v
}

// all reads every page of a list.
func all[F, T any](r reader, f func(context.Context, F, keep.Page) ([]T, string, error), filter F) (list []T) {
	r.tb.Helper()
	p := keep.Page{Limit: keep.MaxPage}
	for {
		part, next, err := f(r.ctx, filter, p)
		r.ok(err)
		list = append(list, part...)
		if next == "" {
			return list
		}
		p.After = next
	}
}

// Violations returns the text of what Check finds.
func Violations(tb testing.TB, s store.Store) (list []string) {
	tb.Helper()
	for err := range s.Check(context.Background()) {
		var v *keep.Violation
		if !errors.As(err, &v) {
			tb.Fatalf("Check: %v", err)
		}
		list = append(list, v.Error())
	}
	return list
}

// Same fails the test if two stores that got the same commits can be told apart.
func Same(tb testing.TB, one, other store.Store) {
	tb.Helper()
	a, b := Snapshot(tb, one), Snapshot(tb, other)
	rank(a.Events, a.Backlogs)
	rank(b.Events, b.Backlogs)
	if diff := cmp.Diff(a, b); diff != "" {
		tb.Errorf("the stores differ (-one +other):\n%s", diff)
	}
}

// Moved is Same for stores of which one got its rows from the other. It numbers them
// in its own way.
func Moved(tb testing.TB, from, to store.Store) {
	tb.Helper()
	a, b := Snapshot(tb, from), Snapshot(tb, to)
	for _, s := range []State{a, b} {
		s.rankOwn()
		for i := range s.Handlers {
			s.Handlers[i].IdleSeq = 0
		}
		for _, runs := range [][]keep.Run{s.Runs, s.Open} {
			for i := range runs {
				runs[i].SeenSeq = 0
			}
		}
	}
	if diff := cmp.Diff(a, b); diff != "" {
		tb.Errorf("what was moved is not the same (-from +to):\n%s", diff)
	}
}

// rankOwn replaces numbers of events by their places among those of their workflow:
// two workflows may have the same numbers.
func (s State) rankOwn() {
	type number struct {
		w   keep.WorkflowName
		seq int64
	}
	place, last := make(map[number]int64), make(map[keep.WorkflowName]int64)
	for _, e := range slices.Backward(s.Events) { // oldest first
		last[e.Workflow]++
		place[number{e.Workflow, e.Seq}] = last[e.Workflow]
	}
	for i, e := range s.Events {
		s.Events[i].Seq = place[number{e.Workflow, e.Seq}]
	}
	for i, b := range s.Backlogs {
		w := b.Oldest.Workflow
		s.Backlogs[i].Oldest.Seq, s.Backlogs[i].Newest = place[number{w, b.Oldest.Seq}], place[number{w, b.Newest}]
	}
}
