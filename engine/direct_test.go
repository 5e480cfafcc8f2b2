package engine_test

import (
	"cmp"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/limit"
	"github.com/keep-run/keep/law/repeat"
	"github.com/keep-run/keep/store"
)

// directEngine returns an engine for calls that no script makes.
func (w *world) directEngine() *host {
	e := w.engine()
	err := w.store.Commit(w.t.Context(), keep.Commit{Workflow: keep.DirectWorkflow, At: e.Now(), Changes: []keep.Change{
		keep.Deploy{Deployment: engine.DirectDeployment(e.Now())},
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

func directCall() engine.DirectCall {
	return engine.DirectCall{Lane: keep.KeyLane(engine.DirectHandler, "k"), Agent: "a", Tool: "svc.create",
		Params: []byte(`{"id":"x"}`), Identity: []byte(`{"id":"x"}`), With: func(keep.Run) []keep.Change { return nil }}
}

// A call that the service refuses counts as a failure, and one that a person rejects does not.
func TestDirectCallCounts(t *testing.T) {
	for name, want := range map[string]int{"refused": 1, "rejected": 0} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if name == "rejected" {
				w.service.approve = "always"
			}
			w.service.onCall = func(int) (bool, error) { return false, keep.Failf(keep.ClassLogic, "http-422", "no such customer") }
			out, err := w.directEngine().Engine.Caller(t.Context()).Call(t.Context(), directCall())
			if err == nil && name == "rejected" {
				err = w.decide(keep.Reject)
			}
			if err != nil {
				t.Fatal(err)
			}
			r, err := w.store.Run(t.Context(), out.Run.ID)
			if err != nil || !r.Closed || r.Status != keep.StatusAborted {
				t.Fatalf("run %+v, %v; want aborted", r, err)
			}
			if said := repeat.Sentence("svc.create", r, out.Mutation); strings.Contains(said, "A person rejected") != (name == "rejected") {
				t.Errorf("the agent is told: %s", said)
			}
			counted, err := w.store.(store.Counting).Ended(t.Context(), r.CreatedAt.Add(-time.Minute), r.UpdatedAt.Add(time.Minute))
			failed := 0
			for _, c := range counted {
				failed += c.Failed
			}
			if err != nil || failed != want {
				t.Errorf("%d failures of %+v, %v; want %d", failed, counted, err, want)
			}
		})
	}
}

// A call that is out when the wall clock leaps past its deadline, as on a laptop that slept, is not taken over
// by the Caller that makes it.
func TestDirectCallWhileTheClockLeaps(t *testing.T) {
	w := newWorld(t)
	w.service.level = keep.LevelNone
	var leap atomic.Int64
	w.clock = func() time.Time { return time.Now().Add(time.Duration(leap.Load())) }
	sent, back := make(chan struct{}), make(chan struct{})
	w.service.onCallContext = func(context.Context) error { close(sent); <-back; return nil }
	e := w.directEngine()
	c := e.Engine.Caller(t.Context())
	type result struct {
		out engine.DirectOutcome
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := c.Call(t.Context(), directCall())
		done <- result{out, err}
	}()
	<-sent
	leap.Store(int64(10 * time.Minute))
	for _, alone := range []bool{false, true} {
		if err := c.Recover(t.Context(), alone); err != nil {
			t.Error(err)
		}
	}
	close(back)
	r := <-done
	if r.err != nil || r.out.Mutation.State != keep.Applied || len(w.questions()) != 0 {
		t.Errorf("the record is %s, %d questions, %v; want applied and none", r.out.Mutation.State, len(w.questions()), r.err)
	}
}

// An agent makes a call with other content after a person said that it was done: the record of an earlier attempt at it, which
// failed, is still that of the call, and what is sent is for a person to say.
func TestDirectCallWithOtherContentAfterDoneAlready(t *testing.T) {
	w := newWorld(t)
	w.service.level, w.service.onCall = keep.LevelNone, lose(1, false)
	c := w.directEngine().Engine.Caller(t.Context())
	d := directCall()
	call := func() engine.DirectOutcome {
		t.Helper()
		out, err := c.Call(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if d.Prev, err = w.store.Run(t.Context(), out.Run.ID); err != nil {
			t.Fatal(err)
		}
		return out
	}
	decide := func(action keep.Action) {
		t.Helper()
		if err := w.decide(action); err != nil {
			t.Fatal(err)
		}
		var err error
		if d.Prev, err = w.store.Run(t.Context(), d.Prev.ID); err != nil {
			t.Fatal(err)
		}
	}
	call()
	decide(keep.DidNotHappen)
	d.Ask = "a rule"
	call()
	decide(keep.TreatAsDone)
	d.Params = []byte(`{"id":"x","text":"other"}`)
	call()
	decide(keep.Approve)
	if out := call(); out.Failure != nil || out.Mutation.State != keep.Applied || w.service.calls != 2 {
		t.Errorf("%+v after %d calls, want applied after 2", out, w.service.calls)
	}
}

// A call of an agent of which a person said that it did not happen is over by that word: nothing is said of the service.
func TestDirectCallThatAPersonEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.level = keep.LevelNone
		w.def.Name = keep.DirectWorkflow
		w.service.onCall = func(int) (bool, error) { return false, errReset }
		c := w.directEngine().Caller(t.Context())
		out, err := c.Call(t.Context(), directCall())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.decide(keep.DidNotHappen); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Ask(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, err := w.store.Run(t.Context(), out.Run.ID)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status != keep.StatusAborted || r.Error == nil || !strings.HasPrefix(r.Error.Message, "ann said that the call did not happen: ") {
			t.Errorf("run %s, %v; want it aborted by what ann said", r.Status, r.Error)
		}
	})
}

// A call that waits for a limit of its connection has a run. If it is given up then, nothing was sent and no person rejected it: the agent makes
// the same call again.
func TestDirectCallIsGivenUpWhileItWaits(t *testing.T) {
	for _, name := range []string{"its process died", "the service is down"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.def.Name = keep.DirectWorkflow
				w.limit(limit.Rule{Concurrency: 1})
				w.policy.Outage.After = 1
				var back error
				w.service.onCall = func(n int) (bool, error) {
					if n == 1 {
						time.Sleep(8 * time.Second)
						return back == nil, back
					}
					return true, nil
				}
				if name == "the service is down" {
					back = keep.Failf(keep.ClassTransient, "refused", "connection refused")
				}
				c := w.directEngine().Caller(t.Context())
				first, d := make(chan error, 1), directCall()
				go func() {
					_, err := c.Call(t.Context(), directCall())
					first <- err
				}()
				time.Sleep(100 * time.Millisecond)
				d.Lane, d.Params, d.Identity = keep.KeyLane(engine.DirectHandler, "l"), []byte(`{"id":"y"}`), []byte(`{"id":"y"}`)
				done := make(chan error, 1)
				go func() {
					_, err := c.Call(t.Context(), d)
					done <- err
				}()
				time.Sleep(3 * time.Second)
				r := w.lastRun()
				if k := lifecycle.WaitOf(r, keep.Mutation{}).Kind; k != lifecycle.WaitsForLimit {
					t.Fatalf("the run %+v waits for %q", r, k)
				}
				c = w.engine().Caller(t.Context())
				if back == nil {
					if err := c.RecoverRun(t.Context(), r, true); err != nil {
						t.Fatal(err)
					}
				}
				if err := cmp.Or(<-first, <-done); (err == nil) != (back != nil) {
					t.Fatal(err)
				}
				r, err := w.store.Run(t.Context(), r.ID)
				if err != nil || r.Status != keep.StatusAborted || r.Mutation != "" {
					t.Fatalf("run %+v, %v; want it aborted without a record", r, err)
				}
				verdict, said := repeat.Decide(&repeat.Last{Run: r}, repeat.DefaultRules(), time.Now()), repeat.Sentence(d.Tool, r, keep.Mutation{})
				if verdict != repeat.Again || !strings.Contains(said, "It may be called again") || repeat.State(r, keep.Mutation{}) != "failed" || repeat.Final(r, keep.Mutation{}) {
					t.Errorf("%s, %s; want that it may be made again", verdict, said)
				}
				time.Sleep(time.Hour)
				d.Prev = r
				out, err := c.Call(t.Context(), d)
				if err != nil || out.Mutation.State != keep.Applied || out.Run.Chain != r.Chain {
					t.Errorf("made again: %+v, %v; want it applied, of the same chain", out, err)
				}
			})
		})
	}
}
