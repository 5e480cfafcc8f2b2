package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

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
			w.wantAskedUnlessMarked(marked)
		})
	}
}

// What the new attempt publishes under another id is at its first attempt, and what reads it makes a call that one made before: of an effect
// that is found without our mark nobody knows whose it is, however many events are between.
func TestEffectOfAnAttemptBeforeFurtherDown(t *testing.T) {
	for _, marked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.def.Topics = append(w.def.Topics, "first", "second")
			w.def.Handlers = []keep.Handler{
				{Name: "begin", Kind: keep.Consumer, Subscribe: []keep.TopicName{"in"}, HasNext: true},
				{Name: "pass", Kind: keep.Consumer, Subscribe: []keep.TopicName{"first"}, HasNext: true},
				{Name: "act", Kind: keep.Consumer, Subscribe: []keep.TopicName{"second"}, HasMutate: true},
			}
			for handler, to := range map[string]string{"begin": "first", "pass": "second"} {
				w.script["consumers."+handler+".prepare"] = reserveTrigger
				w.script["consumers."+handler+".next"] = func(c *call) any { return c.do("publish", to, map[string]any{"n": 1}) }
			}
			w.script["consumers.act.mutate"] = func(c *call) any {
				c.do("svc.create", map[string]any{"id": "thing", "text": "hello"})
				panic("unreachable: the mutate call is terminal")
			}
			w.service.target, w.service.marked = !marked, marked
			w.wantAskedUnlessMarked(marked)
		})
	}
}

// A run failed, its event was skipped and then done again: whoever skips what the run asked about does not skip the new attempt.
func TestSkipOfARunWhoseEventIsDoneAgain(t *testing.T) {
	for _, phase := range []string{"prepare", "mutate"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			good := w.script["consumers.act."+phase]
			w.script["consumers.act."+phase] = func(*call) any { panic(thrown("broken")) }
			w.deploy()
			w.publish("in", "a")
			w.run()
			if _, err := w.operator().SkipEvents(t.Context(), "w", "in", []keep.MessageID{"a"}, keep.Decision{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			w.redo("in", "a")
			if err := w.decide(keep.Skip); err != nil {
				t.Fatal(err)
			}
			if ev := w.event("in", "a"); !ev.Free() || ev.Attempt() != 2 {
				t.Errorf("after a failure in %s the event is %s at attempt %d, want pending at 2", phase, ev.Status, ev.Attempt())
			}
			w.script["consumers.act."+phase] = good
			w.run()
			w.wantOnce("a")
		})
	}
}

// redo has an event done again.
func (w *world) redo(topic keep.TopicName, id keep.MessageID) {
	w.t.Helper()
	o, again := w.operator(), operator.RedoRequest{Workflow: w.def.Name, Topic: topic, IDs: []keep.MessageID{id}}
	p, err := o.PlanRedo(w.t.Context(), again)
	if err != nil {
		w.t.Fatal(err)
	}
	again.Mark = p.Mark
	if _, err := o.Redo(w.t.Context(), again, keep.Decision{By: "ann"}); err != nil {
		w.t.Fatal(err)
	}
}

// wantAskedUnlessMarked has event a done twice, loses the answer of the second call, and has its lookup find an effect: a person is asked, unless it
// shows our mark.
func (w *world) wantAskedUnlessMarked(marked bool) {
	w.t.Helper()
	w.service.onCall = lose(2, marked)
	w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Happened, nil }
	w.deploy()
	w.publish("in", "a")
	w.run()
	w.redo("in", "a")
	w.run()
	m, qs := w.newest(), w.questions()
	asked := len(qs) == 1 && qs[0].Kind == keep.AskUnknownOutcome
	if asked == marked || m.State == keep.Applied != marked || w.service.calls != 2 {
		w.t.Errorf("marked %t: the second call is %s after %d calls, questions %+v", marked, m.State, w.service.calls, qs)
	}
}
