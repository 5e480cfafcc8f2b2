package engine_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/keep-run/keep"
)

// What a tool needs in the service is made before a call is recorded: until then
// the ledger knows nothing, and the failure is not a doubt.
func TestStartComesBeforeTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		starts := 0
		w.service.onStart = func() error {
			if ms, _, err := w.store.Mutations(t.Context(), keep.MutationFilter{}, keep.Page{}); err != nil || len(ms) != 0 {
				t.Errorf("Start %d: the ledger has %d records, %v; want none", starts, len(ms), err)
			}
			if starts++; starts < 3 {
				return errors.New("no connection")
			}
			return nil
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		if r := w.lastRun(); r.Status != keep.StatusCommitted || starts != 3 || w.service.total() != 1 {
			t.Errorf("run = %s after %d starts with %d effects, want committed after 3 with 1", r.Status, starts, w.service.total())
		}
	})
}
