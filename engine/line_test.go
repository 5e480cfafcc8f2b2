package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
)

// A run that waits in line behind others for the limits of a connection names no time that has passed: only the first in line
// knows when it is its turn.
func TestWaitInLineIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(rate("1/h"))
		w.sent(nil)
		w.crowd(4, 1)
		e := w.engine()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		runs, _, err := w.store.Runs(t.Context(), keep.RunFilter{Open: true}, keep.Page{})
		if err != nil {
			t.Fatal(err)
		}
		known := 0
		for _, r := range runs {
			wait := lifecycle.WaitOf(r, keep.Mutation{})
			if wait.Kind != lifecycle.WaitsForLimit || !wait.Until.IsZero() && !wait.Until.After(time.Now()) {
				t.Errorf("%s waits for %q, until %s: %s", r.Workflow, wait.Kind, wait.Until, wait)
			}
			if !wait.Until.IsZero() {
				known++
			}
		}
		if len(runs) != 3 || known != 1 {
			t.Errorf("%d runs wait, of %d of which the time is known; want 3, 1", len(runs), known)
		}
		cancel()
		<-done
	})
}
