package host_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/view"
)

// stops are the ways in which build 1 of a program leaves a run open.
var stops = map[string]func(w *world, c *handler.Consumer[string, handler.NoResult]){
	"in doubt": func(w *world, _ *handler.Consumer[string, handler.NoResult]) {
		w.service.onCall = func(context.Context, keep.Mutation, int) (bool, error) { return true, errReset }
		w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Retry, nil }
	},
	"transient": func(w *world, _ *handler.Consumer[string, handler.NoResult]) {
		w.service.onCall = func(_ context.Context, _ keep.Mutation, n int) (bool, error) {
			if n > 1 {
				return true, nil
			}
			return false, &keep.Failure{Class: keep.ClassTransient, Code: "busy", Message: "busy", RetryAfter: time.Hour}
		}
	},
	"approval": func(w *world, _ *handler.Consumer[string, handler.NoResult]) { w.approve = true },
	"logic": func(_ *world, c *handler.Consumer[string, handler.NoResult]) {
		c.Mutate = func(context.Context, *handler.Getter, handler.Prepared[string]) (handler.Call, error) {
			return handler.Call{}, errors.New("a bug")
		}
	},
	"died": func(w *world, _ *handler.Consumer[string, handler.NoResult]) {
		w.dieAt, w.alive, w.died = engine.Recorded, 1, make(chan struct{})
	},
}

// deployPaying deploys a build that has one consumer.
func (w *world) deployPaying(build string, c handler.Consumer[string, handler.NoResult]) {
	w.t.Helper()
	w.build = build
	w.deployGo(&handler.Workflow{Name: "pay", Topics: []keep.TopicName{"due", "other"}, Handlers: []handler.Handler{c}})
}

// leaveOpen has build 1 leave a run open, in one of the ways.
func (w *world) leaveOpen(how string) {
	w.t.Helper()
	c := paying("payer")
	stops[how](w, &c)
	w.deployPaying("build 1", c)
	w.publish("pay", "due", "a")
	w.start()
	if w.died != nil {
		<-w.died
		w.dieAt = ""
	} else {
		time.Sleep(time.Minute) // virtual
	}
	w.close()
	w.service.onAsk = nil // the service is well again
	if r := w.lastRun("pay"); r.Closed || w.service.total() > 1 {
		w.t.Fatalf("run %+v, %d effects; want one that is open", r, w.service.total())
	}
}

// A program whose build has not the handler of an open run asks a person, once, and executes nothing of it. The run
// continues with the version that has the handler again.
func TestHandlerOfAnOpenRunIsGone(t *testing.T) {
	for how := range stops {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { handlerGone(t, how) })
		})
	}
}

func handlerGone(t *testing.T, how string) {
	w := newBubbleWorld(t)
	w.leaveOpen(how)
	other := paying("other")
	other.Subscribe = []keep.TopicName{"other"}
	for _, build := range []string{"build 2", "build 3"} {
		w.deployPaying(build, other)
		w.start()
		time.Sleep(3 * time.Hour) // virtual
		w.idle()
		version := map[string]string{"build 2": "2.0", "build 3": "3.0"}[build]
		w.asksOnce(version)
		runs, logged := len(w.runs("pay")), len(w.questionsEver("pay"))
		time.Sleep(3 * time.Hour)
		if len(w.runs("pay")) != runs || len(w.questionsEver("pay")) != logged {
			t.Errorf("%s does not rest: %d runs and %d questions, hours later %d and %d", build, runs, logged, len(w.runs("pay")), len(w.questionsEver("pay")))
		}
		w.close()
	}
	w.deployPaying("build 3", other) // at another start
	w.start()
	w.idle()
	w.asksOnce("3.0")
	if err := w.decide("pay", keep.Retry); err != nil {
		t.Fatal(err)
	}
	w.idle()
	w.asksOnce("3.0")
	w.close()
	w.deployPaying("build 4", paying("payer"))
	w.start()
	w.idle()
	if how == "approval" {
		if err := w.decide("pay", keep.Approve); err != nil {
			t.Fatal(err)
		}
		w.idle()
	}
	if n, ms := w.service.total(), w.mutations("pay"); n != 1 || len(ms) != 1 || ms[0].State != keep.Applied {
		t.Errorf("%d effects and mutations %+v; want one", n, ms)
	}
	if ev, qs := w.event("pay", "due", "a"), w.questions("pay"); ev.Status != keep.EventConsumed || len(qs) != 0 {
		t.Errorf("the event is %s, questions %+v; want it consumed, and none", ev.Status, qs)
	}
}

// A consumer that says which one it was carries on with the open run of that one, under its own name: nothing is asked
// about it, and nothing happens twice. It may have been called otherwise in between.
func TestConsumerWas(t *testing.T) {
	for how := range stops {
		for _, between := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%t", how, between), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { consumerWas(t, how, between) })
			})
		}
	}
}

func consumerWas(t *testing.T, how string, between bool) {
	w := newBubbleWorld(t)
	w.leaveOpen(how)
	renamed := paying("biller")
	renamed.Was = "payer"
	if between {
		other := paying("collector")
		other.Was = "payer"
		w.deployPaying("build 2", other)
	}
	w.deployPaying("build 3", renamed)
	w.start()
	time.Sleep(3 * time.Hour) // virtual
	w.idle()
	if how == "approval" {
		if err := w.decide("pay", keep.Approve); err != nil {
			t.Fatal(err)
		}
		w.idle()
	}
	if n, ms := w.service.total(), w.mutations("pay"); n != 1 || len(ms) != 1 || ms[0].State != keep.Applied {
		t.Errorf("%d effects and mutations %+v; want one", n, ms)
	}
	if ev, qs := w.event("pay", "due", "a"), w.questions("pay"); ev.Status != keep.EventConsumed || len(qs) != 0 {
		t.Errorf("the event is %s, questions %+v; want it consumed, and none", ev.Status, qs)
	}
	if r := w.lastRun("pay"); r.Handler != "biller" || r.Status != keep.StatusCommitted {
		t.Errorf("the last run %+v is not that of the new name", r)
	}
	for _, q := range w.questionsEver("pay") {
		if strings.Contains(q.Question, "has no") {
			t.Errorf("a person was asked %q", q.Question)
		}
	}
}

// asksOnce checks that a person is asked about the handler, and about nothing else.
func (w *world) asksOnce(version string) {
	w.t.Helper()
	qs := w.questions("pay")
	if len(qs) != 1 {
		w.t.Fatalf("%d questions are open, want 1: %+v", len(qs), qs)
	}
	for _, part := range []string{"ersion " + version, "payer", "eploy"} {
		if !strings.Contains(qs[0].Question, part) {
			w.t.Errorf("asked %q, want that it says %q", qs[0].Question, part)
		}
	}
	o, err := view.Read(w.t.Context(), w.database().(view.Store), time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	if cs := o.Causes(); len(cs) != 1 || cs[0].Tool != "payer" || qs[0].Mutation != "" || !strings.HasPrefix(qs[0].Attempted, "run ") {
		w.t.Errorf("the causes are %+v, and the question is about call %q, %q; want the handler alone", cs, qs[0].Mutation, qs[0].Attempted)
	}
	if r := w.lastRun("pay"); r.Closed || r.ID != qs[0].Run || r.Handler != "payer" || !r.RetryAt.IsZero() {
		w.t.Errorf("the question %+v is not about the open run %+v, which waits for it", qs[0], r)
	}
}

// questionsEver returns all questions, also those that are closed.
func (w *world) questionsEver(wf keep.WorkflowName) []keep.Escalation {
	w.t.Helper()
	return list(w, keep.EscalationFilter{Workflow: wf}, database.Escalations)
}

// A run whose handler is gone ends when a person skips it, unless its call was made; its events may be handled by
// another consumer then.
func TestSkipRunOfAHandlerThatIsGone(t *testing.T) {
	for how := range stops {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBubbleWorld(t)
				w.leaveOpen(how)
				other := paying("other")
				other.Subscribe = []keep.TopicName{"other"}
				w.deployPaying("build 2", other)
				w.start()
				time.Sleep(3 * time.Hour) // virtual
				w.idle()
				w.asksOnce("2.0")
				effects := w.service.total()
				promised := strings.Contains(fmt.Sprint(w.questions("pay")[0].Choices), "handles them after keep events unskip")
				if err := w.decide("pay", keep.Skip); (err != nil) != (how == "in doubt") {
					t.Fatalf("skip: %v", err)
				}
				w.idle()
				if n := w.service.total(); n != effects {
					t.Errorf("%d effects, before the answer %d", n, effects)
				}
				if r := w.lastRun("pay"); r.Closed != (how != "in doubt") {
					t.Errorf("the run is %+v", r)
				}
				res, err := w.open().UnskipEvents(t.Context(), "pay", "due", []keep.MessageID{"a"}, keep.Decision{})
				if done := err == nil && res.Unskipped == 1; done != promised && how != "in doubt" {
					t.Errorf("unskip: %+v, %v; it was promised: %t", res, err, promised)
				}
			})
		})
	}
}

// A job that is removed beside a new one leaves its open run to a person, who may end it.
func TestJobOfAnOpenRunIsGone(t *testing.T) {
	for _, doubt := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newBubbleWorld(t)
			stops[map[bool]string{false: "transient", true: "in doubt"}[doubt]](w, nil)
			deploy := func(build string, name keep.HandlerName) {
				w.build = build
				w.deployGo(&handler.Workflow{Name: "pay", Handlers: []handler.Handler{
					handler.Job{Name: name, New: name != "payer", Schedule: keep.Schedule{Interval: 720 * time.Hour}, Run: func(ctx context.Context, w *handler.Worker) error {
						if name != "payer" {
							return nil
						}
						return w.Item(ctx, "a", "A", func(ctx context.Context, it *handler.Item) error {
							return it.Call(ctx, "svc.create", map[string]any{"id": "a"}, nil)
						})
					}},
				}})
			}
			deploy("build 1", "payer")
			w.start()
			time.Sleep(time.Minute) // virtual
			w.close()
			w.service.onAsk = nil
			deploy("build 2", "other")
			w.start()
			time.Sleep(3 * time.Hour) // virtual
			w.idle()
			w.asksOnce("2.0")
			if err := w.decide("pay", keep.Skip); err != nil {
				t.Fatal(err)
			}
			w.idle()
			for _, r := range w.runs("pay") {
				if !r.Closed {
					t.Errorf("doubt %t: run %+v is open", doubt, r)
				}
			}
			if n := len(w.questions("pay")); n != 0 {
				t.Errorf("doubt %t: %d questions are open", doubt, n)
			}
		})
	}
}
