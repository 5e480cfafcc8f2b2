package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/ceiling"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/limit"
)

// limit makes the world's connection a limited one, and counts an outage after three
// failures.
func (w *world) limit(r limit.Rule) {
	w.policy.Outage.After = 3
	w.connect = func() []connector.Connection {
		c := w.service.connection()
		c.Limits = r
		return []connector.Connection{c}
	}
}

// sent records when calls arrive, and says what becomes of each.
func (w *world) sent(answer func(n int) (bool, error)) *[]time.Time {
	var at []time.Time
	w.service.onCall = func(n int) (bool, error) {
		at = append(at, time.Now())
		if answer == nil {
			return true, nil
		}
		return answer(n)
	}
	return &at
}

// crowd deploys workflows w00, w01, … with that many events each.
func (w *world) crowd(workflows, events int) {
	for i := range workflows {
		w.join(i, events)
	}
}

// join deploys one of a crowd.
func (w *world) join(i, events int) {
	w.def.Name = keep.WorkflowName(fmt.Sprintf("w%02d", i))
	w.deploy()
	for n := range events {
		w.publish("in", fmt.Sprintf("%s-%d", w.def.Name, n))
	}
}

func rate(text string) limit.Rule {
	rates, err := limit.ParseRates(text)
	if err != nil {
		panic(err)
	}
	return limit.Rule{Rates: rates}
}

// All workflows together stay under the rate, each gets its share, and each in its order.
func TestRateIsSharedFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(rate("60/min"))
		var order []keep.WorkflowName
		at := w.sent(nil)
		w.service.onTarget = nil
		w.crowd(10, 5)
		start := time.Now()
		w.run()
		if len(*at) != 50 {
			t.Fatalf("%d calls, want 50", len(*at))
		}
		for i, when := range *at {
			if i > 0 && when.Sub((*at)[i-1]) < time.Second {
				t.Errorf("calls %d and %d are %s apart", i, i+1, when.Sub((*at)[i-1]))
			}
		}
		if d := time.Since(start); d > 51*time.Second {
			t.Errorf("50 calls at 60/min took %s", d)
		}
		ms := w.mutations() // newest first
		slices.Reverse(ms)
		for _, m := range ms {
			order = append(order, m.Workflow)
		}
		for i := range 29 { // a workflow may come twice before the others are in line
			seen := map[keep.WorkflowName]bool{}
			for _, name := range order[i : i+11] {
				seen[name] = true
			}
			if len(seen) != 10 {
				t.Errorf("%v had turns %d to %d, want each workflow", order[i:i+11], i+1, i+11)
			}
		}
	})
}

// No more calls are out at once than the limit says, and every one comes to its turn.
func TestConcurrencyIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(limit.Rule{Concurrency: 3})
		var mu sync.Mutex
		out, most := 0, 0
		w.service.onCallContext = func(context.Context) error {
			mu.Lock()
			out++
			most = max(most, out)
			mu.Unlock()
			time.Sleep(5 * time.Second)
			mu.Lock()
			out--
			mu.Unlock()
			return nil
		}
		w.crowd(9, 1)
		start := time.Now()
		w.run()
		if d := time.Since(start); most != 3 || w.service.total() != 9 || d != 15*time.Second {
			t.Errorf("%d calls at once, %d effects in %s; want 3, 9, 15s", most, w.service.total(), d)
		}
	})
}

// A run that waits for a limit says so, as a value; and a death while it waits leaves no
// doubt, uses up no retry and counts as no crash.
func TestWaitForALimitIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(rate("1/h"))
		at := w.sent(nil)
		w.deploy()
		w.publish("in", "a", "b")
		for range 12 { // hosts come and go meanwhile
			w.runUntil(2 * time.Minute)
			r := w.lastRun()
			wait := lifecycle.WaitOf(r, keep.Mutation{})
			if r.Crashes != 0 || r.Retries != 0 || wait.Kind != lifecycle.WaitsForLimit && wait.Kind != lifecycle.WaitsForRecovery {
				t.Fatalf("the run is %s, %d crashes, %d retries, and waits for %q", r.Status, r.Crashes, r.Retries, wait.Kind)
			}
		}
		e := w.engine()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		r := w.lastRun()
		wait := lifecycle.WaitOf(r, keep.Mutation{})
		if r.Status != keep.StatusActive || wait.Kind != lifecycle.WaitsForLimit || wait.Why != "the limit of svc, 1/h" ||
			!wait.Until.Equal((*at)[0].Add(time.Hour)) || wait.Since.IsZero() || wait.NeedsPerson() {
			t.Errorf("the run is %s: %s, until %s", r.Status, wait, wait.Until)
		}
		cancel()
		<-done
		w.run()
		if d := (*at)[1].Sub((*at)[0]); len(*at) != 2 || d < time.Hour || d > time.Hour+time.Second {
			t.Errorf("%d calls, %s apart; want 2, an hour", len(*at), d)
		}
	})
}

// The host dies while a run waits: nothing was recorded as sent, and nothing is asked.
func TestDeathWhileWaiting(t *testing.T) {
	r := keep.Run{Status: keep.StatusActive, Kind: keep.Consumer, Phase: keep.Prepared, Crashes: 3,
		Error: &keep.Failure{Class: keep.ClassTransient, Code: keep.CodeLimit, Message: "the limit of svc, 1/h"}}
	after, loop := lifecycle.Crash(r, time.Unix(1, 0))
	if after.Crashes != 3 || loop || !lifecycle.Interrupted(after) {
		t.Errorf("%d crashes, %s", after.Crashes, after.Status)
	}
}

// A wait for a limit is over before the record says that the call is in flight.
func TestSlotComesBeforeTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(rate("1/min"))
		w.sent(nil)
		var slow []time.Duration
		w.service.onCallContext = func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			slow = append(slow, time.Until(deadline))
			return nil
		}
		w.deploy()
		w.publish("in", "a", "b", "c")
		w.run()
		for i, left := range slow {
			if left < 9*time.Second { // of 10
				t.Errorf("call %d began with %s left", i+1, left)
			}
		}
		for _, m := range w.mutations() {
			if d := m.UpdatedAt.Sub(m.CreatedAt); d > time.Second {
				t.Errorf("%s was in flight for %s", m.Key, d)
			}
		}
	})
}

// mutations returns all of them.
func (w *world) mutations() []keep.Mutation {
	w.t.Helper()
	ms, _, err := w.store.Mutations(w.t.Context(), keep.MutationFilter{}, keep.Page{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return ms
}

// A connection without limits costs neither a commit nor a write beside.
func TestNoLimitCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.policy.Outage.After = 3
		w.deploy()
		w.publish("in", "a")
		w.run()
		gates, err := w.store.Gates(t.Context())
		if w.commits != 2+1 || err != nil || len(gates) != 0 {
			t.Errorf("%d commits, gates %v, %v; want 3 and none", w.commits, gates, err)
		}
	})
}

// One Retry-After slows every workflow, over a restart too, and uses up no retry.
func TestRetryAfterSlowsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(limit.Rule{})
		at := w.sent(func(n int) (bool, error) {
			if n == 1 {
				return false, &keep.Failure{Class: keep.ClassTransient, Code: "http-429", Message: "too many requests", RetryAfter: 10 * time.Minute}
			}
			return true, nil
		})
		w.crowd(1, 1)
		w.runUntil(time.Second)
		w.crowd(20, 1)
		for range 4 {
			w.runUntil(2 * time.Minute)
		}
		if len(*at) != 1 {
			t.Fatalf("%d calls before the time that the service named", len(*at))
		}
		w.run()
		if d := (*at)[1].Sub((*at)[0]); len(*at) != 21 || d < 10*time.Minute || d > 11*time.Minute {
			t.Errorf("%d calls, the second after %s; want 21, 10m", len(*at), d)
		}
		runs, _, _ := w.store.Runs(t.Context(), keep.RunFilter{}, keep.Page{Limit: 1000})
		for _, r := range runs {
			if r.Retries != 0 {
				t.Errorf("run %s of %s used up %d retries", r.ID, r.Workflow, r.Retries)
			}
		}
	})
}

// A service that names another time whenever it is tried is asked about once, with the workflows that wait for it; one
// that does so for less than an hour is not. The question closes when it answers.
func TestRetryAfterWithoutEndAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(limit.Rule{})
		w.policy.Outage.After = 0 // nothing counts as an outage
		end := time.Now().Add(5 * time.Hour)
		w.sent(func(int) (bool, error) {
			if time.Now().Before(end) {
				return false, &keep.Failure{Class: keep.ClassTransient, Code: "http-429", Message: "too many requests", RetryAfter: 10 * time.Minute}
			}
			return true, nil
		})
		w.crowd(5, 1)
		w.runUntil(55 * time.Minute)
		if q := w.questions(); len(q) != 0 {
			t.Fatalf("questions %+v before an hour was over", q)
		}
		w.runUntil(time.Hour)
		q := w.questions()
		if len(q) != 1 || q[0].Kind != keep.AskConnection || q[0].Connection != "svc" || !strings.Contains(q[0].Question, "names a later time") {
			t.Fatalf("questions %+v, want one about the connection", q)
		}
		for range 3 {
			w.runUntil(30 * time.Minute)
		}
		if again := w.questions(); len(again) != 1 || again[0].ID != q[0].ID {
			t.Errorf("questions %+v, want the one of before", again)
		}
		w.runUntil(2 * time.Hour)
		if q := w.questions(); len(q) != 0 || w.service.total() != 5 {
			t.Errorf("it answers: questions %+v, %d effects; want none, 5", q, w.service.total())
		}
	})
}

// An outage costs probes and one question, although a thousand workflows wait; it ends by
// itself, and so does the question.
func TestOutageCostsProbesAndOneQuestion(t *testing.T) {
	crowd := 1000 // test.sh has them without the race detector, too
	if ceiling.Race {
		crowd = 150
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(limit.Rule{})
		end := time.Now().Add(2 * time.Hour)
		at := w.sent(func(int) (bool, error) {
			if time.Now().Before(end) {
				return false, keep.Failf(keep.ClassTransient, "refused", "connection refused")
			}
			return true, nil
		})
		w.crowd(3, 1)
		w.runUntil(time.Second)
		w.crowd(crowd, 1)
		w.runUntil(110 * time.Minute)
		if n := len(*at); n > 30 {
			t.Errorf("%d calls in two hours of outage, want those that began it and a probe each 10 minutes", n)
		}
		q := w.questions()
		if len(q) != 1 || q[0].Kind != keep.AskConnection || q[0].Connection != "svc" {
			t.Fatalf("questions %+v, want one about the connection", q)
		}
		waiting := 0
		runs, _, _ := w.store.Runs(t.Context(), keep.RunFilter{Open: true}, keep.Page{Limit: 1000})
		for _, r := range runs {
			wait := lifecycle.WaitOf(r, keep.Mutation{})
			if r.Retries > 1 { // of a call before the outage
				t.Errorf("run %s of %s used up %d retries", r.ID, r.Workflow, r.Retries)
			}
			if wait.Kind == lifecycle.WaitsForLimit && strings.Contains(wait.Why, "svc, which does not answer: connection refused") {
				waiting++
			}
		}
		if waiting < crowd-2 { // the first two failed before it was an outage
			t.Errorf("%d runs say that they wait for the connection, want all of %d but two", waiting, crowd)
		}
		w.runUntil(time.Hour)
		if q := w.questions(); len(q) != 0 || w.service.total() != crowd {
			t.Errorf("after the outage: questions %+v, %d effects; want none, %d", q, w.service.total(), crowd)
		}
	})
}

// A person's answer to the one question is an answer for all.
func TestOneAnswerForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(limit.Rule{})
		down := true
		w.sent(func(int) (bool, error) {
			if down {
				return false, keep.Failf(keep.ClassTransient, "refused", "connection refused")
			}
			return true, nil
		})
		w.crowd(20, 1)
		w.run() // idle: a person is asked
		if q := w.questions(); len(q) != 1 || q[0].Kind != keep.AskConnection {
			t.Fatalf("questions %+v, want one about the connection", q)
		}
		down = false
		if err := w.decide(keep.Retry); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		w.run()
		if d := time.Since(start); w.service.total() != 20 || d > 5*time.Second || len(w.questions()) != 0 {
			t.Errorf("%d effects after %s, questions %v; want 20 at once", w.service.total(), d, w.questions())
		}
	})
}

// A process that dies after the question was stored, and before the connection knows of
// it, does not ask a second time.
func TestQuestionIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(limit.Rule{})
		w.sent(func(int) (bool, error) {
			return false, keep.Failf(keep.ClassTransient, "refused", "connection refused")
		})
		w.crowd(2, 1)
		w.run()
		g, err := w.store.Gate(t.Context(), "svc")
		if err == nil {
			g.State = []byte(strings.Replace(string(g.State), `"asked":"`+string(w.questions()[0].ID)+`"`, `"asked":""`, 1))
			err = w.store.PutGate(t.Context(), g)
		}
		if err != nil || strings.Contains(string(g.State), `"asked":"esc`) {
			t.Fatalf("%s, %v", g.State, err)
		}
		w.runUntil(time.Hour)
		if q := w.questions(); len(q) != 1 {
			t.Errorf("%d questions, want one", len(q))
		}
	})
}

// Two hosts ask at the same time, and the one whose question does not count dies before it closes
// that: its run does when it is tried again.
func TestTheSecondQuestionCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(limit.Rule{})
		w.sent(func(int) (bool, error) {
			return false, keep.Failf(keep.ClassTransient, "refused", "connection refused")
		})
		w.crowd(4, 1)
		w.run()
		first := w.questions()[0]
		second := first
		second.ID = "esc_second"
		open, _, err := w.store.Runs(t.Context(), keep.RunFilter{Open: true}, keep.Page{})
		for _, r := range open {
			if r.Workflow != first.Workflow {
				second.Workflow, second.Run = r.Workflow, r.ID
			}
		}
		if err == nil {
			err = w.store.Commit(t.Context(), keep.Commit{Workflow: second.Workflow, At: time.Now(), Changes: []keep.Change{keep.OpenEscalation{Escalation: second}}})
		}
		if err != nil {
			t.Fatal(err)
		}
		w.runUntil(24 * time.Hour) // some 140 probes: one of them is of the second one's run
		if q := w.questions(); len(q) != 1 || q[0].ID != first.ID {
			t.Errorf("questions %+v, want the first one", q)
		}
	})
}

// A call that fails by its own fault does not keep a connection shut for the others.
func TestABadCallShutsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(limit.Rule{})
		bad := true
		w.service.onCallContext = func(ctx context.Context) error {
			if bad && time.Now().Second()%2 == 0 && w.service.total() == 0 {
				return keep.Failf(keep.ClassTransient, "refused", "connection refused")
			}
			return nil
		}
		w.crowd(4, 2)
		w.runUntil(time.Hour)
		if w.service.total() != 8 {
			t.Errorf("%d effects, want 8", w.service.total())
		}
	})
}

// While a probe is out the others wait until it must be over, which may be long after it failed: then they are woken, and
// the next probe is one of theirs. So a call that fails by its own fault costs them one probe, whatever its timeout.
func TestAProbeThatFailedWakesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(limit.Rule{})
		w.service.timeout = time.Hour
		start := time.Now()
		var bad keep.WorkflowName // whose call fails by its own fault
		var probes []keep.WorkflowName
		w.service.onMutation = func(m keep.Mutation) error {
			slow := &keep.Failure{Class: keep.ClassTransient, Code: "http-503", Message: "unavailable", RetryAfter: 5 * time.Second}
			if time.Since(start) < time.Second {
				return slow
			}
			if bad == "" {
				bad = m.Workflow
			}
			if w.service.total() == 0 {
				probes = append(probes, m.Workflow)
			}
			if m.Workflow != bad {
				return nil
			}
			time.Sleep(time.Second) // the others claim meanwhile
			return slow
		}
		w.crowd(8, 1)
		w.runUntil(time.Minute)
		if len(probes) != 2 || probes[1] == bad || w.service.total() != 7 {
			t.Errorf("probes of %v, and %d effects; want two of two workflows, and 7", probes, w.service.total())
		}
	})
}

// Each request of a call counts, and neither the time of the call nor that of the phase
// runs while a request waits.
func TestPagesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, at := newPagedWorld(t, 20, rate("60/min"))
		w.deploy()
		w.publish("in", "a")
		start := time.Now()
		w.run()
		if d := time.Since(start); len(*at) != 20 || d != 20*time.Second || w.service.total() != 1 {
			t.Errorf("%d pages and %d calls in %s; want 20, 1, 20s", len(*at), w.service.total(), d)
		}
		if r := w.lastRun(); r.Retries != 0 {
			t.Errorf("%d retries", r.Retries)
		}
	})
}

// A paged tool makes so many requests a call.
type paged struct {
	reader
	n  int
	at *[]time.Time
	mu *sync.Mutex
}

func (p paged) Read(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
	for range p.n {
		if err := connector.Admit(ctx); err != nil {
			return nil, err
		}
		p.mu.Lock()
		*p.at = append(*p.at, time.Now())
		p.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return json.RawMessage(`[]`), nil
}

// What is due within a millisecond of a time that stores keep is not looked at in each nanosecond until then.
func TestWaitsForTheMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(limit.Rule{})
		looks := 0
		w.clock = func() time.Time { looks++; return time.Now() }
		at := w.sent(func(n int) (bool, error) {
			if n > 1 {
				return true, nil
			}
			f := keep.Failf(keep.ClassTransient, "busy", "later")
			f.RetryAfter = time.Minute + time.Nanosecond
			return false, f
		})
		w.crowd(1, 1)
		w.runUntil(time.Hour)
		if len(*at) != 2 || looks > 1000 {
			t.Errorf("%d calls and %d looks at the clock, want 2 and few", len(*at), looks)
		}
	})
}
