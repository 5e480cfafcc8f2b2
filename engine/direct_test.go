package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
)

// A call that is out when the wall clock leaps past its deadline, as on a laptop that slept, is not taken over
// by the Caller that makes it.
func TestDirectCallWhileTheClockLeaps(t *testing.T) {
	w := newWorld(t)
	w.service.level = keep.LevelNone
	var leap atomic.Int64
	w.clock = func() time.Time { return time.Now().Add(time.Duration(leap.Load())) }
	sent, back := make(chan struct{}), make(chan struct{})
	w.service.onCallContext = func(context.Context) error { close(sent); <-back; return nil }
	e := w.engine()
	err := w.store.Commit(t.Context(), keep.Commit{Workflow: engine.DirectWorkflow, At: e.Now(), Changes: []keep.Change{
		keep.Deploy{Deployment: engine.DirectDeployment(e.Now())},
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := e.Engine.Caller(t.Context())
	type result struct {
		out engine.DirectOutcome
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := c.Call(t.Context(), engine.DirectCall{Lane: keep.KeyLane(engine.DirectHandler, "k"), Agent: "a", Tool: "svc.create",
			Params: []byte(`{"id":"x"}`), Identity: []byte(`{"id":"x"}`), With: func(keep.Run) []keep.Change { return nil }})
		done <- result{out, err}
	}()
	<-sent
	leap.Store(int64(10 * time.Minute))
	for _, alone := range []bool{false, true} {
		if err := c.Recover(t.Context(), alone); err != nil {
			t.Error(err)
		}
	}
	close(back)
	r := <-done
	if r.err != nil || r.out.Mutation.State != keep.Applied || len(w.questions()) != 0 {
		t.Errorf("the record is %s, %d questions, %v; want applied and none", r.out.Mutation.State, len(w.questions()), r.err)
	}
}
