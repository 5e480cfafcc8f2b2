package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
)

// page returns the wanted part of the rows that match, newest first, and the
// cursor of the next one. kind marks the cursors of this list.
func page[T any](kind string, p keep.Page, rows iter.Seq[row[T]], match func(T) bool, out func(T) T) ([]T, string, error) {
	before := int64(0)
	if p.After != "" {
		digits, ours := strings.CutPrefix(p.After, kind)
		n, err := strconv.ParseInt(digits, 10, 64)
		if !ours || err != nil || n < 1 {
			return nil, "", fmt.Errorf("cursor %q: %w", p.After, keep.ErrBadCursor)
		}
		before = n
	}
	var found []row[T]
	for r := range rows {
		if (before == 0 || r.n < before) && match(r.v) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b row[T]) int { return cmp.Compare(b.n, a.n) })
	next := ""
	if len(found) > p.Size() {
		found = found[:p.Size()]
		next = kind + strconv.FormatInt(found[len(found)-1].n, 10)
	}
	var list []T
	for _, r := range found {
		list = append(list, out(r.v))
	}
	return list, next, nil
}

// is reports whether a filter's field allows v.
func is[T comparable](want, v T) bool {
	var all T
	return want == all || want == v
}

// Runs returns a page of runs, newest first, and the cursor of the next.
func (s *Store) Runs(_ context.Context, f keep.RunFilter, p keep.Page) ([]keep.Run, string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return page("r", p, maps.Values(s.runs), matchRun(f), func(r keep.Run) keep.Run {
		if p.Bare {
			r.Prepared = nil
		}
		return copyRun(r)
	})
}

// matchRun returns a filter as a function.
func matchRun(f keep.RunFilter) func(keep.Run) bool {
	terms := search.Terms(f.Text)
	return func(r keep.Run) bool {
		return is(f.Workflow, r.Workflow) && is(f.Handler, r.Handler) && is(f.Status, r.Status) &&
			is(f.Chain, r.Chain) && (!f.Open || !r.Closed) && f.Made.Has(r.CreatedAt) &&
			(f.Error == "" || r.Status != keep.StatusActive && r.Status != keep.StatusCommitted && r.Error.Named(f.Error)) && (len(terms) == 0 || search.OfRun(r).Has(terms))
	}
}

// CountRuns counts the runs that a filter selects, by their status.
func (s *Store) CountRuns(ctx context.Context, f keep.RunFilter) (map[keep.RunStatus]int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return count(maps.Values(s.runs), matchRun(f), func(r keep.Run) keep.RunStatus { return r.Status }), context.Cause(ctx)
}

// count counts the rows that match, by what state says of them.
func count[T any, S comparable](rows iter.Seq[row[T]], match func(T) bool, state func(T) S) map[S]int {
	counts := make(map[S]int)
	for r := range rows {
		if match(r.v) {
			counts[state(r.v)]++
		}
	}
	return counts
}

// Mutations returns a page of ledger records, newest first, and the cursor of
// the next.
func (s *Store) Mutations(_ context.Context, f keep.MutationFilter, p keep.Page) ([]keep.Mutation, string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return page("m", p, maps.Values(s.mutations), s.matchMutation(f), func(m keep.Mutation) keep.Mutation {
		if p.Bare {
			m.Identity, m.Payload, m.Result, m.Pin = nil, nil, nil, nil
		}
		return copyMutation(m)
	})
}

// matchMutation returns a filter as a function. The caller holds mu.
func (s *Store) matchMutation(f keep.MutationFilter) func(keep.Mutation) bool {
	var outputs []keep.MutationKey
	if f.Input != "" {
		outputs = s.outputs(f.Input)
	}
	terms := search.Terms(f.Text)
	return func(m keep.Mutation) bool {
		return is(f.Workflow, m.Workflow) && is(f.State, m.State) && is(f.Tool, m.Tool) && is(f.Run, m.Run) &&
			is(f.Item, m.Item) && (f.Input == "" || slices.Contains(outputs, m.Key)) && f.Made.Has(m.CreatedAt) &&
			(f.Error == "" || m.State != keep.Applied && m.Error.Named(f.Error)) && (len(terms) == 0 || search.OfMutation(m).Has(terms))
	}
}

// CountMutations counts the records that a filter selects, by their state.
func (s *Store) CountMutations(ctx context.Context, f keep.MutationFilter) (map[keep.MutationState]int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return count(maps.Values(s.mutations), s.matchMutation(f), func(m keep.Mutation) keep.MutationState { return m.State }), context.Cause(ctx)
}

// Outputs returns the mutations of the runs that reserved events caused by an
// input, oldest first.
func (s *Store) Outputs(ctx context.Context, id keep.InputID) ([]keep.MutationKey, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.outputs(id), context.Cause(ctx)
}

// chainsOf returns the chains that reserved or tried one of some events. The caller
// holds mu.
func (s *Store) chainsOf(events []int64) map[keep.RunID]bool {
	chains := make(map[keep.RunID]bool)
	for _, seq := range events {
		chains[s.events[seq].ReservedBy] = true
	}
	delete(chains, "")
	for chain, tried := range s.tried {
		if slices.ContainsFunc(tried, func(seq int64) bool { return slices.Contains(events, seq) }) {
			chains[chain] = true
		}
	}
	return chains
}

// outputs goes the chain of the main view: input, events, runs, mutations.
func (s *Store) outputs(id keep.InputID) []keep.MutationKey {
	chains := s.chainsOf(s.caused[id])
	var list []keep.MutationKey
	for key, m := range s.mutations {
		if r, ok := s.runs[m.v.Run]; ok && chains[r.v.Chain] {
			list = append(list, key)
		}
	}
	slices.SortFunc(list, func(a, b keep.MutationKey) int { return cmp.Compare(s.mutations[a].n, s.mutations[b].n) })
	return list
}

// Events returns a page of events, newest first, and the cursor of the next.
func (s *Store) Events(_ context.Context, f keep.EventFilter, p keep.Page) ([]keep.Event, string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	rows := func(yield func(row[keep.Event]) bool) {
		for seq, e := range s.events {
			if !yield(row[keep.Event]{seq, e}) {
				return
			}
		}
	}
	terms := search.Terms(f.Text)
	return page("e", p, rows, func(e keep.Event) bool {
		return is(f.Workflow, e.Workflow) && is(f.Topic, e.Topic) && is(f.Status, e.Listed()) &&
			(f.Input == "" || slices.Contains(e.CausedBy, f.Input)) && f.Made.Has(e.CreatedAt) && (len(terms) == 0 || search.OfEvent(e).Has(terms))
	}, func(e keep.Event) keep.Event {
		if p.Bare {
			e.Payload = nil
		}
		return copyEvent(e)
	})
}

// Inputs returns a page of inputs, newest first, and the cursor of the next.
func (s *Store) Inputs(_ context.Context, f keep.InputFilter, p keep.Page) ([]keep.Input, string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return page("i", p, maps.Values(s.inputs), s.matchInput(f), s.withStatus)
}

// matchInput returns a filter as a function. The caller holds mu.
func (s *Store) matchInput(f keep.InputFilter) func(keep.Input) bool {
	terms := search.Terms(f.Text)
	return func(in keep.Input) bool {
		return is(f.Workflow, in.Workflow) && is(f.Status, s.withStatus(in).Status) && f.Made.Has(in.CreatedAt) && (len(terms) == 0 || search.OfInput(in).Has(terms))
	}
}

// CountInputs counts the inputs that a filter selects, by their status.
func (s *Store) CountInputs(ctx context.Context, f keep.InputFilter) (map[keep.InputStatus]int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return count(maps.Values(s.inputs), s.matchInput(f), func(in keep.Input) keep.InputStatus { return s.withStatus(in).Status }), context.Cause(ctx)
}

// Items returns a page of items, newest first, and the cursor of the next.
func (s *Store) Items(_ context.Context, f keep.ItemFilter, p keep.Page) ([]keep.Item, string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return page("t", p, maps.Values(s.items), matchItem(f), copyItem)
}

// matchItem returns a filter as a function.
func matchItem(f keep.ItemFilter) func(keep.Item) bool {
	terms := search.Terms(f.Text)
	return func(it keep.Item) bool {
		return is(f.Workflow, it.Workflow) && is(f.Status, it.Status) && f.Made.Has(it.CreatedAt) && (len(terms) == 0 || search.OfItem(it).Has(terms))
	}
}

// CountItems counts the items that a filter selects, by their status.
func (s *Store) CountItems(ctx context.Context, f keep.ItemFilter) (map[keep.ItemStatus]int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return count(maps.Values(s.items), matchItem(f), func(it keep.Item) keep.ItemStatus { return it.Status }), context.Cause(ctx)
}

// Escalations returns a page of questions, newest first, and the cursor of the
// next.
func (s *Store) Escalations(_ context.Context, f keep.EscalationFilter, p keep.Page) ([]keep.Escalation, string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return page("q", p, maps.Values(s.escalations), matchEscalation(f), copyEscalation)
}

// matchEscalation returns a filter as a function.
func matchEscalation(f keep.EscalationFilter) func(keep.Escalation) bool {
	return func(e keep.Escalation) bool {
		return is(f.Workflow, e.Workflow) && is(f.Run, e.Run) && is(f.Kind, e.Kind) && is(f.Item, e.Item) &&
			(!f.Open || e.ClosedAt.IsZero()) && (!f.Closed || !e.ClosedAt.IsZero()) && f.Made.Has(e.CreatedAt)
	}
}

// SaidDone returns what persons said of calls of an item that were done already, newest first.
func (s *Store) SaidDone(_ context.Context, w keep.WorkflowName, item string) ([]keep.Escalation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list, _, err := page("q", keep.Page{Limit: len(s.escalations)}, maps.Values(s.escalations), func(q keep.Escalation) bool {
		return q.Workflow == w && q.Item == item && (q.Kind == keep.AskApproval || q.Kind == keep.AskAlreadyDone) &&
			q.Decision != nil && (q.Decision.Action == keep.TreatAsDone || q.Decision.Action == keep.DoAgain)
	}, copyEscalation)
	return list, err
}

// CountEscalations counts the questions that a filter selects, by their kind.
func (s *Store) CountEscalations(ctx context.Context, f keep.EscalationFilter) (map[keep.EscalationKind]int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return count(maps.Values(s.escalations), matchEscalation(f), func(e keep.Escalation) keep.EscalationKind { return e.Kind }), context.Cause(ctx)
}

// Deployments returns the versions of a workflow, or of all if w is empty,
// newest first, without their code.
func (s *Store) Deployments(ctx context.Context, w keep.WorkflowName) ([]keep.Deployment, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var rows []row[keep.Deployment]
	for name, list := range s.deployments {
		if is(w, name) {
			rows = append(rows, list...)
		}
	}
	slices.SortFunc(rows, func(a, b row[keep.Deployment]) int { return cmp.Compare(b.n, a.n) })
	var list []keep.Deployment
	for _, r := range rows {
		d := copyDeployment(r.v)
		d.Code, d.Map = nil, nil
		list = append(list, d)
	}
	return list, context.Cause(ctx)
}

// TopicCounts counts the events of every topic that a version declared or that
// has events, of one workflow or of all if w is empty, sorted by name.
func (s *Store) TopicCounts(ctx context.Context, w keep.WorkflowName) ([]keep.TopicCount, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	counts := make(map[topicKey]keep.TopicCount)
	for _, list := range s.deployments {
		for _, d := range list {
			for _, t := range d.v.Definition.Topics {
				counts[topicKey{d.v.Workflow, t}] = keep.TopicCount{Workflow: d.v.Workflow, Topic: t}
			}
		}
	}
	for _, e := range s.events {
		key := topicKey{e.Workflow, e.Topic}
		c := counts[key]
		c.Workflow, c.Topic = e.Workflow, e.Topic
		switch {
		case e.Free():
			c.Pending++
		case e.Status == keep.EventPending:
			c.Reserved++
		case e.Status == keep.EventConsumed:
			c.Consumed++
		case e.Status == keep.EventSkipped:
			c.Skipped++
		}
		counts[key] = c
	}
	var list []keep.TopicCount
	for key, c := range counts {
		if is(w, key.workflow) {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b keep.TopicCount) int {
		return cmp.Or(cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(a.Topic, b.Topic))
	})
	return list, context.Cause(ctx)
}
