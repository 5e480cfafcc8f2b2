package api_test

import (
	"context"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/operator"
)

// Budgets say what is spent, and only an admin gives one another limit.
func TestBudgets(t *testing.T) {
	r, err := budget.New(budget.Rule{Name: "money", Tools: []string{"bank.*"}, Sum: "params.amount", Limit: 2000 * keep.AmountUnit, Per: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *api.Config) { c.Budgets = func() []budget.Rule { return []budget.Rule{r} } })
	w.ask("ann viewer", "GET", api.Prefix+"/budgets", "").want(t, 200, `"name":"money","tools":["bank.*"],"workflows":[],"kind":"sum","sum":"params.amount","limit":2000,"per":"24h","spent":0,"in_doubt":0,"left":2000,"room_at":null,"raise":null`)
	w.ask("ann viewer", "GET", api.Prefix+"/budgets/money", "").want(t, 200, `"entries":[]`)
	w.ask("ann viewer", "GET", api.Prefix+"/budgets/none", "").want(t, 404)
	q := api.Prefix + "/escalations/esc_any/decision"
	for body, want := range map[string]string{
		`{"action":"raise","limit":5}`:   "raise the limit of a budget needs admin",
		`{"action":"raise"}`:             "raise the limit of a budget needs admin",
		`{"action":"raise","limit":0.5}`: "raise the limit of a budget needs admin",
	} {
		w.ask("ann operator", "POST", q, body).want(t, 403, want)
	}
	w.ask("ann admin", "POST", q, `{"action":"raise"}`).want(t, 422, "needs the limit")
	w.ask("ann admin", "POST", q, `{"action":"raise","limit":-1}`).want(t, 422, "needs the limit")
	w.ask("ann admin", "POST", q, `{"action":"approve","limit":1}`).want(t, 422, "takes no limit")
}

// A lowActor finds each limit too low.
type lowActor struct{ api.Actor }

func (lowActor) Decide(_ context.Context, id keep.EscalationID, _ keep.Decision) error {
	return &operator.LimitError{ID: id, Why: "the limit of the budget money is 5, and 3 is not more; nothing was changed"}
}

// A raise that does not raise is a problem of the request.
func TestRaiseThatDoesNotRaise(t *testing.T) {
	w := newWorld(t, func(c *api.Config) { c.Actor = lowActor{c.Actor} })
	w.ask("ann admin", "POST", api.Prefix+"/escalations/esc_1/decision", `{"action":"raise","limit":3}`).
		want(t, 422, "problems/limit-needed", "3 is not more; nothing was changed")
}
