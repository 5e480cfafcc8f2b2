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
			m := w.mutation()
			if m.Error.Code != keep.CodeToolMissing || time.Until(m.NextReconcileAt) < time.Second {
				t.Fatalf("the record says %s and is looked up in %s, want that its tool is missing, and later", m.Error, time.Until(m.NextReconcileAt))
			}
			w.connect, w.service.onAsk = nil, nil
			w.runUntil(time.Millisecond)
			if m := w.mutation(); m.State != keep.Applied {
				t.Errorf("job %t: the call is %s (next lookup in %s), want applied", job, m.State, time.Until(m.NextReconcileAt))
			}
		})
	}
}
