package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
)

// slowly returns f with a pause before its calls, long enough that the run is
// made visible meanwhile.
func slowly(f scripted) scripted {
	return func(c *call) any {
		select {
		case <-time.After(time.Second): // virtual
		case <-c.ctx.Done():
			panic(ended{context.Cause(c.ctx)})
		}
		return f(c)
	}
}

// A phase that takes long is made visible while it runs. A host that dies after
// that, anywhere, leaves nothing that is done twice: what a run lists as reserved
// is reserved in the same commit (law: pinned).
func TestSlowPhaseThenDeath(t *testing.T) {
	for _, phase := range []string{"prepare", "mutate", "next"} {
		for _, p := range engine.Points() {
			t.Run(phase+"/"+string(p), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.slow = 10 * time.Millisecond
					w.script["consumers.act."+phase] = slowly(w.script["consumers.act."+phase])
					w.deploy()
					w.publish("in", "a", "b")
					w.dieAt = p
					_ = w.runFor(time.Hour)
					w.run()
					w.run()
					w.wantOnce("a", "b")
				})
			})
		}
	}
}

// A host that is stopped while a phase takes long leaves the run for the next
// host, and counts no crash.
func TestSlowPhaseThenStop(t *testing.T) {
	for _, phase := range []string{"prepare", "mutate", "next"} {
		t.Run(phase, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.slow = 10 * time.Millisecond
				w.script["consumers.act."+phase] = slowly(w.script["consumers.act."+phase])
				w.deploy()
				w.publish("in", "a", "b")
				w.runUntil(500 * time.Millisecond)
				if r := w.lastRun(); r.Crashes != 0 || r.Status == keep.StatusActive {
					t.Errorf("the stopped run is %s with %d crashes, want not active, none", r.Status, r.Crashes)
				}
				w.run()
				w.wantOnce("a", "b")
			})
		})
	}
}

// Stopping waits for a call that is out, and records what became of it.
func TestStopWaitsForTheCall(t *testing.T) {
	for _, job := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			if job {
				w = newJobWorld(t, "a", "b")
			}
			w.service.onCallContext = func(ctx context.Context) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(5 * time.Second):
					return nil
				}
			}
			w.deploy()
			if !job {
				w.publish("in", "a")
			}
			start := time.Now()
			w.runUntil(time.Second)
			if d := time.Since(start); d != 5*time.Second {
				t.Errorf("job %t: Run took %s, want the 5s of the call", job, d)
			}
			if m := w.mutation(); m.State != keep.Applied || w.service.calls != 1 {
				t.Errorf("job %t: mutation = %s after %d calls, want applied after 1", job, m.State, w.service.calls)
			}
			if r := w.lastRun(); job && (r.Status != keep.StatusTransient || r.Error == nil || r.Error.Message != "the host was stopped") {
				t.Errorf("the run of the stopped job is %s (%v), want that the host was stopped", r.Status, r.Error)
			}
			w.run()
			want := 1
			if job {
				want = 2
			}
			if r := w.lastRun(); r.Status != keep.StatusCommitted || w.service.total() != want || r.Crashes != 0 {
				t.Errorf("job %t: run = %s with %d effects, %d crashes; want committed with %d, 0", job, r.Status, w.service.total(), r.Crashes, want)
			}
		})
	}
}

// What a service said to a call is read also while the host stops: the wait that
// it asked for is kept over the restart, and the attempt counts.
func TestStopHearsARefusal(t *testing.T) {
	for _, job := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			if job {
				w = newJobWorld(t, "a")
			}
			var calls []time.Time
			w.service.onCallContext = func(context.Context) error {
				time.Sleep(5 * time.Second) // virtual
				calls = append(calls, time.Now())
				return nil
			}
			w.service.onCall = func(n int) (bool, error) {
				if n == 1 {
					return false, &keep.Failure{Class: keep.ClassTransient, Code: "http-429", Message: "too many requests", RetryAfter: time.Minute}
				}
				return true, nil
			}
			w.deploy()
			if !job {
				w.publish("in", "a")
			}
			w.runUntil(time.Second)
			if r := w.lastRun(); r.Status != keep.StatusTransient || r.Retries != 0 || r.RetryAt.Sub(calls[0]) < time.Minute {
				t.Errorf("job %t: the run is %s until %s, want paused:transient for a minute", job, r.Status, r.RetryAt)
			}
			w.run()
			if r := w.lastRun(); r.Retries != 0 || w.service.total() != 1 || calls[1].Sub(calls[0]) < time.Minute {
				t.Errorf("job %t: called again after %s, %d retries, %d effects; want after a minute, 0 (the service named the time), 1", job, calls[1].Sub(calls[0]), r.Retries, w.service.total())
			}
		})
	}
}

// A call that outlasts the time that a stop waits is given up. The record stays
// in_flight, and the next host asks before anything else.
func TestStopGivesTheCallUp(t *testing.T) {
	for _, effect := range []bool{true, false} {
		for _, job := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				if job {
					w = newJobWorld(t, "a")
				}
				w.policy.Shutdown = 2 * time.Second
				once := sync.OnceFunc(func() {
					w.service.onCall = func(int) (bool, error) { return true, nil }
					w.service.onCallContext = nil
				})
				w.service.onCallContext = func(ctx context.Context) error {
					<-ctx.Done()
					once()
					if effect {
						w.service.effects[string(w.mutation().Token)]++
					}
					return ctx.Err()
				}
				w.deploy()
				if !job {
					w.publish("in", "a")
				}
				start := time.Now()
				w.runUntil(time.Second)
				if d := time.Since(start); d != 3*time.Second {
					t.Errorf("Run took %s, want the 1s before the stop and 2s of grace", d)
				}
				if m := w.mutation(); m.State != keep.InFlight {
					t.Errorf("mutation = %s, want in_flight", m.State)
				}
				w.run()
				if r := w.lastRun(); r.Status != keep.StatusCommitted || w.service.total() != 1 {
					t.Errorf("run = %s with %d effects, want committed with 1", r.Status, w.service.total())
				}
				calls := 1
				if effect {
					calls = 0 // the first call never came to the counter
				}
				if w.service.calls != calls || w.service.asked == 0 {
					t.Errorf("%d more calls after %d lookups, want %d after some", w.service.calls, w.service.asked, calls)
				}
			})
		}
	}
}

// wantOnce fails the test unless every event is consumed, each by one effect.
func (w *world) wantOnce(ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		if ev := w.event("in", id); ev.Status != keep.EventConsumed {
			w.t.Errorf("event %s is %s, reserved by %q; want consumed", id, ev.Status, ev.ReservedBy)
		}
	}
	if n := w.service.total(); n != len(ids) {
		w.t.Errorf("%d effects, want %d", n, len(ids))
	}
	for token, n := range w.service.effects {
		if n != 1 {
			w.t.Errorf("%d effects of token %s, want 1 (law: once)", n, token)
		}
	}
}

// runUntil runs an engine for d, idle or not, and stops it.
func (w *world) runUntil(d time.Duration) {
	w.t.Helper()
	e := w.engine()
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	if err := e.Run(ctx); err != nil {
		w.t.Errorf("Run: %v", err)
	}
	w.check()
}
