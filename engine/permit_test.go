package engine_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/operator"
)

// give makes these tools all that the workflow of the world may call.
func (w *world) give(tools ...keep.GrantedTool) {
	w.t.Helper()
	if _, err := w.operator().SetGrant(w.t.Context(), w.def.Name, tools, operator.Giver{By: "ann", From: "test"}, nil); err != nil {
		w.t.Fatal(err)
	}
}

// take takes all from the workflow of the world.
func (w *world) take() {
	w.t.Helper()
	if _, err := w.operator().TakeGrant(w.t.Context(), w.def.Name, operator.Giver{By: "bob", From: "test"}, nil); err != nil {
		w.t.Fatal(err)
	}
}

// operator returns who decides: in the running process, or in another one.
func (w *world) operator() *operator.Operator {
	if w.running != nil {
		return w.running.Operator
	}
	return w.engine().Operator
}

// refused fails the test unless the last run stopped since it was not granted something.
func (w *world) refused(calls int) {
	w.t.Helper()
	r := w.lastRun()
	if r.Status != keep.StatusPerson || r.Error == nil || r.Error.Class != keep.ClassPermission || r.Error.Code != keep.CodeNotGranted || w.service.calls != calls {
		w.t.Fatalf("run %s (%v) after %d calls, want paused:person, not-granted, after %d (law: permitted)", r.Status, r.Error, w.service.calls, calls)
	}
	qs := w.questions()
	if len(qs) != 1 || qs[0].Kind != keep.AskPermission {
		w.t.Fatalf("the questions are %+v, want one for permission", qs)
	}
}

// records returns how many records the ledger has.
func (w *world) records() int {
	w.t.Helper()
	all, _, err := w.store.Mutations(w.t.Context(), keep.MutationFilter{}, keep.Page{})
	if err != nil {
		w.t.Fatal(err)
	}
	return len(all)
}

// A call outside of the grant is refused before anything is recorded or sent. When it is
// given, the run continues, and sends once.
func TestNotGranted(t *testing.T) {
	for name, granted := range map[string][]keep.GrantedTool{
		"another tool":            {{Tool: "svc.other"}},
		"a condition":             {{Tool: "svc.*"}, {Tool: "svc.create", When: "params.text == 'good bye'"}},
		"a missing param":         {{Tool: "svc.create", When: "params.amount < 10"}},
		"a param of another type": {{Tool: "svc.create", When: "params.text < 10"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.deploy()
				w.give(granted...)
				w.publish("in", "a")
				w.run()
				w.refused(0)
				if n := w.records(); n != 0 {
					t.Errorf("the ledger has %d records of a call that was not allowed", n)
				}
				if q := w.questions()[0]; !q.Allows(keep.Retry) || !q.Allows(keep.Skip) {
					t.Errorf("the question offers %v, want retry and skip", q.Choices)
				}
				w.give(keep.GrantedTool{Tool: "svc.create", When: "params.text == 'hello'"})
				if err := w.decide(keep.Retry); err != nil {
					t.Fatal(err)
				}
				w.run()
				if r := w.lastRun(); r.Status != keep.StatusCommitted || w.service.total() != 1 {
					t.Errorf("run %s, %d effects; want committed and 1", r.Status, w.service.total())
				}
			})
		})
	}
}

// A workflow that was never given a grant may call everything: those who embed Keep and
// databases of before there were grants have none.
func TestNeverGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.deploy()
		w.publish("in", "a")
		w.run()
		if r := w.lastRun(); r.Status != keep.StatusCommitted {
			t.Errorf("run %s, want committed", r.Status)
		}
	})
}

// A read outside of the grant is refused the same way.
func TestReadNotGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		reads := 0
		w.service.onRead = func() error { reads++; return nil }
		w.script["consumers.act.prepare"] = func(c *call) any {
			c.do("svc.list", map[string]any{"q": "x"})
			return reserveTrigger(c)
		}
		w.deploy()
		w.give(keep.GrantedTool{Tool: "svc.create"}, keep.GrantedTool{Tool: "svc.list", When: "params.q == 'y'"})
		w.publish("in", "a")
		w.run()
		w.refused(0)
		if reads != 0 {
			t.Errorf("%d reads were made", reads)
		}
		w.give(keep.GrantedTool{Tool: "svc.*"})
		if err := w.decide(keep.Retry); err != nil {
			t.Fatal(err)
		}
		w.run()
		if r := w.lastRun(); r.Status != keep.StatusCommitted || reads == 0 {
			t.Errorf("run %s after %d reads, want committed after some", r.Status, reads)
		}
	})
}

// What is taken away while a call waits to be sent is not sent.
func TestTakenWhileWaiting(t *testing.T) {
	all := keep.GrantedTool{Tool: "svc.*"}
	t.Run("for a retry", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.service.onCall = func(int) (bool, error) {
				return false, keep.Failf(keep.ClassTransient, "http-429", "too many requests")
			}
			w.deploy()
			w.give(all)
			w.publish("in", "a")
			if err := w.runFor(time.Second); err == nil {
				t.Fatal("the run did not wait")
			}
			w.take()
			w.run()
			w.refused(1)
		})
	})
	t.Run("for an approval", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.service.approve = "always"
			w.deploy()
			w.give(all)
			w.publish("in", "a")
			w.run()
			w.take()
			if err := w.decide(keep.Approve); err != nil {
				t.Fatal(err)
			}
			w.run()
			w.refused(0)
		})
	})
	t.Run("for what became of it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			lost := true
			w.service.onCall = func(int) (bool, error) { return false, keep.Failf(keep.ClassUnknown, "timeout", "no answer") }
			w.service.onAsk = func(int) (connector.Verdict, error) {
				if lost {
					return connector.Retry, nil
				}
				return connector.Absent, nil
			}
			w.deploy()
			w.give(all)
			w.publish("in", "a")
			if err := w.runFor(time.Second); err == nil {
				t.Fatal("the run did not wait")
			}
			w.take()
			asked := w.service.asked
			lost = false
			w.run()
			w.refused(1)
			if m := w.mutation(); w.service.asked == asked || m.State != keep.Failed {
				t.Errorf("the record is %s after %d lookups, want failed: lookups continue", m.State, w.service.asked-asked)
			}
		})
	})
	t.Run("by a host that died", func(t *testing.T) {
		for _, p := range []engine.Point{engine.BeforeCall, engine.Recorded, engine.Answered} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.deploy()
				w.give(all)
				w.publish("in", "a")
				w.dieAt = p
				_ = w.runFor(time.Hour) // it died
				w.take()
				calls := w.service.calls
				w.run()
				if w.service.calls != calls || w.service.total() > 1 || w.service.total() == 0 && w.lastRun().Status != keep.StatusPerson {
					t.Errorf("died at %s: run %s, %d calls since the grant was taken (law: permitted)", p, w.lastRun().Status, w.service.calls-calls)
				}
				if w.service.total() == 0 {
					w.refused(calls)
				}
			})
		}
	})
	t.Run("at level A, where to ask is to send", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.service.level = keep.LevelKey
			w.service.onCall = func(int) (bool, error) { return true, keep.Failf(keep.ClassUnknown, "timeout", "no answer") }
			w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Retry, nil }
			w.deploy()
			w.give(all)
			w.publish("in", "a")
			if err := w.runFor(time.Second); err == nil {
				t.Fatal("the run did not wait")
			}
			w.take()
			asked := w.service.asked
			w.run()
			if m := w.mutation(); w.service.asked != asked || m.State != keep.Indeterminate {
				t.Fatalf("the record is %s after %d more requests, want indeterminate after none (law: permitted)", m.State, w.service.asked-asked)
			}
			w.service.onAsk = nil
			w.give(all)
			if err := w.decide(keep.CheckAgain); err != nil {
				t.Fatal(err)
			}
			w.run()
			if r := w.lastRun(); r.Status != keep.StatusCommitted || w.service.total() != 1 {
				t.Errorf("run %s, %d effects; want committed and 1", r.Status, w.service.total())
			}
		})
	})
}

// A grant that is taken away, or is the first one that the workflow gets, between the
// decision about a call and its record keeps the call from being recorded, and so from
// being sent.
func TestTakenAtTheLastMoment(t *testing.T) {
	for name, granted := range map[string]bool{"a grant": true, "the freedom of a workflow without one": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { takenAtTheLastMoment(t, granted) })
		})
	}
}

func takenAtTheLastMoment(t *testing.T, granted bool) {
	w := newWorld(t)
	w.deploy()
	if granted {
		w.give(keep.GrantedTool{Tool: "svc.*"})
	}
	w.publish("in", "a")
	taken := false
	w.onCommit = func(c keep.Commit, do func() error) error {
		records := slices.ContainsFunc(c.Changes, func(ch keep.Change) bool { _, ok := ch.(keep.PutMutation); return ok })
		if records && !taken {
			taken = true
			other, err := operator.New(w.store, operator.Config{})
			if err == nil {
				_, err = other.TakeGrant(t.Context(), w.def.Name, operator.Giver{By: "bob", From: "test"}, nil)
			}
			if err != nil {
				t.Error(err)
			}
		}
		return do()
	}
	w.run()
	w.refused(0)
}

// A grant may ask for approvals, of any tool, by a condition.
func TestGrantAsksForApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.deploy()
		w.give(keep.GrantedTool{Tool: "svc.*"}, keep.GrantedTool{Tool: "svc.create", Approve: "params.id == 'b' || params.id == 'c'"})
		w.publish("in", "a")
		w.run()
		if r := w.lastRun(); r.Status != keep.StatusCommitted {
			t.Fatalf("run %s, want committed: the condition does not hold", r.Status)
		}
		w.publish("in", "b")
		w.run()
		qs := w.questions()
		if r := w.lastRun(); r.Status != keep.StatusApproval || w.service.calls != 1 || len(qs) != 1 || qs[0].Kind != keep.AskApproval {
			t.Fatalf("run %s after %d calls, questions %+v; want paused:approval after 1", r.Status, w.service.calls, qs)
		}
		if err := w.decide(keep.Approve); err != nil {
			t.Fatal(err)
		}
		w.run()
		if r := w.lastRun(); r.Status != keep.StatusCommitted || w.service.total() != 2 {
			t.Errorf("run %s, %d effects; want committed and 2", r.Status, w.service.total())
		}
	})
}

// In items of jobs the same holds: each call is checked when it is made.
func TestNotGrantedInItems(t *testing.T) {
	for _, kind := range kinds {
		synctest.Test(t, func(t *testing.T) {
			w := newJobWorld(t, "a", "b").writtenIn(kind)
			w.deploy()
			w.give(keep.GrantedTool{Tool: "svc.*", When: "params.id == 'a'"})
			w.run()
			w.refused(1)
			w.give(keep.GrantedTool{Tool: "svc.*"})
			if err := w.decide(keep.Retry); err != nil {
				t.Fatal(err)
			}
			w.run()
			if r := w.lastRun(); r.Status != keep.StatusCommitted || w.service.total() != 2 {
				t.Errorf("run %s, %d effects; want committed and 2", r.Status, w.service.total())
			}
		})
	}
}

// Law: permitted. A condition on a tool holds when it has another name.
func TestGrantAfterARename(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.deploy()
		w.give(keep.GrantedTool{Tool: "svc.*"}, keep.GrantedTool{Tool: "svc.create", When: "params.id == 'another'"})
		w.rename(func(_ *connector.Connection, s *connector.Spec) {
			s.Name, s.Was = "put", connector.Names{"add", "create"}
		})
		w.creates("svc.put")
		w.publish("in", "a")
		w.run()
		w.refused(0)
	})
}
