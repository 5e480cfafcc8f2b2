package engine_test

import (
	"testing"
	"testing/synctest"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/operator"
)

// An event is done again, the answer to the second call is lost, and the lookup finds an effect without our mark: that of
// the first attempt may be all there is. A person is asked; what bears our mark counts as ours.
func TestEffectOfAnAttemptBefore(t *testing.T) {
	for _, marked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.service.target, w.service.marked = !marked, marked
			w.service.onCall = lose(2, marked)
			w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Happened, nil }
			w.deploy()
			w.publish("in", "a")
			w.run()
			o, again := w.operator(), operator.RedoRequest{Workflow: "w", Topic: "in", IDs: []keep.MessageID{"a"}}
			p, err := o.PlanRedo(t.Context(), again)
			if err != nil {
				t.Fatal(err)
			}
			again.Mark = p.Mark
			if _, err := o.Redo(t.Context(), again, keep.Decision{By: "ann"}); err != nil {
				t.Fatal(err)
			}
			w.run()
			m, qs := w.newest(), w.questions()
			asked := len(qs) == 1 && qs[0].Kind == keep.AskUnknownOutcome
			if asked == marked || m.State == keep.Applied != marked || w.service.calls != 2 {
				t.Errorf("marked %t: the second call is %s after %d calls, questions %+v", marked, m.State, w.service.calls, qs)
			}
		})
	}
}
