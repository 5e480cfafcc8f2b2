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
	for _, name := range slices.Sorted(maps.Keys(c.approve.when)) {
		err := connector.CheckApprove(opened, name)
		if err == nil {
			_, err = grant.CompileApprovals([]string{c.approve.when[name]})
		}
		if err != nil {
			problems = append(problems, c.b.problem(c.approve.at[name], at+".approve."+name, "%v", err))
		}
	}
	return problems
}
