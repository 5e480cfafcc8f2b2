package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// rivalWorld has a job whose item calls for a1, and then, if it may, for a2, and runs that pass over an item in doubt. Of
// a1 nobody knows whether it happened, and by then another workflow has made an equal call; the service shows an effect.
func rivalWorld(t *testing.T, first map[string]any) (w *world, more *bool) {
	w = newLooseWorld(t, "a")
	w.service.target = true
	more = new(bool)
	w.script["jobs.remind"] = func(c *call) any {
		c.withItem("a", func(c *call, done bool) {
			if !done {
				c.do("svc.create", first)
				if *more {
					c.do("svc.create", map[string]any{"id": "a2"})
				}
			}
		})
		return nil
	}
	w.service.onCall = lose(1, false)
	w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Retry, nil }
	w.deploy()
	w.run()
	if err := w.engine().Pause(t.Context(), "w", keep.Decision{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	if err := w.decide(keep.DidNotHappen); err != nil {
		t.Fatal(err)
	}
	w.def.Name = "other"
	w.deploy()
	w.run()
	w.def.Name = "w"
	w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Happened, nil }
	first["text"] = "good morning"
	if err := w.engine().Resume(t.Context(), "w", keep.Decision{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	w.run()
	if q := w.questions(); len(q) != 1 || q[0].Kind != keep.AskAlreadyDone || w.service.calls != 2 {
		t.Fatalf("questions %+v after %d calls, want one whose the effect is, after 2", q, w.service.calls)
	}
	return w, more
}

// The answer that a call is done by an equal one is about the call and not about the run that asked: that ended without
// the item, since another of its calls was in doubt, and a later run comes to the call in a chain of its own. Whether
// the service answers by then or not, nobody is asked again and nothing is sent.
func TestRivalAnswerOutlivesItsRun(t *testing.T) {
	for _, verdict := range []connector.Verdict{connector.Retry, connector.Happened} {
		for _, differs := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				first := map[string]any{"id": "a1", "text": "hello"}
				w, more := rivalWorld(t, first)
				*more, w.service.onCall = true, lose(3, true) // of a2
				w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Retry, nil }
				if err := w.decide(keep.TreatAsDone); err != nil {
					t.Fatal(err)
				}
				w.run()
				if q := w.questions(); len(q) != 1 || !q[0].AboutDoubt() || w.lastRun().Status != keep.StatusCommitted {
					t.Fatalf("questions %+v, run %s; want one about a2, committed", q, w.lastRun().Status)
				}
				if differs {
					first["text"] = "hello" // as when it was sent
				}
				w.service.onAsk = func(int) (connector.Verdict, error) { return verdict, nil }
				if err := w.decide(keep.Happened); err != nil { // a2
					t.Fatal(err)
				}
				w.run()
				q := w.questions()
				switch {
				case w.service.calls != 3:
					t.Errorf("%d calls, want 3: a person treats a1 as done", w.service.calls)
				case !differs && (len(q) != 0 || w.items()["a"] != keep.ItemDone):
					t.Errorf("questions %+v, item %s; want none, done", q, w.items()["a"])
				case differs && verdict == connector.Retry && (len(q) != 1 || q[0].Kind != keep.AskApproval || !strings.Contains(q[0].Why, "would be sent now differs")):
					t.Errorf("questions %+v, want one about what differs", q)
				case differs && verdict == connector.Happened && (len(q) != 1 || q[0].Kind != keep.AskAlreadyDone):
					t.Errorf("questions %+v, want one whose the effect is", q)
				}
			})
		}
	}
}

// So is the answer to do it again: the call is sent in a later run without that question.
func TestDoAgainOutlivesItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLooseWorld(t, "a")
		w.service.unique = true
		w.deploy()
		w.run()
		w.def.Name = "other"
		w.deploy()
		w.run()
		if q := w.questions(); len(q) != 1 || q[0].Kind != keep.AskAlreadyDone {
			t.Fatalf("questions %+v, want one about the equal call", q)
		}
		w.service.onCall = lose(2, false)
		w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Retry, nil }
		for i, action := range []keep.Action{keep.DoAgain, keep.DidNotHappen} {
			if err := w.decide(action); err != nil {
				t.Fatal(err)
			}
			w.run()
			if got := w.service.calls; got != 2+i {
				t.Errorf("%d calls after %s, want %d; the questions are %+v", got, action, 2+i, w.questions())
			}
		}
		if q := w.questions(); len(q) != 0 || w.lastRun().Status != keep.StatusCommitted {
			t.Errorf("questions %+v, run %s; want none, committed", q, w.lastRun().Status)
		}
	})
}
