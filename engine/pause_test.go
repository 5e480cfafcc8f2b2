package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
)

// Pause lets the call under way finish and be recorded: a job begins no other,
// and continues where it was after resume.
func TestPauseAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t, "a", "b", "c")
		w.service.onCallContext = func(context.Context) error { time.Sleep(time.Second); return nil } // virtual
		w.deploy()
		e := w.engine()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := e.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		time.Sleep(1500 * time.Millisecond)
		if err := e.Pause(t.Context(), "w", keep.Decision{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if w.service.calls != 2 {
			t.Errorf("%d calls while paused, want 2: the one before and the one under way", w.service.calls)
		}
		if got := w.items(); got["a"] != keep.ItemDone || got["b"] != keep.ItemDone || got["c"] != "" {
			t.Errorf("items %v, want a and b done, no c", got)
		}
		if r := w.lastRun(); r.Status != keep.StatusTransient || strings.Contains(lifecycle.WaitOf(r, keep.Mutation{}).String(), "died") ||
			!strings.Contains(lifecycle.WaitOf(r, keep.Mutation{}).String(), "a person paused the workflow") {
			t.Errorf("the run of the paused job is %s: %s", r.Status, lifecycle.WaitOf(r, keep.Mutation{}))
		}
		if err := e.Trigger(t.Context(), "w", "remind", keep.Decision{By: "ann"}); err == nil {
			t.Error("run now was accepted with an unfinished run")
		}
		if err := e.Resume(t.Context(), "w", keep.Decision{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		limit, stop := context.WithTimeout(ctx, time.Hour)
		defer stop()
		if err := e.WaitIdle(limit); err != nil {
			t.Errorf("not idle: %v", err)
		}
		cancel()
		wg.Wait()
		if r := w.lastRun(); r.Status != keep.StatusCommitted || w.service.calls != 3 || w.service.total() != 3 || r.Crashes != 0 || r.Retries != 0 {
			t.Errorf("run = %s after %d calls with %d crashes and %d retries, want committed after 3, none", r.Status, w.service.calls, r.Crashes, r.Retries)
		}
		w.check()
	})
}

// A person pauses the workflow while a run of a consumer prepares, or its tool gets ready: the call is not under way, and is not made
// before the workflow is resumed.
func TestPauseAConsumer(t *testing.T) {
	for _, at := range []string{"prepare", "mutate", "start"} {
		for _, slow := range []time.Duration{time.Second, 0} { // the run is stored meanwhile, or not
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.slow = slow
				wait := func() { time.Sleep(10 * time.Minute) }
				if at == "start" {
					w.service.onStart = func() error { wait(); return nil }
				} else {
					do := w.script["consumers.act."+at]
					w.script["consumers.act."+at] = func(c *call) any { wait(); return do(c) }
				}
				w.deploy()
				w.publish("in", "a")
				e := w.engine()
				time.AfterFunc(time.Minute, func() {
					if err := e.Pause(t.Context(), "w", keep.Decision{By: "ann", Note: "the bank calls"}); err != nil {
						t.Error(err)
					}
				})
				calls := -1
				time.AfterFunc(time.Hour, func() {
					calls = w.service.calls
					if err := e.Resume(t.Context(), "w", keep.Decision{By: "ann"}); err != nil {
						t.Error(err)
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
				defer cancel()
				if err := e.Run(ctx); err != nil {
					t.Errorf("Run: %v", err)
				}
				r := w.lastRun()
				if calls != 0 || w.service.total() != 1 || r.Status != keep.StatusCommitted || r.Retries != 0 || r.Crashes != 0 {
					t.Errorf("%s, slow after %s: %d calls while it was paused, then %d effects, run %s with %d retries and %d crashes; want none, one, committed",
						at, slow, calls, w.service.total(), r.Status, r.Retries, r.Crashes)
				}
				w.check()
			})
		}
	}
}

// "Run now" is refused while a run executes, also one that has written nothing
// yet; the handler runs once more only if it is asked to afterwards.
func TestRunNowDuringARun(t *testing.T) {
	for _, kind := range []keep.Kind{keep.Producer, keep.Job} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			runs := 0
			w.def.Handlers = []keep.Handler{{Name: "h", Kind: kind, Schedule: keep.Schedule{Interval: 48 * time.Hour}}}
			body := func(c *call) any { runs++; return c.do("svc.list", map[string]any{}) }
			w.script["producers.h"], w.script["jobs.h"] = body, body
			w.deploy()
			w.during(string(kind)+"s.h", func() {
				if err := w.running.Trigger(t.Context(), "w", "h", keep.Decision{By: "ann"}); !errors.Is(err, keep.ErrRunOpen) {
					t.Errorf("Trigger during a run of a %s: %v, want ErrRunOpen", kind, err)
				}
			})
			if runs != 1 {
				t.Errorf("%d runs, want 1", runs)
			}
			if err := w.engine().Trigger(t.Context(), "w", "h", keep.Decision{By: "ann"}); err != nil {
				t.Error(err)
			}
			w.run()
			if runs != 2 {
				t.Errorf("%d runs, want 2", runs)
			}
		})
	}
}
