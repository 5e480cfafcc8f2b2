package engine_test

import (
	"testing"
	"testing/synctest"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
)

// A person treats a call as done by an equal one, and the configuration changes before a host continues: its tool is one of
// which lookups find our mark, which cannot be asked, or whose identity is not unique any more. The call is not sent.
func TestTreatedAsDoneWhateverItsToolIsSince(t *testing.T) {
	marked := func(s *service) { s.marked = true }
	deaf := func(s *service) { s.level = keep.LevelNone }
	common := func(s *service) { s.unique = false }
	for name, c := range map[string]struct {
		unique bool
		change func(*service)
	}{
		"marked": {false, marked}, "cannot be asked": {false, deaf}, "not unique": {true, common},
	} {
		for _, job := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					if job {
						w = newLooseWorld(t, "same")
					}
					w.service.unique, w.service.target = c.unique, true
					w.script["consumers.act.mutate"] = func(c *call) any {
						c.do("svc.create", map[string]any{"id": "same"})
						return nil
					}
					begin := func(name keep.WorkflowName) {
						w.def.Name = name
						if w.deploy(); !job {
							w.publish("in", string(name))
						}
						w.run()
					}
					if !c.unique {
						w.service.onCall = lose(1, false)
						w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Retry, nil }
						begin("w")
						if err := w.engine().Pause(t.Context(), "w", keep.Decision{By: "ann"}); err != nil {
							t.Fatal(err)
						}
						if err := w.decide(keep.DidNotHappen); err != nil {
							t.Fatal(err)
						}
					}
					begin("other")
					w.def.Name = "w"
					w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Happened, nil }
					if c.unique {
						begin("w")
					} else if err := w.engine().Resume(t.Context(), "w", keep.Decision{By: "ann"}); err != nil {
						t.Fatal(err)
					}
					w.run()
					calls := w.service.calls
					if q := w.questions(); len(q) != 1 || q[0].Kind != keep.AskAlreadyDone {
						t.Fatalf("questions %+v, want one whether it is done already", q)
					}
					if err := w.decide(keep.TreatAsDone); err != nil {
						t.Fatal(err)
					}
					w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Absent, nil }
					c.change(w.service)
					w.run()
					w.run()
					done := w.event("in", "w").Status == keep.EventConsumed
					if job {
						done = w.items()["same"] == keep.ItemDone
					}
					if q := w.questions(); w.service.calls != calls || len(q) != 0 || !done {
						t.Errorf("job %t: %d calls, questions %+v, done %t; want %d, none, done", job, w.service.calls, q, done, calls)
					}
				})
			})
		}
	}
}

// An agent's call that a person treats as done by an equal one is done, whatever its tool is since.
func TestDirectCallTreatedAsDone(t *testing.T) {
	w := newWorld(t)
	w.service.unique = true
	c, d := w.directEngine().Engine.Caller(t.Context()), directCall()
	for i, want := range []keep.MutationState{keep.Applied, "", keep.Applied} {
		out, err := c.Call(t.Context(), d)
		if err != nil || out.Mutation.State != want || w.service.calls != 1 {
			t.Fatalf("call %d: %+v, %v, after %d calls; want %q after 1", i+1, out, err, w.service.calls, want)
		}
		if i != 1 {
			continue
		}
		if err := w.decide(keep.TreatAsDone); err != nil {
			t.Fatal(err)
		}
		w.service.unique = false
		w.tools.Replace(mustTools(t, w), func() {})
		if d.Prev, err = w.store.Run(t.Context(), out.Run.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// mustTools returns the tools as the world has them now.
func mustTools(t *testing.T, w *world) *engine.Tools {
	t.Helper()
	tools, err := engine.NewTools(w.connections())
	if err != nil {
		t.Fatal(err)
	}
	return tools
}
