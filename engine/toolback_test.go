package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// A call in doubt is looked up as soon as its tool is there again, however late its next lookup was planned: also that of an
// item whose run is over.
func TestToolIsBack(t *testing.T) {
	for _, job := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			if job {
				w = newLooseWorld(t, "a")
			}
			w.service.onCall = func(int) (bool, error) { return true, errReset }
			w.service.onAsk = func(int) (connector.Verdict, error) { return "", errReset }
			w.deploy()
			if !job {
				w.publish("in", "a")
			}
			w.runUntil(time.Millisecond)
			w.connect = func() []connector.Connection { return nil }
			w.runUntil(5 * time.Minute)
			for time.Until(w.mutation().NextReconcileAt) < time.Second { // by an unlucky jitter
				w.runUntil(time.Second)
			}
			m := w.mutation()
			if m.Error.Code != keep.CodeToolMissing {
				t.Fatalf("the record says %s, want that its tool is missing", m.Error)
			}
			w.connect, w.service.onAsk = nil, nil
			w.runUntil(time.Millisecond)
			if m := w.mutation(); m.State != keep.Applied {
				t.Errorf("job %t: the call is %s (next lookup in %s), want applied", job, m.State, time.Until(m.NextReconcileAt))
			}
		})
	}
}
