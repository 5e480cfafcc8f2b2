package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
)

// during runs an engine, and f while the named phase of the first run executes.
func (w *world) during(path string, f func()) {
	w.t.Helper()
	inside, resume := make(chan struct{}), make(chan struct{})
	body := w.script[path]
	once := sync.OnceFunc(func() { close(inside); <-resume })
	w.script[path] = func(c *call) any { once(); return body(c) }
	e := w.engine()
	w.running = e
	defer func() { w.running = nil }()
	ctx, cancel := context.WithCancel(w.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := e.Run(ctx); err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
	<-inside
	f()
	close(resume)
	limit, stop := context.WithTimeout(ctx, 24*time.Hour)
	defer stop()
	if err := e.WaitIdle(limit); err != nil {
		w.t.Errorf("not idle: %v", err)
	}
	cancel()
	wg.Wait()
	w.check()
}

// A version that comes while an older one executes a run finds what that run
// passed over: an empty prepare of the old version counts for the old one only.
func TestDeployDuringAnEmptyPrepare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		reserve := w.script["consumers.act.prepare"]
		w.script["consumers.act.prepare"] = func(*call) any { return map[string]any{"reservations": []any{}} }
		w.deploy()
		w.publish("in", "a")
		w.during("consumers.act.prepare", func() {
			w.deploy()
			w.script["consumers.act.prepare"] = reserve
		})
		w.wantOnce("a")
	})
}

// The same with a deploy on another host, whose clock is a little ahead: what it says of the time of the deploy is after the end of the run.
func TestDeployByAClockThatIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		reserve := w.script["consumers.act.prepare"]
		w.script["consumers.act.prepare"] = func(*call) any { return map[string]any{"reservations": []any{}} }
		w.deploy()
		w.publish("in", "a")
		w.during("consumers.act.prepare", func() {
			second := keep.Deployment{Workflow: w.def.Name, Hash: "second", Entry: "w.js", Definition: w.def}
			if _, err := w.elsewhere(20*time.Millisecond).Deploy(t.Context(), second); err != nil {
				t.Error(err)
			}
			w.script["consumers.act.prepare"] = reserve
		})
		w.wantOnce("a")
	})
}

// The same across a restart right after the old version's commit.
func TestDeployDuringAnEmptyPrepareThenRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		reserve := w.script["consumers.act.prepare"]
		w.script["consumers.act.prepare"] = func(*call) any { return map[string]any{"reservations": []any{}} }
		w.deploy()
		w.publish("in", "a")
		w.dieAt = "after-commit"
		inside := w.script["consumers.act.prepare"]
		w.script["consumers.act.prepare"] = func(c *call) any {
			w.deploy()
			w.script["consumers.act.prepare"] = reserve
			return inside(c)
		}
		_ = w.runFor(time.Minute)
		w.run()
		w.wantOnce("a")
	})
}

// A version that comes while the older one executes a run that then fails by
// logic unblocks that run like one that had failed before: a new version never
// strands a run.
func TestDeployDuringAFailingRun(t *testing.T) {
	for _, phase := range []string{"prepare", "mutate", "next"} {
		t.Run(phase, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				path := "consumers.act." + phase
				good := w.script[path]
				w.script[path] = func(*call) any { panic(thrown("broken")) }
				w.deploy()
				w.publish("in", "a")
				w.during(path, func() { w.deploy(); w.script[path] = good })
				w.wantOnce("a")
				if qs := w.questions(); len(qs) != 0 {
					t.Errorf("%d questions are open, want none", len(qs))
				}
				if n := len(w.runs()); n != 2 {
					t.Errorf("%d runs, want 2", n)
				}
			})
		})
	}
}

// A handler that a version removes completes its run with the version that has
// it; a failure by logic then stays, and does not spin.
func TestDeployRemovesTheHandler(t *testing.T) {
	t.Run("Retried", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.service.onCall = func(n int) (bool, error) {
				if n == 1 {
					return false, keep.Failf(keep.ClassTransient, "refused", "connection refused")
				}
				return true, nil
			}
			w.deploy()
			w.publish("in", "a")
			w.runUntil(time.Second)
			w.removeHandler()
			w.run()
			w.wantOnce("a")
		})
	})
	t.Run("Failed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.script["consumers.act.mutate"] = func(*call) any { panic(thrown("broken")) }
			w.deploy()
			w.publish("in", "a")
			w.during("consumers.act.mutate", w.removeHandler)
			if r := w.lastRun(); r.Status != keep.StatusLogic || len(w.runs()) > 3 {
				t.Errorf("run = %s after %d runs, want failed:logic after a few", r.Status, len(w.runs()))
			}
			if len(w.questions()) != 1 {
				t.Errorf("%d questions, want 1", len(w.questions()))
			}
			if err := w.decide(keep.Skip); err != nil {
				t.Fatal(err)
			}
			w.run()
			if ev := w.event("in", "a"); ev.Status != keep.EventSkipped {
				t.Errorf("event = %s, want skipped", ev.Status)
			}
		})
	})
}

func (w *world) removeHandler() {
	w.t.Helper()
	w.def.Handlers = []keep.Handler{{Name: "tick", Kind: keep.Producer, Schedule: keep.Schedule{Cron: "0 0 1 1 *"}}}
	w.script["producers.tick"] = func(*call) any { return nil }
	w.deploy()
}

// A new schedule begins to count when it is deployed, also if the old version
// was at work at that moment.
func TestDeployChangesTheSchedule(t *testing.T) {
	for _, name := range []string{"AtRest", "During"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				runs := 0
				w.def.Handlers = []keep.Handler{{Name: "tick", Kind: keep.Producer, Schedule: keep.Schedule{Interval: 48 * time.Hour}}}
				w.script["producers.tick"] = func(*call) any { runs++; return nil }
				w.deploy()
				faster := func() {
					w.def.Handlers = []keep.Handler{{Name: "tick", Kind: keep.Producer, Schedule: keep.Schedule{Interval: 30 * time.Minute}}}
					w.deploy()
				}
				if name == "During" {
					w.during("producers.tick", faster)
				} else {
					w.run()
					faster()
					w.run()
				}
				if runs != 2 {
					t.Errorf("%d runs, want 2: the changed interval ticks at deploy", runs)
				}
				w.runUntil(65 * time.Minute)
				if runs != 4 {
					t.Errorf("%d runs after 65 minutes of every 30, want 4", runs)
				}
			})
		})
	}
}

// A time of a changed schedule that comes while the old version still executes a run is not passed over: the run after that is due at once.
func TestDeployWhoseTimeComesDuringARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		runs := 0
		w.def.Handlers = []keep.Handler{{Name: "tick", Kind: keep.Producer, Schedule: keep.Schedule{Interval: 48 * time.Hour}}}
		w.script["producers.tick"] = func(*call) any { runs++; return nil }
		w.deploy()
		w.during("producers.tick", func() { // which begins at midnight
			time.Sleep(29 * time.Minute)
			w.def.Handlers = []keep.Handler{{Name: "tick", Kind: keep.Producer, Schedule: keep.Schedule{Cron: "30 0 * * *"}}}
			w.deploy()
			time.Sleep(2 * time.Minute)
		})
		if runs != 2 {
			t.Errorf("%d runs, want 2: that of 0:30 is due when the first ends at 0:31", runs)
		}
	})
}

// A producer that gets another name keeps its times: one that came while no host was there is not passed over, and one whose run is
// under way is not done once more.
func TestTimesOfAProducerThatIsRenamed(t *testing.T) {
	for _, when := range []string{"while no host was there", "while it ran", "while it ran, then a restart"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var runs []string
				ran := func(*call) any { runs = append(runs, time.Now().UTC().Format("2 15:04")); return nil }
				daily := keep.Schedule{Cron: "30 0 * * *"}
				w.def.Handlers = []keep.Handler{{Name: "tick", Kind: keep.Producer, Schedule: daily}}
				w.script["producers.tick"], w.script["producers.tock"] = ran, ran
				w.deploy()
				rename := func() {
					time.Sleep(time.Minute)
					w.def.Handlers = []keep.Handler{{Name: "tock", Kind: keep.Producer, Schedule: daily, Items: "tick"}}
					w.deploy()
				}
				switch when {
				case "while no host was there":
					time.Sleep(30 * time.Minute)
					rename()
				case "while it ran":
					w.during("producers.tick", rename)
				default:
					w.dieAt = "after-commit"
					w.script["producers.tick"] = func(c *call) any { rename(); return ran(c) }
					w.runUntil(time.Hour)
				}
				w.runUntil(20 * time.Hour)
				w.runUntil(10 * time.Hour)
				if len(runs) != 2 || runs[0] != "1 00:31" || runs[1] != "2 00:30" {
					t.Errorf("it ran at %q, want at 1 00:31 and 2 00:30", runs)
				}
			})
		})
	}
}

// The same script is the same version, also for two hosts at once.
func TestDeploySameScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := keep.Deployment{Workflow: "w", Hash: "h", Entry: "w.js", Definition: w.def}
		e := w.engine()
		versions := make(chan keep.Version, 8)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				v, err := e.Deploy(t.Context(), d)
				if err != nil {
					t.Errorf("Deploy: %v", err)
				}
				versions <- v
			})
		}
		wg.Wait()
		close(versions)
		for v := range versions {
			if v != (keep.Version{Major: 1}) {
				t.Errorf("version %s, want 1.0", v)
			}
		}
		d.Hash = "h2"
		if v, err := e.Deploy(t.Context(), d); err != nil || v.Major != 2 {
			t.Errorf("Deploy of another script = %s, %v; want 2.0", v, err)
		}
		d.Hash = "h"
		if v, err := e.Deploy(t.Context(), d); err != nil || v.Major != 3 {
			t.Errorf("Deploy of the first script again = %s, %v; want 3.0", v, err)
		}
	})
}

// An unknown outcome stays blocked across deploys; so does
// a run that waits for a person.
func TestDeployLeavesDoubtAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.level = keep.LevelNone
		w.service.onCall = func(int) (bool, error) { return true, errReset }
		w.deploy()
		w.publish("in", "a")
		w.run()
		for range 3 {
			w.deploy()
			w.run()
		}
		r := w.lastRun()
		if r.Status != keep.StatusReconciliation || len(w.runs()) != 1 || w.service.calls != 1 || len(w.questions()) != 1 {
			t.Errorf("run = %s, %d runs, %d calls, %d questions; want paused:reconciliation and one of each",
				r.Status, len(w.runs()), w.service.calls, len(w.questions()))
		}
	})
}
