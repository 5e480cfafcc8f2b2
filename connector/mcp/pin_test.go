package mcp_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mcp"
)

// Law bound-to-its-world: the variables of a server, and the headers of its requests, say which of its accounts or places a call is of. A
// secret in them is not kept, and who has none of them has the pin of before.
func TestPinOfVariablesAndHeaders(t *testing.T) {
	t.Parallel()
	pin := func(p mcp.Place) string {
		t.Helper()
		conn, err := mcp.New("desk", mcp.Config{Place: p, Secrets: []string{"s3cr"}, Tools: map[string]mcp.ToolConfig{
			"add": {Effect: connector.Mutate, Knowledge: mcp.Knowledge{Identity: []string{"x"}}}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return string(conn.Tools[0].(connector.Pinner).Pin())
	}
	const url = "http://127.0.0.1:1/mcp"
	env := func(e map[string]string) mcp.Place { return mcp.Place{Command: "desk", Env: e} }
	head := func(h map[string]string) mcp.Place { return mcp.Place{URL: url, Headers: h} }
	for _, c := range []struct {
		name string
		a, b mcp.Place
		same bool
	}{
		{"another variable", env(map[string]string{"TEAM": "a"}), env(map[string]string{"TEAM": "b"}), false},
		{"one more variable", env(nil), env(map[string]string{"TEAM": "b"}), false},
		{"another header", head(map[string]string{"X-Team": "a"}), head(map[string]string{"X-Team": "b"}), false},
		{"a header in another case", head(map[string]string{"X-Team": "a"}), head(map[string]string{"x-team": "a"}), true},
		{"a secret variable", env(nil), env(map[string]string{"KEY": "s3cr"}), true},
		{"a secret header", head(nil), head(map[string]string{"Authorization": "Bearer s3cr"}), true},
		{"any authorization", head(nil), head(map[string]string{"authorization": "Bearer of-somebody"}), true},
		{"an empty variable", env(map[string]string{"TEAM": ""}), env(nil), false},
	} {
		a, b := pin(c.a), pin(c.b)
		if (a == b) != c.same || strings.Contains(a+b, "s3cr") || strings.Contains(a+b, "of-somebody") {
			t.Errorf("%s: %s\nand %s", c.name, a, b)
		}
	}
}
