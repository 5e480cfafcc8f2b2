package gateway

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/internal/schema"
)

// misfit returns where and why a call with these arguments is certainly none that a tool takes, by the schema that its
// server lists; empty: it is not known to be. The token, which the call carries besides, may be among them, and is not compared: but the tool
// must have its param.
func misfit(t mcp.ToolInfo, p mcp.Pairing, args json.RawMessage) string {
	token := p.TokenParam
	var all map[string]any
	if len(args) == 0 || json.Unmarshal(t.InputOf(), &all) != nil || all == nil {
		return ""
	}
	v, err := schema.Value(args)
	given, ok := v.(map[string]any)
	if err != nil || !ok {
		return ""
	}
	if token != "" {
		if len(p.When) == 0 && !takes(all, token) {
			return fmt.Sprintf("the tool has no param %s, in which they are to have Keep's token", token)
		}
		delete(given, token)
		if properties, ok := all["properties"].(map[string]any); ok {
			delete(properties, token)
		}
		if required, ok := all["required"].([]any); ok {
			all["required"] = slices.DeleteFunc(required, func(name any) bool { return name == token })
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return ""
	}
	compiled, err := schema.Compile(text)
	if err != nil {
		return "" // it says nothing that can be compared
	}
	return schema.Misfit(compiled, v)
}

// takes reports whether a schema may take a param. One that names none says nothing.
func takes(schema map[string]any, param string) bool {
	properties, _ := schema["properties"].(map[string]any)
	_, known := properties[param]
	more, says := schema["additionalProperties"]
	return known || len(properties) == 0 || says && more != false
}
