package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/keep-run/keep"
)

// Current returns the version of each workflow that is in force, sorted by workflow,
// without its code.
func (s *Store) Current(ctx context.Context) ([]keep.Deployment, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Deployment
	for _, name := range sortedKeys(s.workflows) {
		for _, d := range s.deployments[name] {
			if d.v.Version == s.workflows[name].Version {
				v := copyDeployment(d.v)
				v.Code, v.Map = nil, nil
				list = append(list, v)
			}
		}
	}
	return list, context.Cause(ctx)
}

// MutationsByKey returns records without what may be large.
func (s *Store) MutationsByKey(ctx context.Context, keys []keep.MutationKey) ([]keep.Mutation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Mutation
	for key, m := range s.mutations {
		if slices.Contains(keys, key) {
			m.v.Identity, m.v.Payload, m.v.Result, m.v.Pin = nil, nil, nil, nil
			list = append(list, copyMutation(m.v))
		}
	}
	return list, context.Cause(ctx)
}

// Histories returns every move of each mutation, oldest first.
func (s *Store) Histories(ctx context.Context, keys []keep.MutationKey) (map[keep.MutationKey][]keep.Move, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make(map[keep.MutationKey][]keep.Move)
	for _, key := range keys {
		if moves := s.moves[key]; len(moves) > 0 {
			all[key] = slices.Clone(moves)
		}
	}
	return all, context.Cause(ctx)
}

// LastApplied returns the newest applied record of each tool.
func (s *Store) LastApplied(ctx context.Context, tools []keep.ToolName) (map[keep.ToolName]keep.Mutation, error) {
	last := make(map[keep.ToolName]keep.Mutation)
	for _, tool := range tools {
		ms, _, err := s.Mutations(ctx, keep.MutationFilter{Tool: tool, State: keep.Applied}, keep.Page{Limit: 1, Bare: true})
		if err != nil {
			return nil, err
		}
		if len(ms) > 0 {
			last[tool] = ms[0]
		}
	}
	return last, nil
}

// RunsOf returns up to limit of the runs that tried events caused by an input, newest
// first.
func (s *Store) RunsOf(ctx context.Context, id keep.InputID, limit int) ([]keep.Run, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.runsOf(s.caused[id], limit)
}

// RunsOfEvent returns up to limit of the runs that tried an event, newest first.
func (s *Store) RunsOfEvent(ctx context.Context, w keep.WorkflowName, t keep.TopicName, id keep.MessageID, limit int) ([]keep.Run, error) {
	e, err := s.Event(ctx, w, t, id)
	if err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.runsOf([]int64{e.Seq}, limit)
}

// runsOf returns the newest runs that tried one of some events. The caller holds mu.
func (s *Store) runsOf(events []int64, limit int) ([]keep.Run, error) {
	chains := s.chainsOf(events)
	list, _, err := page("r", keep.Page{Limit: limit}, maps.Values(s.runs),
		func(r keep.Run) bool { return chains[r.Chain] },
		func(r keep.Run) keep.Run {
			r.Prepared = nil
			return copyRun(r)
		})
	return list, err
}

// ItemCalls returns the keys of the records of each item, newest first.
func (s *Store) ItemCalls(ctx context.Context, items []keep.ItemRef, limit int) (map[keep.ItemRef][]keep.MutationKey, error) {
	all := make(map[keep.ItemRef][]keep.MutationKey)
	for _, it := range items {
		if all[it] != nil { // it is named twice
			continue
		}
		ms, _, err := s.Mutations(ctx, keep.MutationFilter{Workflow: it.Workflow, Item: it.ID}, keep.Page{Limit: limit, Bare: true})
		if err != nil {
			return nil, err
		}
		for _, m := range ms {
			all[it] = append(all[it], m.Key)
		}
	}
	return all, nil
}

// InputsByID returns inputs, in no order.
func (s *Store) InputsByID(ctx context.Context, ids []keep.InputID) ([]keep.Input, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Input
	for id, in := range s.inputs {
		if slices.Contains(ids, id) {
			list = append(list, s.withStatus(in.v))
		}
	}
	return list, context.Cause(ctx)
}

// Progress returns how far each input came.
func (s *Store) Progress(ctx context.Context, ids []keep.InputID, events, outputs int) (map[keep.InputID]keep.Progress, error) {
	all := make(map[keep.InputID]keep.Progress)
	for _, id := range ids {
		if _, err := s.Input(ctx, id); err != nil {
			continue
		}
		keys, err := s.Outputs(ctx, id)
		if err != nil {
			return nil, err
		}
		p := keep.Progress{Total: len(keys)}
		if outputs > 0 {
			p.Outputs, _, err = s.Mutations(ctx, keep.MutationFilter{Input: id}, keep.Page{Limit: outputs, Bare: true})
		}
		if events > 0 && err == nil {
			p.Events, _, err = s.Events(ctx, keep.EventFilter{Input: id}, keep.Page{Limit: events, Bare: true})
		}
		if err != nil {
			return nil, err
		}
		all[id] = p
	}
	return all, context.Cause(ctx)
}

// RunsByID returns runs without what may be large.
func (s *Store) RunsByID(ctx context.Context, ids []keep.RunID) ([]keep.Run, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Run
	for id, r := range s.runs {
		if slices.Contains(ids, id) {
			r.v.Prepared = nil
			list = append(list, copyRun(r.v))
		}
	}
	return list, context.Cause(ctx)
}

// Attempts returns how many runs each chain has.
func (s *Store) Attempts(ctx context.Context, chains []keep.RunID) (map[keep.RunID]int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	counts := make(map[keep.RunID]int)
	for _, r := range s.runs {
		if slices.Contains(chains, r.v.Chain) {
			counts[r.v.Chain]++
		}
	}
	return counts, context.Cause(ctx)
}

// CausesOf returns what Causes does, for each chain.
func (s *Store) CausesOf(ctx context.Context, chains []keep.RunID) (map[keep.RunID][]keep.InputID, error) {
	all := make(map[keep.RunID][]keep.InputID)
	for _, chain := range chains {
		ids, err := s.Causes(ctx, chain)
		if err != nil {
			return nil, err
		}
		if len(ids) > 0 {
			all[chain] = ids
		}
	}
	return all, nil
}

// Calls returns up to limit of the mutations of the runs of a chain, newest first.
func (s *Store) Calls(ctx context.Context, chain keep.RunID, limit int) ([]keep.Mutation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list, _, err := page("m", keep.Page{Limit: limit}, maps.Values(s.mutations),
		func(m keep.Mutation) bool { return s.runs[m.Run].v.Chain == chain && chain != "" },
		func(m keep.Mutation) keep.Mutation {
			m.Identity, m.Payload, m.Result, m.Pin = nil, nil, nil, nil
			return copyMutation(m)
		})
	return list, err
}

// EscalationsOf returns up to limit of the questions about the runs of a chain, newest first.
func (s *Store) EscalationsOf(ctx context.Context, chain keep.RunID, limit int) ([]keep.Escalation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list, _, err := page("q", keep.Page{Limit: limit}, maps.Values(s.escalations),
		func(e keep.Escalation) bool { return s.runs[e.Run].v.Chain == chain && chain != "" }, copyEscalation)
	return list, err
}

// UsedTools returns the tools of which each workflow has records.
func (s *Store) UsedTools(ctx context.Context) (map[keep.WorkflowName][]keep.ToolName, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make(map[keep.WorkflowName][]keep.ToolName)
	for _, m := range s.mutations {
		if w, tool := m.v.Workflow, m.v.Tool; !slices.Contains(all[w], tool) {
			all[w] = append(all[w], tool)
		}
	}
	for _, tools := range all {
		slices.Sort(tools)
	}
	return all, context.Cause(ctx)
}
