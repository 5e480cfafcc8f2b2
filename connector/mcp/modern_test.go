package mcp

import (
	"encoding/json"
	"testing"
)

// A schema may have true, or what is none, for a param: the other params are repeated in headers all the same.
func TestMirroredOfOddSchemas(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]int{
		`{"inputSchema":{"properties":{"region":{"type":"string","x-mcp-header":"Region"},"more":true}}}`:                 1,
		`{"inputSchema":{"properties":{"a":{"properties":{"b":{"x-mcp-header":"B"},"c":false}},"d":{"properties":[1]}}}}`: 1,
		`{"inputSchema":{"properties":{"region":{"x-mcp-header":"Region"}},"x-mcp-header":"None"},"name":5}`:              1,
		`{"inputSchema":true}`: 0, `{"inputSchema":{"properties":[]}}`: 0, `{"inputSchema":{"properties":{"a":{"x-mcp-header":5}}}}`: 0,
	} {
		if got := MirroredOf(json.RawMessage(entry)); len(got) != want {
			t.Errorf("%s: %v, want %d", entry, got, want)
		}
	}
}
