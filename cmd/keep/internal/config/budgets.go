package config

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/budget"
)

// A budgetTable is a [budgets.NAME] as it is written. The tables of tools may name it, too; see spends.
type budgetTable struct {
	Was       budgetNames         `toml:"was"`       // all names that the budget had before, in the records of calls
	Tools     []string            `toml:"tools"`     // that count: bank.pay, bank.* or *
	Workflows []keep.WorkflowName `toml:"workflows"` // whose calls count; empty: all
	Sum       string              `toml:"sum"`       // what is added up, such as "params.amount"
	Count     bool                `toml:"count"`     // calls are counted, in place of a sum
	Limit     float64             `toml:"limit"`     // the most within per; a person decides about what is beyond
	Per       time.Duration       `toml:"per"`       // the window, which slides
}

// budgetNames are names of budgets. One may stand alone.
type budgetNames []string

// A Budget is one as keep.toml has it.
type Budget struct {
	budget.Rule

	b     *binder
	path  string
	tools []*node // of the names, as in Tools
}

// BudgetRules returns the budgets, sorted by name.
func (c *Config) BudgetRules() []budget.Rule {
	rules := make([]budget.Rule, len(c.Budgets))
	for i, b := range c.Budgets {
		rules[i] = b.Rule
	}
	return rules
}

// budgets checks the tables of budgets and returns what they mean, sorted by name.
//
// A budget that lacks a number is left out after its problem was said: budget.New would say more about
// what is not there. Whether its tools exist is known only when the connections are open; see
// unknownSpenders.
func (b *binder) budgets(tables map[string]budgetTable, root *node) []Budget {
	var out []Budget
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		t, n, at := tables[name], root.table()["budgets"].table()[name], dotted("budgets", name)
		switch keys := n.table(); {
		case keys["limit"] == nil:
			b.addf(n, at+".limit", "required: how much the calls may count within per, such as 2000")
			continue
		case keys["per"] == nil:
			b.addf(n, at+".per", `required: the window, which slides, such as "24h"`)
			continue
		case t.Count == (t.Sum != ""):
			b.addf(n, at, `say what is added up: sum = "params.amount", or count = true for the number of calls`)
			continue
		}
		r := budget.Rule{Name: name, Was: t.Was, Tools: t.Tools, Workflows: t.Workflows, Sum: t.Sum, Per: t.Per}
		var err error
		if r.Limit, err = budget.FromFloat(t.Limit); err != nil {
			b.addf(n.table()["limit"], at+".limit", "%v", err)
			continue
		}
		r, err = budget.New(r)
		if wrong, ok := errors.AsType[*budget.FieldError](err); ok {
			where, path := n.table()[wrong.Field], at+"."+wrong.Field
			if where == nil {
				where, path = n, at
			}
			b.addf(where, path, "%v", wrong.Err)
		}
		for _, w := range t.Workflows {
			if err := w.Validate(); err != nil {
				b.addf(n.table()["workflows"], at+".workflows", "%v", err)
			}
		}
		nodes, _ := n.table()["tools"].list()
		for i, tool := range t.Tools {
			conn, rest, ok := strings.Cut(tool, ".")
			if tool != "*" && (!ok || conn == "" || rest == "" || rest != "*" && strings.Contains(rest, "*") || strings.Contains(conn, "*")) {
				b.addf(nodes[i], at+".tools", "%q: want the name of a tool, such as bank.pay, bank.* for all of a connection, or * for all", tool)
			}
		}
		for _, was := range t.Was {
			if other := holder(tables, name, was); other != "" {
				b.addf(n.table()["was"], at+".was", "%q is a name of budgets.%s, too: what was spent under a name counts in one budget", was, other)
			}
		}
		out = append(out, Budget{r, b, at, nodes})
	}
	return out
}

// holder returns the budget beside name that has the name was today, or had it before; empty if none does.
func holder(tables map[string]budgetTable, name, was string) string {
	for _, other := range slices.Sorted(maps.Keys(tables)) {
		if other == was || other != name && slices.Contains(tables[other].Was, was) {
			return other
		}
	}
	return ""
}

// unknownSpenders returns the tools of budgets that no connection has, as unknownTools.
func (c *Config) unknownSpenders(conns []connector.Connection) (problems []Problem) {
	for _, r := range c.Budgets {
		for i, tool := range r.Tools {
			if tool == "*" {
				continue
			}
			if why := c.unknownTool(tool, conns); why != "" {
				problems = append(problems, r.b.problem(r.tools[i], r.path+".tools", "%s", why))
			}
		}
	}
	return problems
}
