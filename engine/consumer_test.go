package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
)

// An undisturbed run costs two durable commits, and leaves everything on record.
func TestUndisturbedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.deploy()
		w.publish("in", "a")
		w.run()
		if w.commits != 2+1 { // one for the deploy
			t.Errorf("%d commits, want 2 besides the deploy", w.commits)
		}
		r := w.lastRun()
		if r.Phase != keep.Committed || r.Status != keep.StatusCommitted || !r.Closed || r.Title != "do a" {
			t.Errorf("run = %s %s %q, want committed", r.Phase, r.Status, r.Title)
		}
		if got, want := w.history(), []string{"in_flight", "applied"}; !slices.Equal(got, want) {
			t.Errorf("history %v, want %v", got, want)
		}
		if ev := w.event("in", "a"); ev.Status != keep.EventConsumed || ev.ReservedBy != r.Chain {
			t.Errorf("event = %s by %s, want consumed by %s", ev.Status, ev.ReservedBy, r.Chain)
		}
		out := w.event("out", "out:a")
		if string(out.Payload) != `{"status":"applied"}` || !slices.Equal(out.CausedBy, []keep.InputID{"in_a"}) || out.CreatedBy.Run() != r.ID {
			t.Errorf("downstream event = %s caused by %v, made by %s", out.Payload, out.CausedBy, out.CreatedBy)
		}
		if n := w.service.total(); n != 1 {
			t.Errorf("%d effects, want 1", n)
		}
	})
}

// An empty prepare commits once and does not spin; a new event wakes it.
func TestEmptyReservationsNeverSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		prepares := 0
		w.script["consumers.act.prepare"] = func(c *call) any {
			prepares++
			return map[string]any{"reservations": []any{}}
		}
		w.deploy()
		w.publish("in", "a", "b")
		w.run()
		w.run()
		if prepares != 1 {
			t.Errorf("prepare ran %d times, want 1: nothing new came", prepares)
		}
		w.publish("in", "c")
		w.run()
		if prepares != 2 {
			t.Errorf("prepare ran %d times, want 2 after a new event", prepares)
		}
	})
}

// After its own commit a consumer continues while it keeps reserving.
func TestConsumerDrainsItsTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.deploy()
		w.publish("in", "a", "b", "c", "d", "e")
		w.run()
		if n := w.service.total(); n != 5 {
			t.Errorf("%d effects, want 5", n)
		}
		for _, r := range w.runs() {
			if r.Status != keep.StatusCommitted {
				t.Errorf("run %s is %s", r.ID, r.Status)
			}
		}
	})
}

// A transient failure is tried again with the same data, events and key.
func TestTransientFailureKeepsWhatIsPinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		prepares := 0
		reserve := w.script["consumers.act.prepare"]
		w.script["consumers.act.prepare"] = func(c *call) any { prepares++; return reserve(c) }
		w.service.onCall = func(n int) (bool, error) {
			if n < 3 {
				return false, keep.Failf(keep.ClassTransient, "http-429", "too many requests")
			}
			return true, nil
		}
		w.deploy()
		w.publish("in", "a")
		start := time.Now()
		w.run()
		if prepares != 1 {
			t.Errorf("prepare ran %d times, want 1 (law: pinned)", prepares)
		}
		m := w.mutation()
		if m.State != keep.Applied || m.Attempts != 3 {
			t.Errorf("mutation = %s after %d attempts, want applied after 3", m.State, m.Attempts)
		}
		runs := w.runs()
		if len(runs) != 3 || runs[0].RetryOf != runs[1].ID || runs[1].RetryOf != runs[2].ID || runs[0].Chain != runs[2].ID {
			t.Errorf("attempts are not one chain of three: %+v", runs)
		}
		if d := time.Since(start); d < 24*time.Second || d > 40*time.Second {
			t.Errorf("two backoffs took %s, want about 10 s and 20 s", d)
		}
		if n := len(w.service.effects); n != 1 || w.service.total() != 1 {
			t.Errorf("%d tokens and %d effects, want one of each", n, w.service.total())
		}
	})
}

// Spent retries ask a person; the person's retry continues with what is pinned.
func TestSpentRetriesAskAPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.onCall = func(n int) (bool, error) {
			if n <= 6 {
				return false, keep.Failf(keep.ClassTransient, "refused", "connection refused")
			}
			return true, nil
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		if r := w.lastRun(); r.Status != keep.StatusPerson || w.service.calls != 6 {
			t.Fatalf("after %d calls the run is %s, want 6 and paused:person", w.service.calls, r.Status)
		}
		if q := w.questions(); len(q) != 1 || q[0].Kind != keep.AskRetries {
			t.Fatalf("questions = %+v, want one about retries", q)
		}
		if err := w.decide(keep.Retry); err != nil {
			t.Fatal(err)
		}
		w.run()
		if r := w.lastRun(); r.Status != keep.StatusCommitted || w.service.total() != 1 {
			t.Errorf("run = %s with %d effects, want committed with 1", r.Status, w.service.total())
		}
	})
}

// Law doubt-is-not-failure: a lost answer is asked about, never sent again.
func TestLostAnswer(t *testing.T) {
	for _, tt := range []struct {
		name   string
		effect bool
		want   string
		calls  int
	}{
		{"EffectHappened", true, "[in_flight needs_reconcile applied]", 1},
		// The absence counts only after deadline + settle time.
		{"NothingHappened", false, "[in_flight needs_reconcile needs_reconcile failed in_flight applied]", 2},
	} {
		inKinds(t, tt.name, func(t *testing.T, kind string) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t).writtenIn(kind)
				w.service.onCall = func(n int) (bool, error) {
					if n == 1 {
						return tt.effect, errReset
					}
					return true, nil
				}
				w.deploy()
				w.publish("in", "a")
				w.run()
				if got := fmt.Sprint(w.history()); got != tt.want {
					t.Errorf("history %s, want %s", got, tt.want)
				}
				if w.service.calls != tt.calls || w.service.total() != 1 {
					t.Errorf("%d calls and %d effects, want %d and 1", w.service.calls, w.service.total(), tt.calls)
				}
				if r := w.lastRun(); r.Status != keep.StatusCommitted {
					t.Errorf("run = %s, want committed", r.Status)
				}
			})
		})
	}
}

// A tool that cannot be asked: the first doubt stops the run, and a person
// decides. No path sends the call again by itself.
func TestDoubtWithoutAWayToAsk(t *testing.T) {
	for _, tt := range []struct {
		action  keep.Action
		effects int
		event   keep.EventStatus
		out     string
	}{
		{keep.DidNotHappen, 2, keep.EventConsumed, `{"status":"applied"}`}, // the person was wrong: that is theirs
		{keep.Happened, 1, keep.EventConsumed, `{"status":"applied"}`},
		{keep.Skip, 1, keep.EventSkipped, `{"status":"skipped"}`},
	} {
		t.Run(string(tt.action), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.service.level = keep.LevelNone
				w.service.onCall = func(n int) (bool, error) {
					if n == 1 {
						return true, errReset
					}
					return true, nil
				}
				w.deploy()
				w.publish("in", "a")
				w.run()
				w.run() // a restart changes nothing
				if m := w.mutation(); m.State != keep.Indeterminate || w.service.calls != 1 {
					t.Fatalf("mutation = %s after %d calls, want indeterminate after 1", m.State, w.service.calls)
				}
				if err := w.decide(keep.Retry); err == nil {
					t.Error("a generic retry unblocked an unknown outcome")
				}
				if err := w.decide(keep.CheckAgain); err == nil {
					t.Error("check again was allowed for a tool that cannot be asked")
				}
				if err := w.decide(tt.action); err != nil {
					t.Fatal(err)
				}
				w.run()
				if got := w.service.total(); got != tt.effects {
					t.Errorf("%d effects, want %d", got, tt.effects)
				}
				if ev := w.event("in", "a"); ev.Status != tt.event {
					t.Errorf("event = %s, want %s", ev.Status, tt.event)
				}
				if out := w.event("out", "out:a"); string(out.Payload) != tt.out {
					t.Errorf("next was given %s, want %s", out.Payload, tt.out)
				}
			})
		})
	}
}

// Lookups are spaced, limited and survive restarts; then a person is asked, who
// may have the service asked again.
func TestLookupsAreSpentAndRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.onCall = func(int) (bool, error) { return true, errReset }
		w.service.onAsk = func(n int) (connector.Verdict, error) {
			if n <= 11 {
				return "", errReset
			}
			return connector.Happened, nil
		}
		w.deploy()
		w.publish("in", "a")
		if err := w.runFor(time.Minute); err == nil {
			t.Fatal("idle with a lookup pending")
		}
		w.run() // another process takes over
		m := w.mutation()
		if m.State != keep.Indeterminate || m.ReconcileAttempts != 10 || w.service.asked != 11 {
			t.Fatalf("mutation = %s after %d lookups (%d asked), want indeterminate after 10 and the inline one",
				m.State, m.ReconcileAttempts, w.service.asked)
		}
		// What the question states is what happened: no call carried a key.
		q := w.questions()[0]
		if !strings.Contains(q.Why, "asked 11 times") || strings.Contains(q.VerifyByHand, "carried the key") {
			t.Errorf("after 11 lookups and without a key in the call, the question says %q, and to verify by hand: %q", q.Why, q.VerifyByHand)
		}
		if err := w.decide(keep.CheckAgain); err != nil {
			t.Fatal(err)
		}
		w.run()
		if m := w.mutation(); m.State != keep.Applied || w.service.calls != 1 {
			t.Errorf("mutation = %s after %d calls, want applied after 1", m.State, w.service.calls)
		}
	})
}

// The first of two decisions wins.
func TestSecondDecisionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.level = keep.LevelNone
		w.service.onCall = func(int) (bool, error) { return true, errReset }
		w.deploy()
		w.publish("in", "a")
		w.run()
		q := w.questions()[0]
		if err := w.decide(keep.Skip); err != nil {
			t.Fatal(err)
		}
		err := w.engine().Decide(t.Context(), q.ID, keep.Decision{Action: keep.DidNotHappen, By: "bob"})
		if err == nil || !strings.Contains(err.Error(), "already decided") {
			t.Errorf("second decision: %v, want already decided", err)
		}
	})
}

// A definite refusal is a logic failure: the events go back, and a new version
// starts again from prepare with a new key.
func TestLogicFailureWaitsForANewVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.onCall = func(n int) (bool, error) {
			if n == 1 {
				return false, keep.Failf(keep.ClassLogic, "http-422", "id must be a number")
			}
			return true, nil
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		r := w.lastRun()
		if r.Status != keep.StatusLogic || len(r.Reservations) != 1 || !w.event("in", "a").Free() {
			t.Fatalf("run = %s with %v, event free: %t; want failed:logic, what it tried, true", r.Status, r.Reservations, w.event("in", "a").Free())
		}
		w.deploy()
		w.run()
		runs := w.runs()
		if len(runs) != 2 || runs[0].Status != keep.StatusCommitted || runs[0].Chain == runs[1].Chain || runs[0].RetryOf != runs[1].ID {
			t.Errorf("runs = %+v; want a committed one of a new chain after the failed one", runs)
		}
		if len(w.questions()) != 0 {
			t.Error("the question is still open")
		}
		if w.service.total() != 1 {
			t.Errorf("%d effects, want 1", w.service.total())
		}
	})
}

// After applied, only next is repeated, with the stored result.
func TestNextIsRepeatedAfterApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		good := w.script["consumers.act.next"]
		w.script["consumers.act.next"] = func(*call) any { panic(thrown("next is broken")) }
		w.deploy()
		w.publish("in", "a")
		w.run()
		r := w.lastRun()
		if r.Status != keep.StatusLogic || r.Phase != keep.Emitting || w.event("in", "a").ReservedBy != r.Chain {
			t.Fatalf("run = %s in %s, want failed:logic in emitting, the event still reserved", r.Status, r.Phase)
		}
		w.script["consumers.act.next"] = good
		w.deploy()
		w.run()
		if r := w.lastRun(); r.Status != keep.StatusCommitted || w.service.calls != 1 {
			t.Errorf("run = %s after %d calls, want committed after 1", r.Status, w.service.calls)
		}
		if out := w.event("out", "out:a"); string(out.Payload) != `{"status":"applied"}` {
			t.Errorf("next was given %s", out.Payload)
		}
	})
}

// A person is told whether the credential is not accepted, or may not do this.
func TestQuestionOfARefusal(t *testing.T) {
	for code, want := range map[string]string{
		keep.CodeUnauthenticated: "Renew the credential", keep.CodeForbidden: "Give the credential the right to do this", "other": "Fix the permission or the credential",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.service.onCall = func(int) (bool, error) { return false, keep.Failf(keep.ClassPermission, code, "no") }
			w.deploy()
			w.publish("in", "a")
			w.run()
			if q := w.questions(); len(q) != 1 || !strings.Contains(q[0].Question, want) {
				t.Errorf("%s: questions = %+v, want one that says %q", code, q, want)
			}
		})
	}
}

// Permission is asked of a person, and retried with the same data.
func TestPermissionAsksAPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.onCall = func(n int) (bool, error) {
			if n == 1 {
				return false, keep.Failf(keep.ClassPermission, "http-401", "token expired")
			}
			return true, nil
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		if q := w.questions(); len(q) != 1 || q[0].Kind != keep.AskPermission {
			t.Fatalf("questions = %+v, want one about permission", q)
		}
		if err := w.decide(keep.Retry); err != nil {
			t.Fatal(err)
		}
		w.run()
		if m := w.mutation(); m.State != keep.Applied || m.Attempts != 2 {
			t.Errorf("mutation = %s after %d attempts, want applied after 2", m.State, m.Attempts)
		}
	})
}

// Every place between durable steps: the process dies there, another starts.
// The effect happens once, the event is consumed, Check is clean.
func TestDeathAtEveryPoint(t *testing.T) {
	for _, p := range engine.Points() {
		for _, level := range []keep.Level{keep.LevelWitness, keep.LevelNone} {
			inKinds(t, string(p)+"/"+string(level), func(t *testing.T, kind string) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t).writtenIn(kind)
					w.service.level = level
					w.deploy()
					w.publish("in", "a")
					w.dieAt = p
					_ = w.runFor(time.Hour) // it died, so it never became idle
					w.run()
					want := w.finishByHand(p)
					if n := w.service.total(); n != 1 {
						t.Errorf("%d effects, want 1", n)
					}
					if ev := w.event("in", "a"); ev.Status != want {
						t.Errorf("event = %s, want %s", ev.Status, want)
					}
				})
			})
		}
	}
}

// finishByHand answers the question that a death at p leaves when the tool
// cannot be asked, as a person would who looked at the service. It returns what
// then becomes of the event.
func (w *world) finishByHand(p engine.Point) keep.EventStatus {
	w.t.Helper()
	asked := len(w.questions()) > 0
	if want := w.service.level == keep.LevelNone && (p == engine.Recorded || p == engine.Answered); asked != want {
		w.t.Fatalf("died at %s with level %s: a person was asked: %t, want %t", p, w.service.level, asked, want)
	}
	if !asked {
		return keep.EventConsumed
	}
	action, then := keep.DidNotHappen, keep.EventConsumed
	if w.service.total() == 1 {
		action, then = keep.Skip, keep.EventSkipped
	}
	if err := w.decide(action); err != nil {
		w.t.Fatal(err)
	}
	w.run()
	return then
}
