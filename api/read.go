package api

import (
	"context"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/view"
)

// ShowRun returns one run.
func ShowRun(ctx context.Context, s store.Reader, id keep.RunID) (Run, error) {
	r, err := s.Run(ctx, id)
	if err != nil {
		return Run{}, err
	}
	list, err := withCalls(ctx, s, []keep.Run{r})
	if err != nil {
		return Run{}, err
	}
	t, some, err := view.Trace(ctx, s, id)
	if wait := view.WaitIn(lifecycle.WaitOf(r, keep.Mutation{}), t); wait.Call != "" && wait.Kind == lifecycle.WaitsForHost {
		list[0].WaitsFor, list[0].Wait = orNull(wait.String()), waitOf(wait)
	}
	kept := TraceOf(t, some)
	list[0].Trace = &kept
	return list[0], err
}

// ShowTrace returns what is kept of what a run saw.
func ShowTrace(ctx context.Context, s store.Traces, id keep.RunID) (Trace, error) {
	t, some, err := view.Trace(ctx, s, id)
	return TraceOf(t, some), err
}

// ListRuns returns a page of runs.
func ListRuns(ctx context.Context, s store.Reader, f keep.RunFilter, p keep.Page) ([]Run, string, error) {
	runs, next, err := s.Runs(ctx, view.RunsIn(f), p)
	if err != nil {
		return nil, "", err
	}
	out, err := withCalls(ctx, s, runs)
	return out, next, err
}

// withCalls looks up the mutations of unfinished runs and the limits of their connections,
// since what they wait for depends on them.
func withCalls(ctx context.Context, s store.Reader, runs []keep.Run) ([]Run, error) {
	var keys []keep.MutationKey
	for _, r := range runs {
		if !r.Closed && r.Mutation != "" {
			keys = append(keys, r.Mutation)
		}
	}
	calls := make(map[keep.MutationKey]keep.Mutation, len(keys))
	if len(keys) > 0 {
		list, err := s.MutationsByKey(ctx, keys)
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			calls[m.Key] = m
		}
	}
	waits, err := view.ReadWaits(ctx, s, runs...)
	return each(runs, func(r keep.Run) Run {
		return runOf(r, calls[r.Mutation], waits.WaitOf(r, calls[r.Mutation]))
	}), err
}

// ShowMutation returns one mutation with its history.
func ShowMutation(ctx context.Context, s store.Mutations, key keep.MutationKey) (Mutation, error) {
	m, err := s.Mutation(ctx, key)
	if err != nil {
		return Mutation{}, err
	}
	moves, err := s.History(ctx, key)
	if err != nil {
		return Mutation{}, err
	}
	return MutationOf(m).WithHistory(moves), nil
}

// ListMutations returns a page of mutations.
func ListMutations(ctx context.Context, s store.Reader, f keep.MutationFilter, p keep.Page) ([]Mutation, string, error) {
	ms, next, err := s.Mutations(ctx, f, p)
	return each(ms, MutationOf), next, err
}

// ShowInput returns one input with its outputs.
func ShowInput(ctx context.Context, s store.Reader, id keep.InputID) (Input, error) {
	in, err := s.Input(ctx, id)
	if err != nil {
		return Input{}, err
	}
	progress, err := s.Progress(ctx, []keep.InputID{id}, view.NewestEvents, maxOutputs)
	if err != nil {
		return Input{}, err
	}
	runs, err := s.RunsOf(ctx, id, maxRuns)
	if err != nil {
		return Input{}, err
	}
	slices.Reverse(runs)
	acts, err := view.Acts(ctx, s, keep.Subject{Workflow: in.Workflow, Kind: keep.AboutInput, ID: string(id)})
	return InputOf(in, progress[id]).WithRuns(runs, acts), err
}

// outputsOf returns the keys of outputs, oldest first.
func outputsOf(p keep.Progress) []keep.MutationKey {
	outputs := each(p.Outputs, func(m keep.Mutation) keep.MutationKey { return m.Key })
	slices.Reverse(outputs)
	return outputs
}

// ShowEvent returns one event with the runs that worked on it.
func ShowEvent(ctx context.Context, s store.Reader, w keep.WorkflowName, t keep.TopicName, id keep.MessageID) (Event, error) {
	e, err := s.Event(ctx, w, t, id)
	if err != nil {
		return Event{}, err
	}
	runs, err := s.RunsOfEvent(ctx, w, t, id, maxRuns)
	if err != nil {
		return Event{}, err
	}
	slices.Reverse(runs)
	acts, err := view.ActsOfEvent(ctx, s, e)
	return EventWithRuns(e, runs, acts), err
}

// What an input or an event shows is bounded to the newest (law: bounded).
const (
	maxOutputs = 1000
	maxRuns    = 1000
)

// ListInputs returns a page of inputs.
func ListInputs(ctx context.Context, s store.Reader, f keep.InputFilter, p keep.Page) ([]Input, string, error) {
	ins, next, err := s.Inputs(ctx, f, p)
	if err != nil || len(ins) == 0 {
		return []Input{}, next, err
	}
	progress, err := s.Progress(ctx, each(ins, func(in keep.Input) keep.InputID { return in.ID }), view.NewestEvents, maxOutputs)
	return each(ins, func(in keep.Input) Input {
		return InputOf(in, progress[in.ID])
	}), next, err
}

// maxItemMutations bounds the keys that an item shows (law: bounded). A run
// makes fewer calls than that, and few items have many attempts.
const maxItemMutations = 1000

// ShowItem returns one item with its mutations.
func ShowItem(ctx context.Context, s store.Reader, w keep.WorkflowName, id string) (Item, error) {
	it, err := s.Item(ctx, w, id)
	if err != nil {
		return Item{}, err
	}
	list, err := withItemCalls(ctx, s, []keep.Item{it})
	if err != nil {
		return Item{}, err
	}
	acts, err := view.Acts(ctx, s, keep.Subject{Workflow: w, Kind: keep.AboutItem, ID: it.ID})
	list[0].History = actsOf(acts)
	return list[0], err
}

// ListItems returns a page of items.
func ListItems(ctx context.Context, s store.Reader, f keep.ItemFilter, p keep.Page) ([]Item, string, error) {
	items, next, err := s.Items(ctx, f, p)
	if err != nil {
		return nil, "", err
	}
	out, err := withItemCalls(ctx, s, items)
	return out, next, err
}

// withItemCalls looks up the mutations of items, of all their attempts.
func withItemCalls(ctx context.Context, s store.Batches, items []keep.Item) ([]Item, error) {
	ref := func(it keep.Item) keep.ItemRef { return keep.ItemRef{Workflow: it.Workflow, ID: it.ID} }
	calls, err := s.ItemCalls(ctx, each(items, ref), maxItemMutations)
	return each(items, func(it keep.Item) Item { return ItemOf(it, calls[ref(it)]) }), err
}

// ListWorkflows returns every workflow, sorted by name.
func ListWorkflows(ctx context.Context, s store.Reader) ([]Workflow, error) {
	all, err := s.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	current, err := s.Current(ctx)
	if err != nil {
		return nil, err
	}
	states, err := s.Handlers(ctx, "")
	if err != nil {
		return nil, err
	}
	open, _, err := s.Runs(ctx, keep.RunFilter{Open: true}, keep.Page{Limit: keep.MaxPage, Bare: true})
	deployed, running := make(map[keep.WorkflowName]keep.Deployment), make(map[keep.WorkflowName][]keep.Run)
	for _, d := range current {
		deployed[d.Workflow] = d
	}
	for _, r := range open {
		running[r.Workflow] = append(running[r.Workflow], r)
	}
	of := make(map[keep.WorkflowName][]keep.HandlerState)
	for _, h := range states {
		of[h.Workflow] = append(of[h.Workflow], h)
	}
	return each(all, func(w keep.Workflow) Workflow {
		return WorkflowOf(w, deployed[w.Name], of[w.Name], running[w.Name])
	}), err
}

// ShowWorkflow returns one workflow.
func ShowWorkflow(ctx context.Context, s store.Reader, name keep.WorkflowName) (Workflow, error) {
	return showVersion(ctx, s, name, keep.Version{})
}

// showVersion is ShowWorkflow of one of its versions, which may not be current any more. Zero: the one that is.
func showVersion(ctx context.Context, s store.Reader, name keep.WorkflowName, v keep.Version) (Workflow, error) {
	w, err := s.Workflow(ctx, name)
	if err != nil {
		return Workflow{}, err
	}
	if !v.IsZero() {
		w.Version = v
	}
	d, err := s.Deployment(ctx, w.Name, w.Version)
	if err != nil {
		return Workflow{}, err
	}
	states, err := s.Handlers(ctx, w.Name)
	if err != nil {
		return Workflow{}, err
	}
	open, err := s.OpenRuns(ctx, w.Name)
	if err != nil {
		return Workflow{}, err
	}
	acts, err := view.ActsOfWorkflow(ctx, s, w.Name, d.Definition)
	out := WorkflowOf(w, d, states, open)
	out.History = actsOf(acts)
	return out, err
}

// ShowSource is ShowWorkflow with the files of the version.
func ShowSource(ctx context.Context, s store.Reader, name keep.WorkflowName) (Workflow, error) {
	w, err := ShowWorkflow(ctx, s, name)
	if err != nil {
		return Workflow{}, err
	}
	v, err := keep.ParseVersion(w.Version) // which may not be current any more
	if err != nil {
		return Workflow{}, err
	}
	d, err := s.Deployment(ctx, name, v)
	w.Source = d.Sources()
	return w, err
}

// each returns f of every element, never nil.
func each[A, B any](in []A, f func(A) B) []B {
	out := make([]B, 0, len(in))
	for _, v := range in {
		out = append(out, f(v))
	}
	return out
}
