package engine_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/policy"
)

// A connector ignores the end of its context in a read. Five seconds after its
// time the run fails as it does when a read takes too long, and is tried again;
// what the read brings later is discarded, and Run does not wait for it. Law: bounded.
func TestDeafRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		var reads atomic.Int32
		w.service.onRead = func() error {
			if reads.Add(1) == 1 {
				time.Sleep(6 * time.Hour)
			}
			return nil
		}
		w.script["jobs.remind"] = func(c *call) any {
			c.do("svc.list", map[string]any{})
			return nil
		}
		start := time.Now()
		w.deploy()
		w.run()
		if took := time.Since(start); took > time.Hour/2 {
			t.Errorf("Run ended after %s, want that it does not wait for the read", took)
		}
		if r := w.lastRun(); r.Status != keep.StatusCommitted || reads.Load() != 2 {
			t.Errorf("run is %s after %d reads, want committed by the second, while the first is out", r.Status, reads.Load())
		}
		time.Sleep(6 * time.Hour) // it returns
		runs := w.runs()
		first := runs[len(runs)-1]
		if first.Error == nil || first.Error.Code != "read-failed" || first.Error.Class != keep.ClassTransient {
			t.Errorf("first attempt stopped by %v, want read-failed, transient", first.Error)
		}
	})
}

// So many reads are left, and no more: beside them none begins, which the run says, until one has returned.
func TestAbandonedReadsAreBounded(t *testing.T) {
	const most = 100
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		w.policy.Retry = policy.Backoff{First: time.Second, Max: time.Minute, Attempts: 1000}
		var reads atomic.Int32
		w.service.onRead = func() error {
			if reads.Add(1) <= most {
				time.Sleep(6 * time.Hour)
			}
			return nil
		}
		w.script["jobs.remind"] = func(c *call) any { c.do("svc.list", map[string]any{}); return nil }
		w.deploy()
		time.AfterFunc(5*time.Hour, func() {
			if n := reads.Load(); n != most {
				t.Errorf("%d reads are out, want %d", n, most)
			}
			if r := w.lastRun(); r.Error == nil || r.Error.Code != "read-failed" || !strings.Contains(r.Error.Message, "svc.list is not read: 100 reads") {
				t.Errorf("run is stopped by %v, want that nothing is read beside so many", r.Error)
			}
		})
		w.run()
		if r := w.lastRun(); r.Status != keep.StatusCommitted {
			t.Errorf("run is %s (%v), want committed by a read that began when others had returned", r.Status, r.Error)
		}
		time.Sleep(6 * time.Hour) // the last of them returns
	})
}
