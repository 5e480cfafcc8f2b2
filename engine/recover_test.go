package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
)

// Ten crashes of one chain in a row escalate as internal; a crash uses up no
// retry, and the person's retry may continue.
func TestTenCrashesAskAPerson(t *testing.T) {
	for _, p := range []engine.Point{engine.BeforeCall, engine.BeforeCommit} {
		t.Run(string(p), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.slow = 10 * time.Millisecond
				for _, phase := range []string{"mutate", "next"} {
					w.script["consumers.act."+phase] = slowly(w.script["consumers.act."+phase])
				}
				w.deploy()
				w.publish("in", "a")
				crashes := 0
				for ; crashes < 20 && len(w.questions()) == 0; crashes++ {
					w.dieAt = p
					_ = w.runFor(time.Minute)
				}
				w.dieAt = ""
				r := w.lastRun()
				if r.Status != keep.StatusInternal || r.Error.Code != "crash-loop" || r.Crashes != 10 || r.Retries != 0 {
					t.Fatalf("after %d crashes the run is %s (%v) with %d crashes and %d retries; want failed:internal, crash-loop, 10, 0",
						crashes, r.Status, r.Error, r.Crashes, r.Retries)
				}
				if q := w.questions()[0]; q.Kind != keep.AskInternal {
					t.Errorf("question %s, want internal", q.Kind)
				}
				w.run()
				if n := len(w.runs()); w.lastRun().ID != r.ID {
					t.Errorf("%d runs: it continued by itself", n)
				}
				if err := w.decide(keep.Retry); err != nil {
					t.Fatal(err)
				}
				w.run()
				w.wantOnce("a")
			})
		})
	}
}

// A clock that is set back between two processes makes Keep wait longer, and
// never believe or repeat anything: times already stored lie in the future then.
func TestClockSetBack(t *testing.T) {
	for _, p := range engine.Points() {
		for i, effect := range []bool{true, false, true, false} {
			w := newWorld(t).writtenIn(kinds[i/2])
			deadAt := time.Time{}
			synctest.Test(t, func(t *testing.T) {
				w.t = t
				time.Sleep(6 * time.Hour) // this process's clock is ahead
				w.deploy()
				w.publish("in", "a")
				w.dieAt = p
				w.service.onCall = func(n int) (bool, error) {
					if n == 1 && !effect {
						return false, errReset
					}
					return true, nil
				}
				_ = w.runFor(time.Minute)
				deadAt = time.Now()
			})
			synctest.Test(t, func(t *testing.T) {
				w.t = t
				if !time.Now().Before(deadAt.Add(-5 * time.Hour)) {
					t.Fatal("the clock was not set back")
				}
				w.run()
				w.wantOnce("a")
				if t.Failed() {
					t.Logf("died at %s, first call had an effect: %t", p, effect)
				}
			})
		}
	}
}

// A backoff, a wake-up and a "run now" that were planned by a clock that was
// ahead happen, late at worst and once.
func TestClockSetBackWhileWaiting(t *testing.T) {
	w := newWorld(t)
	runs := 0
	w.def.Handlers = append(w.def.Handlers, keep.Handler{Name: "poll", Kind: keep.Producer, Schedule: keep.Schedule{Interval: time.Hour}})
	w.script["producers.poll"] = func(*call) any { runs++; return nil }
	synctest.Test(t, func(t *testing.T) {
		w.t = t
		time.Sleep(6 * time.Hour)
		w.deploy()
		w.run()
		if err := w.engine().Trigger(t.Context(), "w", "poll", keep.Decision{By: "ann"}); err != nil {
			t.Fatal(err)
		}
	})
	if runs != 1 {
		t.Fatalf("%d runs at first, want 1", runs)
	}
	synctest.Test(t, func(t *testing.T) {
		w.t = t
		w.run()
		w.run()
		if runs != 2 {
			t.Errorf("%d runs after the clock was set back, want 2: the one asked for, once", runs)
		}
		time.Sleep(8 * time.Hour)
		w.run()
		if runs != 3 {
			t.Errorf("%d runs when the time had come, want 3", runs)
		}
	})
}

// The insert-or-update pattern: what mutate reads by id decides which tool it
// calls, and that may change between two attempts. The second attempt must not
// hang: it makes its call, or says why not.
func TestRetryCallsAnotherTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.onCall = func(n int) (bool, error) {
			if n == 1 {
				return false, keep.Failf(keep.ClassTransient, "http-429", "too many requests")
			}
			return true, nil
		}
		w.script["consumers.act.mutate"] = func(c *call) any {
			if w.service.calls == 0 {
				return c.do("svc.create", map[string]any{"id": "a"})
			}
			return c.do("svc.other", map[string]any{"id": "a"})
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		r := w.lastRun()
		if r.Status != keep.StatusLogic || r.Error.Code != "other-tool" || !strings.Contains(r.Error.Message, "svc.create") {
			t.Fatalf("run = %s (%v), want failed:logic other-tool", r.Status, r.Error)
		}
		if w.service.total() != 0 || !w.event("in", "a").Free() {
			t.Errorf("%d effects, event free: %t; want none, free", w.service.total(), w.event("in", "a").Free())
		}
		if err := w.decide(keep.Retry); err != nil {
			t.Fatal(err)
		}
		w.run()
		w.wantOnce("a")
	})
}

// A store that is away for long is waited for; nothing else is lost by it.
func TestStoreIsAwayForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.deploy()
		w.publish("in", "a", "b")
		until := time.Now().Add(time.Hour)
		w.onCommit = func(_ keep.Commit, do func() error) error {
			if time.Now().Before(until) {
				return errDisk
			}
			return do()
		}
		w.run()
		w.wantOnce("a", "b")
		if w.service.calls != 2 {
			t.Errorf("%d calls, want 2", w.service.calls)
		}
	})
}

// Law one-at-a-time: a blocked workflow blocks no other.
func TestBlockedWorkflowBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.level = keep.LevelNone
		w.service.onCallContext = func(ctx context.Context) error { return nil }
		w.service.onCall = func(n int) (bool, error) {
			if n == 1 {
				return true, errReset
			}
			return true, nil
		}
		w.deploy()
		w.publish("in", "a")
		w.run() // w is blocked
		w.def.Name = "v"
		w.deploy()
		w.publish("in", "b", "c")
		w.run()
		if n := w.service.total(); n != 3 {
			t.Errorf("%d effects, want 3: workflow v continues", n)
		}
		for _, id := range []string{"b", "c"} {
			if ev := w.event("in", id); ev.Status != keep.EventConsumed {
				t.Errorf("event %s of v is %s, want consumed", id, ev.Status)
			}
		}
	})
}
