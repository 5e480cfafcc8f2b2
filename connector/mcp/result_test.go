package mcp_test

import (
	"encoding/json"
	"testing"

	"github.com/keep-run/keep/connector/mcp"
)

// Of a record of an earlier version, which kept what a server said as Keep's word, only what Keep wrote is the result.
func TestUnwrap(t *testing.T) {
	t.Parallel()
	for record, want := range map[string]string{
		`{"keep/raw":"{\"content\":[],\"n\":1e400}"}`: `{"content":[],"n":1e400}`,
		`{"content":[],"keep/raw":"no JSON"}`:         `{"content":[]}`,
		`{"content":[],"keep/raw":"{}"}`:              `{"content":[]}`,
		`{"keep/raw":"no JSON"}`:                      `{"content":[{"text":"{\"keep/raw\":\"no JSON\"}","type":"text"}],"structuredContent":{"keep/raw":"no JSON"}}`,
		`{"content":[]}`:                              `{"content":[]}`,
		`{"id":1}`:                                    `{"content":[{"text":"{\"id\":1}","type":"text"}],"structuredContent":{"id":1}}`,
	} {
		if got := mcp.Unwrap(json.RawMessage(record)); string(got) != want {
			t.Errorf("%s: %s, want %s", record, got, want)
		}
	}
}
