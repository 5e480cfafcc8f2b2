package grant_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/grant"
)

// rules compiles a grant that must be sound.
func rules(t *testing.T, tools ...keep.GrantedTool) *grant.Rules {
	t.Helper()
	r, err := grant.Compile(tools)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCheck is the law permitted as a table: a call is allowed only if the grant names its
// tool and every condition about it is true; what cannot be evaluated is no yes.
func TestCheck(t *testing.T) {
	const params = `{"amount": 500, "fraction": 499.5, "currency": "EUR", "to": "a@example.com", "list": [1, 2, 3], "none": null,
		"big": 9007199254740993, "deep": {"a": {"b": true}}, "text": "500"}`
	for _, tt := range []struct {
		when, approve string
		allowed, ask  bool
		why           string // part of it
	}{
		{allowed: true},
		{when: "true", allowed: true},
		{when: "false", why: "does not hold"},
		{when: "params.currency == 'EUR'", allowed: true},
		{when: "params.currency == 'USD'", why: `params.currency = "EUR"`},
		{when: "params.amount == 500", allowed: true},
		{when: "params.amount == 500.0", allowed: true},
		{when: "params.amount < 500.5", allowed: true},
		{when: "params.fraction < 500", allowed: true},
		{when: "params.fraction > 499", allowed: true},
		{when: "params.amount >= 500.0 && params.amount <= 500", allowed: true},
		{when: "params.big > 9007199254740992", allowed: true},
		{when: "params.deep.a.b == true", allowed: true},
		{when: "params.list.all(x, x < 10)", allowed: true},
		{when: "3 in params.list", allowed: true},
		{when: "params.missing == 1", why: "there is no param missing"},
		{when: "params.missing != 1", why: "there is no param missing"},
		{when: "!(params.missing == 1)", why: "there is no param missing"},
		{when: "params.deep.missing.b == 1", why: "there is no param missing"},
		{when: "has(params.missing) && params.missing == 1", why: "does not hold"},
		{when: "!has(params.missing)", allowed: true},
		{when: "params.none == null", allowed: true},
		{when: "params.none == 1", why: "does not hold"},
		{when: "params.text < 600", why: "another type"},
		{when: "params.text == 500", why: "does not hold"},
		{when: "params.amount.endsWith('x')", why: "another type"},
		{when: "params.amount / 0 == 1", why: "zero"},
		{when: "params.to.matches('^[a-z]@')", allowed: true},
		{when: "params.to.matches(params.currency + '(')", why: "(law"},
		{approve: "params.amount > 499", allowed: true, ask: true, why: "params.amount > 499"},
		{approve: "params.amount > 500", allowed: true},
		{approve: "params.missing > 500", allowed: true, ask: true, why: "not known"},
		{approve: "params.text > 500", allowed: true, ask: true, why: "not known"},
		{approve: "always", allowed: true, ask: true, why: "before each call"},
		{approve: "true", allowed: true, ask: true},
		{approve: "false", allowed: true},
		{when: "params.amount < 100", approve: "always", why: "does not hold"},
	} {
		t.Run(tt.when+"|"+tt.approve, func(t *testing.T) {
			got := rules(t, keep.GrantedTool{Tool: "bank.pay", When: tt.when, Approve: tt.approve}).Check("bank.pay", []byte(params))
			if got.Allowed != tt.allowed || got.Ask != tt.ask {
				t.Errorf("got %+v, want allowed %v, ask %v", got, tt.allowed, tt.ask)
			}
			if tt.why != "(law" && !strings.Contains(got.Why, tt.why) {
				t.Errorf("why is %q, want it to say %q", got.Why, tt.why)
			}
		})
	}
}

// TestNamesOfBefore: an entry about a name that the tool had before allows nothing, and its conditions count.
func TestNamesOfBefore(t *testing.T) {
	for _, tt := range []struct {
		name  string
		tools []keep.GrantedTool
		want  bool
		ask   bool
		why   string
	}{
		{"only a name of before", []keep.GrantedTool{{Tool: "bank.pay"}}, false, false, "does not name the tool, but bank.pay, as it was called"},
		{"all of a connection of before", []keep.GrantedTool{{Tool: "old.*"}}, false, false, "does not name the tool, but old.*, as it was called"},
		{"a condition of before, first", []keep.GrantedTool{{Tool: "bank.pay", When: "params.n == 2"}, {Tool: "bank.*"}}, false, false, "its grant of bank.pay, as the tool was called, does not hold"},
		{"a condition of before", []keep.GrantedTool{{Tool: "bank.*"}, {Tool: "bank.pay", When: "params.n == 2"}}, false, false, "its grant of bank.pay"},
		{"a condition of before that holds", []keep.GrantedTool{{Tool: "bank.*"}, {Tool: "bank.pay", When: "params.n == 1"}}, true, false, ""},
		{"a condition of long before", []keep.GrantedTool{{Tool: "bank.*"}, {Tool: "old.pay", When: "params.n == 2"}}, false, false, "its grant of old.pay"},
		{"a condition on all of before", []keep.GrantedTool{{Tool: "bank.send"}, {Tool: "old.*", When: "params.n == 2"}}, false, false, "its grant of old.*"},
		{"asks as before", []keep.GrantedTool{{Tool: "bank.*"}, {Tool: "bank.pay", Approve: "always"}}, true, true, "its grant of bank.pay"},
		{"another tool", []keep.GrantedTool{{Tool: "bank.*"}, {Tool: "bank.find", When: "false"}}, true, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := rules(t, tt.tools...).Check("bank.send", []byte(`{"n": 1}`), "bank.pay", "old.send", "old.pay")
			if got.Allowed != tt.want || got.Ask != tt.ask || !strings.Contains(got.Why, tt.why) {
				t.Errorf("got %+v, want allowed %v, ask %v, why %q", got, tt.want, tt.ask, tt.why)
			}
		})
	}
}

// TestEntries: which entries of a grant are about a tool, and that the strictest counts.
func TestEntries(t *testing.T) {
	for _, tt := range []struct {
		name  string
		tools []keep.GrantedTool
		tool  keep.ToolName
		want  bool
		ask   bool
	}{
		{"nothing granted", nil, "bank.pay", false, false},
		{"another tool", []keep.GrantedTool{{Tool: "bank.find"}}, "bank.pay", false, false},
		{"the tool", []keep.GrantedTool{{Tool: "bank.pay"}}, "bank.pay", true, false},
		{"the beginning of the tool", []keep.GrantedTool{{Tool: "bank.pa"}}, "bank.pay", false, false},
		{"all of the connection", []keep.GrantedTool{{Tool: "bank.*"}}, "bank.pay", true, false},
		{"all of another connection", []keep.GrantedTool{{Tool: "ban.*"}}, "bank.pay", false, false},
		{"a connection that begins so", []keep.GrantedTool{{Tool: "bank.*"}}, "bank2.pay", false, false},
		{"all, and a condition on one", []keep.GrantedTool{{Tool: "bank.*"}, {Tool: "bank.pay", When: "params.n == 2"}}, "bank.pay", false, false},
		{"all, and a condition on another", []keep.GrantedTool{{Tool: "bank.*"}, {Tool: "bank.find", When: "false"}}, "bank.pay", true, false},
		{"a condition on all", []keep.GrantedTool{{Tool: "bank.*", When: "false"}, {Tool: "bank.pay"}}, "bank.pay", false, false},
		{"one of two asks", []keep.GrantedTool{{Tool: "bank.*"}, {Tool: "bank.pay", Approve: "always"}}, "bank.pay", true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := rules(t, tt.tools...).Check(tt.tool, []byte(`{"n": 1}`))
			if got.Allowed != tt.want || got.Ask != tt.ask {
				t.Errorf("got %+v, want allowed %v, ask %v", got, tt.want, tt.ask)
			}
		})
	}
}

// TestRefusedConditions: what can never be used is refused before it is stored.
func TestRefusedConditions(t *testing.T) {
	for text, why := range map[string]string{
		"params.amount >":                 "at character",
		"amount > 1":                      "undeclared reference to 'amount'",
		"workflow == 'x'":                 "undeclared reference",
		"params.amount":                   "must be true or false",
		"1 + 1":                           "must be true or false",
		"'yes'":                           "must be true or false",
		"params":                          "must be true or false",
		"":                                "",
		"params.a == 1 ? 'x' : 'y'":       "must be true or false",
		"1 == 'a'":                        "no matching overload",
		strings.Repeat("(", 100) + "true": "",
		"params.a.all(x, params.a.all(y, params.a.all(z, x == z)))":         "costs too much",
		"params.a == '" + strings.Repeat("x", grant.MaxCondition) + "'":     "at most",
		"[1].map(x, [x].map(y, y)).size() > 0 && params.amount.nope.nope()": "undeclared reference",
	} {
		t.Run(text[:min(len(text), 40)], func(t *testing.T) {
			_, err := grant.CompileCondition(text)
			if err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%.60q: %v, want an error that says %q", text, err, why)
			}
		})
	}
}

// A condition that cannot be used, such as one that a newer version of Keep stored, is never
// a yes.
func TestUnusableConditionIsNoYes(t *testing.T) {
	r, err := grant.Compile([]keep.GrantedTool{{Tool: "a.x", When: "params.x.future()"}, {Tool: "a.y", Approve: "params.x.future()"}})
	var wrong *grant.ConditionError
	if !errors.As(err, &wrong) || wrong.Tool != "a.x" || wrong.Key != "when" {
		t.Fatalf("the error is %v", err)
	}
	if v := r.Check("a.x", []byte(`{"x": 1}`)); v.Allowed {
		t.Errorf("a call was allowed by a condition that cannot be used: %+v", v)
	}
	if v := r.Check("a.y", []byte(`{"x": 1}`)); !v.Allowed || !v.Ask {
		t.Errorf("nobody is asked by a condition that cannot be used: %+v", v)
	}
}

// Params may be made to be expensive: an evaluation ends, and is then no yes.
func TestCostIsBounded(t *testing.T) {
	list := "[" + strings.TrimSuffix(strings.Repeat("1,", 100_000), ",") + "]"
	params := []byte(fmt.Sprintf(`{"list": %s, "text": %q}`, list, strings.Repeat("a", 900_000)))
	for _, when := range []string{
		"params.list.all(x, params.list.exists(y, x == y))",
		"params.list.map(x, x * 2).size() == 100000",
		"params.text.matches('(a|a)*b') == false && params.text.matches('(a|b|c|d)*e') == false",
	} {
		began := time.Now()
		r, err := grant.Compile([]keep.GrantedTool{{Tool: "a.x", When: when}})
		if err != nil {
			continue // refused before
		}
		v := r.Check("a.x", params)
		if v.Allowed || !strings.Contains(v.Why, "costs too much") {
			t.Errorf("%s: %+v", when, v)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%s took %s", when, took)
		}
	}
	if v := rules(t, keep.GrantedTool{Tool: "a.x", When: "true"}).Check("a.x", []byte(`[1]`)); v.Allowed {
		t.Errorf("params that are no object were allowed: %+v", v)
	}
}

func TestChangesOfGrants(t *testing.T) {
	old := []keep.GrantedTool{{Tool: "a.x"}, {Tool: "a.y", When: "true"}}
	merged := grant.Merge(old, []keep.GrantedTool{{Tool: "a.x", Approve: "always"}, {Tool: "b.*"}})
	want := []keep.GrantedTool{{Tool: "a.y", When: "true"}, {Tool: "a.x", Approve: "always"}, {Tool: "b.*"}}
	if diff := cmp.Diff(want, merged); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"- a.x", "+ a.x, asks each time", "+ b.*"}, grant.Difference(old, merged)); diff != "" {
		t.Errorf("difference (-want +got):\n%s", diff)
	}
	rest, missing := grant.Without(merged, []string{"a.x", "c.z"})
	if diff := cmp.Diff([]string{"c.z"}, missing); diff != "" || len(rest) != 2 {
		t.Errorf("without: %v, missing %v", rest, missing)
	}
	if diff := cmp.Diff([]keep.ToolName{"c.z"}, grant.Lacking(keep.Grant{Tools: merged}, []keep.ToolName{"a.y", "b.q", "c.z"})); diff != "" {
		t.Errorf("lacking (-want +got):\n%s", diff)
	}
}

// FuzzCheck: whatever conditions and params are, a check ends, does not panic, and allows
// nothing that the condition did not say yes to.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{"params.amount > 500", "params.a == params.b", "params.list.all(x, x > 1)", "!has(params.x)", "size(params) < 3", "params.a.b.c", "true", "1/0 == 1"} {
		f.Add(s, `{"amount": 501, "a": {"b": 1}, "list": [1, "x", null, 1e400]}`)
	}
	f.Fuzz(func(t *testing.T, condition, params string) {
		if condition == "" || len(condition) > 300 { // most of the time is that of the parser
			return
		}
		r, err := grant.Compile([]keep.GrantedTool{{Tool: "a.x", When: condition, Approve: condition}})
		v := r.Check("a.x", []byte(params))
		if err != nil && v.Allowed {
			t.Fatalf("%q cannot be used and allows a call", condition)
		}
		if !v.Allowed && v.Why == "" {
			t.Fatalf("%q refuses %q and does not say why", condition, params)
		}
		if v.Allowed && !v.Ask { // one and the same condition cannot be true and not true
			t.Fatalf("%q holds for %q as a when and not as an approve", condition, params)
		}
	})
}

// The conditions of a grant are bounded together: those that are too many are refused at
// start, and are no yes.
func TestConditionsAreBoundedTogether(t *testing.T) {
	var tools []keep.GrantedTool
	for n := range 20 {
		tools = append(tools, keep.GrantedTool{Tool: fmt.Sprintf("a.t%d", n), When: strings.Repeat(" ", grant.MaxCondition-4) + "true"})
	}
	r, err := grant.Compile(tools)
	var wrong *grant.ConditionError
	if !errors.As(err, &wrong) || wrong.Tool != "a.t15" {
		t.Errorf("Compile: %.200v, want an error about a.t15", err)
	}
	if !r.Check("a.t14", []byte("{}")).Allowed || r.Check("a.t15", []byte("{}")).Allowed {
		t.Error("the conditions within the limit count, and those over it are no yes")
	}
}
