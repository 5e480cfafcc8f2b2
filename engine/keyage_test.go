package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// A clock that was fast and is set right does not make a key younger than it is: neither
// while the host runs, nor after a restart.
func TestAFastClockMakesNoKeyYounger(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.service.level = keep.LevelKey
			w.policy.Reconcile.Attempts = 1000
			var fast atomic.Int64
			fast.Store(int64(3 * time.Hour))
			w.clock = func() time.Time { return time.Now().Add(time.Duration(fast.Load())) }
			w.service.onCall = func(int) (bool, error) { return true, errReset }
			w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Retry, nil }
			sent := time.Now()
			youngest := time.Duration(1 << 62)
			w.service.onAskContext = func(_ context.Context, m keep.Mutation) error {
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
			if youngest < -5*time.Second {
				t.Errorf("restarts %t: a key was taken for %v younger than it was", restarts, -youngest)
			}
		})
	}
}
