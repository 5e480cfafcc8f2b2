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
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/operator"
)

// A placed tool says where it sends.
type placed struct {
	asker
	place string
}

func (p placed) Pin() json.RawMessage { return json.RawMessage(fmt.Sprintf("{\"place\":%q}", p.place)) }

// A rebinding tool can still ask the places where it sent before.
type rebinding struct {
	placed
	places map[string]*service
}

func (r rebinding) Rebind(pin json.RawMessage) (connector.Tool, error) {
	var was struct{ Place string }
	if err := json.Unmarshal(pin, &was); err != nil {
		return nil, err
	}
	s := r.places[was.Place]
	if s == nil {
		return nil, errors.New("no such place")
	}
	a := asker{mutator{tool{s: s, spec: r.spec}}}
	a.spec.Level, a.spec.CarriesToken = keep.LevelWitness, s.carries
	return a, nil
}

// A movedWorld has a service at two places. Its tool sends to the one that is configured.
func newMovedWorld(t *testing.T, level keep.Level, rebinds bool) (w *world, old, now *service, configure func(place string)) {
	w = newWorld(t)
	old, now = w.service, newService()
	old.level, now.level = level, level
	places, place := map[string]*service{"old": old, "new": now}, "old"
	w.connect = func() []connector.Connection {
		c := places[place].connection()
		create := placed{c.Tools[0].(asker), place}
		if c.Tools[0] = create; rebinds {
			c.Tools[0] = rebinding{create, places}
		}
		return []connector.Connection{c}
	}
	return w, old, now, func(p string) { place = p }
}

// loseTheAnswer makes the first call have its effect and lose its answer, and no lookup
// succeed.
func (s *service) loseTheAnswer() {
	s.onCall = func(n int) (bool, error) {
		if n == 1 {
			return true, errors.New("connection reset")
		}
		return true, nil
	}
	s.onAsk = func(int) (connector.Verdict, error) { return "", errors.New("down") }
}

// Law: bound-to-its-world. The place of a call in doubt is asked, and no other; nothing is
// sent to another one.
func TestAPlaceThatChangesUnderADoubt(t *testing.T) {
	for _, level := range []keep.Level{keep.LevelKey, keep.LevelWitness} {
		for _, rebinds := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				w, old, now, configure := newMovedWorld(t, level, rebinds)
				old.loseTheAnswer()
				w.deploy()
				w.publish("in", "a")
				w.runUntil(time.Second)
				if m := w.mutation(); m.State != keep.NeedsReconcile || !m.Doubted || !strings.Contains(string(m.Pin), "old") {
					t.Fatalf("the record is %s, doubted %t, pinned as %s", m.State, m.Doubted, m.Pin)
				}
				old.onAsk = nil
				configure("new")
				w.run()
				if now.calls != 0 || now.asked != 0 || old.calls != 1 || old.total() != 1 {
					t.Errorf("%s, rebinds %t: the new place got %d calls and %d lookups, the old one has %d effects", level, rebinds, now.calls, now.asked, old.total())
				}
				m := w.mutation()
				if rebinds {
					if m.State != keep.Applied {
						t.Errorf("%s: the record is %s, want applied: the old place has the effect", level, m.State)
					}
					return
				}
				qs := w.questions()
				if m.State != keep.Indeterminate || len(qs) != 1 || !strings.Contains(qs[0].Why, "configuration of the tool changed") || qs[0].CanVerify {
					t.Fatalf("%s: the record is %s with questions %+v; want one about the configuration", level, m.State, qs)
				}
				want := "asks you once more, since the call would be sent another way"
				if level == keep.LevelKey {
					want += ", where its key may not be known"
				}
				if got := effectOf(qs[0], keep.DidNotHappen); got != want+"; if it did happen, it happens twice" {
					t.Errorf("%s: it says that the answer %s", level, got)
				}
				// The person says that it did not happen. Sending it to the new place is
				// another decision.
				if err := w.decide(keep.DidNotHappen); err != nil {
					t.Fatal(err)
				}
				w.run()
				if qs = w.questions(); now.calls != 0 || len(qs) != 1 || qs[0].Kind != keep.AskApproval {
					t.Fatalf("%s: %d calls at the new place, questions %+v; want none, and one for approval", level, now.calls, qs)
				}
				if err := w.decide(keep.Approve); err != nil {
					t.Fatal(err)
				}
				if w.run(); now.calls != 1 || w.lastRun().Status != keep.StatusCommitted {
					t.Errorf("%s: %d calls at the new place, the run is %s", level, now.calls, w.lastRun().Status)
				}
			})
		}
	}
}

// What asks the place of before sends nothing, whatever asking the place that is configured would send.
func TestLookupOfAPlaceThatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, old, _, configure := newMovedWorld(t, keep.LevelKey, true)
		old.loseTheAnswer()
		w.deploy()
		w.publish("in", "a")
		w.runUntil(time.Second)
		configure("new")
		_ = w.runFor(24 * time.Hour)
		qs := w.questions()
		if len(qs) != 1 || !qs[0].Allows(keep.CheckAgain) {
			t.Fatalf("questions %+v, want one that can be checked again", qs)
		}
		if got := effectOf(qs[0], keep.CheckAgain); got != "asks the service again what happened; sends nothing" {
			t.Errorf("it says that the answer %s", got)
		}
	})
}

// An approval is for the place that the question showed: what would be sent elsewhere is asked anew.
func TestApprovalIsBoundToThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, old, now, configure := newMovedWorld(t, keep.LevelWitness, false)
		old.approve, now.approve = "always", "always"
		w.deploy()
		w.publish("in", "a")
		w.run()
		if err := w.decide(keep.Approve); err != nil {
			t.Fatal(err)
		}
		configure("new")
		w.run()
		qs := w.questions()
		if old.calls+now.calls != 0 || len(qs) != 1 || qs[0].Kind != keep.AskApproval || !strings.Contains(qs[0].Why, "sent another way") || !strings.Contains(qs[0].Why, "new") {
			t.Fatalf("%d and %d calls, questions %+v; want none, and one that shows the other place", old.calls, now.calls, qs)
		}
		if err := w.decide(keep.Approve); err != nil {
			t.Fatal(err)
		}
		if w.run(); now.calls != 1 || old.calls != 0 {
			t.Errorf("%d and %d calls, want one at the new place", old.calls, now.calls)
		}
	})
}

// Who is to look by hand is sent to where the call was sent.
func TestVerifyWhereItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, old, now, configure := newMovedWorld(t, keep.LevelWitness, false)
		old.verify, now.verify = "Look in Sent.", "Look in Sent2."
		old.loseTheAnswer()
		w.deploy()
		w.publish("in", "a")
		w.runUntil(time.Second)
		configure("new")
		w.run()
		if qs := w.questions(); len(qs) != 1 || qs[0].VerifyByHand != old.verify {
			t.Errorf("questions %+v, want one that says %q", qs, old.verify)
		}
	})
}

// A connection that is missing at one start, perhaps since its name was mistyped, leaves
// the doubt to the next start.
func TestAConnectionThatIsMissingForAWhile(t *testing.T) {
	for _, long := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.service.loseTheAnswer()
			w.deploy()
			w.publish("in", "a")
			w.runUntil(time.Second)
			w.service.onAsk = nil
			w.connect = func() []connector.Connection { return nil }
			w.runUntil(time.Minute)
			if wait := lifecycle.WaitOfDoubt(w.mutation()); wait.Kind != lifecycle.WaitsForTool || wait.Until.IsZero() ||
				!strings.Contains(wait.String(), "there is no tool svc.create") || strings.Contains(wait.String(), "service is asked") {
				t.Errorf("it waits for %q: %s; want for its tool", wait.Kind, wait)
			}
			if long {
				w.runUntil(24 * time.Hour)
				if q := w.questions()[0]; !strings.Contains(q.Why, "connection reset") || !strings.Contains(q.Why, "there is no tool svc.create") || strings.Contains(q.Why, "was asked") {
					t.Errorf("the question says: %s", q.Why)
				}
			}
			w.connect = nil
			if qs := w.questions(); long {
				if len(qs) != 1 || !qs[0].Allows(keep.CheckAgain) {
					t.Fatalf("questions %+v, want one that can be checked again", qs)
				}
				if err := w.decide(keep.CheckAgain); err != nil {
					t.Fatal(err)
				}
			}
			w.run()
			if m := w.mutation(); m.State != keep.Applied || w.service.total() != 1 {
				t.Errorf("long %t: the record is %s with %d effects, want applied with 1", long, m.State, w.service.total())
			}
		})
	}
}

// While a tool is missing nothing is sent, whatever asking by it would send, and once a key is too old neither is it: who may have a
// call looked up again is told so.
func TestCheckAgainSaysThatNothingIsSent(t *testing.T) {
	for _, old := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.service.level, w.service.keyLasts = keep.LevelKey, time.Hour
			w.service.loseTheAnswer()
			w.deploy()
			w.publish("in", "a")
			w.runUntil(time.Second)
			want := "sends the same call with the same key, or nothing if the service may not know that any more"
			if !old {
				w.connect, want = func() []connector.Connection { return nil }, "sends nothing while there is no tool svc.create"
			}
			_ = w.runFor(24 * time.Hour)
			qs := w.questions()
			if len(qs) != 1 || !qs[0].Allows(keep.CheckAgain) {
				t.Fatalf("questions %+v, want one that can be checked again", qs)
			}
			if got := effectOf(qs[0], keep.CheckAgain); !strings.Contains(got, want) {
				t.Errorf("key too old %t: it says that the answer %s; want that it %s", old, got, want)
			}
		})
	}
}

// A doubt that a lookup ended wrongly, and a later refusal, do not give the key up: what
// the corrected script sends under it is seen by a person first.
func TestADeployKeepsADoubtedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.level = keep.LevelKey
		w.service.onCall = func(n int) (bool, error) {
			switch n {
			case 1:
				return true, errors.New("connection reset")
			case 2:
				return false, keep.Failf(keep.ClassLogic, "http-422", "no such currency")
			}
			return true, nil
		}
		w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Absent, nil } // an ingress says 404
		w.deploy()
		w.publish("in", "a")
		w.run()
		before := w.mutation()
		if before.State != keep.Failed || !before.Doubted || w.lastRun().Status != keep.StatusLogic || w.service.calls != 2 {
			t.Fatalf("the record is %s, doubted %t, after %d calls; the run is %s", before.State, before.Doubted, w.service.calls, w.lastRun().Status)
		}
		w.script["consumers.act.mutate"] = func(c *call) any {
			return c.do("svc.create", map[string]any{"id": "a", "currency": "EUR"})
		}
		w.deploy()
		w.run()
		if qs := w.questions(); w.service.calls != 2 || len(qs) != 1 || qs[0].Kind != keep.AskApproval || !strings.Contains(qs[0].Why, "currency") {
			t.Fatalf("%d calls and questions %+v; want no other call, and a question that shows the difference", w.service.calls, qs)
		}
		if err := w.decide(keep.Approve); err != nil {
			t.Fatal(err)
		}
		w.run()
		if m := w.mutation(); m.Key != before.Key || m.Token != before.Token || m.State != keep.Applied || w.service.total() != 1 {
			t.Errorf("the record %s is %s with %d effects; want %s applied, with 1", m.Key, m.State, w.service.total(), before.Key)
		}
	})
}

// An item that a person skips between two of its calls, by another process, makes no other.
func TestSkipAnItemBetweenItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t, "a")
		e := w.engine()
		other, err := operator.New(w.store, operator.Config{})
		if err != nil {
			t.Fatal(err)
		}
		w.script["jobs.remind"] = func(c *call) any {
			c.withItem("a", func(c *call, isDone bool) {
				if isDone {
					return
				}
				c.do("svc.create", map[string]any{"id": "first"})
				if err := other.SkipItem(t.Context(), "w", "a", keep.Decision{By: "ann"}); err != nil {
					t.Errorf("SkipItem: %v", err)
				}
				c.do("svc.create", map[string]any{"id": "second"})
			})
			return nil
		}
		w.deploy()
		if err := w.runEngine(e, time.Hour); err != nil {
			t.Fatal(err)
		}
		it, err := w.store.Item(t.Context(), "w", "a")
		if err != nil || it.Status != keep.ItemSkipped || w.service.calls != 1 {
			t.Errorf("the item is %s after %d calls, %v; want skipped after 1", it.Status, w.service.calls, err)
		}
		for _, r := range w.runs() {
			if r.Crashes > 0 {
				t.Errorf("run %s is counted as one whose host died", r.ID)
			}
		}
	})
}
