package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// Nothing is sent before a person agreed, and then exactly once.
func TestApproval(t *testing.T) {
	for _, kind := range kinds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t).writtenIn(kind)
			w.service.approve = "always"
			w.deploy()
			w.publish("in", "a")
			w.run()
			w.run()
			r := w.lastRun()
			if r.Status != keep.StatusApproval || w.service.calls != 0 || w.event("in", "a").ReservedBy != r.Chain {
				t.Fatalf("run = %s after %d calls, want paused:approval after none, its event reserved", r.Status, w.service.calls)
			}
			w.service.onCall = func(n int) (bool, error) {
				if n == 1 {
					return false, keep.Failf(keep.ClassTransient, "http-429", "too many requests")
				}
				return true, nil
			}
			if err := w.decide(keep.Approve); err != nil {
				t.Fatal(err)
			}
			w.run()
			if r := w.lastRun(); r.Status != keep.StatusCommitted || w.service.calls != 2 || w.service.total() != 1 {
				t.Errorf("run = %s after %d calls, want committed after 2: the approval holds until the change is made", r.Status, w.service.calls)
			}
			w.publish("in", "b")
			w.run()
			if r := w.lastRun(); r.Status != keep.StatusApproval || w.service.calls != 2 {
				t.Errorf("the next run = %s after %d calls, want paused:approval: an approval is for one change", r.Status, w.service.calls)
			}
		})
	}
}

// A payload that differs from what was approved asks again.
func TestApprovalIsBoundToThePayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.approve = "always"
		text := "pay 10"
		w.script["consumers.act.mutate"] = func(c *call) any {
			c.do("svc.create", map[string]any{"id": "a", "text": text})
			return nil
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		text = "pay 1000"
		if err := w.decide(keep.Approve); err != nil {
			t.Fatal(err)
		}
		w.run()
		if r := w.lastRun(); r.Status != keep.StatusApproval || w.service.calls != 0 {
			t.Errorf("run = %s after %d calls, want paused:approval after none", r.Status, w.service.calls)
		}
	})
}

// Another tool asks again, although it has the same params and sends to the same place in the same way: as write and
// append of a file do, or insert and upsert of a row.
func TestApprovalIsBoundToTheTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.connect = func() []connector.Connection {
			c := w.service.connection()
			c.Approve = map[string]string{"create": "always", "edit": "always"}
			return []connector.Connection{c}
		}
		tool := "svc.create"
		w.script["consumers.act.mutate"] = func(c *call) any {
			c.do(tool, map[string]any{"id": "a", "text": "pay 10"})
			return nil
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		tool = "svc.edit"
		if err := w.decide(keep.Approve); err != nil {
			t.Fatal(err)
		}
		w.run()
		qs := w.questions()
		if w.service.calls != 0 || len(qs) != 1 || qs[0].Approval == nil || qs[0].Approval.Tool != "svc.edit" || !strings.Contains(qs[0].Why, "svc.create") {
			t.Fatalf("%d calls, questions %+v; want none, and one about svc.edit that names what was approved (law: once)", w.service.calls, qs)
		}
		if err := w.decide(keep.Approve); err != nil {
			t.Fatal(err)
		}
		if w.run(); w.service.calls != 1 {
			t.Errorf("%d calls, want one after the tool itself was approved", w.service.calls)
		}
	})
}

func TestRejection(t *testing.T) {
	for _, kind := range kinds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t).writtenIn(kind)
			w.service.approve = "always"
			w.deploy()
			w.publish("in", "a")
			w.run()
			if err := w.decide(keep.Reject); err != nil {
				t.Fatal(err)
			}
			w.run()
			if r := w.lastRun(); r.Status != keep.StatusAborted || w.service.calls != 0 || w.event("in", "a").Status != keep.EventSkipped {
				t.Errorf("run = %s after %d calls, event %s; want aborted, none, skipped", r.Status, w.service.calls, w.event("in", "a").Status)
			}
		})
	}
}

// In an item too, and each item for itself.
func TestApprovalInItems(t *testing.T) {
	for _, kind := range kinds {
		synctest.Test(t, func(t *testing.T) {
			w := newJobWorld(t, "a", "b").writtenIn(kind)
			w.service.approve = "always"
			w.deploy()
			w.run()
			if err := w.decide(keep.Approve); err != nil {
				t.Fatal(err)
			}
			w.run()
			if w.service.calls != 1 || w.items()["a"] != keep.ItemDone {
				t.Fatalf("%d calls, items %v; want 1, a done", w.service.calls, w.items())
			}
			if err := w.decide(keep.Reject); err != nil {
				t.Fatal(err)
			}
			w.run()
			if w.service.calls != 1 || w.items()["b"] != keep.ItemSkipped {
				t.Errorf("%d calls, items %v; want 1, b skipped", w.service.calls, w.items())
			}
		})
	}
}

// An item whose content changed after its call is done again only if a person
// says so, as a new attempt.
func TestReprocess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		text, broken := "hello", true
		w.script["jobs.remind"] = func(c *call) any {
			c.withItem("a", func(c *call, done bool) {
				c.do("svc.create", map[string]any{"id": "a", "text": text})
				if broken {
					panic(thrown("broken after the call"))
				}
			})
			return nil
		}
		w.deploy()
		w.run()
		text, broken = "other", false
		w.deploy()
		w.run()
		if q := w.questions(); len(q) != 1 || q[0].Kind != keep.AskItem || q[0].Item != "a" {
			t.Fatalf("questions = %+v, want one about item a", q)
		}
		if err := w.decide(keep.Reprocess); err != nil {
			t.Fatal(err)
		}
		w.run()
		if w.service.calls != 2 || w.items()["a"] != keep.ItemDone {
			t.Errorf("%d calls, items %v; want 2, a done", w.service.calls, w.items())
		}
	})
}

// What skipping does depends on how far the event came.
func TestSkip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.script["consumers.act.prepare"] = func(c *call) any {
			return map[string]any{"reservations": []any{map[string]any{"topic": "in", "ids": []string{"a", "b"}}}, "data": map[string]any{"id": "ab"}}
		}
		w.service.onCall = func(int) (bool, error) {
			return false, keep.Failf(keep.ClassPermission, "http-401", "token expired")
		}
		w.deploy()
		w.publish("in", "a", "b", "c")
		w.run()
		e := w.engine()
		res, err := e.SkipInput(t.Context(), "w", "in_c", keep.Decision{}) // pending
		if err != nil || res.Skipped != 1 || w.event("in", "c").Status != keep.EventSkipped {
			t.Errorf("skip a pending event: %+v, %v, now %s", res, err, w.event("in", "c").Status)
		}
		res, err = e.SkipEvents(t.Context(), "w", "in", []keep.MessageID{"a"}, keep.Decision{}) // reserved, before the mutation
		if err != nil || len(res.Aborted) != 1 || w.event("in", "a").Status != keep.EventSkipped || !w.event("in", "b").Free() {
			t.Errorf("skip a reserved event: %+v, %v, now %s; the other one free: %t", res, err, w.event("in", "a").Status, w.event("in", "b").Free())
		}
		if r := w.lastRun(); r.Status != keep.StatusAborted || len(w.questions()) != 0 {
			t.Errorf("run = %s with %d questions, want aborted with none", r.Status, len(w.questions()))
		}
		w.check()
	})
}

// After the mutation the run completes.
func TestSkipTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.onCall = func(int) (bool, error) { return true, errReset }
		w.service.level = keep.LevelNone
		w.deploy()
		w.publish("in", "a")
		w.run()
		res, err := w.engine().SkipInput(t.Context(), "w", "in_a", keep.Decision{})
		if err != nil || res.TooLate != 1 || res.Skipped != 0 {
			t.Errorf("skip an event in doubt: %+v, %v; want too late", res, err)
		}
		if ev := w.event("in", "a"); ev.Status != keep.EventPending || ev.ReservedBy == "" {
			t.Errorf("event = %s by %q, want pending and reserved", ev.Status, ev.ReservedBy)
		}
	})
}
