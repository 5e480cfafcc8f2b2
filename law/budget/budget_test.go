package budget_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/budget"
)

func rule(t *testing.T, r budget.Rule) budget.Rule {
	t.Helper()
	r, err := budget.New(r)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func money(t *testing.T, sum string) budget.Rule {
	return rule(t, budget.Rule{Name: "money", Tools: []string{"bank.pay"}, Sum: sum, Limit: 1000 * keep.AmountUnit, Per: time.Hour})
}

// What a call counts is never less than what its params say, and never 0 for want of a number.
func TestAmountOf(t *testing.T) {
	for _, c := range []struct{ sum, params, want string }{
		{"params.amount", `{"amount":5}`, "5"},
		{"params.amount", `{"amount":0}`, "0"},
		{"params.amount", `{"amount":19.99}`, "19.99"},
		{"params.amount", `{"amount":0.07}`, "0.07"},
		{"params.amount", `{"amount":0.0000001}`, "0.000001"},
		{"params.amount", `{"amount":1e-12}`, "0.000001"},
		{"params.amount", `{"amount":1000000000000}`, "1000000000000"},
		{"params.a * 1.19", `{"a":20.0}`, "23.8"},
		{"double(params.a) * 1.19", `{"a":20}`, "23.8"},
		{"size(params.to)", `{"to":["a","b"]}`, "2"},
		{"params.amount", `{}`, "there is no param amount"},
		{"params.amount", `{"amount":"5"}`, "must be a number"},
		{"params.amount", `{"amount":null}`, "must be a number"},
		{"params.amount", `{"amount":true}`, "must be a number"},
		{"params.amount", `{"amount":-1}`, "from 0 to"},
		{"params.amount", `{"amount":-0.0001}`, "from 0 to"},
		{"params.amount", `{"amount":1000000000001}`, "from 0 to"},
		{"params.amount", `{"amount":1e300}`, "from 0 to"},
		{"params.a / params.b", `{"a":1.0,"b":0.0}`, "from 0 to"},
		{"params.a / params.b", `{"a":0.0,"b":0.0}`, "from 0 to"},
		{"params.amount", `[]`, "cannot be read"},
	} {
		got, err := money(t, c.sum).AmountOf([]byte(c.params))
		if text := fmt.Sprint(got, " ", err); err == nil && got.String() != c.want || err != nil && !strings.Contains(text, c.want) {
			t.Errorf("%s of %s = %s, want %s", c.sum, c.params, text, c.want)
		}
	}
	if _, err := budget.FromFloat(math.NaN()); err == nil {
		t.Error("NaN is an amount")
	}
}

func TestRulesThatMakeNoSense(t *testing.T) {
	good := budget.Rule{Name: "money", Tools: []string{"bank.pay"}, Limit: 1, Per: time.Hour}
	for want, change := range map[string]func(*budget.Rule){
		"about no call": func(r *budget.Rule) { r.Tools = nil },
		"no name":       func(r *budget.Rule) { r.Name = "a b" },
		"it had before": func(r *budget.Rule) { r.Was = []string{"old", "a\x00"} },
		"limit must be": func(r *budget.Rule) { r.Limit = -1 },
		"per must be":   func(r *budget.Rule) { r.Per = time.Millisecond },
		"be a number":   func(r *budget.Rule) { r.Sum = "params.a == 1" },
		"at character":  func(r *budget.Rule) { r.Sum = "amount" },
		"costs too":     func(r *budget.Rule) { r.Sum = "params.a.map(x, params.a.map(y, params.a.map(z, z)))[0][0][0]" },
	} {
		r := good
		change(&r)
		if _, err := budget.New(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want %q", err, want)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		tools     []string
		workflows []keep.WorkflowName
		want      bool
	}{
		{[]string{"bank.pay"}, nil, true}, {[]string{"bank.*"}, nil, true}, {[]string{"*"}, nil, true},
		{[]string{"bank.check"}, nil, false}, {[]string{"ban.*"}, nil, false},
		{nil, []keep.WorkflowName{"payouts"}, true}, {nil, []keep.WorkflowName{"others"}, false},
		{[]string{"bank.pay"}, []keep.WorkflowName{"others"}, false},
	} {
		r := rule(t, budget.Rule{Name: "b", Tools: c.tools, Workflows: c.workflows, Limit: 1, Per: time.Hour})
		if got := r.Covers("payouts", "bank.pay"); got != c.want {
			t.Errorf("tools %v, workflows %v: Covers = %t", c.tools, c.workflows, got)
		}
	}
}

// A window slides; doubt never leaves it, and what failed is given back.
func TestBalance(t *testing.T) {
	start := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	r := money(t, "params.amount")
	took := func(key string, amount keep.Amount, after time.Duration, s keep.MutationState) keep.Mutation {
		return keep.Mutation{Key: keep.MutationKey(key), State: s, SpentAt: start.Add(after),
			Spent: []keep.Spent{{Budget: "other", Amount: 5 * keep.AmountUnit}, {Budget: "money", Amount: amount * keep.AmountUnit}}}
	}
	records := []keep.Mutation{
		took("a", 300, 0, keep.Applied), took("b", 200, 10*time.Minute, keep.Failed), took("c", 400, 20*time.Minute, keep.Indeterminate),
		took("d", 100, 30*time.Minute, keep.Skipped), took("e", 200, 40*time.Minute, keep.InFlight),
	}
	for _, c := range []struct {
		after                time.Duration
		spent, inDoubt, left keep.Amount
	}{
		{50 * time.Minute, 1000, 600, 0},
		{time.Hour - time.Millisecond, 1000, 600, 0},
		{time.Hour, 700, 600, 300},
		{90 * time.Minute, 600, 600, 400},
		{1000 * time.Hour, 600, 600, 400},
	} {
		b := r.BalanceOf(budget.State{}, records, "", start.Add(c.after))
		if b.Spent != c.spent*keep.AmountUnit || b.InDoubt != c.inDoubt*keep.AmountUnit || b.Left() != c.left*keep.AmountUnit {
			t.Errorf("after %s: %+v, want spent %d, in doubt %d, left %d", c.after, b, c.spent, c.inDoubt, c.left)
		}
	}
	now := start.Add(50 * time.Minute)
	for amount, want := range map[keep.Amount]time.Time{
		0: now, 1: start.Add(time.Hour), 300: start.Add(time.Hour), 301: start.Add(90 * time.Minute), 401: {},
	} {
		if got := r.RoomAt(budget.State{}, records, "", amount*keep.AmountUnit, now); !got.Equal(want) {
			t.Errorf("room for %d at %s, want %s", amount, got, want)
		}
	}
	if b := r.BalanceOf(budget.State{}, records, "c", now); b.Left() != 400*keep.AmountUnit {
		t.Errorf("without the call itself %s is left", b.Left())
	}
}

// A raise ends at its time, and when another limit is configured.
func TestRaise(t *testing.T) {
	r, now := money(t, ""), time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	up := budget.State{Raise: &budget.Raise{Limit: 5 * keep.AmountUnit, Over: r.Limit, Until: now}}
	for _, c := range []struct {
		at   time.Time
		over keep.Amount
		want keep.Amount
	}{{now.Add(-1), r.Limit, 5 * keep.AmountUnit}, {now, r.Limit, r.Limit}, {now.Add(-1), r.Limit - 1, r.Limit}} {
		up.Raise.Over = c.over
		if got := r.LimitAt(up, c.at); got != c.want {
			t.Errorf("at %s the limit is %s, want %s", c.at, got, c.want)
		}
	}
	up.Raise.Over, up.Raise.Until = r.Limit, time.Time{}
	if got := r.LimitAt(up, now.AddDate(5, 0, 0)); got != 5*keep.AmountUnit {
		t.Errorf("a raise without an end ended: %s", got)
	}
}

// The limit of the answer that is recorded holds, also if the same person gave two at the same moment, and no more
// than so many are remembered.
func TestRead(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	const maxLimits = 50
	var s budget.State
	var times []time.Time
	for n := range 2 * maxLimits {
		var answered time.Time
		s, answered = s.With("q", budget.Raise{Limit: keep.Amount(n + 1), By: "ann", At: at})
		times = append(times, answered)
	}
	if n := len(s.Raising.Limits); n != maxLimits {
		t.Errorf("%d limits are remembered, want %d", n, maxLimits)
	}
	state, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	last := len(times) - 1
	for name, c := range map[string]struct {
		q    keep.Escalation
		err  error
		want keep.Amount
	}{
		"open":         {},
		"raised":       {q: keep.Escalation{ClosedAt: at, Decision: &keep.Decision{Action: keep.Raise, By: "ann", At: times[last-1]}}, want: keep.Amount(last)},
		"by another":   {q: keep.Escalation{ClosedAt: at, Decision: &keep.Decision{Action: keep.Raise, By: "bob", At: times[last]}}},
		"skipped":      {q: keep.Escalation{ClosedAt: at, Decision: &keep.Decision{Action: keep.Skip, By: "ann", At: times[last]}}},
		"ended itself": {q: keep.Escalation{ClosedAt: at}},
		"swept":        {err: keep.ErrNotFound},
	} {
		got, err := budget.Read(keep.Gate{State: state}, func(keep.EscalationID) (keep.Escalation, error) { return c.q, c.err })
		if err != nil || (got.Raise == nil) != (c.want == 0) || got.Raise != nil && got.Raise.Limit != c.want || (got.Raising == nil) != (name != "open") {
			t.Errorf("%s: %+v, %v; want the limit %d", name, got.Raise, err, c.want)
		}
	}
}
