package main

import (
	"io"
	"testing"

	"github.com/keep-run/keep"
)

// An attempt that an earlier process died in is neither a run of this one nor a
// failure: the attempt after it is counted.
func TestACrashedAttemptDidNotFail(t *testing.T) {
	t.Parallel()
	left := keep.Run{ID: "run_1", Workflow: "w", Rev: 1, Status: keep.StatusCrashed}
	closed := left
	closed.Rev, closed.Closed = 2, true
	next := keep.Run{ID: "run_2", Workflow: "w", Status: keep.StatusActive}
	done := next
	done.Rev, done.Closed, done.Status = 1, true, keep.StatusCommitted
	lost := keep.Run{ID: "run_3", Workflow: "w", Rev: 3, Closed: true, Status: keep.StatusTransient}
	for _, tt := range []struct {
		name    string
		commits [][]keep.Run
		want    runCount
	}{
		{"TakenUpAgain", [][]keep.Run{{left}, {closed, next}, {done}}, runCount{Name: "w", Runs: 1, Committed: 1}},
		{"HandedOver", [][]keep.Run{{closed, next}, {done}}, runCount{Name: "w", Runs: 1, Committed: 1}},
		{"AFailureIsOne", [][]keep.Run{{lost}}, runCount{Name: "w", Runs: 1, Failed: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newProgress(newApp(io.Discard, io.Discard))
			for _, runs := range tt.commits {
				c := keep.Commit{Workflow: "w"}
				for _, r := range runs {
					c.Changes = append(c.Changes, keep.PutRun{Run: r})
				}
				p.commit(c)
			}
			if got := p.count("w"); got != tt.want {
				t.Errorf("count = %+v, want %+v", got, tt.want)
			}
		})
	}
}
