package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
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
