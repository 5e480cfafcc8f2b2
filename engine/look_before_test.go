package engine_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/limit"
)

// A person says that a call did not happen, and by then its service can be asked again: what it shows
// counts. Absence, and no answer, leave it to the person's word.
func TestLookBeforeSendingAgain(t *testing.T) {
	for name, c := range map[string]struct {
		effect bool
		onAsk  func(int) (connector.Verdict, error)
		calls  int
	}{
		"it is there":      {true, nil, 1},
		"it is not":        {false, nil, 2},
		"no answer":        {true, func(int) (connector.Verdict, error) { return connector.Retry, nil }, 2},
		"nothing is shown": {true, func(int) (connector.Verdict, error) { return connector.Absent, nil }, 2},
	} {
		for _, job := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					if job {
						w = newJobWorld(t, "a")
					}
					w.service.onCall = func(n int) (bool, error) {
						if n > 1 {
							return true, nil
						}
						return c.effect, errReset
					}
					w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Retry, nil }
					w.deploy()
					if !job {
						w.publish("in", "a")
					}
					w.run()
					if effect := effectOf(w.questions()[0], keep.DidNotHappen); !strings.Contains(effect, "asked once more") {
						t.Errorf("did-not-happen says %q", effect)
					}
					w.service.onAsk = c.onAsk
					if err := w.decide(keep.DidNotHappen); err != nil {
						t.Fatal(err)
					}
					w.run()
					w.run()
					m := w.mutation()
					if w.service.calls != c.calls || m.State != keep.Applied || len(w.questions()) != 0 || w.lastRun().Status != keep.StatusCommitted {
						t.Errorf("%d calls, record %s, run %s, questions %+v; want %d, applied, committed", w.service.calls, m.State, w.lastRun().Status, w.questions(), c.calls)
					}
				})
			})
		}
	}
}

// The look waits for a place as the call does: other workflows have all that the limit allows, and it is
// made all the same before the call is sent again.
func TestLookBeforeSendingAgainWaitsForItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(rate("6/min"))
		w.service.onCall = lose(1, true)
		w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Retry, nil }
		w.deploy()
		w.publish("in", "a")
		w.run()
		w.service.onAsk = nil
		if err := w.decide(keep.DidNotHappen); err != nil {
			t.Fatal(err)
		}
		w.def.Name = "other" // its call takes the place
		w.deploy()
		w.publish("in", "x")
		w.run()
		w.def.Name = "w"
		m := w.mutation()
		if n := w.service.effects[m.Token]; n != 1 || m.State != keep.Applied || m.ResolvedBy != "reconcile" {
			t.Errorf("%d effects, record %s by %s; want 1, applied by the lookup", n, m.State, m.ResolvedBy)
		}
	})
}

// The run becomes the probe of a connection that was down: it probes with the look, and sends nothing before
// the service has answered that.
func TestLookBeforeSendingAgainIsTheProbe(t *testing.T) {
	for _, effect := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.limit(limit.Rule{})
			var end time.Time
			down := func() bool { return time.Now().Before(end) }
			var log []string
			w.service.onCall = func(n int) (bool, error) {
				log = append(log, "call")
				switch {
				case n == 1:
					end = time.Now().Add(3 * time.Hour)
					return effect, errReset
				case down():
					return false, keep.Failf(keep.ClassTransient, "refused", "connection refused")
				}
				return true, nil
			}
			w.service.onAsk = func(int) (connector.Verdict, error) {
				log = append(log, "look")
				switch {
				case down():
					return "", errReset
				case w.service.effects[w.mutation().Token] > 0:
					return connector.Happened, nil
				}
				return connector.Absent, nil
			}
			w.policy.Reconcile.Attempts = 2
			w.deploy()
			w.publish("in", "a")
			w.runUntil(30 * time.Minute)
			for _, q := range w.questions() {
				if q.AboutDoubt() {
					if err := w.engine().Decide(t.Context(), q.ID, keep.Decision{Action: keep.DidNotHappen, By: "ann", From: "test"}); err != nil {
						t.Fatal(err)
					}
				}
			}
			log = nil
			w.runUntil(6 * time.Hour)
			want := "look"
			if !effect {
				want = "look call"
			}
			m := w.mutation()
			if said := strings.Join(log, " "); !strings.HasSuffix(said, want) || strings.Count(said, "call") != strings.Count(want, "call") {
				t.Errorf("it did %q, want looks, and at the end %q", said, want)
			}
			if n := w.service.effects[m.Token]; n != 1 || m.State != keep.Applied {
				t.Errorf("%d effects, record %s; want 1, applied", n, m.State)
			}
		})
	}
}

// The look finds the call before, and the script says something else by now: that is asked about, as it is where a
// person says that the call happened.
func TestLookBeforeSendingAgainFindsOtherContent(t *testing.T) {
	for _, action := range []keep.Action{keep.DidNotHappen, keep.Happened} {
		synctest.Test(t, func(t *testing.T) {
			w := newJobWorld(t)
			text := "pay 10"
			w.script["jobs.remind"] = func(c *call) any {
				c.withItem("a", func(c *call, done bool) {
					if !done {
						c.do("svc.create", map[string]any{"id": "a", "text": text})
					}
				})
				return nil
			}
			w.service.onCall = lose(1, true)
			w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Retry, nil }
			w.deploy()
			w.run()
			text, w.service.onAsk = "pay 20 "+strings.Repeat("harmless ", 500)+"THE-END", nil
			w.deploy()
			if err := w.decide(action); err != nil {
				t.Fatal(err)
			}
			w.run()
			if q := w.questions(); len(q) != 1 || q[0].Kind != keep.AskItem || w.service.calls != 1 || w.mutation().State != keep.Applied || w.items()["a"] != keep.ItemAttention ||
				!strings.Contains(q[0].Attempted, "THE-END") { // whole: nothing is done again that a person cannot see all of
				t.Errorf("%s: questions %+v after %d calls, item %s; want one about the item, 1, attention", action, q, w.service.calls, w.items()["a"])
			}
		})
	}
}

// A call that did not happen, as a person says, and an equal one of another workflow that did: a lookup that finds
// no mark shows that one, and a person is asked whose it is. What he wants made again is made.
func TestLookBeforeSendingAgainFindsAnothers(t *testing.T) {
	for _, unique := range []bool{false, true} {
		for _, action := range []keep.Action{keep.DoAgain, keep.TreatAsDone} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.service.unique, w.service.target = unique, true
				w.script["consumers.act.mutate"] = func(c *call) any {
					c.do("svc.create", map[string]any{"id": "same"})
					return nil
				}
				w.service.onCall = lose(1, false)
				w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Retry, nil }
				w.deploy()
				w.publish("in", "a")
				w.run()
				w.service.onAsk = func(int) (connector.Verdict, error) {
					if len(w.service.effects) > 0 {
						return connector.Happened, nil
					}
					return connector.Absent, nil
				}
				if err := w.engine().Pause(t.Context(), "w", keep.Decision{By: "ann"}); err != nil {
					t.Fatal(err)
				}
				if err := w.decide(keep.DidNotHappen); err != nil {
					t.Fatal(err)
				}
				w.def.Name = "other"
				w.deploy()
				w.publish("in", "b")
				w.run()
				w.def.Name = "w"
				if err := w.engine().Resume(t.Context(), "w", keep.Decision{By: "ann"}); err != nil {
					t.Fatal(err)
				}
				w.run()
				q := w.questions()
				if len(q) != 1 || q[0].Kind != keep.AskAlreadyDone || w.service.calls != 2 {
					t.Fatalf("unique %t: questions %+v after %d calls, want one whether it is done already after 2", unique, q, w.service.calls)
				}
				if strings.Contains(q[0].Why, "unique") != unique {
					t.Errorf("unique %t: the question says %s", unique, q[0].Why)
				}
				if err := w.decide(action); err != nil {
					t.Fatal(err)
				}
				w.run()
				want := map[keep.Action]int{keep.DoAgain: 3, keep.TreatAsDone: 2}[action]
				if w.service.calls != want || len(w.questions()) != 0 || w.event("in", "a").Status != keep.EventConsumed {
					t.Errorf("unique %t, %s: %d calls, questions %+v, event %s; want %d, none, consumed", unique, action, w.service.calls, w.questions(), w.event("in", "a").Status, want)
				}
			})
		}
	}
}

// The place of the call before is dead, and the owner sends another way by now. It is asked once, beside the gate of
// the connection: what it does not answer is no outage of the new place, which gets the call that a person approved.
func TestLookBeforeSendingAnotherWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, old, now, configure := newMovedWorld(t, keep.LevelWitness, true)
		old.onCall = func(int) (bool, error) { return false, errReset }
		looks := 0
		old.onAsk = func(int) (connector.Verdict, error) { looks++; return "", errReset }
		w.policy.Outage.After, w.policy.Reconcile.Attempts = 3, 4
		w.deploy()
		w.publish("in", "a")
		w.runUntil(12 * time.Hour)
		configure("new")
		w.runUntil(10 * time.Minute)
		w.decideAll(keep.DidNotHappen)
		w.runUntil(2 * time.Hour)
		looks = 0
		w.decideAll(keep.Approve)
		w.runUntil(24 * time.Hour)
		if m := w.mutation(); looks != 1 || now.calls != 1 || m.State != keep.Applied || len(w.questions()) != 0 {
			t.Errorf("%d looks at the old place, %d calls of the new one, record %s, questions %+v; want 1, 1, applied, none", looks, now.calls, m.State, w.questions())
		}
	})
}

// The place of calls in doubt is dead, and the owner sends another way by now: they are asked about beside the gate of the
// connection, so the new place is not shut by what the old one does not answer, nor is the old one asked later for what
// the new one does not answer.
func TestLookupsAtAFormerPlaceAreBesideTheGate(t *testing.T) {
	for _, limits := range []limit.Rule{{}, rate("60/min")} {
		synctest.Test(t, func(t *testing.T) {
			w, old, now, configure := newMovedWorld(t, keep.LevelWitness, true)
			inner := w.connect
			w.connect = func() []connector.Connection {
				c := inner()
				c[0].Limits = limits
				return c
			}
			old.onCall = func(int) (bool, error) { return false, errReset }
			looks := 0
			old.onAsk = func(int) (connector.Verdict, error) {
				looks++
				return "", &keep.Failure{Class: keep.ClassTransient, Code: "http-429", Message: "too many requests", RetryAfter: time.Hour}
			}
			w.policy.Outage.After, w.policy.Reconcile.Attempts = 3, 100
			w.policy.Reconcile.First = 10 * time.Minute
			w.deploy()
			w.publish("in", "a")
			w.runUntil(time.Second)
			configure("new")
			w.def.Name = "other"
			w.deploy()
			w.runUntil(90 * time.Minute)
			w.publish("in", "b")
			w.runUntil(time.Second)
			if looks < 2 || now.calls != 1 {
				t.Errorf("limits %s: %d looks at the old place, %d calls of the new one; want some, 1", limits, looks, now.calls)
			}
			now.onCall = func(int) (bool, error) {
				return false, &keep.Failure{Class: keep.ClassTransient, Code: "http-429", Message: "too many requests", RetryAfter: 24 * time.Hour}
			}
			w.publish("in", "c")
			w.runUntil(time.Second)
			looks, old.onAsk = 0, func(int) (connector.Verdict, error) { looks++; return connector.Happened, nil }
			w.runUntil(2 * time.Hour)
			w.def.Name = "w"
			if looks != 1 || w.event("in", "a").Status != keep.EventConsumed {
				t.Errorf("limits %s: %d looks while the new place takes no calls, event %s; want 1, consumed", limits, looks, w.event("in", "a").Status)
			}
		})
	}
}

// Two equal calls, of both of which a person says that they did not happen, and one effect: both look while they wait in
// line. The first takes it, and the other is asked about.
func TestLookBeforeSendingAgainTakesAnEffectOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.target = true
		w.limit(rate("6/min"))
		id := "same"
		w.script["consumers.act.mutate"] = func(c *call) any {
			c.do("svc.create", map[string]any{"id": id})
			return nil
		}
		w.service.onCall = func(n int) (bool, error) {
			if n <= 2 {
				return n == 1, errReset
			}
			return true, nil
		}
		w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Retry, nil }
		w.deploy()
		w.publish("in", "a")
		w.runUntil(time.Hour)
		w.def.Name = "other"
		w.deploy()
		w.publish("in", "b")
		w.runUntil(time.Hour)
		w.decideAll(keep.DidNotHappen)
		both := []keep.WorkflowName{"w", "other"}
		for _, n := range both {
			if err := w.engine().Pause(t.Context(), n, keep.Decision{By: "ann"}); err != nil {
				t.Fatal(err)
			}
		}
		id = "third"
		w.def.Name = "third" // its call takes the place of the moment
		w.deploy()
		w.publish("in", "c")
		w.run()
		id = "same"
		for _, n := range both {
			if err := w.engine().Resume(t.Context(), n, keep.Decision{By: "ann"}); err != nil {
				t.Fatal(err)
			}
		}
		w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Happened, nil }
		w.runUntil(time.Hour)
		q := w.questions()
		if len(q) != 1 || q[0].Kind != keep.AskAlreadyDone || !strings.Contains(q[0].Why, "no mark") || w.service.calls != 3 {
			t.Errorf("questions %+v after %d calls; want one whose the effect is, 3", q, w.service.calls)
		}
	})
}

// Another record of the same becomes applied between the look and the commit of what it found: the commit finds it.
func TestLookBeforeSendingAgainFindsAnothersInTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.target = true
		w.service.onCall = lose(1, true)
		w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Retry, nil }
		w.deploy()
		w.publish("in", "a")
		w.run()
		w.service.onAsk = nil
		if err := w.decide(keep.DidNotHappen); err != nil {
			t.Fatal(err)
		}
		w.onCommit = func(c keep.Commit, do func() error) error {
			for _, change := range c.Changes {
				if put, ok := change.(keep.PutMutation); ok && put.Mutation.State == keep.Applied {
					w.onCommit = nil
					m := put.Mutation
					m.Rev, m.Key, m.Workflow, m.Run = 0, "mut_other", "other", "run_other"
					w.other(m)
				}
			}
			return do()
		}
		w.run()
		if q := w.questions(); len(q) != 1 || q[0].Kind != keep.AskAlreadyDone || q[0].Mutation != "mut_other" || w.service.calls != 1 {
			t.Errorf("questions %+v after %d calls, want already_done about the other record after 1", q, w.service.calls)
		}
	})
}

// A person wanted the call made beside an equal one, its answer was lost, and a person says that it did not happen. What the
// look shows may be the other one, unless the service answers for the key of this call: then that counts.
func TestLookBeforeSendingAgainBesideAnother(t *testing.T) {
	for _, byKey := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.service.unique, w.service.target = true, true
			w.script["consumers.act.mutate"] = func(c *call) any {
				c.do("svc.create", map[string]any{"id": "same"})
				return nil
			}
			w.deploy()
			w.publish("in", "a")
			w.run()
			w.publish("in", "b")
			w.run()
			w.service.onCall = lose(2, true)
			w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Retry, nil }
			if err := w.decide(keep.DoAgain); err != nil {
				t.Fatal(err)
			}
			w.run()
			if effect := effectOf(w.questions()[0], keep.DidNotHappen); strings.Contains(effect, "if it shows the call,") || !strings.Contains(effect, "by its key") {
				t.Errorf("did-not-happen says %q", effect)
			}
			looks := 0
			w.service.byKey = byKey
			w.service.onAsk = func(int) (connector.Verdict, error) { looks++; return connector.Happened, nil }
			if err := w.decide(keep.DidNotHappen); err != nil {
				t.Fatal(err)
			}
			w.run()
			want := map[bool]int{true: 2, false: 3}[byKey]
			if looks != 1 || w.service.calls != want || len(w.questions()) != 0 || w.event("in", "b").Status != keep.EventConsumed {
				t.Errorf("by key %t: %d looks, %d calls, questions %+v, event %s; want 1, %d, none, consumed", byKey, looks, w.service.calls, w.questions(), w.event("in", "b").Status, want)
			}
		})
	}
}

// A person said that the call did not happen, and of its approval that it was done: that is the later word, and the
// service is not asked any more.
func TestLookBeforeSendingAgainWhatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t, "a")
		w.service.onCall = lose(1, false)
		looks := 0
		w.service.onAsk = func(int) (connector.Verdict, error) { looks++; return connector.Retry, nil }
		w.deploy()
		w.run()
		w.service.approve = "always"
		if err := w.decide(keep.DidNotHappen); err != nil {
			t.Fatal(err)
		}
		w.run()
		looks = 0
		if err := w.decide(keep.TreatAsDone); err != nil {
			t.Fatal(err)
		}
		w.run()
		if looks != 0 || w.service.calls != 1 || len(w.questions()) != 0 || w.items()["a"] != keep.ItemDone {
			t.Errorf("%d looks, %d calls, questions %+v, item %s; want none, 1, none, done", looks, w.service.calls, w.questions(), w.items()["a"])
		}
	})
}

// decideAll gives that answer to the open questions that have it.
func (w *world) decideAll(action keep.Action) {
	w.t.Helper()
	for _, q := range w.questions() {
		if !slices.ContainsFunc(q.Choices, func(c keep.Choice) bool { return c.Action == action }) {
			continue
		}
		if err := w.engine().Decide(w.t.Context(), q.ID, keep.Decision{Action: action, By: "ann", From: "test"}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// Only the lookup of a service fails: POST would be answered, search is not, and nobody else calls it. Each look is a
// probe that fails, or names a time before which it wants no other. A person is asked about the connection, and whom that
// person wants to try makes the call.
func TestLookBeforeSendingAgainIsNeverAnswered(t *testing.T) {
	slow := &keep.Failure{Class: keep.ClassTransient, Code: "http-429", Message: "too many requests", RetryAfter: 10 * time.Minute}
	for _, c := range []struct {
		ok   bool
		look error
	}{{true, errReset}, {false, errReset}, {true, slow}, {false, slow}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var log []string
			w.service.onCall = func(n int) (bool, error) {
				log = append(log, "call")
				if n == 1 || !c.ok {
					return false, errReset
				}
				return true, nil
			}
			w.service.onAsk = func(int) (connector.Verdict, error) {
				log = append(log, "look")
				return "", c.look
			}
			w.policy.Outage.After, w.policy.Reconcile.Attempts = 3, 4
			w.deploy()
			w.publish("in", "a")
			w.runUntil(12 * time.Hour)
			w.decideAll(keep.DidNotHappen)
			log = nil
			w.runUntil(24 * time.Hour)
			q := w.questions()
			if said := strings.Join(log, " "); !strings.HasPrefix(said, "look") || strings.Contains(said, "call") || len(q) != 1 || q[0].Kind != keep.AskConnection {
				t.Fatalf("%v: it did %q, questions %+v; want looks, and one about the connection", c.look, said, q)
			}
			log = nil
			w.decideAll(keep.Retry)
			w.runUntil(time.Minute)
			if said := strings.Join(log, " "); !strings.HasPrefix(said, "look call") {
				t.Errorf("%v: it did %q, want a look, and the call", c.look, said)
			}
			if m := w.mutation(); c.ok && (m.State != keep.Applied || len(w.questions()) != 0) {
				t.Errorf("%v: record %s, questions %+v; want applied, none", c.look, m.State, w.questions())
			}
		})
	}
}
