package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// Workflows returns every workflow, sorted by name.
func (s *Store) Workflows(ctx context.Context) ([]keep.Workflow, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Workflow
	for _, name := range sortedKeys(s.workflows) {
		list = append(list, s.workflows[name])
	}
	return list, context.Cause(ctx)
}

// Workflow returns a workflow, or *keep.NotFoundError.
func (s *Store) Workflow(ctx context.Context, name keep.WorkflowName) (keep.Workflow, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	w, ok := s.workflows[name]
	if !ok {
		return keep.Workflow{}, &keep.NotFoundError{What: "workflow", ID: string(name)}
	}
	return w, context.Cause(ctx)
}

// Deployment returns one version of a workflow, or *keep.NotFoundError.
func (s *Store) Deployment(ctx context.Context, w keep.WorkflowName, v keep.Version) (keep.Deployment, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, d := range s.deployments[w] {
		if d.v.Version == v {
			return copyDeployment(d.v), context.Cause(ctx)
		}
	}
	return keep.Deployment{}, &keep.NotFoundError{What: "version", ID: string(w) + " " + v.String()}
}

// Handlers returns the handler states of a workflow, or of all if w is empty,
// sorted by workflow and name.
func (s *Store) Handlers(ctx context.Context, w keep.WorkflowName) ([]keep.HandlerState, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.HandlerState
	for key, h := range s.handlers {
		if is(w, key.workflow) {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(a, b keep.HandlerState) int {
		return cmp.Or(cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(a.Handler, b.Handler))
	})
	return list, context.Cause(ctx)
}

// KV returns one value of a producer's checkpoint; nil if it is not set.
func (s *Store) KV(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName, key string) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return bytes.Clone(s.kv[kvKey{handlerKey{w, producer}, key}]), context.Cause(ctx)
}

// KVs returns a whole checkpoint, sorted by key.
func (s *Store) KVs(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName) (list []keep.SetKV, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for key, value := range s.kv {
		if key.handlerKey == (handlerKey{w, producer}) {
			list = append(list, keep.SetKV{Producer: producer, Key: key.key, Value: bytes.Clone(value)})
		}
	}
	slices.SortFunc(list, func(a, b keep.SetKV) int { return strings.Compare(a.Key, b.Key) })
	return list, context.Cause(ctx)
}

// KVSize returns the bytes of all keys and values of a checkpoint.
func (s *Store) KVSize(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName) (int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	size := 0
	for key, value := range s.kv {
		if key.handlerKey == (handlerKey{w, producer}) {
			size += len(key.key) + len(value)
		}
	}
	return size, context.Cause(ctx)
}

// OpenRuns returns the runs of w that are not closed, oldest first.
func (s *Store) OpenRuns(ctx context.Context, w keep.WorkflowName) ([]keep.Run, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Run
	for lane, id := range s.open {
		if lane.workflow == w {
			list = append(list, copyRun(s.runs[id].v))
		}
	}
	slices.SortFunc(list, func(a, b keep.Run) int { return cmp.Compare(a.ID, b.ID) })
	return list, context.Cause(ctx)
}

// Run returns a run, or *keep.NotFoundError.
func (s *Store) Run(ctx context.Context, id keep.RunID) (keep.Run, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.runs[id]
	if !ok {
		return keep.Run{}, &keep.NotFoundError{What: "run", ID: string(id)}
	}
	return copyRun(r.v), context.Cause(ctx)
}

// Escalation returns a question, or *keep.NotFoundError.
func (s *Store) Escalation(ctx context.Context, id keep.EscalationID) (keep.Escalation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.escalations[id]
	if !ok {
		return keep.Escalation{}, &keep.NotFoundError{What: "escalation", ID: string(id)}
	}
	return copyEscalation(e.v), context.Cause(ctx)
}

// Item returns an item, or *keep.NotFoundError.
func (s *Store) Item(ctx context.Context, w keep.WorkflowName, id string) (keep.Item, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	it, ok := s.items[itemKey{w, id}]
	if !ok {
		return keep.Item{}, &keep.NotFoundError{What: "item", ID: id}
	}
	return it.v, context.Cause(ctx)
}

// ItemsAfter returns up to limit of the items of w that were made after the item
// id, oldest first.
func (s *Store) ItemsAfter(ctx context.Context, w keep.WorkflowName, id string, limit int) ([]keep.Item, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	first, ok := s.items[itemKey{w, id}]
	if !ok {
		return nil, context.Cause(ctx)
	}
	var after []row[keep.Item]
	for _, it := range s.items {
		if it.v.Workflow == w && it.n > first.n {
			after = append(after, it)
		}
	}
	slices.SortFunc(after, func(a, b row[keep.Item]) int { return cmp.Compare(a.n, b.n) })
	var out []keep.Item
	for _, it := range after[:min(limit, len(after))] {
		out = append(out, it.v)
	}
	return out, context.Cause(ctx)
}

// ItemDoubts implements store.Doubts.
func (s *Store) ItemDoubts(ctx context.Context, w keep.WorkflowName) ([]keep.Mutation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []keep.Mutation
	for _, state := range []keep.MutationState{keep.NeedsReconcile, keep.Indeterminate} {
		var in []row[keep.Mutation]
		for _, m := range s.mutations {
			if m.v.Workflow == w && m.v.Item != "" && m.v.State == state {
				in = append(in, m)
			}
		}
		slices.SortFunc(in, func(a, b row[keep.Mutation]) int { return cmp.Compare(b.n, a.n) })
		for _, m := range in {
			out = append(out, copyMutation(m.v))
		}
	}
	return out, context.Cause(ctx)
}

// ResultsAfter returns results of applied mutations of w that were made after that
// of key, oldest first.
func (s *Store) ResultsAfter(ctx context.Context, w keep.WorkflowName, key keep.MutationKey, limit, size int) ([]keep.StoredResult, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	first, ok := s.mutations[key]
	if !ok || first.v.Workflow != w {
		return nil, context.Cause(ctx)
	}
	var after []row[keep.Mutation]
	for _, m := range s.mutations {
		if m.n > first.n && m.v.Workflow == w {
			after = append(after, m)
		}
	}
	slices.SortFunc(after, func(a, b row[keep.Mutation]) int { return cmp.Compare(a.n, b.n) })
	var out []keep.StoredResult
	for _, m := range after[:max(0, min(limit, len(after)))] {
		if m.v.State == keep.Applied && len(m.v.Result) <= size {
			out = append(out, keep.StoredResult{Key: m.v.Key, PayloadHash: m.v.PayloadHash, Result: slices.Clone(m.v.Result)})
		}
	}
	return out, context.Cause(ctx)
}

// Mutation returns the record of that key, or *keep.NotFoundError.
func (s *Store) Mutation(ctx context.Context, key keep.MutationKey) (keep.Mutation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m, ok := s.mutations[key]
	if !ok {
		return keep.Mutation{}, &keep.NotFoundError{What: "mutation", ID: string(key)}
	}
	return copyMutation(m.v), context.Cause(ctx)
}

// History returns every move of a mutation, oldest first.
func (s *Store) History(ctx context.Context, key keep.MutationKey) ([]keep.Move, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.moves[key]), context.Cause(ctx)
}

// Logs returns every line that a run wrote, oldest first.
func (s *Store) Logs(ctx context.Context, run keep.RunID) ([]keep.LogLine, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.logs[run]), context.Cause(ctx)
}

// Decided returns what was decided about something; see store.Decisions.
func (s *Store) Decided(ctx context.Context, about keep.Subject) ([]keep.Decided, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := s.decided[about]
	var list []keep.Decided
	for _, d := range all[max(0, len(all)-keep.MaxDecided):] {
		list = append(list, d.v)
	}
	return list, context.Cause(ctx)
}

// Decisions lists decisions; see store.Decisions.
func (s *Store) Decisions(_ context.Context, f keep.DecisionFilter, p keep.Page) ([]keep.Decided, string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	rows := func(yield func(row[keep.Decided]) bool) {
		for _, list := range s.decided {
			for _, d := range list {
				if !yield(d) {
					return
				}
			}
		}
	}
	match := func(d keep.Decided) bool {
		return is(f.Workflow, d.About.Workflow) && (!f.Global || d.About.Workflow == "")
	}
	return page("d", p, rows, match, func(d keep.Decided) keep.Decided { return d })
}

// Trace returns the parts of a run's trace, oldest first.
func (s *Store) Trace(ctx context.Context, run keep.RunID) (list []keep.TracePart, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, p := range s.traces[run] {
		list = append(list, keep.TracePart{Run: run, At: p.v.At, Data: slices.Clone(p.v.Data)})
	}
	return list, context.Cause(ctx)
}

// Backlog describes the free events in the given topics.
func (s *Store) Backlog(ctx context.Context, w keep.WorkflowName, topics []keep.TopicName) (keep.Backlog, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var b keep.Backlog
	for _, t := range topics {
		for _, seq := range s.topics[topicKey{w, t}] {
			e := s.events[seq]
			if !e.Free() {
				continue
			}
			if b.Oldest.Seq == 0 || seq < b.Oldest.Seq {
				b.Oldest = copyEvent(e)
			}
			b.Newest = max(b.Newest, seq)
		}
	}
	return b, context.Cause(ctx)
}

// Peek returns up to limit free events of a topic, oldest first.
func (s *Store) Peek(ctx context.Context, w keep.WorkflowName, t keep.TopicName, limit int) ([]keep.Event, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Event
	for _, seq := range s.topics[topicKey{w, t}] {
		if e := s.events[seq]; e.Free() && len(list) < limit {
			list = append(list, copyEvent(e))
		}
	}
	return list, context.Cause(ctx)
}

// FreeAfter returns up to limit free events of the topics after a place, oldest first.
func (s *Store) FreeAfter(ctx context.Context, w keep.WorkflowName, topics []keep.TopicName, after int64, limit int) ([]keep.Event, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var found []int64
	for _, t := range topics {
		for _, seq := range s.topics[topicKey{w, t}] {
			if seq > after && s.events[seq].Free() {
				found = append(found, seq)
			}
		}
	}
	slices.Sort(found)
	var list []keep.Event
	for _, seq := range found[:min(len(found), max(limit, 0))] {
		list = append(list, copyEvent(s.events[seq]))
	}
	return list, context.Cause(ctx)
}

// EventsByID returns those of the named events that exist, in the order of ids.
func (s *Store) EventsByID(ctx context.Context, w keep.WorkflowName, t keep.TopicName, ids []keep.MessageID) ([]keep.Event, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Event
	for _, id := range ids {
		if seq, ok := s.eventIDs[eventKey{topicKey{w, t}, id}]; ok {
			list = append(list, copyEvent(s.events[seq]))
		}
	}
	return list, context.Cause(ctx)
}

// Event returns an event, or *keep.NotFoundError.
func (s *Store) Event(ctx context.Context, w keep.WorkflowName, t keep.TopicName, id keep.MessageID) (keep.Event, error) {
	list, err := s.EventsByID(ctx, w, t, []keep.MessageID{id})
	if err != nil {
		return keep.Event{}, err
	}
	if len(list) == 0 {
		return keep.Event{}, &keep.NotFoundError{What: "event", ID: string(id)}
	}
	return list[0], nil
}

// Causes returns the inputs of all events that the chain reserved or tried, sorted.
func (s *Store) Causes(ctx context.Context, chain keep.RunID) ([]keep.InputID, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.InputID
	for _, seq := range slices.Concat(s.pinned[chain], s.tried[chain]) {
		list = append(list, s.events[seq].CausedBy...)
	}
	slices.Sort(list)
	return slices.Compact(list), context.Cause(ctx)
}

// Input returns an input, or *keep.NotFoundError.
func (s *Store) Input(ctx context.Context, id keep.InputID) (keep.Input, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	in, ok := s.inputs[id]
	if !ok {
		return keep.Input{}, &keep.NotFoundError{What: "input", ID: string(id)}
	}
	return s.withStatus(in.v), context.Cause(ctx)
}

// InputByKey returns the input with that source, type and external id, or
// *keep.NotFoundError.
func (s *Store) InputByKey(ctx context.Context, w keep.WorkflowName, source, typ, externalID string) (keep.Input, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	id, ok := s.inputKeys[inputKey{w, source, typ, externalID}]
	if !ok {
		return keep.Input{}, &keep.NotFoundError{What: "input", ID: source + " " + typ + " " + externalID}
	}
	return s.withStatus(s.inputs[id].v), context.Cause(ctx)
}

// withStatus derives the status of an input from the events that it caused.
func (s *Store) withStatus(in keep.Input) keep.Input {
	if in.Status == keep.InputSkipped {
		return in
	}
	in.Status = keep.InputDone
	for _, seq := range s.caused[in.ID] {
		if s.waits(s.events[seq]) {
			in.Status = keep.InputPending
		}
	}
	return in
}

// waits reports whether an event keeps its inputs waiting: a run has it, or a consumer of
// the version in force subscribes to its topic.
func (s *Store) waits(e keep.Event) bool {
	versions := s.deployments[e.Workflow]
	return e.Status == keep.EventPending &&
		(e.ReservedBy != "" || len(versions) == 0 || versions[len(versions)-1].v.Definition.Reads(e.Topic))
}
