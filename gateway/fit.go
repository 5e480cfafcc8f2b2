package gateway

import (
	"encoding/json"
	"slices"

	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/internal/schema"
)

// misfit returns where and why a call with these arguments is certainly none that a tool takes, by the schema that its
// server lists; empty: it is not known to be. The token, which the call carries besides, is not among them yet.
func misfit(t mcp.ToolInfo, token string, args json.RawMessage) string {
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
