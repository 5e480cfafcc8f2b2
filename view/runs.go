package view

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// RunsIn returns f so that it selects runs that are in its status now: a closed one does not wait for what
// its status says.
func RunsIn(f keep.RunFilter) keep.RunFilter {
	f.Open = f.Open || f.Status.Waits()
	return f
}

// CountRuns counts the runs that a filter without a status selects, by what they do or wait for now and by
// what became of them. The total has attempts that others took over, too.
func CountRuns(ctx context.Context, s store.Runs, f keep.RunFilter) (Found[keep.RunStatus], error) {
	by, err := s.CountRuns(ctx, f)
	found := FoundOf(f.Bounded(), by)
	if err != nil || f.Open {
		return found, err
	}
	f.Open = true
	open, err := s.CountRuns(ctx, f)
	for _, status := range keep.RunStatuses() {
		if _, some := by[status]; some && status.Waits() {
			by[status] = open[status]
		}
	}
	return found, err
}
