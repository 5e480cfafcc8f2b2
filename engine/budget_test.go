package engine_test

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
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/view"
)

// budget bounds what the calls of the world may count within an hour.
func (w *world) budget(limit keep.Amount, sum string) {
	w.t.Helper()
	r, err := budget.New(budget.Rule{Name: "money", Tools: []string{"svc.*"}, Sum: sum, Limit: limit * keep.AmountUnit, Per: time.Hour})
	if err != nil {
		w.t.Fatal(err)
	}
	w.budgets = []budget.Rule{r}
}

// pays makes each call count what is in the amounts, by event.
func (w *world) pays(amounts map[string]any) {
	w.script["consumers.act.mutate"] = func(c *call) any {
		var p struct{ Data struct{ ID string } }
		c.arg(0, &p)
		params := map[string]any{"id": p.Data.ID, "text": "hello"}
		if a, ok := amounts[p.Data.ID]; ok {
			params["amount"] = a
		}
		c.do("svc.create", params)
		return nil
	}
}

// asks fails the test unless one question is open, about a budget, and the last run waits for it.
func (w *world) asks(calls int) keep.Escalation {
	w.t.Helper()
	qs, r := w.questions(), w.lastRun()
	if len(qs) != 1 || qs[0].Kind != keep.AskBudget || qs[0].Budget != "money" || r.Status != keep.StatusApproval ||
		r.Error == nil || r.Error.Code != keep.CodeBudget || w.service.calls != calls {
		w.t.Fatalf("run %s (%v) after %d calls, questions %+v; want paused:approval after %d, one about the budget (law: within-budget)",
			r.Status, r.Error, w.service.calls, qs, calls)
	}
	return qs[0]
}

// What does not fit is not sent, and the run continues when the window has room; the question closes then.
func TestBudgetHasRoomAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.budget(10, "params.amount")
		w.pays(map[string]any{"a": 6, "b": 4.0, "c": 5})
		var sent []time.Time
		w.service.onCall = func(int) (bool, error) {
			sent = append(sent, time.Now())
			time.Sleep(5 * time.Second) // virtual
			return true, nil
		}
		w.deploy()
		w.publish("in", "a", "b", "c")
		w.run()
		q := w.asks(2)
		if first := w.mutations()[1]; !first.SpentAt.Equal(sent[0]) || !first.UpdatedAt.After(sent[0]) {
			t.Errorf("a call that was recorded at %s and answered later counts from %s", sent[0], first.SpentAt)
		}
		at := w.lastRun().RetryAt
		if first := w.mutations()[1]; !at.Equal(first.SpentAt.Add(time.Hour)) {
			t.Errorf("it waits until %s, want an hour after %s", at, first.SpentAt)
		}
		if n := w.records(); n != 2 {
			t.Errorf("the ledger has %d records, want 2", n)
		}
		if !strings.Contains(q.Why, "10 within 1h, of which 10 is spent, has no room for 5") {
			t.Errorf("the question says %q", q.Why)
		}
		time.Sleep(time.Until(at) - time.Second)
		w.run()
		w.asks(2)
		time.Sleep(time.Second)
		w.run()
		if r := w.lastRun(); r.Status != keep.StatusCommitted || w.service.total() != 3 || len(w.questions()) != 0 {
			t.Errorf("run %s after %d effects, %d questions; want committed after 3, none", r.Status, w.service.total(), len(w.questions()))
		}
		if q, err := w.store.Escalation(t.Context(), q.ID); err != nil || q.ClosedAt.IsZero() || q.Decision != nil {
			t.Errorf("the question: %+v, %v; want it closed by the host, and by no answer", q, err)
		}
	})
}

// What a call counts must be known before it is sent.
func TestBudgetOfAnUnknownAmount(t *testing.T) {
	for name, amounts := range map[string]map[string]any{"missing": nil, "negative": {"a": -1}, "text": {"a": "5"}, "null": {"a": nil}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.budget(10, "params.amount")
				w.pays(amounts)
				w.deploy()
				w.publish("in", "a")
				w.run()
				if r := w.lastRun(); r.Status != keep.StatusPerson || r.Error.Class != keep.ClassPermission || r.Error.Code != keep.CodeBudgetAmount || w.service.calls != 0 || w.records() != 0 {
					t.Errorf("run %s (%v) after %d calls, want paused:person, budget-amount, after none", r.Status, r.Error, w.service.calls)
				}
				if qs := w.questions(); len(qs) != 1 || !strings.Contains(qs[0].Question, "Correct the workflow or the budget") {
					t.Errorf("asked is %+v, want one question that says what to correct", qs)
				}
			})
		})
	}
}

// A call that alone is more than the limit never has room: the question does not promise any, and the run
// waits for the answer.
func TestBudgetNeverHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.budget(10, "params.amount")
		w.pays(map[string]any{"a": 11})
		w.deploy()
		w.publish("in", "a")
		w.run()
		if q, r := w.asks(0), w.lastRun(); strings.Contains(q.Why, "There is room") || !r.RetryAt.IsZero() {
			t.Errorf("the next attempt is at %s, and the question says: %s; want neither a time nor room", r.RetryAt, q.Why)
		}
	})
}

// One call is allowed beside the limit: this one, and it counts.
func TestBudgetAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.budget(1, "")
		w.deploy()
		w.publish("in", "a", "b", "c")
		w.run()
		w.asks(1)
		if err := w.decide(keep.Allow); err != nil {
			t.Fatal(err)
		}
		w.run()
		if q := w.asks(2); q.ID != budget.QuestionID("money", 2) {
			t.Errorf("the second question is %s", q.ID)
		}
		if m := w.newest(); len(m.Spent) != 1 || !m.Spent[0].Allowed {
			t.Errorf("the call that was allowed counts %+v", m.Spent)
		}
	})
}

// What a person allowed beside the limit is the call that he saw, with what it counts: another tool with the same params, another
// place and another amount ask again.
func TestBudgetAllowedIsThisCall(t *testing.T) {
	for name, change := range map[string]func(w *world, tool *string){
		"another tool":  func(_ *world, tool *string) { *tool = "svc.edit" },
		"another place": func(w *world, _ *string) { w.connect = elsewhere(w) },
		"another amount": func(w *world, _ *string) {
			w.budget(10, "params.amount * 100")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.budget(10, "params.amount")
				tool := "svc.create"
				w.script["consumers.act.mutate"] = func(c *call) any {
					c.do(tool, map[string]any{"id": "a", "text": "hello", "amount": 11})
					return nil
				}
				w.deploy()
				w.publish("in", "a")
				w.run()
				first := w.asks(0)
				if err := w.decide(keep.Allow); err != nil {
					t.Fatal(err)
				}
				change(w, &tool)
				w.run()
				if q := w.asks(0); q.ID == first.ID {
					t.Fatalf("question %s is still open (law: within-budget)", q.ID)
				}
				if err := w.decide(keep.Allow); err != nil {
					t.Fatal(err)
				}
				if w.run(); w.service.calls != 1 {
					t.Errorf("%d calls, want one after the call itself was allowed", w.service.calls)
				}
			})
		})
	}
}

// elsewhere connects the service in another way.
func elsewhere(w *world) func() []connector.Connection {
	return func() []connector.Connection {
		c := w.service.connection()
		c.Connector = "elsewhere"
		return []connector.Connection{c}
	}
}

// A limit that is raised holds for all calls, until its time.
func TestBudgetRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.budget(1, "")
		w.deploy()
		w.publish("in", "a", "b", "c", "d")
		w.run()
		q := w.asks(1)
		raise := keep.Decision{Action: keep.Raise, By: "ann", From: "test", Limit: 2 * keep.AmountUnit, Until: time.Now().Add(90 * time.Minute)}
		for _, wrong := range []keep.Decision{{Action: keep.Raise}, {Action: keep.Raise, Limit: -1}, {Action: keep.Raise, Limit: 1}, {Action: keep.Raise, Limit: keep.AmountUnit}, {Action: keep.Raise, Limit: 1, Until: time.Now().Add(-1)}} {
			if err := w.operator().Decide(t.Context(), q.ID, wrong); err == nil {
				t.Errorf("raised to %+v", wrong)
			}
		}
		if err := w.operator().Decide(t.Context(), q.ID, raise); err != nil {
			t.Fatal(err)
		}
		w.run()
		w.asks(2)
		time.Sleep(61 * time.Minute)
		w.run() // both have left the window
		if w.service.calls != 4 || len(w.questions()) != 0 {
			t.Fatalf("%d calls and %d questions while the limit is raised, want 4 and none", w.service.calls, len(w.questions()))
		}
		time.Sleep(30 * time.Minute) // the raise is over
		w.publish("in", "e")
		w.run()
		w.asks(4)
		time.Sleep(31 * time.Minute)
		w.run()
		w.publish("in", "f")
		w.run()
		w.asks(5)
	})
}

// A meanwhile is a store at which others are at work at the moment before a commit.
type meanwhile struct {
	operator.Store
	others func()
	dies   string // when the process dies: "before" its commit, or "after"
	over   bool   // it is dead
}

var errDies = errors.New("the process is dead")

func (s *meanwhile) Commit(ctx context.Context, c keep.Commit) error {
	if s.others(); s.dies == "before" {
		return errDies
	}
	s.over = s.dies == "after"
	return s.Store.Commit(ctx, c)
}

func (s *meanwhile) PutGate(ctx context.Context, g keep.Gate) error {
	if s.over {
		return errDies
	}
	return s.Store.PutGate(ctx, g)
}

// answering returns an operator whose answer is recorded after others did what they do.
func (w *world) answering(dies string, others func()) *operator.Operator {
	w.t.Helper()
	o, err := operator.New(&meanwhile{Store: w.store, others: others, dies: dies}, operator.Config{Now: time.Now, Budgets: func() []budget.Rule { return w.budgets }})
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// wantLimit compares the limit of the budget.
func (w *world) wantLimit(want keep.Amount) {
	w.t.Helper()
	all, err := view.ReadBudgets(w.t.Context(), w.store, w.budgets, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	if got := all[0].Balance.Limit; got != want {
		w.t.Errorf("the limit is %s, want %s (law: within-budget)", got, want)
	}
}

func raisedBy(who string, limit keep.Amount) keep.Decision {
	return keep.Decision{Action: keep.Raise, By: who, From: "test", Limit: limit * keep.AmountUnit}
}

// Of people who answer at once one decides, and the limits that the others wanted do not hold, neither before their answers are
// refused nor after.
func TestBudgetRaisedByTheSecond(t *testing.T) {
	for name, first := range map[string]keep.Decision{
		"skipped":          {Action: keep.Skip, By: "ann", From: "test"},
		"raised otherwise": raisedBy("ann", 2),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.budget(1, "")
				w.deploy()
				w.publish("in", "a", "b")
				w.run()
				q := w.asks(1)
				late, over := make(chan bool), make(chan bool)
				carl := w.answering("", func() {
					close(late)
					<-over
				})
				bob := w.answering("", func() {
					go func() {
						defer close(over)
						if err := carl.Decide(t.Context(), q.ID, raisedBy("carl", 500)); !errors.Is(err, keep.ErrDecided) {
							t.Errorf("the third answer: %v, want ErrDecided", err)
						}
					}()
					<-late
					w.wantLimit(keep.AmountUnit)
					if err := w.operator().Decide(t.Context(), q.ID, first); err != nil {
						t.Error(err)
					}
					w.wantLimit(max(first.Limit, keep.AmountUnit))
				})
				if err := bob.Decide(t.Context(), q.ID, raisedBy("bob", 1000)); !errors.Is(err, keep.ErrDecided) {
					t.Errorf("the second answer: %v, want ErrDecided", err)
				}
				over <- true
				<-over
				w.wantLimit(max(first.Limit, keep.AmountUnit))
			})
		})
	}
}

// A process that dies while somebody raises a limit leaves the limit of an answer that is recorded, and of no other.
func TestBudgetRaiserDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.budget(1, "")
		w.deploy()
		w.publish("in", "a", "b")
		w.run()
		q := w.asks(1)
		if err := w.answering("before", func() {}).Decide(t.Context(), q.ID, raisedBy("ann", 5)); !errors.Is(err, errDies) {
			t.Fatal(err)
		}
		w.wantLimit(keep.AmountUnit)
		w.run()
		w.asks(1)
		if err := w.answering("after", func() {}).Decide(t.Context(), q.ID, raisedBy("bob", 3)); err != nil && !errors.Is(err, errDies) {
			t.Fatal(err)
		}
		w.wantLimit(3 * keep.AmountUnit)
		w.run()
		if w.service.calls != 2 {
			t.Errorf("%d calls, want 2", w.service.calls)
		}
	})
}

// A rule that is another one than when its question was asked, or gone, is looked at again, by the host that has the
// workflow: a host that starts, and one whose rules were replaced. What is asked then stays.
func TestBudgetOfAnotherRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.budget(1, "")
		w.deploy()
		w.publish("in", "a", "b", "c")
		w.run()
		first := w.asks(1)
		for step, c := range []struct {
			change func()
			calls  int
			asked  bool
		}{
			{func() {}, 1, true},
			{func() { w.budget(2, "") }, 2, true},
			{func() {}, 2, true},
			{func() { w.budgets = nil }, 3, false},
		} {
			c.change()
			asked := first
			for range 2 { // the second look changes nothing
				e := w.engine()
				if err := e.SettleBudgets(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := w.runEngine(e, 24*time.Hour); err != nil {
					t.Fatal(err)
				}
				if !c.asked {
					continue
				}
				asked = w.asks(c.calls)
			}
			if same := asked.ID == first.ID; same != (step != 1) {
				t.Errorf("step %d: the question is %s, and was %s", step, asked.ID, first.ID)
			}
			if first = asked; w.service.calls != c.calls || len(w.questions()) > 0 != c.asked {
				t.Errorf("step %d: %d calls, questions %+v; want %d calls", step, w.service.calls, w.questions(), c.calls)
			}
		}
	})
}

// A budget that gets another name has what was spent under the one of before, and what was allowed. Its question is
// asked by its name of today.
func TestBudgetRenamed(t *testing.T) {
	for name, c := range map[string]struct {
		was   []string
		allow bool
		calls int
	}{"was": {[]string{"purse", "money"}, false, 2}, "was, allowed": {[]string{"money"}, true, 3}, "another budget": {nil, false, 4}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.budget(2, "")
			w.deploy()
			w.publish("in", "a", "b", "c", "d")
			w.run()
			w.asks(2)
			if c.allow {
				if err := w.decide(keep.Allow); err != nil {
					t.Fatal(err)
				}
			}
			w.budgets[0].Name, w.budgets[0].Was = "cash", c.was
			e := w.engine()
			if err := e.SettleBudgets(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := w.runEngine(e, time.Hour/2); err != nil {
				t.Fatal(err)
			}
			qs := w.questions()
			if c.was == nil {
				if w.service.calls != c.calls || len(qs) != 0 {
					t.Errorf("%s: %d calls, %+v; want %d, and no question", name, w.service.calls, qs, c.calls)
				}
				return
			}
			if w.service.calls != c.calls || len(qs) != 1 || qs[0].Budget != "cash" || !strings.Contains(qs[0].Why, "is spent") {
				t.Errorf("%s: %d calls, %+v; want %d, and one question about cash", name, w.service.calls, qs, c.calls)
			}
			b, err := view.ReadBudgets(t.Context(), w.store, w.budgets, time.Now())
			if err != nil || b[0].Balance.Spent != keep.Amount(c.calls)*keep.AmountUnit || len(b[0].Entries) != c.calls {
				t.Errorf("%s: %+v, %v", name, b, err)
			}
		})
	}
}

func TestBudgetSkippedAndStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.budget(1, "")
		w.deploy()
		w.publish("in", "a", "b")
		w.run()
		w.asks(1)
		if err := w.decide(keep.Stop); err != nil {
			t.Fatal(err)
		}
		w.asks(1)
		if wf, err := w.store.Workflow(t.Context(), "w"); err != nil || !wf.Paused {
			t.Errorf("the workflow is not paused: %v", err)
		}
		if err := w.decide(keep.Skip); err != nil {
			t.Fatal(err)
		}
		w.run()
		if e := w.event("in", "b"); e.Status != keep.EventSkipped || w.service.calls != 1 || len(w.questions()) != 0 {
			t.Errorf("event %s after %d calls, want skipped after 1", e.Status, w.service.calls)
		}
	})
}

// What is known not to have happened is given back, and taken again by the retry. What is in doubt
// counts, also when its window is over.
func TestBudgetIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.budget(1, "")
		w.service.onCall = func(n int) (bool, error) {
			if n == 1 {
				return false, keep.Failf(keep.ClassTransient, "http-503", "not now")
			}
			return true, nil
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		if m := w.mutation(); m.State != keep.Applied || m.Attempts != 2 || !m.SpentAt.After(m.CreatedAt) {
			t.Errorf("record %s after %d calls, counts since %s", m.State, m.Attempts, m.SpentAt)
		}
	})
}

func TestBudgetCountsDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.crowd(2, 1)
		w.budget(1, "")
		w.service.level = keep.LevelNone
		w.service.onCall = func(n int) (bool, error) { return n > 1, noAnswer(n) }
		w.run()
		if err := w.runFor(48 * time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(48 * time.Hour)
		w.crowd(3, 1) // one more, which asks for room when the window is over
		w.run()
		if w.service.calls != 1 {
			t.Fatalf("%d calls beside a doubt that counts, want 1", w.service.calls)
		}
		for _, q := range w.questions() {
			if q.Kind == keep.AskUnknownOutcome {
				if err := w.operator().Decide(t.Context(), q.ID, keep.Decision{Action: keep.DidNotHappen, By: "ann"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.run()
		if w.service.calls != 2 || w.service.total() != 1 {
			t.Errorf("%d calls and %d effects after the doubt ended, want 2 and 1", w.service.calls, w.service.total())
		}
	})
}

// A run that waits for room that a call in doubt had looks again when that is known not to have happened: nothing else names a time
// at which there is room, and the question says what is not so any more.
func TestBudgetIsGivenBackToWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.crowd(2, 1)
		w.budget(1, "")
		w.service.level = keep.LevelNone
		w.service.onCall = func(n int) (bool, error) {
			switch n {
			case 1:
				return false, noAnswer(n)
			case 2:
				return false, keep.Failf(keep.ClassLogic, "http-422", "no")
			}
			return true, nil
		}
		w.run()
		settle := func(calls, asked int) {
			e := w.engine()
			if err := e.SettleBudgets(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := w.runEngine(e, time.Hour/4); err != nil {
				t.Fatal(err)
			}
			qs := w.questions()
			budgets := 0
			for _, q := range qs {
				if q.Kind == keep.AskBudget {
					budgets++
				}
			}
			if w.service.calls != calls || budgets != asked {
				t.Fatalf("%d calls, questions %+v; want %d calls, and %d about the budget", w.service.calls, qs, calls, asked)
			}
		}
		settle(1, 1) // there is no room: nothing changes
		runs := len(w.allRuns())
		settle(1, 1)
		if n := len(w.allRuns()); n != runs {
			t.Errorf("%d runs after a look that found no room, want %d", n, runs)
		}
		for _, q := range w.questions() {
			if q.Kind == keep.AskUnknownOutcome {
				if err := w.operator().Decide(t.Context(), q.ID, keep.Decision{Action: keep.DidNotHappen, By: "ann"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.run()
		settle(3, 0)
	})
}

// allRuns returns the runs of all workflows.
func (w *world) allRuns() []keep.Run {
	w.t.Helper()
	runs, _, err := w.store.Runs(w.t.Context(), keep.RunFilter{}, keep.Page{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return runs
}

func noAnswer(n int) error {
	if n == 1 {
		return keep.Failf(keep.ClassUnknown, "timeout", "no answer")
	}
	return nil
}

// Many runs that wait for one budget ask once; an answer counts for all of them.
func TestBudgetIsAskedAboutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.crowd(8, 1)
		w.budget(3, "")
		w.run()
		qs := w.questions()
		if len(qs) != 1 || qs[0].Kind != keep.AskBudget || w.service.calls != 3 {
			t.Fatalf("%d questions after %d calls, want 1 after 3", len(qs), w.service.calls)
		}
		raise := keep.Decision{Action: keep.Raise, By: "ann", From: "test", Limit: 8 * keep.AmountUnit}
		if err := w.operator().Decide(t.Context(), qs[0].ID, raise); err != nil {
			t.Fatal(err)
		}
		w.run()
		if w.service.calls != 8 || len(w.questions()) != 0 {
			t.Errorf("%d calls and %d questions after the limit was raised for all, want 8 and none", w.service.calls, len(w.questions()))
		}
	})
}

// A crash between any two steps neither loses what was spent nor counts it twice.
func TestBudgetOverCrashes(t *testing.T) {
	for _, p := range engine.Points() {
		for _, level := range []keep.Level{keep.LevelWitness, keep.LevelKey} {
			t.Run(fmt.Sprint(p, level), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.service.level = level
					w.budget(2, "")
					w.deploy()
					w.publish("in", "a", "b", "c")
					w.dieAt = p
					w.runUntil(time.Minute)
					w.runUntil(10 * time.Minute)
					if w.service.total() != 2 {
						t.Fatalf("%d effects within the window, want 2 (law: within-budget)", w.service.total())
					}
					w.asks(w.service.calls)
				})
			})
		}
	}
}

// A question that was asked and swept since gives its id to no other.
func TestBudgetQuestionsKeepTheirIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.store.PutGate(t.Context(), keep.Gate{Connection: keep.BudgetGate("money"), State: []byte(`{"asked":5}`)}); err != nil {
			t.Fatal(err)
		}
		w.budget(0, "")
		w.deploy()
		w.publish("in", "a")
		w.run()
		if q := w.asks(0); q.ID != budget.QuestionID("money", 6) {
			t.Errorf("the question is %s, want the sixth", q.ID)
		}
	})
}
