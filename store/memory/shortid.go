package memory

import (
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
