package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/ledger"
)

// A clock that was fast and is set right makes no key younger than it is, nor a call of which a tool compares how long ago it
// was: neither while the host runs, nor after a restart.
func TestAFastClockMakesNoKeyYounger(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		for _, level := range []keep.Level{keep.LevelKey, keep.LevelWitness} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.service.level, w.service.comparesAge = level, level != keep.LevelKey
				w.policy.Reconcile.Attempts = 1000
				var fast atomic.Int64
				fast.Store(int64(3 * time.Hour))
				w.clock = func() time.Time { return time.Now().Add(time.Duration(fast.Load())) }
				w.service.onCall = func(int) (bool, error) { return true, errReset }
				w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Retry, nil }
				sent, asked := time.Now(), 0
				youngest := time.Duration(1 << 62)
				recorded := make(map[time.Time]bool)
				w.service.onAskContext = func(ctx context.Context, m keep.Mutation) error {
					asked++
					recorded[connector.Recorded(ctx, m)] = true
					youngest = min(youngest, time.Since(m.CreatedAt)-time.Since(sent))
					return nil
				}
				w.deploy()
				w.publish("in", "a")
				if restarts {
					w.runUntil(time.Minute)
					fast.Store(0)
					w.runUntil(4 * time.Hour)
				} else {
					time.AfterFunc(time.Minute, func() { fast.Store(0) })
					w.runUntil(4 * time.Hour)
				}
				if youngest < -5*time.Second || asked == 0 {
					t.Errorf("level %s, restarts %t: in %d lookups, a call was taken for %v younger than it was", level, restarts, asked, -youngest)
				}
				if at := w.mutation().CreatedAt; len(recorded) != 1 || !recorded[at] {
					t.Errorf("level %s, restarts %t: the record is of %s, and the tool was told %v", level, restarts, at, recorded)
				}
			})
		}
	}
}

// A call may be sent again until its key is too old, so what was sent last settles then: a
// search that finds nothing is not believed before, though the first call settled long ago.
func TestAnOutlivedKeySettlesLate(t *testing.T) {
	const lasts = 10 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.level, w.service.keyLasts = keep.LevelKey, lasts
		w.policy.Reconcile.Attempts, w.policy.Reconcile.First, w.policy.Reconcile.Max = 10_000, time.Second, time.Second
		w.service.onCall = func(n int) (bool, error) { return n > 1, map[bool]error{true: errReset}[n == 1] }
		start := time.Now()
		w.service.onAsk = func(int) (connector.Verdict, error) {
			if time.Since(start) < lasts-w.policy.Reconcile.Inline {
				return "", errReset // sent again
			}
			return connector.Absent, nil // searched for
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		m := w.mutation()
		at := failedAt(w, m.Key)
		if at.Before(m.CreatedAt.Add(lasts + m.SettleAfter)) {
			t.Errorf("the absence was believed %v after the call was made; keys last %v, and effects settle %v later", at.Sub(m.CreatedAt), lasts, m.SettleAfter)
		}
		if m.State != keep.Applied || w.service.total() != 1 {
			t.Errorf("the record is %s with %d effects", m.State, w.service.total())
		}
	})
}

// The same counts when the configuration changes and the call is only searched for: it was
// made ten minutes ago, and may have been sent again a moment ago.
func TestAMovedKeySettlesLate(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, old, _, configure := newMovedWorld(t, keep.LevelKey, true)
			old.loseTheAnswer()
			w.policy.Reconcile.Attempts, w.policy.Reconcile.First, w.policy.Reconcile.Max = 10_000, time.Second, time.Second
			var last time.Time
			old.onAsk = func(int) (connector.Verdict, error) { last = time.Now(); return "", errReset }
			w.deploy()
			w.publish("in", "a")
			move := func() {
				old.mu.Lock()
				old.onAsk = func(int) (connector.Verdict, error) { return connector.Absent, nil }
				old.mu.Unlock()
				configure("new")
			}
			if restarts {
				w.runUntil(10 * time.Minute)
				move()
			} else {
				time.AfterFunc(10*time.Minute, func() {
					move()
					tools, err := engine.NewTools(w.connections())
					if err != nil {
						t.Error(err)
					}
					w.tools.Replace(tools, func() {})
				})
			}
			_ = w.runFor(20 * time.Minute) // a person is asked about the new place
			m := w.mutation()
			if at := failedAt(w, m.Key); at.Before(last.Add(m.SettleAfter - time.Millisecond)) { // records know milliseconds
				t.Errorf("restarts %t: the absence was believed %v after it was sent again; effects settle in %v", restarts, at.Sub(last), m.SettleAfter)
			}
		})
	}
}

// failedAt returns when a lookup was believed that found nothing.
func failedAt(w *world, key keep.MutationKey) time.Time {
	w.t.Helper()
	moves, err := w.store.History(w.t.Context(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range moves {
		if m.Evidence == string(ledger.Absent) && m.To == keep.Failed && m.From == keep.NeedsReconcile {
			return m.At
		}
	}
	w.t.Fatal("no absence was believed")
	return time.Time{}
}
