package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/grant"
)

// A grantTable is a [grants.NAME] as it is written.
type grantTable struct {
	Workflow string            `toml:"workflow"` // that the grant is for; empty: the name of the table
	Tools    []string          `toml:"tools"`    // that it may call: bank.pay, or mail.* for all of a connection
	When     map[string]string `toml:"when"`     // by tool, a condition on params: without it a call is refused
	Approve  map[string]string `toml:"approve"`  // by tool, when a person must agree: "always", or a condition on params
}

// A Grant is all that a workflow may do, as keep.toml says it.
type Grant struct {
	Workflow keep.WorkflowName
	Tools    []keep.GrantedTool // not nil

	b     *binder
	at    *node
	path  string
	tools []*node // of the names, as in Tools
}

// GrantOf returns the grant that keep.toml has for a workflow.
func (c *Config) GrantOf(w keep.WorkflowName) (Grant, bool) {
	for _, g := range c.Grants {
		if g.Workflow == w {
			return g, true
		}
	}
	return Grant{}, false
}

// grants checks the tables of grants and returns what they mean, sorted by workflow.
//
// A list of tools is required, also if it is empty: then it says that the workflow may call nothing. A
// condition on a tool that the list covers by "bank.*" becomes an entry of its own; one on a tool that it
// does not cover is refused, because it would seem to grant it.
func (b *binder) grants(tables map[string]grantTable, root *node) []Grant {
	var out []Grant
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		t, n, at := tables[name], root.table()["grants"].table()[name], dotted("grants", name)
		g := Grant{Workflow: keep.WorkflowName(t.Workflow), Tools: []keep.GrantedTool{}, b: b, at: n, path: at}
		if t.Workflow == "" {
			g.Workflow = keep.WorkflowName(name)
		}
		if err := g.Workflow.Validate(); err != nil {
			b.addf(n, at, "%v", err)
		}
		if slices.ContainsFunc(out, func(o Grant) bool { return o.Workflow == g.Workflow }) {
			b.addf(n, at, "workflow %q has two grants; put them into one", g.Workflow)
		}
		list := n.table()["tools"]
		if list == nil {
			b.addf(n, at+".tools", `required: the tools that the workflow may call, such as ["bank.pay", "mail.*"]`)
		}
		nodes, _ := list.list()
		for i, tool := range t.Tools {
			g.Tools = append(g.Tools, keep.GrantedTool{Tool: tool, When: t.When[tool], Approve: t.Approve[tool]})
			if i < len(nodes) {
				g.tools = append(g.tools, nodes[i])
			}
		}
		for _, key := range conditioned(t) {
			if slices.Contains(t.Tools, key) {
				continue
			}
			g.Tools = append(g.Tools, keep.GrantedTool{Tool: key, When: t.When[key], Approve: t.Approve[key]})
			if !(keep.Grant{Tools: named(t.Tools)}).Covers(keep.ToolName(key)) {
				for _, table := range []string{"when", "approve"} {
					if c := n.table()[table].table()[key]; c != nil {
						b.addf(c, at+"."+table+"."+key, "the grant does not name %s in tools", key)
					}
				}
			}
		}
		b.conditions(g, n, at)
		out = append(out, g)
	}
	return out
}

// list returns the elements of a list, and whether n is one.
func (n *node) list() ([]*node, bool) {
	if n == nil {
		return nil, false
	}
	l, ok := n.value.([]*node)
	return l, ok
}

// conditioned returns the tools that have a condition, sorted.
func conditioned(t grantTable) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(t.When)), maps.Keys(t.Approve))
	slices.Sort(keys)
	return slices.Compact(keys)
}

// named returns tools without conditions, to ask only which names they cover.
func named(tools []string) (list []keep.GrantedTool) {
	for _, t := range tools {
		list = append(list, keep.GrantedTool{Tool: t})
	}
	return list
}

// conditions reports those that cannot be used, and names that are none.
func (b *binder) conditions(g Grant, n *node, at string) {
	_, err := grant.Compile(g.Tools)
	for _, e := range eachOf(err) {
		if c, ok := errors.AsType[*grant.ConditionError](e); ok {
			b.addf(n.table()[c.Key].table()[c.Tool], at+"."+c.Key+"."+c.Tool, "%q: %v", c.Text, c.Err)
		}
	}
	for i, t := range g.Tools {
		conn, name, ok := strings.Cut(t.Tool, ".")
		if i < len(g.tools) && (!ok || conn == "" || name == "" || name != "*" && strings.Contains(name, "*") || strings.Contains(conn, "*")) {
			b.addf(g.tools[i], at+".tools", "%q: want the name of a tool, such as bank.pay, or bank.* for all of a connection", t.Tool)
		}
	}
}

// eachOf returns the errors that errors.Join put together.
func eachOf(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// unknownTools returns the tools of grants that no connection has.
func (c *Config) unknownTools(conns []connector.Connection) (problems []Problem) {
	for _, g := range c.Grants {
		for i, t := range g.Tools {
			where := g.at
			if i < len(g.tools) {
				where = g.tools[i]
			}
			if why := c.unknownTool(t.Tool, conns); why != "" {
				problems = append(problems, g.b.problem(where, g.path+".tools", "%s", why))
			}
		}
	}
	return problems
}

// Ungrantable returns why a tool, or its approve, cannot be in a grant; empty: it can.
func (c *Config) Ungrantable(t keep.GrantedTool, conns []connector.Connection) string {
	if why := c.unknownTool(t.Tool, conns); why != "" || t.Approve == "" {
		return why
	}
	conn, name, _ := strings.Cut(t.Tool, ".")
	i := slices.IndexFunc(conns, func(k connector.Connection) bool { return k.Name == conn })
	if i < 0 || name == "*" {
		return ""
	}
	of := connector.Connection{Name: conn, Tools: conns[i].Tools, Approve: map[string]string{name: t.Approve}}
	if err := connector.CheckApprove(of, name); err != nil {
		return fmt.Sprintf("%s: approve: %v", t.Tool, err)
	}
	return ""
}

// unknownTool returns why no connection has a tool, or none of "bank.*"; empty: one has. A
// connection that could not be read or opened is passed over: that is reported already.
func (c *Config) unknownTool(tool string, conns []connector.Connection) string {
	conn, _, _ := strings.Cut(tool, ".")
	opened := slices.ContainsFunc(conns, func(k connector.Connection) bool { return k.Name == conn })
	if !opened && (slices.Contains(c.declared, conn) || c.hasServer(conn)) {
		return ""
	}
	return connector.Lacks(conns, tool)
}
