package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// IDsWith finds ids of a noun by how they begin or end.
func (s *Store) IDsWith(ctx context.Context, n keep.Noun, part string, limit int) ([]string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all iter.Seq[string]
	switch n {
	case keep.NounRun:
		all = keysOf(s.runs)
	case keep.NounMutation:
		all = keysOf(s.mutations)
	case keep.NounInput:
		all = keysOf(s.inputs)
	case keep.NounQuestion:
		all = keysOf(s.escalations)
	default:
		return nil, fmt.Errorf("no noun %q has ids", n)
	}
	var found []string
	for id := range all {
		rest := id[min(len(n.Prefix()), len(id)):]
		if strings.HasPrefix(rest, part) || strings.HasSuffix(rest, part) {
			found = append(found, id)
		}
	}
	slices.Sort(found)
	slices.Reverse(found)
	return found[:min(limit, len(found))], context.Cause(ctx)
}

func keysOf[K ~string, V any](m map[K]V) iter.Seq[string] {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(string(k)) {
				return
			}
		}
	}
}

// EventsWith finds events by how their message ids begin or end.
func (s *Store) EventsWith(ctx context.Context, w keep.WorkflowName, t keep.TopicName, part string, limit int) ([]keep.Place, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var found []keep.Place
	for _, e := range s.events {
		if (w == "" || e.Workflow == w) && (t == "" || e.Topic == t) {
			found = append(found, keep.Place{Workflow: e.Workflow, Topic: e.Topic, ID: string(e.MessageID)})
		}
	}
	return placesWith(found, part, limit), context.Cause(ctx)
}

// ItemsWith finds items by how their ids begin or end.
func (s *Store) ItemsWith(ctx context.Context, w keep.WorkflowName, part string, limit int) ([]keep.Place, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var found []keep.Place
	for _, it := range s.items {
		if w == "" || it.v.Workflow == w {
			found = append(found, keep.Place{Workflow: it.v.Workflow, ID: it.v.ID})
		}
	}
	return placesWith(found, part, limit), context.Cause(ctx)
}

func placesWith(all []keep.Place, part string, limit int) []keep.Place {
	found := slices.DeleteFunc(all, func(p keep.Place) bool { return !strings.HasPrefix(p.ID, part) && !strings.HasSuffix(p.ID, part) })
	slices.SortFunc(found, func(a, b keep.Place) int {
		return cmp.Or(cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID))
	})
	return found[:min(limit, len(found))]
}
