package web

import (
	"context"

	"github.com/keep-run/keep"
)

// countInputs returns how many inputs a filter selects.
func (s *site) countInputs(ctx context.Context, f keep.InputFilter) (int, error) {
	counts, err := s.cfg.Store.CountInputs(ctx, f)
	return sum(counts), err
}

func sum[S comparable](counts map[S]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

// inputCounts counts the inputs of each status that match the rest of the filter.
func (s *site) inputCounts(ctx context.Context, f inputQuery) ([]inputCount, error) {
	any := f.InputFilter
	any.Status = ""
	counts, err := s.cfg.Store.CountInputs(ctx, any)
	if err != nil {
		return nil, err
	}
	out := []inputCount{{"", sum(counts), "/inputs" + f.Query("")}}
	for _, st := range keep.InputStatuses() {
		out = append(out, inputCount{st, counts[st], "/inputs" + f.Query(st)})
	}
	return out, nil
}

// A stateCount is how many rows of a list have a state.
type stateCount struct {
	State string
	Count int
	Link  string
}

// totals are numbers of the whole database.
type totals struct {
	Inputs    map[keep.InputStatus]int
	Mutations map[keep.MutationState]int
}

// All returns how many there are.
func (t totals) AllInputs() int { return sum(t.Inputs) }

// AllMutations returns how many there are.
func (t totals) AllMutations() int { return sum(t.Mutations) }

// InDoubt returns how many outcomes are not known.
func (t totals) InDoubt() int {
	return t.Mutations[keep.InFlight] + t.Mutations[keep.NeedsReconcile] + t.Mutations[keep.Indeterminate]
}

// Pending returns how many inputs are not finished.
func (t totals) Pending() int { return t.Inputs[keep.InputPending] }

func (s *site) totals(ctx context.Context) (t totals, err error) {
	if t.Inputs, err = s.cfg.Store.CountInputs(ctx, keep.InputFilter{}); err != nil {
		return t, err
	}
	t.Mutations, err = s.cfg.Store.CountMutations(ctx, keep.MutationFilter{})
	return t, err
}
