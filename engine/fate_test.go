package engine_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
)

// A fate is what becomes of a commit, or of the process at it.
type fate string

const (
	lost      fate = "lost"       // the store fails, and nothing is written
	unknown   fate = "unknown"    // it is written, and the store reports an error
	dieBefore fate = "die-before" // the process dies before it is written
	dieAfter  fate = "die-after"  // the process dies right after it is written
)

var errDisk = errors.New("disk I/O error")

// strike lets the n-th commit from now on have that fate, and reports through
// struck whether it came to that.
func (w *world) strike(n int, f fate, struck *bool) {
	left := n
	w.onCommit = func(_ keep.Commit, do func() error) error {
		if left--; left != 0 {
			return do()
		}
		*struck = true
		w.onCommit = nil
		if f == dieBefore {
			runtime.Goexit()
		}
		if f != lost {
			if err := do(); err != nil {
				return err
			}
		}
		if f == dieAfter {
			runtime.Goexit()
		}
		return errDisk
	}
}

// A story is a run that needs several commits.
type story struct {
	name string
	set  func(w *world)
}

// stories have one effect for each of the events or items a and b.
func stories() []story {
	first := func(effect bool, err error) func(n int) (bool, error) {
		return func(n int) (bool, error) {
			if n == 1 {
				return effect, err
			}
			return true, nil
		}
	}
	return []story{
		{"Undisturbed", func(*world) {}},
		{"Refused", func(w *world) {
			w.service.onCall = first(false, keep.Failf(keep.ClassTransient, "refused", "connection refused"))
		}},
		{"LostAnswer", func(w *world) { w.service.onCall = first(true, errReset) }},
		{"LostCall", func(w *world) { w.service.onCall = first(false, errReset) }},
		{"SlowNext", func(w *world) {
			w.slow = 10 * time.Millisecond
			w.script["consumers.act.next"] = slowly(w.script["consumers.act.next"])
		}},
	}
}

// Every commit of every story, at every level, fails, is of unknown fate, or is
// where the process dies: no second effect, nothing is lost, Check is clean
// (laws once, all-or-nothing, nothing-lost).
func TestEveryCommitGoesWrong(t *testing.T) {
	for _, kind := range []keep.Kind{keep.Consumer, keep.Job} {
		for _, level := range []keep.Level{keep.LevelKey, keep.LevelWitness, keep.LevelNone} {
			for _, s := range stories() {
				if kind == keep.Job && s.name == "SlowNext" {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", kind, level, s.name), func(t *testing.T) {
					for _, f := range []fate{lost, unknown, dieBefore, dieAfter} {
						for n, more := 1, true; more; n++ {
							more = tryFate(t, kind, level, s, []fate{f}, []int{n})
						}
					}
				})
			}
		}
	}
}

// The recovery from one fate meets another: crashing during recovery changes
// nothing.
func TestRecoveryGoesWrong(t *testing.T) {
	for _, kind := range []keep.Kind{keep.Consumer, keep.Job} {
		for _, level := range []keep.Level{keep.LevelKey, keep.LevelWitness, keep.LevelNone} {
			t.Run(fmt.Sprintf("%s/%s", kind, level), func(t *testing.T) {
				for _, f := range []fate{unknown, dieBefore, dieAfter} {
					for _, g := range []fate{lost, unknown, dieBefore, dieAfter} {
						for n := 1; n <= 5; n++ {
							for m, more := 1, true; more; m++ {
								more = tryFate(t, kind, level, stories()[2], []fate{f, g}, []int{n, m})
							}
						}
					}
				}
			})
		}
	}
}

// tryFate plays a story with fates at the given commits, each counted from the
// one before, and reports whether it came to all of them.
func tryFate(t *testing.T, kind keep.Kind, level keep.Level, s story, fates []fate, at []int) (all bool) {
	t.Helper()
	name := fmt.Sprintf("%v at commit %v", fates, at)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if kind == keep.Job {
			w = newJobWorld(t, "a", "b")
		}
		w.service.level = level
		s.set(w)
		w.deploy()
		if kind == keep.Consumer {
			w.publish("in", "a", "b")
		}
		all = true
		for i, f := range fates {
			struck := false
			w.strike(at[i], f, &struck)
			_ = w.runFor(3 * time.Minute) // a dead actor is never idle
			w.onCommit = nil
			all = all && struck
		}
		w.run()
		w.finish(name)
		if t.Failed() {
			t.Fatal(name)
		}
	})
	return all && !t.Failed()
}

// finish answers what is open as a person would who looked at the service, until
// nothing is, and then wants everything done once.
func (w *world) finish(name string) {
	w.t.Helper()
	for range 10 {
		qs := w.questions()
		if len(qs) == 0 {
			break
		}
		m, err := w.store.Mutation(w.t.Context(), qs[0].Mutation)
		if err != nil || qs[0].Kind != keep.AskUnknownOutcome {
			w.t.Fatalf("%s: question %s %q about %q, %v; want one about an unknown outcome", name, qs[0].Kind, qs[0].Why, qs[0].Mutation, err)
		}
		a := keep.DidNotHappen
		if w.service.effects[m.Token] > 0 {
			a = keep.Skip
		}
		if err := w.engine().Decide(w.t.Context(), qs[0].ID, keep.Decision{Action: a, By: "ann", From: "test"}); err != nil {
			w.t.Fatalf("%s: %s: %v", name, a, err)
		}
		w.run()
	}
	r := w.lastRun()
	if r.Status != keep.StatusCommitted {
		w.t.Errorf("%s: the last run is %s (%v), want committed", name, r.Status, r.Error)
	}
	for _, id := range []string{"a", "b"} {
		ev, item := w.event("in", id), w.items()[id]
		if ev.Seq == 0 && item == "" || ev.Seq != 0 && ev.Status == keep.EventPending || item != "" && item != keep.ItemDone && item != keep.ItemSkipped {
			w.t.Errorf("%s: %s ended as event %q, item %q; want it finished", name, id, ev.Status, item)
		}
	}
	if n := w.service.total(); n != 2 || len(w.service.effects) != 2 {
		w.t.Errorf("%s: %d effects of %d tokens, want 2 of 2 (law: once)", name, n, len(w.service.effects))
	}
}
