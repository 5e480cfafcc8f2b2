package plan

import (
	"encoding/json"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/grant"
)

// Granted is what a workflow may call, when a plan is made.
type Granted struct {
	Tools []keep.GrantedTool // of the grant that holds
	Whole bool               // keep.toml has it: a script that calls more gets nothing more
	Ever  []keep.GrantedTool // what it was given once; the next run of the script gives what was never given
}

// rules returns what the grant allows. A condition that cannot be used counts as not met.
func (g Granted) rules() *grant.Rules {
	rules, _ := grant.Compile(g.Tools)
	return rules
}

// check returns whether the workflow may make a call, and why a person is asked about it;
// empty: nobody is.
func (g Granted) check(m keep.Mutation, before []keep.ToolName) (Grant, string) {
	v := g.rules().Check(m.Tool, paramsOf(m), before...)
	asks := ""
	if v.Ask {
		asks = v.Why
	}
	has := func(list []keep.GrantedTool, names ...keep.ToolName) bool {
		return slices.ContainsFunc(list, func(t keep.GrantedTool) bool { return slices.ContainsFunc(names, t.Matches) })
	}
	switch taken := has(g.Ever, m.Tool) || has(g.Ever, before...) && !has(g.Tools, before...); {
	case v.Allowed:
		return Grant{Allowed: true}, asks
	case !g.Whole && !has(g.Tools, m.Tool) && !taken:
		reason := "it is not granted yet; keep run, or your own deploy of this script, gives it"
		return Grant{Allowed: true, Reason: &reason}, ""
	}
	return Grant{Reason: &v.Why}, asks
}

// paramsOf returns what the script passed.
func paramsOf(m keep.Mutation) json.RawMessage {
	var params map[string]json.RawMessage
	if m.Subkey == "" || json.Unmarshal(m.Payload, &params) != nil || params == nil {
		return m.Payload
	}
	params["subkey"], _ = json.Marshal(m.Subkey) // a text
	out, err := json.Marshal(params)
	if err != nil {
		return m.Payload
	}
	return out
}
