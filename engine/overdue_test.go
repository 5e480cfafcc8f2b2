package engine_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/policy"
)

// deaf makes the first call ignore its deadline for d.
func (w *world) deaf(d time.Duration, then func() error) {
	var once atomic.Bool
	w.service.onCallContext = func(context.Context) error {
		if once.Swap(true) {
			return nil
		}
		time.Sleep(d)
		return then()
	}
}

// A connector ignores the end of its context. The workflow says what it waits for,
// whatever lookups do not find; no second call goes out, nobody is asked to vouch
// for the first one, and its late answer is believed. Laws: once, explained.
func TestDeafConnector(t *testing.T) {
	for _, level := range []keep.Level{keep.LevelKey, keep.LevelWitness, keep.LevelNone} {
		t.Run(string(level), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.service.level = level
				w.deaf(6*time.Hour, func() error { return nil })
				w.deploy()
				w.publish("in", "a")
				time.AfterFunc(5*time.Hour, func() {
					m, r := w.mutation(), w.lastRun()
					w.service.mu.Lock()
					calls, asked := w.service.calls, w.service.asked
					w.service.mu.Unlock()
					if n := len(w.questions()); n > 0 || calls > 0 {
						t.Errorf("%d questions and %d more calls while one is out", n, calls)
					}
					if level == keep.LevelNone {
						if m.State != keep.InFlight {
							t.Errorf("a call that cannot be asked about is %s, want in_flight until it returns", m.State)
						}
						return
					}
					if m.State != keep.NeedsReconcile || m.ReconcileAttempts > 0 || r.Status != keep.StatusReconciliation || m.Error == nil || m.Error.Code != "not-returned" {
						t.Errorf("mutation %s (%v) after %d lookups that count, run %s; want both to wait", m.State, m.Error, m.ReconcileAttempts, r.Status)
					}
					if (asked == 0) != (level == keep.LevelKey) || asked > 60 {
						t.Errorf("asked %d times; at level A asking would be sending, else it should be seldom", asked)
					}
				})
				w.run()
				m := w.mutation()
				if m.State != keep.Applied || m.ResolvedBy != "call" || w.service.calls != 1 || w.service.total() != 1 {
					t.Errorf("mutation %s by %q after %d calls and %d effects, want applied by call, 1 and 1", m.State, m.ResolvedBy, w.service.calls, w.service.total())
				}
				if r := w.lastRun(); r.Status != keep.StatusCommitted {
					t.Errorf("run is %s (%v), want committed", r.Status, r.Error)
				}
			})
		})
	}
}

// The commit that first says that a call is out is lost. A later one says so, since the process
// may die next, and another one would believe that the call ended in time.
func TestDeafConnectorAfterALostCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.deaf(6*time.Hour, func() error { return nil })
		lost := 0
		w.onCommit = func(c keep.Commit, do func() error) error {
			for _, change := range c.Changes {
				if m, ok := change.(keep.PutMutation); ok && m.Mutation.Error != nil && m.Mutation.Error.Code == "not-returned" && lost == 0 {
					lost++
					return errReset
				}
			}
			return do()
		}
		w.deploy()
		w.publish("in", "a")
		time.AfterFunc(5*time.Hour, func() {
			if m := w.mutation(); lost != 1 || m.Error == nil || m.Error.Code != "not-returned" {
				t.Errorf("after %d lost commits the record says %v", lost, m.Error)
			}
		})
		w.run()
		if m := w.mutation(); m.State != keep.Applied || w.service.total() != 1 {
			t.Errorf("mutation %s, %d effects", m.State, w.service.total())
		}
	})
}

// often asks every second.
func (w *world) often() {
	w.policy.Reconcile.Backoff = policy.Backoff{First: time.Second, Max: time.Second, Attempts: 1000}
}

// A deaf connector sends at last, hears nothing, and the effect settles after
// that: the absence before does not count. Law doubt-is-not-failure.
func TestDeafConnectorSendsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.often()
		w.deaf(10*time.Minute, func() error {
			w.landLater(1900 * time.Millisecond) // its settle time is 2 s
			return errReset
		})
		w.deploy()
		w.publish("in", "a")
		w.run()
		if m := w.mutation(); m.State != keep.Applied || m.Attempts != 1 || w.service.total() != 1 {
			t.Errorf("mutation %s after %d calls and %d effects, want applied, 1 and 1", m.State, m.Attempts, w.service.total())
		}
	})
}

// landLater lets the effect of the only record happen after d.
func (w *world) landLater(d time.Duration) {
	token := w.mutation().Token
	time.AfterFunc(d, func() {
		w.service.mu.Lock()
		defer w.service.mu.Unlock()
		w.service.perform(keep.Mutation{Token: token})
	})
}

// The process of a deaf connector dies. The next one believes in no absence until
// what was sent last has settled, also if the tool is missing for a moment. Law doubt-is-not-failure.
func TestDeathOfADeafConnector(t *testing.T) {
	for _, missing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { deathOfADeafConnector(t, missing) })
	}
}

func deathOfADeafConnector(t *testing.T, missing bool) {
	w := newWorld(t)
	w.often()
	w.service.onCall = func(n int) (bool, error) {
		if n == 1 {
			return false, errReset
		}
		return true, nil
	}
	w.service.onAsk = func(int) (connector.Verdict, error) { return "", errReset }
	w.deploy()
	w.publish("in", "a")
	_ = w.runFor(time.Minute)
	m := w.mutation()
	m.Error = &keep.Failure{Class: keep.ClassUnknown, Code: "not-returned", Message: "it is still out"}
	c := keep.Commit{Workflow: m.Workflow, At: time.Now(), Changes: []keep.Change{keep.PutMutation{Mutation: m}}}
	if err := w.store.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Hour)
	w.service.onAsk = nil
	w.landLater(1900 * time.Millisecond)
	if missing {
		w.connect = func() []connector.Connection { return nil }
		w.runUntil(time.Millisecond)
		if m := w.mutation(); m.Error.Code != keep.CodeToolMissing {
			t.Fatalf("the record says %s, want that its tool is missing", m.Error)
		}
		w.connect = nil // its next lookup is due now
	}
	w.run()
	if m := w.mutation(); m.State != keep.Applied || m.Attempts != 1 || w.service.total() != 1 {
		t.Errorf("mutation %s after %d calls and %d effects, want applied, 1 and 1", m.State, m.Attempts, w.service.total())
	}
}

// The configuration is edited while a call of a deaf connector is out, so that it cannot be
// asked about any more. Nobody is asked to vouch for what may still be sent; when the call
// has returned, its answer is believed, and without one a person is asked. Law once.
func TestDeafConnectorWhoseToolMoves(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, old, _, configure := newMovedWorld(t, keep.LevelKey, false)
			w.deaf(6*time.Hour, func() error {
				if lost {
					old.perform(w.mutation())
					return errReset
				}
				return nil
			})
			w.deploy()
			w.publish("in", "a")
			time.AfterFunc(time.Hour, func() {
				configure("new")
				tools, err := engine.NewTools(w.connections())
				if err != nil {
					t.Error(err)
				}
				w.tools.Replace(tools, func() {})
			})
			time.AfterFunc(5*time.Hour, func() {
				if m := w.mutation(); len(w.questions()) > 0 || m.State != keep.NeedsReconcile {
					t.Errorf("the record is %s with questions %+v while the call is out", m.State, w.questions())
				}
			})
			w.run()
			m, qs := w.mutation(), w.questions()
			switch {
			case !lost && (m.State != keep.Applied || m.ResolvedBy != "call" || len(qs) != 0):
				t.Errorf("the record is %s by %q with questions %+v, want applied by call", m.State, m.ResolvedBy, qs)
			case lost && (m.State != keep.Indeterminate || len(qs) != 1):
				t.Errorf("the record is %s with questions %+v, want one", m.State, qs)
			}
		})
	}
}

// A record that was slow to be durable lets its call be sent late, and what is sent late takes effect as late: also where the
// process dies before it could say so. Law doubt-is-not-failure.
func TestDiesAfterASlowRecord(t *testing.T) {
	for name, late := range map[string]time.Duration{"late": 2400 * time.Millisecond, "too late": 2600 * time.Millisecond, "direct": 2400 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { diesAfterASlowRecord(t, name, late) })
		})
	}
}

// The clock is set back between the record of a call and the call: that has no more time than its tool gives it (law: bounded).
func TestClockIsSetBackAfterTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var back time.Duration
		w.clock = func() time.Time { return time.Now().Add(-back) }
		w.onCommit = func(c keep.Commit, do func() error) error {
			if slices.ContainsFunc(c.Changes, func(change keep.Change) bool {
				m, ok := change.(keep.PutMutation)
				return ok && m.Mutation.State == keep.InFlight
			}) {
				defer func() { back = time.Hour }()
			}
			return do()
		}
		var limit time.Duration
		w.service.onCallContext = func(ctx context.Context) error {
			ends, _ := ctx.Deadline()
			limit = time.Until(ends)
			return nil
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		w.wantOnce("a")
		if limit <= 0 || limit > 10*time.Second {
			t.Errorf("the call may take %s, and its tool gives it 10 s", limit)
		}
	})
}

func diesAfterASlowRecord(t *testing.T, name string, late time.Duration) {
	w := newWorld(t)
	w.often()
	slow, token := true, ""
	w.onCommit = func(c keep.Commit, do func() error) error {
		err := do()
		for _, change := range c.Changes {
			if m, ok := change.(keep.PutMutation); ok && m.Mutation.State == keep.InFlight && slow {
				slow, token = false, m.Mutation.Token
				time.Sleep(late)
			}
		}
		return err
	}
	called := false
	w.service.onCallContext = func(context.Context) error {
		if !called {
			called = true
			time.AfterFunc(9900*time.Millisecond, func() { // its timeout is 10 s, its settle time 2 s
				w.service.mu.Lock()
				defer w.service.mu.Unlock()
				w.service.perform(keep.Mutation{Token: token})
			})
			if name != "too late" { // which was not sent at first
				w.dieAt = engine.Answered
			}
			return errReset
		}
		return nil
	}
	if name == "direct" {
		w.def.Name = keep.DirectWorkflow
		first := w.directEngine()
		died := make(chan struct{})
		go func() {
			defer close(died)
			_, _ = first.Caller(t.Context()).Call(t.Context(), directCall())
		}()
		<-died
		sent := time.Now()
		if err := w.engine().Caller(t.Context()).Recover(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if m := w.mutation(); m.State != keep.NeedsReconcile || m.CallDeadline.Before(sent.Add(10*time.Second)) {
			t.Errorf("mutation %s, out until %s; it was sent at %s, and may be out for 10 s", m.State, m.CallDeadline, sent)
		}
		time.Sleep(10 * time.Second)
		return
	}
	w.deploy()
	w.publish("in", "a")
	_ = w.runFor(5 * time.Second) // it dies
	w.run()
	attempts := map[string]int{"late": 1, "too late": 2}[name]
	if m := w.mutation(); m.State != keep.Applied || m.Attempts != attempts || w.service.total() != 1 {
		t.Errorf("mutation %s after %d attempts and %d effects, want applied, %d and one", m.State, m.Attempts, w.service.total(), attempts)
	}
}
