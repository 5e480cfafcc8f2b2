package engine_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// Law doubt-is-not-failure, through days without a host: the doubt is asked about
// as soon as one is there, and time that nobody used counts for nothing.
func TestDoubtOutlivesDaysOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.onCall = func(int) (bool, error) { return true, errReset }
		w.service.onAsk = func(n int) (connector.Verdict, error) {
			if n <= 3 {
				return "", errReset
			}
			return connector.Happened, nil
		}
		w.deploy()
		w.publish("in", "a")
		if err := w.runFor(15 * time.Second); err == nil {
			t.Fatal("idle with a lookup pending")
		}
		before := w.mutation()
		if before.State != keep.NeedsReconcile || before.ReconcileAttempts == 0 {
			t.Fatalf("mutation = %s after %d lookups, want some without an answer", before.State, before.ReconcileAttempts)
		}
		time.Sleep(5 * 24 * time.Hour) // virtual
		start := time.Now()
		w.run()
		m := w.mutation()
		if m.State != keep.Applied || w.service.calls != 1 || w.lastRun().Status != keep.StatusCommitted {
			t.Errorf("mutation = %s after %d calls, run %s; want applied after 1, committed", m.State, w.service.calls, w.lastRun().Status)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("it took %s after the start, want the next lookup at once and the one after it with backoff", took)
		}
	})
}

// A tool that lost its lookups in an upgrade cannot end the doubt: a person is
// asked, is not offered to check again, and no path sends the call again.
func TestToolThatLostItsLookups(t *testing.T) {
	for _, when := range []string{"WhileAsked", "InFlight"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.service.onCall = func(int) (bool, error) { return true, errReset }
				w.service.onAsk = func(int) (connector.Verdict, error) { return "", errReset }
				if when == "InFlight" {
					w.dieAt = "answered"
				}
				w.deploy()
				w.publish("in", "a")
				if err := w.runFor(15 * time.Second); err == nil {
					t.Fatal("idle with a lookup pending")
				}
				w.service.level = keep.LevelNone // the upgrade
				w.run()
				m := w.mutation()
				if m.State != keep.Indeterminate || w.service.calls != 1 {
					t.Fatalf("mutation = %s after %d calls, want indeterminate after 1", m.State, w.service.calls)
				}
				q := w.questions()[0]
				if q.CanVerify || q.Allows(keep.CheckAgain) {
					t.Errorf("the question offers to check again (%t), and says that the tool can verify (%t)", q.Allows(keep.CheckAgain), q.CanVerify)
				}
				if !slices.ContainsFunc(q.Choices, func(c keep.Choice) bool { return c.Action == keep.DidNotHappen }) {
					t.Errorf("the choices are %v", q.Choices)
				}
			})
		})
	}
}

// A lookup that hangs is cut by its own deadline and counted, and delays no other
// workflow: that one's doubt ends meanwhile. Law: one-at-a-time, bounded.
func TestHangingLookupDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.onCall = func(int) (bool, error) { return true, errReset }
		var ended time.Time // when the doubt of workflow v ended
		start := time.Now()
		w.service.onAskContext = func(ctx context.Context, m keep.Mutation) error {
			if m.Workflow == "w" {
				<-ctx.Done() // hangs
				return context.Cause(ctx)
			}
			ended = time.Now()
			return nil
		}
		w.deploy()
		w.publish("in", "a")
		w.def.Name = "v"
		w.deploy()
		w.publish("in", "b")
		w.run()
		if took := ended.Sub(start); took > time.Second {
			t.Errorf("the doubt of v ended after %s, want at once", took)
		}
		w.def.Name = "w"
		m := w.mutation()
		if m.State != keep.Indeterminate || m.ReconcileAttempts != w.policy.Reconcile.Attempts {
			t.Errorf("mutation = %s after %d lookups, want each cut and counted, and then a person asked", m.State, m.ReconcileAttempts)
		}
		if took := time.Since(start); took < 11*w.policy.Reconcile.Inline {
			t.Errorf("11 lookups that hang took %s, want each to have its %s", took, w.policy.Reconcile.Inline)
		}
	})
}

// Law: doubt-is-not-failure. What a lookup does not show counts for when it was asked, however late it answers.
func TestLookupThatAnswersLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.onCallContext = func(context.Context) error { // it settles 12 s after it begins
			time.Sleep(9 * time.Second)
			return nil
		}
		w.service.onCall = func(n int) (bool, error) { return true, map[bool]error{true: errReset}[n == 1] }
		w.service.onAskContext = func(_ context.Context, m keep.Mutation) error {
			if time.Now().Before(m.SettlesAt()) {
				time.Sleep(5 * time.Second)
			}
			return nil
		}
		w.service.onAsk = func(n int) (connector.Verdict, error) {
			if n == 1 {
				return connector.Absent, nil
			}
			return connector.Happened, nil
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		if m := w.mutation(); m.State != keep.Applied || w.service.calls != 1 || w.service.asked != 2 {
			t.Errorf("the record is %s after %d calls and %d lookups; want applied after one, and another lookup", m.State, w.service.calls, w.service.asked)
		}
	})
}
