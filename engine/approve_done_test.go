package engine_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/keep-run/keep"
)

// A person says of a call that waits for approval that it was done already, before the ledger was
// restored: nothing is sent, and the run continues as after the call, whatever its tool says since.
func TestApprovalDoneAlready(t *testing.T) {
	for _, kind := range kinds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t).writtenIn(kind)
			w.service.approve = "always"
			w.deploy()
			w.publish("in", "a")
			w.run()
			if q := w.questions(); len(q) != 1 || !q[0].Allows(keep.TreatAsDone) {
				t.Fatalf("questions %+v, want one that offers treat-as-done", q)
			}
			if err := w.decide(keep.TreatAsDone); err != nil {
				t.Fatal(err)
			}
			w.service.approve = "" // it is taken away before a host continues
			w.run()
			w.run()
			r := w.lastRun()
			if r.Status != keep.StatusCommitted || w.service.calls != 0 || w.event("in", "a").Status != keep.EventConsumed {
				t.Fatalf("run = %s after %d calls, event %s; want committed, none, consumed", r.Status, w.service.calls, w.event("in", "a").Status)
			}
			if out := w.event("out", "out:a"); string(out.Payload) != `{"status":"applied"}` {
				t.Errorf("next was given %s, want applied", out.Payload)
			}
		})
	}
}

// Next fails after that answer: a later attempt still knows it, and has the result of the answer.
func TestApprovalDoneAlreadyStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.approve = "always"
		broken, got := true, ""
		w.script["consumers.act.next"] = func(c *call) any {
			if broken {
				panic(thrown("broken"))
			}
			var m struct{ Result json.RawMessage }
			c.arg(1, &m)
			got = string(m.Result)
			return nil
		}
		w.deploy()
		w.publish("in", "a")
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
		if want := `{"id":7}`; got != want || w.service.calls != 0 {
			t.Errorf("next was given %s after %d calls, want %s after none", got, w.service.calls, want)
		}
	})
}

// In an item too; one of which the script says something else since is asked about again.
func TestApprovalDoneAlreadyInItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		w.service.approve = "always"
		text, got := "hello", ""
		w.script["jobs.remind"] = func(c *call) any {
			c.withItem("a", func(c *call, done bool) {
				if !done {
					got = string(c.do("svc.create", map[string]any{"id": "a", "text": text}))
				}
			})
			return nil
		}
		w.deploy()
		w.run()
		text, w.service.approve = "other", ""
		if err := w.decide(keep.TreatAsDone); err != nil {
			t.Fatal(err)
		}
		w.run()
		if q := w.questions(); len(q) != 1 || q[0].Kind != keep.AskApproval || w.service.calls != 0 {
			t.Fatalf("questions %+v after %d calls, want an approval after none: what would be sent differs", q, w.service.calls)
		}
		if err := w.decide(keep.TreatAsDone); err != nil {
			t.Fatal(err)
		}
		w.run()
		if w.items()["a"] != keep.ItemDone || w.service.calls != 0 || got != `{"id":7}` {
			t.Errorf("item %s after %d calls, the script got %s; want done, none, the result of the answer", w.items()["a"], w.service.calls, got)
		}
	})
}
