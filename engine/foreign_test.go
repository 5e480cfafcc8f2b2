package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
)

// An event that another process skips, after the actor has read ahead and before
// it is told, is not consumed, and that is nobody's failure (law: nothing-lost).
func TestSkippedAfterItWasReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.onCall = func(n int) (bool, error) {
			if n == 1 {
				err := w.store.Commit(t.Context(), keep.Commit{Workflow: "w", At: time.Now(),
					Changes: []keep.Change{keep.SkipEvents{Topic: "in", IDs: []keep.MessageID{"b"}}}})
				if err != nil {
					t.Error(err)
				}
			}
			return true, nil
		}
		w.deploy()
		w.publish("in", "a", "b", "c")
		w.run()
		want := map[string]keep.EventStatus{"a": keep.EventConsumed, "b": keep.EventSkipped, "c": keep.EventConsumed}
		for id, status := range want {
			if ev := w.event("in", id); ev.Status != status {
				t.Errorf("event %s is %s, want %s", id, ev.Status, status)
			}
		}
		if n := len(w.runs()); n != 2 || w.service.calls != 2 || len(w.questions()) != 0 {
			t.Errorf("%d runs, %d calls, %d questions; want 2, 2 and none", n, w.service.calls, len(w.questions()))
		}
	})
}
