package web

import (
	"context"
	"errors"
	"time"

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

// countTime is how long a page waits for the number of titles that match. Words
// that a million titles have take seconds to count, and are counted on request.
const countTime = 250 * time.Millisecond

// errCountTime ends a count that takes too long to wait for.
var errCountTime = errors.New("counting takes too long")

// inputCounts counts the inputs of each status that match the rest of the filter.
// A page shows exact numbers or none: known is false if they take too long.
func (s *site) inputCounts(ctx context.Context, f inputQuery) (out []inputCount, known bool, err error) {
	every := f.InputFilter
	every.Status = ""
	if f.Text != "" && !f.Count {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, countTime, errCountTime)
		defer cancel()
	}
	counts, err := s.cfg.Store.CountInputs(ctx, every)
	known = err == nil
	if err != nil && !errors.Is(context.Cause(ctx), errCountTime) {
		return nil, false, err
	}
	out = []inputCount{{"", sum(counts), "/inputs" + f.Query("")}}
	for _, st := range keep.InputStatuses() {
		out = append(out, inputCount{st, counts[st], "/inputs" + f.Query(st)})
	}
	return out, known, nil
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
