package engine_test

import (
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/breaker"
)

// Calls that are refused alike stop the tool for all workflows, with one question beside those that
// were there. When a person lets calls through, what waited continues.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.policy.Breaker = keep.Breaker{Failures: 3, Within: 10 * time.Minute}
		w.service.onCall = func(n int) (bool, error) {
			if n <= 3 {
				return false, keep.Failf(keep.ClassLogic, "http-422", "no")
			}
			return true, nil
		}
		w.crowd(3, 1)
		w.run()
		if n := len(w.questions()); n != 4 {
			t.Fatalf("%d questions when nobody waits yet, want 4", n)
		}
		for i := 3; i < 8; i++ {
			w.join(i, 1)
		}
		w.run()
		kinds := make(map[keep.EscalationKind]int)
		var q keep.Escalation
		for _, open := range w.questions() {
			if kinds[open.Kind]++; open.Kind == keep.AskBreaker {
				q = open
			}
		}
		if w.service.calls > 3 || kinds[keep.AskBreaker] != 1 || kinds[keep.AskLogic] != 3 || len(kinds) != 2 {
			t.Fatalf("%d calls, questions %v; want 3, one of kind breaker and the 3 that were there", w.service.calls, kinds)
		}
		runs, _, err := w.store.Runs(t.Context(), keep.RunFilter{}, keep.Page{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		held := 0
		for _, r := range runs {
			if !r.Closed && r.Status == keep.StatusPerson && r.Error.Code == keep.CodeBreaker && r.RetryAt.IsZero() {
				held++
			}
		}
		if held != 5 || w.records() != 3 {
			t.Fatalf("%d runs are held, %d records; want 5 and 3", held, w.records())
		}
		if err := w.operator().Decide(t.Context(), q.ID, keep.Decision{Action: keep.Retry, By: "ann", From: "test"}); err != nil {
			t.Fatal(err)
		}
		w.run()
		if w.service.total() != 5 {
			t.Errorf("%d effects after calls were let through, want 5", w.service.total())
		}
	})
}

// Failures of other causes, of long ago, and those that go away by themselves are not counted together.
func TestBreakerStaysClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.policy.Breaker = keep.Breaker{Failures: 2, Within: time.Minute}
		w.service.onCall = func(n int) (bool, error) {
			switch n {
			case 1:
				return false, keep.Failf(keep.ClassLogic, "http-422", "no")
			case 2:
				return false, keep.Failf(keep.ClassPermission, "forbidden", "no")
			case 3:
				return false, keep.Failf(keep.ClassLogic, "http-422", "no")
			case 4, 5:
				return false, keep.Failf(keep.ClassTransient, "http-503", "not now")
			}
			return true, nil
		}
		w.crowd(2, 1)
		w.run()
		time.Sleep(2 * time.Minute)
		w.crowd(5, 1)
		w.run()
		for _, q := range w.questions() {
			if q.Kind == keep.AskBreaker {
				t.Errorf("calls are stopped: %s", q.Why)
			}
		}
	})
}

// A script that passes what its tool does not take says nothing about the tool: nothing reached its connector, and the calls of other
// workflows are made. What the connector refuses counts, whatever it calls that.
func TestBreakerIsNotOfScripts(t *testing.T) {
	for by, want := range map[string]int{"keep": 1, "the connector": 0} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.policy.Breaker = keep.Breaker{Failures: 3, Within: 10 * time.Minute}
			wrong := true
			w.service.onCall = func(int) (bool, error) {
				if by == "the connector" && wrong {
					return false, keep.Failf(keep.ClassLogic, "bad-params", "no")
				}
				return true, nil
			}
			w.script["consumers.act.mutate"] = func(c *call) any {
				if wrong && by == "keep" {
					c.do("svc.create", map[string]any{})
				}
				c.do("svc.create", map[string]any{"id": "x", "text": "hello"})
				return nil
			}
			w.crowd(4, 1)
			w.run()
			wrong = false
			w.join(5, 1)
			w.run()
			asked := slices.ContainsFunc(w.questions(), func(q keep.Escalation) bool { return q.Kind == keep.AskBreaker })
			if n := w.service.total(); n != want || asked != (want == 0) {
				t.Errorf("refused by %s: %d effects of the other workflow, asked about the tool: %t; want %d", by, n, asked, want)
			}
		})
	}
}

// What is stopped is stopped for a call, too, that was let in before, and whose tool gets ready.
func TestBreakerStopsTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.policy.Breaker = keep.Breaker{Failures: 1, Within: time.Minute}
		var starts atomic.Int32
		w.service.onStart = func() error {
			if starts.Add(1) == 1 {
				time.Sleep(5 * time.Second) // meanwhile another one fails
			}
			return nil
		}
		w.service.onCall = func(int) (bool, error) { return false, keep.Failf(keep.ClassLogic, "http-422", "no") }
		w.crowd(2, 1)
		w.run()
		if w.service.calls != 1 || w.records() != 1 || starts.Load() != 2 {
			t.Errorf("%d starts, %d calls and %d records, want 2, 1 and 1", starts.Load(), w.service.calls, w.records())
		}
	})
}

// Calls that one host stops are stopped on the others within a poll, and made again by all after an
// answer on one of them.
func TestBreakerOfAnotherHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 8)
		c.policy.Breaker = keep.Breaker{Failures: 2, Within: time.Minute}
		c.service.onCall = func(n int) (bool, error) {
			if n <= 2 {
				return false, keep.Failf(keep.ClassLogic, "http-422", "no")
			}
			return true, nil
		}
		a, b := c.start(time.Hour), c.start(-time.Hour)
		pass(10 * time.Second)
		on := c.held(a)
		c.def.Name = on[0]
		c.publish("in", "first "+string(on[0]))
		c.def.Name = on[1]
		c.publish("in", "first "+string(on[1]))
		pass(3 * time.Second)
		if c.service.calls != 2 {
			t.Fatalf("%d calls on one host, want 2", c.service.calls)
		}
		c.give("then")
		pass(time.Minute)
		if c.service.calls != 2 {
			t.Errorf("%d calls, want 2: what one host stopped is stopped on the other", c.service.calls)
		}
		n := 0
		for _, q := range c.questions() {
			if q.Kind == keep.AskBreaker {
				n++
				if err := b.eng.Decide(t.Context(), q.ID, keep.Decision{Action: keep.Retry, By: "ann", From: "test"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		pass(time.Minute)
		if n != 1 || c.service.calls != 8 {
			t.Errorf("%d questions, and %d calls after the answer; want 1 and 8: two runs failed themselves", n, c.service.calls)
		}
		a.stop()
		b.stop()
		c.check()
	})
}

// A host that died after it stopped the calls, and before it asked: who waits next asks, once. If it stopped them again while
// others waited, who settles what waits asks.
func TestBreakerAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := func(s breaker.State) breaker.State {
			s = breaker.Report(s, keep.Breaker{Failures: 1, Within: time.Minute}, keep.Failf(keep.ClassLogic, "http-422", "no"), time.Now())
			row, err := w.store.Gate(t.Context(), keep.ToolGate("svc.create"))
			if err == nil {
				row.State, err = json.Marshal(s)
			}
			if err == nil {
				err = w.store.PutGate(t.Context(), row)
			}
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := stop(breaker.State{})
		w.crowd(4, 1)
		w.run()
		qs := w.questions()
		if w.service.calls != 0 || len(qs) != 1 || qs[0].Kind != keep.AskBreaker || qs[0].ID != "esc_breaker_svc.create_1" {
			t.Fatalf("%d calls, questions %+v; want none, and one question", w.service.calls, qs)
		}
		stop(breaker.Close(s))
		if err := w.decide(keep.Retry); err != nil {
			t.Fatal(err)
		}
		w.run()
		if qs := w.questions(); w.service.calls != 0 || len(qs) != 1 || qs[0].ID != "esc_breaker_svc.create_2" {
			t.Fatalf("%d calls, questions %+v; want none, and the second question", w.service.calls, qs)
		}
		if err := w.decide(keep.Retry); err != nil {
			t.Fatal(err)
		}
		w.run()
		if w.service.total() != 4 {
			t.Errorf("%d effects, want 4", w.service.total())
		}
	})
}

// What is stopped under a former name of its tool is stopped, and the answer to its question lets
// all calls through.
func TestBreakerAfterARename(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.policy.Breaker = keep.Breaker{Failures: 1, Within: time.Minute}
		w.service.onCall = func(n int) (bool, error) {
			if n == 1 {
				return false, keep.Failf(keep.ClassLogic, "http-422", "no")
			}
			return true, nil
		}
		w.crowd(1, 1)
		w.run()
		w.rename(func(c *connector.Connection, _ *connector.Spec) {
			c.Name, c.Was = "crm", connector.Names{"people", "svc"}
		})
		w.creates("crm.create")
		w.join(1, 1)
		w.run()
		var stopped []keep.Escalation
		for _, q := range w.questions() {
			if q.Kind == keep.AskBreaker {
				stopped = append(stopped, q)
			}
		}
		if w.service.calls != 1 || len(stopped) != 1 {
			t.Fatalf("%d calls, questions %+v; want 1, and one about the tool", w.service.calls, stopped)
		}
		if err := w.operator().Decide(t.Context(), stopped[0].ID, keep.Decision{Action: keep.Retry, By: "ann", From: "test"}); err != nil {
			t.Fatal(err)
		}
		w.run()
		if w.service.total() != 1 {
			t.Errorf("%d effects after calls were let through, want 1", w.service.total())
		}
	})
}
