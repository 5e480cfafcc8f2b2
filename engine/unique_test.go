package engine_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
)

// uniqueWorld has a tool whose identity is applied once. Events "a" and "b" are about the
// same thing; that of "a" was applied.
func uniqueWorld(t *testing.T) *world {
	w := newWorld(t)
	w.service.unique = true
	w.script["consumers.act.mutate"] = func(c *call) any {
		c.do("svc.create", map[string]any{"id": "same"})
		return nil
	}
	w.deploy()
	w.publish("in", "a")
	w.run()
	if m := w.mutation(); m.State != keep.Applied || w.service.calls != 1 {
		t.Fatalf("the first call is %s after %d calls, want applied after 1", m.State, w.service.calls)
	}
	return w
}

// The same identity under another key: nothing is recorded or sent before a person says
// so, and each answer does what it says.
func TestUnique(t *testing.T) {
	for _, tt := range []struct {
		action  keep.Action
		calls   int
		records int
		event   keep.EventStatus
		out     string
	}{
		{keep.DoAgain, 2, 2, keep.EventConsumed, `{"status":"applied"}`},
		{keep.TreatAsDone, 1, 1, keep.EventConsumed, `{"status":"applied"}`},
		{keep.Skip, 1, 1, keep.EventSkipped, ""},
	} {
		t.Run(string(tt.action), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := uniqueWorld(t)
				first := w.mutation()
				w.publish("in", "b")
				w.run()
				w.run() // a restart changes nothing
				r, qs := w.lastRun(), w.questions()
				if len(qs) != 1 || qs[0].Kind != keep.AskAlreadyDone || r.Status != keep.StatusPerson || r.Mutation != "" || w.service.calls != 1 {
					t.Fatalf("run %s with mutation %q after %d calls, questions %+v; want paused:person, none, 1 call and already_done", r.Status, r.Mutation, w.service.calls, qs)
				}
				if q := qs[0]; q.Mutation != first.Key || !strings.Contains(q.Attempted, string(first.Key)) || !strings.Contains(q.Question, string(first.Run)) {
					t.Errorf("the question does not name the earlier record: %+v", q)
				}
				if err := w.decide(tt.action); err != nil {
					t.Fatal(err)
				}
				w.run()
				w.run()
				ms, _, err := w.store.Mutations(t.Context(), keep.MutationFilter{}, keep.Page{})
				if err != nil || len(ms) != tt.records || w.service.calls != tt.calls {
					t.Errorf("%d records and %d calls, %v; want %d and %d", len(ms), w.service.calls, err, tt.records, tt.calls)
				}
				if ev := w.event("in", "b"); ev.Status != tt.event {
					t.Errorf("event = %s, want %s", ev.Status, tt.event)
				}
				if out := w.event("out", "out:b"); string(out.Payload) != tt.out {
					t.Errorf("next was given %s, want %s", out.Payload, tt.out)
				}
			})
		})
	}
}

// The host dies in next after a person treated the call as done: the next attempt still
// knows it, although there is no record.
func TestTreatedAsDoneSurvivesACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := uniqueWorld(t)
		broken := true
		next := w.script["consumers.act.next"]
		w.script["consumers.act.next"] = func(c *call) any {
			if broken {
				panic(thrown("broken"))
			}
			return next(c)
		}
		w.publish("in", "b")
		w.run()
		if err := w.decide(keep.TreatAsDone); err != nil {
			t.Fatal(err)
		}
		w.run()
		if q := w.questions(); len(q) != 1 || q[0].Kind != keep.AskLogic || q[0].Allows(keep.Skip) {
			t.Fatalf("questions %+v, want one about the script, which offers no skip", q)
		}
		broken = false
		if err := w.decide(keep.Retry); err != nil {
			t.Fatal(err)
		}
		w.run()
		if out := w.event("out", "out:b"); string(out.Payload) != `{"status":"applied"}` || w.service.calls != 1 {
			t.Errorf("next was given %s after %d calls, want applied after 1", out.Payload, w.service.calls)
		}
	})
}

// The record of the earlier call is swept after a person treated the call as done, and before
// the run continues: the decision holds, and the result is gone with the record.
func TestTreatedAsDoneOutlivesTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := uniqueWorld(t)
		first := w.mutation()
		w.publish("in", "b")
		w.run()
		if err := w.decide(keep.TreatAsDone); err != nil {
			t.Fatal(err)
		}
		m := first // the newest record is not swept
		m.Rev, m.Key, m.Workflow, m.Run, m.Identity = 0, "mut_other", "other", "run_other", json.RawMessage(`{"id":"other"}`)
		w.other(m)
		later := time.Now().Add(time.Hour)
		sweep := keep.Commit{Workflow: first.Workflow, At: later, Changes: []keep.Change{keep.Sweep{Chain: first.Run, Before: later}}}
		if err := w.store.Commit(t.Context(), sweep); err != nil {
			t.Fatal(err)
		}
		w.run()
		if ev, q := w.event("in", "b"), w.questions(); ev.Status != keep.EventConsumed || len(q) != 0 || w.service.calls != 1 {
			t.Errorf("the event is %s, questions %+v after %d calls; want consumed, none after 1", ev.Status, q, w.service.calls)
		}
	})
}

// An earlier call that is in doubt asks, too, and cannot stand for another one.
func TestUniqueBesideADoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := uniqueWorld(t)
		m := w.mutation()
		m.Rev, m.Key, m.State, m.Workflow, m.Run, m.Result, m.ResolvedBy = 0, "mut_other", keep.InFlight, "other", "run_other", nil, ""
		m.Identity = json.RawMessage(`{"id":"doubtful"}`)
		w.other(m)
		w.script["consumers.act.mutate"] = func(c *call) any {
			c.do("svc.create", map[string]any{"id": "doubtful"})
			return nil
		}
		w.publish("in", "b")
		w.run()
		if q := w.questions(); len(q) != 1 || q[0].Kind != keep.AskAlreadyDone || !strings.Contains(q[0].Question, "may have been done") {
			t.Fatalf("questions %+v, want one that says that it may have been done", q)
		}
		if err := w.decide(keep.TreatAsDone); err == nil || !strings.Contains(err.Error(), "is in_flight") {
			t.Errorf("treat-as-done: %v, want a refusal", err)
		}
	})
}

// Another workflow records the same call after this one looked, and before it commits:
// the commit finds it (law: once).
func TestUniqueInTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := uniqueWorld(t)
		m := w.mutation()
		m.Rev, m.Key, m.Workflow, m.Run = 0, "mut_other", "other", "run_other"
		m.Identity = json.RawMessage(`{"id":"raced"}`)
		w.script["consumers.act.mutate"] = func(c *call) any {
			c.do("svc.create", map[string]any{"id": "raced"})
			return nil
		}
		w.publish("in", "b")
		w.onCommit = func(c keep.Commit, do func() error) error {
			for _, change := range c.Changes {
				if put, ok := change.(keep.PutMutation); ok && put.Mutation.State == keep.InFlight {
					w.onCommit = nil
					w.other(m)
				}
			}
			return do()
		}
		w.run()
		if q := w.questions(); len(q) != 1 || q[0].Kind != keep.AskAlreadyDone || q[0].Mutation != m.Key || w.service.calls != 1 {
			t.Errorf("questions %+v after %d calls, want already_done about the other record after 1", q, w.service.calls)
		}
	})
}

// other records a call of another workflow.
func (w *world) other(m keep.Mutation) {
	w.t.Helper()
	moves := []keep.Move{{At: m.CreatedAt, By: "call", To: keep.InFlight}}
	if m.State != keep.InFlight {
		moves = append(moves, keep.Move{At: m.CreatedAt, By: "call", From: keep.InFlight, To: m.State})
	}
	phase := keep.Mutating
	run := keep.Run{ID: m.Run, Chain: m.Run, Workflow: m.Workflow, Handler: "act", Kind: keep.Consumer, Phase: phase,
		Status: keep.StatusReconciliation, Mutation: m.Key, CreatedAt: m.CreatedAt, UpdatedAt: m.CreatedAt}
	if m.State == keep.Applied {
		run.Phase, run.Status, run.Closed = keep.Committed, keep.StatusCommitted, true
	}
	err := w.store.Commit(w.t.Context(), keep.Commit{Workflow: m.Workflow, At: time.Now(), Changes: []keep.Change{
		keep.PutRun{Run: run}, keep.PutMutation{Mutation: m, Moves: moves}}})
	if err != nil {
		w.t.Fatal(err)
	}
}

// In an item: another attempt at it, or another item, asks as well.
func TestUniqueInItems(t *testing.T) {
	for _, action := range []keep.Action{keep.DoAgain, keep.TreatAsDone, keep.Skip} {
		t.Run(string(action), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newJobWorld(t)
				w.service.unique = true
				got := ""
				w.script["jobs.remind"] = func(c *call) any {
					for _, id := range []string{"a", "b"} {
						c.withItem(id, func(c *call, done bool) {
							if !done {
								got = string(c.do("svc.create", map[string]any{"id": "same"}))
							}
						})
					}
					return nil
				}
				w.deploy()
				w.run()
				if q := w.questions(); len(q) != 1 || q[0].Kind != keep.AskAlreadyDone || q[0].Item != "b" || w.service.calls != 1 {
					t.Fatalf("questions %+v after %d calls, want one about item b after 1", q, w.service.calls)
				}
				first := got
				got = ""
				if err := w.decide(action); err != nil {
					t.Fatal(err)
				}
				w.run()
				want, calls := keep.ItemDone, 1
				switch action {
				case keep.DoAgain:
					calls = 2
				case keep.Skip:
					want, first = keep.ItemSkipped, ""
				}
				if items := w.items(); items["b"] != want || w.service.calls != calls || action != keep.DoAgain && got != first {
					t.Errorf("item %s after %d calls, the script got %s; want %s after %d, %s", items["b"], w.service.calls, got, want, calls, first)
				}
			})
		})
	}
}

// Events of two keys are about the same thing, and their runs are open at once: a doubt
// about the call of one asks before the other sends, and only one of them is sent.
func TestUniqueInTwoLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newOrdered(t, keep.OrderKey)
		w.service.unique = true
		w.failCalls(1)
		w.script["consumers.act.mutate"] = func(c *call) any {
			c.do("svc.create", map[string]any{"id": "same"})
			return nil
		}
		w.deploy()
		w.publish("in", "a1", "b1")
		w.run()
		w.run() // a restart changes nothing
		want := []string{"key/act/a paused:reconciliation a1", "key/act/b paused:person b1"}
		got := w.open()
		slices.Sort(got)
		if !slices.Equal(got, want) || w.service.calls != 1 {
			t.Fatalf("open runs %q after %d calls, want %q after 1 (law: once)", got, w.service.calls, want)
		}
		var asked keep.Escalation
		for _, q := range w.questions() {
			if q.Kind == keep.AskAlreadyDone {
				asked = q
				continue
			}
			if err := w.engine().Decide(t.Context(), q.ID, keep.Decision{Action: keep.DidNotHappen, By: "ann"}); err != nil {
				t.Fatal(err)
			}
		}
		w.run()
		if got := w.open(); !slices.Equal(got, want[1:]) || w.service.calls != 2 || w.service.total() != 1 {
			t.Fatalf("open runs %q after %d calls and %d effects, want %q after 2 and 1", got, w.service.calls, w.service.total(), want[1:])
		}
		if err := w.engine().Decide(t.Context(), asked.ID, keep.Decision{Action: keep.TreatAsDone, By: "ann"}); err != nil {
			t.Fatal(err)
		}
		w.run()
		if w.open() != nil || w.service.calls != 2 {
			t.Errorf("open runs %q after %d calls, want none after 2", w.open(), w.service.calls)
		}
		if out := w.event("out", "out:b1"); string(out.Payload) != `{"status":"applied"}` {
			t.Errorf("next was given %s, want applied", out.Payload)
		}
	})
}

// Who was asked because an equal call was in doubt continues when it is known that it did not happen, and is not asked any more.
func TestUniqueBesideADoubtThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newOrdered(t, keep.OrderKey)
		w.service.unique = true
		w.service.onCall = func(n int) (bool, error) {
			return n > 2, map[int]error{1: errReset, 2: keep.Failf(keep.ClassLogic, "http-400", "refused")}[n]
		}
		w.script["consumers.act.mutate"] = func(c *call) any {
			c.do("svc.create", map[string]any{"id": "same"})
			return nil
		}
		w.deploy()
		w.publish("in", "a1", "b1")
		settled := func() (kinds []keep.EscalationKind) {
			w.runUntil(time.Minute)
			e := w.engine()
			if err := e.SettleRivals(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := w.runEngine(e, time.Hour); err != nil {
				t.Fatal(err)
			}
			for _, q := range w.questions() {
				kinds = append(kinds, q.Kind)
			}
			slices.Sort(kinds)
			return kinds
		}
		if got := settled(); !slices.Equal(got, []keep.EscalationKind{keep.AskAlreadyDone, keep.AskUnknownOutcome}) || w.service.calls != 1 {
			t.Fatalf("questions %q after %d calls, want both after 1 (law: once)", got, w.service.calls)
		}
		for _, q := range w.questions() {
			if q.Kind == keep.AskUnknownOutcome {
				if err := w.engine().Decide(t.Context(), q.ID, keep.Decision{Action: keep.DidNotHappen, By: "ann"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := settled(); !slices.Equal(got, []keep.EscalationKind{keep.AskLogic}) || w.service.calls != 3 || w.service.total() != 1 {
			t.Errorf("questions %q after %d calls and %d effects, want one about a1 after 3 and 1", got, w.service.calls, w.service.total())
		}
		if out := w.event("out", "out:b1"); string(out.Payload) != `{"status":"applied"}` {
			t.Errorf("next was given %s, want applied", out.Payload)
		}
	})
}
