package config

import (
	"maps"
	"reflect"
	"slices"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/grant"
)

// An approveTable says by tool when a person must agree, and where that is said.
type approveTable struct {
	when map[string]string
	at   map[string]*node
}

// approvedTools is what a table of a connection says of approvals.
type approvedTools struct {
	// Approve says by tool when a person must agree before a call: "always", or a condition
	// on params, such as "params.amount > 500".
	Approve map[string]string `toml:"approve"`
}

// approvals takes out of a table of a connection what it says of approvals: every kind of connection may.
func (b *binder) approvals(n *node, at string) approveTable {
	said := n.table()["approve"]
	if said == nil {
		return approveTable{}
	}
	delete(n.table(), "approve")
	var t approvedTools
	b.bind(reflect.ValueOf(&t).Elem(), &node{at: n.at, value: map[string]*node{"approve": said}}, at)
	return approveTable{t.Approve, said.table()}
}

// approvalProblems returns what is wrong with what a connection and its tools say of approvals.
//
// It needs the open connection: only that knows which tools there are, and which of them change something.
func (c Connection) approvalProblems(opened connector.Connection) (problems []Problem) {
	at := dotted("connections", c.Name)
	specs := map[string]connector.Spec{}
	for _, t := range opened.Tools {
		spec := t.Spec()
		specs[spec.Name] = spec
	}
	for _, name := range slices.Sorted(maps.Keys(c.approve.when)) {
		text, path := c.approve.when[name], at+".approve."+name
		add := func(format string, args ...any) {
			problems = append(problems, c.b.problem(c.approve.at[name], path, format, args...))
		}
		spec, known := specs[name]
		_, err := grant.CompileApprovals([]string{text})
		switch {
		case !known:
			add("the connection %q has no such tool", c.Name)
		case spec.Effect != connector.Mutate:
			add("%s reads, and nobody is asked about that", name)
		case text == "":
			add(`is empty; write "always", or a condition such as "params.amount > 500"`)
		case err != nil:
			add("%v", err)
		}
	}
	return problems
}
