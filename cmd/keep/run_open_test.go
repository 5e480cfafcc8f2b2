package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/store/memory"
)

// An internal failure makes the status 1 also if many runs began after it that wait.
func TestOpenRunsAreAllOfThem(t *testing.T) {
	s := memory.New()
	for n := range 102 {
		id := keep.RunID(fmt.Sprintf("run_%03d", n))
		r := keep.Run{ID: id, Chain: id, Workflow: "w", Handler: "h", Kind: keep.Consumer, Lane: keep.KeyLane("h", string(id)), Phase: keep.Preparing, Status: keep.StatusTransient}
		if n == 0 {
			r.Status = keep.StatusInternal
		}
		noError(t, s.Commit(t.Context(), keep.Commit{Workflow: "w", At: time.Unix(int64(n), 0), Changes: []keep.Change{keep.PutRun{Run: r}}}))
	}
	runs, err := openRuns(t.Context(), s, "w")
	if internal := func(r api.Run) bool { return r.Status == keep.StatusInternal }; err != nil || len(runs) != 102 || !slices.ContainsFunc(runs, internal) {
		t.Errorf("%d runs are open, %v, and one of them stopped by an internal failure: %t", len(runs), err, slices.ContainsFunc(runs, internal))
	}
}
