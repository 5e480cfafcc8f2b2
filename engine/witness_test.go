package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// Law witnessed: a lookup that finds nothing, and would also find nothing if the effect
// were there, is believed only beside a known effect that it finds at the same moment.
func TestUnwitnessedAbsence(t *testing.T) {
	for _, c := range []struct {
		name    string
		before  bool // an earlier call was applied
		effect  bool // the lost call had its effect
		ask     func(*service, int) connector.Verdict
		control func(n int) (bool, error) // nil: the truth
		state   keep.MutationState
		total   int
		looks   int // control lookups at least
	}{
		{"no effect is known", false, true, nothing, nil, keep.Indeterminate, 1, 0},
		{"no effect is known and none happened", false, false, nothing, nil, keep.Indeterminate, 0, 0},
		{"a gateway hides every effect", true, true, nothing, hidden, keep.Indeterminate, 2, 1},
		{"a gateway hides every effect for a while", true, true, hiddenUntil(4), hiddenBefore(4), keep.Applied, 2, 1},
		{"the service is back between lookup and control", true, true, hiddenUntil(4), nil, keep.Applied, 2, 1},
		{"the effect is not there and others are", true, false, truth, nil, keep.Applied, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.deploy()
				if c.before {
					w.publish("in", "a")
					w.run()
				}
				lost := false
				w.service.onCall = func(int) (bool, error) {
					if lost {
						return true, nil
					}
					lost = true
					return c.effect, errReset
				}
				w.service.onControl = c.control
				w.service.onAsk = func(n int) (connector.Verdict, error) { return c.ask(w.service, n), nil }
				w.publish("in", "b")
				w.runFor(2 * time.Hour)
				m := w.newest()
				if m.State != c.state || w.service.total() != c.total || w.service.controlled < c.looks {
					t.Errorf("mutation = %s with %d effects after %d control lookups, want %s with %d after %d",
						m.State, w.service.total(), w.service.controlled, c.state, c.total, c.looks)
				}
				if c.state == keep.Indeterminate && len(w.questions()) != 1 {
					t.Errorf("%d questions, want one", len(w.questions()))
				}
				if !c.before && !strings.Contains(w.questions()[0].Why, "nothing shows that this lookup finds what is there") {
					t.Errorf("the question says %q", w.questions()[0].Why)
				}
			})
		})
	}
}

// Law witnessed: effects of a tool that has another name now are known, too.
func TestWitnessOfBeforeARename(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.deploy()
		w.publish("in", "a")
		w.run()
		w.rename(func(c *connector.Connection, _ *connector.Spec) {
			c.Name, c.Was = "crm", connector.Names{"people", "svc"}
		})
		w.creates("crm.create")
		w.failCalls(2)
		w.service.onAsk = func(n int) (connector.Verdict, error) { return truth(w.service, n), nil }
		w.publish("in", "b")
		w.runFor(2 * time.Hour)
		if m := w.newest(); m.State != keep.Applied || w.service.total() != 2 || w.service.controlled == 0 {
			t.Errorf("mutation = %s with %d effects after %d control lookups, want applied with 2 after some", m.State, w.service.total(), w.service.controlled)
		}
	})
}

func hidden(int) (bool, error) { return false, nil }

func hiddenBefore(n int) func(int) (bool, error) {
	return func(i int) (bool, error) { return i >= n, nil }
}

func nothing(*service, int) connector.Verdict { return connector.Unwitnessed }

// hiddenUntil finds effects from the nth lookup on.
func hiddenUntil(n int) func(*service, int) connector.Verdict {
	return func(s *service, i int) connector.Verdict {
		if i < n {
			return connector.Unwitnessed
		}
		return truth(s, i)
	}
}

// truth finds the second effect if it is there.
func truth(s *service, _ int) connector.Verdict {
	if len(s.effects) > 1 {
		return connector.Happened
	}
	return connector.Unwitnessed
}

// A repeated request that is refused with 401 or 403 settles nothing: a person is asked for
// the right at once, the doubt and its key stay, and asking again with the right ends it.
func TestARefusedResendAsksForTheRight(t *testing.T) {
	for _, inItem := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			if inItem {
				w = newJobWorld(t, "a")
			}
			w.service.level = keep.LevelKey
			w.service.onCall = func(int) (bool, error) { return true, errReset }
			w.service.onAsk = func(int) (connector.Verdict, error) {
				return "", keep.Failf(keep.ClassPermission, keep.CodeForbidden, "the service answered 403 Forbidden")
			}
			w.deploy()
			if !inItem {
				w.publish("in", "a")
			}
			w.run()
			m, qs := w.newest(), w.questions()
			if w.service.asked != 2 && w.service.asked != 1 || m.State != keep.Indeterminate || !m.Doubted {
				t.Fatalf("the record is %s, doubted %t, after %d lookups", m.State, m.Doubted, w.service.asked)
			}
			if len(qs) != 1 || qs[0].Kind != keep.AskPermission || !qs[0].Allows(keep.CheckAgain) || !strings.Contains(qs[0].Question, "again was refused") {
				t.Fatalf("the questions are %+v, want one for the right", qs)
			}
			w.service.onAsk = nil
			if err := w.decide(keep.CheckAgain); err != nil {
				t.Fatal(err)
			}
			w.run()
			if after := w.newest(); after.State != keep.Applied || after.Token != m.Token || w.service.calls != 1 || w.service.total() != 1 {
				t.Errorf("the record is %s with token %s, want applied with %s; %d effects of %d calls", after.State, after.Token, m.Token, w.service.total(), w.service.calls)
			}
		})
	}
}
