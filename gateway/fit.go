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
	compiled, err := schema.CompileListed(text)
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

// keyed says why a call may not be made that brings the param of Keep's key; empty: it brings none. Its own key would be lost, and whoever
// gave it relies on it.
func keyed(p mcp.Pairing, args json.RawMessage) string {
	key := p.Key(args)
	var given map[string]json.RawMessage
	if _ = json.Unmarshal(args, &given); key == "" || given[key] == nil {
		return ""
	}
	return fmt.Sprintf("%s is Keep's, which makes a key of its own for each call: leave it out. An equal call is the same call until its answer was delivered; "+
		"one that is meant once more has a text of its own as _meta[%q]", key, metaIntent)
}

// without returns the entry of a list without a param in its schema.
func without(entry json.RawMessage, param string) json.RawMessage {
	var all, schema, properties map[string]json.RawMessage
	if param == "" || json.Unmarshal(entry, &all) != nil || json.Unmarshal(all["inputSchema"], &schema) != nil || json.Unmarshal(schema["properties"], &properties) != nil {
		return entry
	}
	delete(properties, param)
	schema["properties"], _ = json.Marshal(properties)
	var required []string
	if json.Unmarshal(schema["required"], &required) == nil {
		schema["required"], _ = json.Marshal(append([]string{}, slices.DeleteFunc(required, func(name string) bool { return name == param })...))
	}
	all["inputSchema"], _ = json.Marshal(schema)
	out, err := json.Marshal(all)
	if err != nil {
		return entry
	}
	return out
}
