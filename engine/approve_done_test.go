package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/operator"
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

// The answer is about the call and not about the run that asked: the run continued without the item, since another of
// its calls was in doubt, and a later run comes to the call in a chain of its own.
func TestApprovalDoneAlreadyOutlivesItsRun(t *testing.T) {
	for _, asks := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newLooseWorld(t, "a")
			w.service.approve = "always"
			w.script["jobs.remind"] = func(c *call) any {
				c.withItem("a", func(c *call, done bool) {
					if !done {
						c.do("svc.create", map[string]any{"id": "a1"})
						c.do("svc.create", map[string]any{"id": "a2"})
					}
				})
				return nil
			}
			w.service.onCall = lose(1, true)
			w.service.onAsk = func(int) (connector.Verdict, error) { return "", errReset }
			w.deploy()
			w.run()
			for _, action := range []keep.Action{keep.TreatAsDone, keep.Approve} { // of a1, of a2
				if err := w.decide(action); err != nil {
					t.Fatal(err)
				}
				if action == keep.Approve && !asks {
					w.service.approve = "" // it is taken away
				}
				w.run()
			}
			if q := w.questions(); len(q) != 1 || !q[0].AboutDoubt() || w.lastRun().Status != keep.StatusCommitted {
				t.Fatalf("questions %+v, run %s; want one about a2, committed", q, w.lastRun().Status)
			}
			if err := w.decide(keep.Happened); err != nil { // a2
				t.Fatal(err)
			}
			w.run()
			if q := w.questions(); len(q) != 0 || w.service.calls != 1 || w.items()["a"] != keep.ItemDone {
				t.Errorf("questions %+v after %d calls, item %s; want none, 1, done", q, w.service.calls, w.items()["a"])
			}
		})
	}
}

// And it is found under the name that the tool has since.
func TestApprovalDoneAlreadyUnderAnotherName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, change := newRenamedWorld(t, func(c *connector.Connection, _ *connector.Spec) { c.Name, c.Was = "crm", connector.Names{"svc"} })
		w.service.approve = "always"
		w.deploy()
		w.run()
		if err := w.decide(keep.TreatAsDone); err != nil { // of x
			t.Fatal(err)
		}
		change(func(id string) (string, map[string]any) {
			return "crm.create", map[string]any{"id": id, "text": "hello"}
		})
		w.run()
		if q := w.questions(); len(q) != 1 || q[0].Approval == nil || !strings.Contains(q[0].Attempted, `"id":"y"`) || w.service.calls != 0 {
			t.Errorf("questions %+v after %d calls, want one about y after none", q, w.service.calls)
		}
	})
}

// And under another identity. Where only a person can tell whether a call is the one that was done, one is asked.
func TestApprovalDoneAlreadyUnderAnotherConfiguration(t *testing.T) {
	as := func(tool, text string) func(string) (string, map[string]any) {
		return func(id string) (string, map[string]any) {
			return tool, map[string]any{"id": id, "text": text}
		}
	}
	wider := func(_ *connector.Connection, s *connector.Spec) { s.Identity = []string{"id", "text"} }
	for _, tt := range []struct {
		name      string
		configure func(*connector.Connection, *connector.Spec)
		script    func(string) (string, map[string]any)
		calls     int
		asks      string // of which id, empty: none
	}{
		{"wider identity, same content", wider, nil, 1, ""},
		{"wider identity, other content", wider, as("svc.create", "good morning"), 0, "x"},
		{"no identity", func(_ *connector.Connection, s *connector.Spec) { s.Identity = nil }, nil, 0, "y"},
		{"tool without was", func(_ *connector.Connection, s *connector.Spec) { s.Name = "add" }, as("svc.add", "hello"), 0, "x"},
		{"connection without was", func(c *connector.Connection, _ *connector.Spec) { c.Name = "crm" }, as("crm.create", "hello"), 0, "x"},
		{"tool that is new", func(_ *connector.Connection, s *connector.Spec) { s.Name, s.New = "add", true }, as("svc.add", "hello"), 2, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, change := newRenamedWorld(t, tt.configure)
				w.service.approve, w.service.onCall = "always", nil
				w.deploy()
				w.run()
				if err := w.decide(keep.TreatAsDone); err != nil { // of x
					t.Fatal(err)
				}
				change(tt.script)
				w.service.approve = "" // it is taken away
				w.run()
				switch qs := w.questions(); {
				case w.service.calls != tt.calls:
					t.Errorf("%d calls, want %d; the questions are %+v", w.service.calls, tt.calls, qs)
				case tt.asks == "" && len(qs) > 0:
					t.Errorf("it asks %+v, want nothing", qs)
				case tt.asks != "" && (len(qs) != 1 || qs[0].Approval == nil || !strings.Contains(qs[0].Attempted, fmt.Sprintf(`"id":%q`, tt.asks)) || !strings.Contains(qs[0].Why, "ann said at")):
					t.Errorf("it asks %+v, want whether %s was done", qs, tt.asks)
				}
			})
		})
	}
}

// Whoever asks about the script of a run later, and whoever decides about it, knows that its call was done: no
// question offers to skip it, and its event is not left to a run that is over.
func TestApprovalDoneAlreadyIsKnownLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.approve = "always"
		w.repairs = func() bool { return true }
		broken := true
		w.script["consumers.act.next"] = func(*call) any {
			if broken {
				panic(thrown("broken"))
			}
			return nil
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		if err := w.decide(keep.TreatAsDone); err != nil {
			t.Fatal(err)
		}
		w.run()
		if err := w.engine().AskAbout(t.Context(), w.lastRun(), ""); err != nil {
			t.Fatal(err)
		}
		q := w.questions()[0]
		if effect := effectOf(q, keep.Retry); q.Allows(keep.Skip) || !strings.Contains(effect, "next") {
			t.Errorf("skip is offered: %t; retry %s; want no skip, and a retry of next", q.Allows(keep.Skip), effect)
		}
		q.ID, q.Choices = "esc_of_an_older_version", append(q.Choices, keep.Choice{Action: keep.Skip})
		if err := w.store.Commit(t.Context(), keep.Commit{Workflow: "w", At: time.Now(), Changes: []keep.Change{keep.OpenEscalation{Escalation: q}}}); err != nil {
			t.Fatal(err)
		}
		err := w.engine().Decide(t.Context(), q.ID, keep.Decision{Action: keep.Skip, By: "ann", From: "test"})
		if _, refused := errors.AsType[*operator.ActionError](err); !refused {
			t.Errorf("Skip = %v, want it refused", err)
		}
		broken = false
		w.deploy()
		w.run()
		if ev := w.event("in", "a"); ev.Status != keep.EventConsumed || w.service.calls != 0 {
			t.Errorf("the event is %s after %d calls, want consumed after none", ev.Status, w.service.calls)
		}
	})
}
