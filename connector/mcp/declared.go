package mcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Misfits returns where what is declared is not what a server lists, sorted: tools and params that
// it does not have. What it lists beside is no misfit.
func Misfits(listed []ToolInfo, declared map[string]ToolConfig) []string {
	schemas := make(map[string]inputSchema, len(listed))
	for _, t := range listed {
		var entry struct {
			InputSchema inputSchema `json:"inputSchema"`
		}
		_ = json.Unmarshal(t.Raw, &entry) // without a schema nothing can be compared
		schemas[t.Name] = entry.InputSchema
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		d := declared[name]
		tool := name
		if d.Tool != "" {
			tool = d.Tool
		}
		schema, known := schemas[tool]
		if !known {
			out = append(out, fmt.Sprintf("%s: the server has no tool %s", name, tool))
			continue
		}
		params := slices.Concat(d.Identity, properties(d.Params))
		if d.Token.Param != "" {
			params = append(params, d.Token.Param)
		}
		out = append(out, schema.lacks(name, tool, params)...)
		if required, _ := d.Params["required"].([]any); len(d.Params) > 0 {
			for _, p := range schema.Required {
				if !slices.Contains(required, any(p)) && p != d.Token.Param {
					out = append(out, fmt.Sprintf("%s: %s needs the param %s, which the declared params do not require", name, tool, p))
				}
			}
		}
		if d.Reconcile == nil {
			continue
		}
		lookup, known := schemas[d.Reconcile.Tool]
		if !known {
			out = append(out, fmt.Sprintf("%s: the server has no tool %s, by which it is asked", name, d.Reconcile.Tool))
			continue
		}
		out = append(out, lookup.lacks(name, d.Reconcile.Tool, slices.Sorted(maps.Keys(d.Reconcile.Args)))...)
	}
	return out
}

// An inputSchema is what is compared of the schema of a tool's arguments.
type inputSchema struct {
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
}

// lacks returns which of the params the schema does not have. One without properties says nothing.
func (s inputSchema) lacks(name, tool string, params []string) (out []string) {
	slices.Sort(params)
	for _, p := range slices.Compact(params) {
		if _, known := s.Properties[p]; !known && len(s.Properties) > 0 {
			out = append(out, fmt.Sprintf("%s: %s has no param %s", name, tool, p))
		}
	}
	return out
}
