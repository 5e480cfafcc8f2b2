package api

import (
	"context"
	"errors"

	"github.com/keep-run/keep"
)

// The interfaces below are what the functions of this file read. Pages are
// newest first; the second result is the cursor of the next one, empty at the
// end. What is not there is a *keep.NotFoundError, which names it.

// Runs reads runs and the mutations that they made.
type Runs interface {
	Run(ctx context.Context, id keep.RunID) (keep.Run, error)
	Runs(ctx context.Context, f keep.RunFilter, p keep.Page) ([]keep.Run, string, error)
	Mutation(ctx context.Context, key keep.MutationKey) (keep.Mutation, error)
}

// Ledger reads mutations.
type Ledger interface {
	Mutation(ctx context.Context, key keep.MutationKey) (keep.Mutation, error)
	Mutations(ctx context.Context, f keep.MutationFilter, p keep.Page) ([]keep.Mutation, string, error)
	History(ctx context.Context, key keep.MutationKey) ([]keep.Move, error)
}

// Inputs reads inputs and what became of them.
type Inputs interface {
	Input(ctx context.Context, id keep.InputID) (keep.Input, error)
	Inputs(ctx context.Context, f keep.InputFilter, p keep.Page) ([]keep.Input, string, error)
	Outputs(ctx context.Context, id keep.InputID) ([]keep.MutationKey, error)
}

// Items reads items and their mutations.
type Items interface {
	Item(ctx context.Context, w keep.WorkflowName, id string) (keep.Item, error)
	Items(ctx context.Context, f keep.ItemFilter, p keep.Page) ([]keep.Item, string, error)
	Mutations(ctx context.Context, f keep.MutationFilter, p keep.Page) ([]keep.Mutation, string, error)
}

// Workflows reads workflows.
type Workflows interface {
	Workflows(ctx context.Context) ([]keep.Workflow, error)
	Deployment(ctx context.Context, w keep.WorkflowName, v keep.Version) (keep.Deployment, error)
	Handlers(ctx context.Context, w keep.WorkflowName) ([]keep.HandlerState, error)
	OpenRun(ctx context.Context, w keep.WorkflowName) (keep.Run, bool, error)
}

// Events reads events and what topics have.
type Events interface {
	Event(ctx context.Context, w keep.WorkflowName, t keep.TopicName, id keep.MessageID) (keep.Event, error)
	Events(ctx context.Context, f keep.EventFilter, p keep.Page) ([]keep.Event, string, error)
	TopicCounts(ctx context.Context, w keep.WorkflowName) ([]keep.TopicCount, error)
}

// Questions reads escalations.
type Questions interface {
	Escalation(ctx context.Context, id keep.EscalationID) (keep.Escalation, error)
	Escalations(ctx context.Context, f keep.EscalationFilter, p keep.Page) ([]keep.Escalation, string, error)
}

// Details reads what belongs to one thing.
type Details interface {
	// Logs returns every line that a run wrote, oldest first.
	Logs(ctx context.Context, run keep.RunID) ([]keep.LogLine, error)

	// Deployments returns the versions of a workflow, newest first, without
	// their code.
	Deployments(ctx context.Context, w keep.WorkflowName) ([]keep.Deployment, error)

	// Peek returns the oldest free events of a topic.
	Peek(ctx context.Context, w keep.WorkflowName, t keep.TopicName, limit int) ([]keep.Event, error)

	// Notices returns who was told of a question.
	Notices(ctx context.Context, id keep.EscalationID) ([]keep.Notice, error)
}

// Counts counts what the list of the same filter has. A status that none has is
// not in the map.
type Counts interface {
	CountRuns(ctx context.Context, f keep.RunFilter) (map[keep.RunStatus]int, error)
	CountMutations(ctx context.Context, f keep.MutationFilter) (map[keep.MutationState]int, error)
	CountInputs(ctx context.Context, f keep.InputFilter) (map[keep.InputStatus]int, error)
	CountItems(ctx context.Context, f keep.ItemFilter) (map[keep.ItemStatus]int, error)
	CountEscalations(ctx context.Context, f keep.EscalationFilter) (map[keep.EscalationKind]int, error)
}

// ShowRun returns one run.
func ShowRun(ctx context.Context, s Runs, id keep.RunID) (Run, error) {
	r, err := s.Run(ctx, id)
	if err != nil {
		return Run{}, err
	}
	return withMutation(ctx, s, r)
}

// ListRuns returns a page of runs.
func ListRuns(ctx context.Context, s Runs, f keep.RunFilter, p keep.Page) ([]Run, string, error) {
	runs, next, err := s.Runs(ctx, f, p)
	if err != nil {
		return nil, "", err
	}
	out := make([]Run, 0, len(runs))
	for _, r := range runs {
		v, err := withMutation(ctx, s, r)
		if err != nil {
			return nil, "", err
		}
		out = append(out, v)
	}
	return out, next, nil
}

// withMutation looks the mutation of an unfinished run up, since what it waits
// for depends on it.
func withMutation(ctx context.Context, s Runs, r keep.Run) (Run, error) {
	var m keep.Mutation
	if !r.Closed && r.Mutation != "" {
		var err error
		if m, err = s.Mutation(ctx, r.Mutation); err != nil && !errors.Is(err, keep.ErrNotFound) {
			return Run{}, err
		}
	}
	return RunOf(r, m), nil
}

// ShowMutation returns one mutation with its history.
func ShowMutation(ctx context.Context, s Ledger, key keep.MutationKey) (Mutation, error) {
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
func ListMutations(ctx context.Context, s Ledger, f keep.MutationFilter, p keep.Page) ([]Mutation, string, error) {
	ms, next, err := s.Mutations(ctx, f, p)
	return each(ms, MutationOf), next, err
}

// ShowInput returns one input with its outputs.
func ShowInput(ctx context.Context, s Inputs, id keep.InputID) (Input, error) {
	in, err := s.Input(ctx, id)
	if err != nil {
		return Input{}, err
	}
	return withOutputs(ctx, s, in)
}

// ListInputs returns a page of inputs.
func ListInputs(ctx context.Context, s Inputs, f keep.InputFilter, p keep.Page) ([]Input, string, error) {
	ins, next, err := s.Inputs(ctx, f, p)
	if err != nil {
		return nil, "", err
	}
	out := make([]Input, 0, len(ins))
	for _, in := range ins {
		v, err := withOutputs(ctx, s, in)
		if err != nil {
			return nil, "", err
		}
		out = append(out, v)
	}
	return out, next, nil
}

// withOutputs looks up what became of an input.
func withOutputs(ctx context.Context, s Inputs, in keep.Input) (Input, error) {
	outputs, err := s.Outputs(ctx, in.ID)
	return InputOf(in, outputs), err
}

// ShowItem returns one item with its mutations.
func ShowItem(ctx context.Context, s Items, w keep.WorkflowName, id string) (Item, error) {
	it, err := s.Item(ctx, w, id)
	if err != nil {
		return Item{}, err
	}
	return withMutations(ctx, s, it)
}

// ListItems returns a page of items.
func ListItems(ctx context.Context, s Items, f keep.ItemFilter, p keep.Page) ([]Item, string, error) {
	items, next, err := s.Items(ctx, f, p)
	if err != nil {
		return nil, "", err
	}
	out := make([]Item, 0, len(items))
	for _, it := range items {
		v, err := withMutations(ctx, s, it)
		if err != nil {
			return nil, "", err
		}
		out = append(out, v)
	}
	return out, next, nil
}

// maxItemMutations bounds the keys that an item shows (law: bounded). A run
// makes fewer calls than that, and few items have many attempts.
const maxItemMutations = 1000

// withMutations looks up the mutations of an item, of all its attempts.
func withMutations(ctx context.Context, s Items, it keep.Item) (Item, error) {
	ms, _, err := s.Mutations(ctx, keep.MutationFilter{Workflow: it.Workflow, Item: it.ID}, keep.Page{Limit: maxItemMutations, Bare: true})
	return ItemOf(it, each(ms, func(m keep.Mutation) keep.MutationKey { return m.Key })), err
}

// ListWorkflows returns every workflow, sorted by name.
func ListWorkflows(ctx context.Context, s Workflows) ([]Workflow, error) {
	all, err := s.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Workflow, 0, len(all))
	for _, w := range all {
		v, err := workflow(ctx, s, w)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// ShowWorkflow returns one workflow.
func ShowWorkflow(ctx context.Context, s Workflows, name keep.WorkflowName) (Workflow, error) {
	all, err := s.Workflows(ctx)
	if err != nil {
		return Workflow{}, err
	}
	for _, w := range all {
		if w.Name == name {
			return workflow(ctx, s, w)
		}
	}
	return Workflow{}, &keep.NotFoundError{What: "workflow", ID: string(name)}
}

// workflow looks up the version, the handlers and the open run of w.
func workflow(ctx context.Context, s Workflows, w keep.Workflow) (Workflow, error) {
	d, err := s.Deployment(ctx, w.Name, w.Version)
	if err != nil {
		return Workflow{}, err
	}
	states, err := s.Handlers(ctx, w.Name)
	if err != nil {
		return Workflow{}, err
	}
	open, _, err := s.OpenRun(ctx, w.Name)
	return WorkflowOf(w, d, states, open), err
}

// each returns f of every element, never nil.
func each[A, B any](in []A, f func(A) B) []B {
	out := make([]B, 0, len(in))
	for _, v := range in {
		out = append(out, f(v))
	}
	return out
}
