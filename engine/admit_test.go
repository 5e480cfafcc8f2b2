package engine_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/budget"
)

// A call waits in line for an hour. What it may count in a budget when it is recorded is what holds then: the limit that a person gave
// may be over, or another one be configured. Law within-budget.
func TestBudgetOfACallThatWaited(t *testing.T) {
	for _, how := range []string{"raised until then", "configured anew"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.limit(rate("1/h"))
				rule := func(limit keep.Amount) []budget.Rule {
					r, err := budget.New(budget.Rule{Name: "money", Tools: []string{"svc.*"}, Limit: limit * keep.AmountUnit, Per: 24 * time.Hour})
					if err != nil {
						t.Fatal(err)
					}
					return []budget.Rule{r}
				}
				w.budgets = rule(2)
				if how == "raised until then" {
					w.budgets = rule(1)
					up := budget.Raise{Limit: 2 * keep.AmountUnit, Over: keep.AmountUnit, Until: time.Now().Add(30 * time.Minute), By: "ann", At: time.Now()}
					state, err := json.Marshal(budget.State{Asked: 1, Raise: &up})
					if err != nil {
						t.Fatal(err)
					}
					if err := w.store.PutGate(t.Context(), keep.Gate{Connection: keep.BudgetGate("money"), State: state}); err != nil {
						t.Fatal(err)
					}
				}
				w.crowd(2, 1)
				e := w.engine()
				if how == "configured anew" {
					time.AfterFunc(10*time.Minute, func() { e.SetBudgets(rule(1)) })
				}
				_ = w.runEngine(e, 3*time.Hour)
				qs := w.questions()
				if w.service.calls != 1 || len(qs) != 1 || qs[0].Kind != keep.AskBudget {
					t.Errorf("%d calls within a limit of 1, questions %+v; want one of each (law: within-budget)", w.service.calls, qs)
				}
			})
		})
	}
}

// The configuration is loaded anew while a call waits in line. It is made as that says: not without the approval that it wants, not
// twice where once is allowed, and not to a place where the tool does not send any more.
func TestConfigurationOfACallThatWaited(t *testing.T) {
	for _, how := range []string{"approve", "unique", "moved", "removed", "the same"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, old, now, configure := newMovedWorld(t, keep.LevelWitness, false)
				conns := w.connect
				removed := false
				w.connect = func() []connector.Connection {
					cs := conns()
					if cs[0].Limits = rate("1/h"); removed {
						cs[0].Tools = cs[0].Tools[1:]
					}
					return cs
				}
				w.script["consumers.act.mutate"] = func(c *call) any {
					c.do("svc.create", map[string]any{"id": "one", "text": "hello"})
					return nil
				}
				w.crowd(2, 1)
				e := w.engine()
				time.AfterFunc(10*time.Minute, func() {
					switch how {
					case "approve":
						old.approve = "always"
					case "unique":
						old.unique = true
					case "moved":
						configure("new")
					case "removed":
						removed = true
					}
					w.reload()
				})
				_ = w.runEngine(e, 3*time.Hour)
				want := map[string]struct {
					old, new int
					asks     keep.EscalationKind
				}{
					"approve": {1, 0, keep.AskApproval}, "unique": {1, 0, keep.AskAlreadyDone}, "moved": {1, 1, ""}, "removed": {1, 0, keep.AskLogic}, "the same": {2, 0, ""},
				}[how]
				var asks keep.EscalationKind
				for _, q := range w.questions() {
					asks = q.Kind
				}
				if old.calls != want.old || now.calls != want.new || asks != want.asks {
					t.Errorf("%d calls at the place of before and %d at the new one, and %q is asked; want %+v", old.calls, now.calls, asks, want)
				}
			})
		})
	}
}
