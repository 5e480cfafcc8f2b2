package engine_test

import (
	"testing"
	"testing/synctest"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// A run that failed gives its events back, and stays part of what became of them: its
// event, its input and its calls show it, before and after a corrected version did the
// work.
func TestAFailedRunStaysLinked(t *testing.T) {
	throw := func(*call) any { panic(thrown("no")) }
	for name, test := range map[string]struct {
		breaks   func(*world)
		reserved int
		calls    int
	}{
		"in prepare": {func(w *world) { w.script["consumers.act.prepare"] = throw }, 0, 0},
		"in mutate":  {func(w *world) { w.script["consumers.act.mutate"] = throw }, 1, 0},
		"refused": {func(w *world) {
			w.service.onCall = func(n int) (bool, error) {
				if n == 1 {
					return false, keep.Failf(keep.ClassLogic, "http-422", "id must be a number")
				}
				return true, nil
			}
		}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				prepare, mutate := w.script["consumers.act.prepare"], w.script["consumers.act.mutate"]
				test.breaks(w)
				w.deploy()
				w.publish("in", "a")
				w.run()
				failed := w.lastRun()
				if failed.Status != keep.StatusLogic || len(failed.Reservations) != test.reserved || !w.event("in", "a").Free() {
					t.Fatalf("the run is %s, says that it reserved %v, and the event is free: %t", failed.Status, failed.Reservations, w.event("in", "a").Free())
				}
				w.linked([]keep.RunStatus{keep.StatusLogic}, test.calls)
				w.script["consumers.act.prepare"], w.script["consumers.act.mutate"] = prepare, mutate
				w.deploy()
				w.run()
				if ev := w.event("in", "a"); ev.Status != keep.EventConsumed || ev.ReservedBy == failed.Chain {
					t.Errorf("the event is %s, by %s", ev.Status, ev.ReservedBy)
				}
				w.linked([]keep.RunStatus{keep.StatusCommitted, keep.StatusLogic}, test.calls+1)
				w.check()
			})
		})
	}
}

// linked checks what the event a and its input show: runs, newest first, and calls.
func (w *world) linked(want []keep.RunStatus, calls int) {
	w.t.Helper()
	s := w.store.(store.Lineage)
	ofEvent, err := s.RunsOfEvent(w.t.Context(), "w", "in", "a", 10)
	if err != nil {
		w.t.Fatal(err)
	}
	ofInput, err := s.RunsOf(w.t.Context(), "in_a", 10)
	if err != nil {
		w.t.Fatal(err)
	}
	for what, runs := range map[string][]keep.Run{"event": ofEvent, "input": ofInput} {
		var got []keep.RunStatus
		for _, r := range runs {
			got = append(got, r.Status)
			if causes, err := s.Causes(w.t.Context(), r.Chain); err != nil || len(causes) != 1 || causes[0] != "in_a" {
				w.t.Errorf("run %s is about %v, %v", r.ID, causes, err)
			}
		}
		if len(got) != len(want) || got[0] != want[0] || got[len(got)-1] != want[len(want)-1] {
			w.t.Errorf("the runs of the %s are %v, want %v", what, got, want)
		}
	}
	outputs, err := s.Outputs(w.t.Context(), "in_a")
	if err != nil || len(outputs) != calls {
		w.t.Errorf("the input has the calls %v, %v; want %d", outputs, err, calls)
	}
}

// Skipping a run that failed skips what it says that it reserved, and no other event.
func TestSkipOfAFailedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.script["consumers.act.mutate"] = func(*call) any { panic(thrown("no")) }
		w.deploy()
		w.publish("in", "a", "b")
		w.run()
		if err := w.decide(keep.Skip); err != nil {
			t.Fatal(err)
		}
		if a, b := w.event("in", "a"), w.event("in", "b"); a.Status != keep.EventSkipped || !b.Free() {
			t.Errorf("after the skip the events are %s and %s, want skipped and pending", a.Status, b.Status)
		}
		w.linked([]keep.RunStatus{keep.StatusAborted}, 0)
		w.check()
	})
}
