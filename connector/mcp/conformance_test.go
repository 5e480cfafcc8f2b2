package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/internal/twin"
	"github.com/keep-run/keep/testkit/connectortest"
)

// The test binary is two programs: the tests, and an MCP server on stdin and stdout.
func TestMain(m *testing.M) {
	if dir := os.Getenv("DESK_DIR"); dir != "" {
		serveDesk(dir)
		return
	}
	os.Exit(m.Run())
}

// tools are what scripts have of a desk: by a mark, by a key, and with nothing to know by.
func tools() map[string]mcp.ToolConfig {
	text := map[string]any{"type": "string", "minLength": 1}
	params := map[string]any{"type": "object", "required": []any{"title"}, "additionalProperties": false,
		"properties": map[string]any{"title": text, "body": map[string]any{"type": "string"}}}
	reconcile := &mcp.LookupConfig{Tool: "list", Found: "$.notes", Complete: true}
	return map[string]mcp.ToolConfig{
		"create": {Effect: connector.Mutate, Params: params, Knowledge: mcp.Knowledge{
			Identity: []string{"title"}, Token: mcp.TokenConfig{Param: "body", Append: "\nkeep:{token}"}, Reconcile: reconcile}},
		"keyed": {Effect: connector.Mutate, Params: params, Knowledge: mcp.Knowledge{
			Identity: []string{"title"}, Token: mcp.TokenConfig{Param: "key"}, Deduplicates: true}},
		"plain": {Effect: connector.Mutate, Params: params, Tool: "create"},
		"list":  {Effect: connector.List},
	}
}

// refused are params that no tool takes.
var refused = []json.RawMessage{json.RawMessage(`[]`), json.RawMessage(`"x"`), json.RawMessage(`null`)}

func params(n int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"title":"t%d","body":"b"}`, n))
}

// TestHTTPServer makes calls of a real server, built with the official SDK, over a wire that is cut
// at any byte. Laws: once, witnessed.
func TestHTTPServer(t *testing.T) {
	for _, tool := range []string{"create", "keyed", "plain"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			connectortest.Run(t, func(tb testing.TB) *connectortest.Bench { return httpBench(tb, tool) })
		})
	}
}

func httpBench(tb testing.TB, tool string) *connectortest.Bench {
	service, err := twin.Start(deskTwin())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(service.Close)
	proxy, err := connectortest.NewProxy(service.Addr())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(proxy.Close)
	conn, err := mcp.New("desk", mcp.Config{Tools: tools(), Secrets: []string{service.Secret},
		Place: mcp.Place{URL: "http://" + proxy.Addr() + "/mcp", Headers: map[string]string{"Authorization": "Bearer " + service.Secret}}})
	if err != nil {
		tb.Fatal(err)
	}
	return &connectortest.Bench{
		Connection: conn, Tool: tool, Params: params, Refused: refused, Secrets: []string{service.Secret},
		Effects:  func(n int) int { return service.Effects(fmt.Sprintf("t%d", n)) },
		Troubles: connectortest.MCPTroubles(proxy, service), Settle: service.Settle,
	}
}

// deskTwin is the desk by HTTP.
func deskTwin() twin.Service {
	var notes []any
	keys := map[any]any{}
	schema := func(extra string) json.RawMessage {
		return json.RawMessage(`{"type":"object","required":["title"],"properties":{"title":{"type":"string"},"body":{"type":"string"}` + extra + `}}`)
	}
	create := func(args map[string]any) (any, error) {
		note := map[string]any{"id": len(notes) + 1}
		maps.Copy(note, args)
		notes = append(notes, note)
		return note, nil
	}
	return twin.NewMCP(
		twin.MCPTool{Name: "create", Schema: schema(""), Effect: "title", Do: create},
		twin.MCPTool{Name: "keyed", Schema: schema(`,"key":{"type":"string"}`), Effect: "title", Do: func(args map[string]any) (any, error) {
			if known := keys[args["key"]]; known != nil {
				return twin.Known{Result: known}, nil
			}
			note, err := create(args)
			keys[args["key"]] = note
			return note, err
		}},
		twin.MCPTool{Name: "list", Schema: json.RawMessage(`{"type":"object"}`), Do: func(map[string]any) (any, error) {
			return map[string]any{"notes": append([]any{}, notes...)}, nil
		}},
	)
}

// TestStdioServer makes calls of a real server that is a child, and dies, hangs and lies.
func TestStdioServer(t *testing.T) {
	for _, tool := range []string{"create", "plain"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			connectortest.Run(t, func(tb testing.TB) *connectortest.Bench { return stdioBench(tb, tool) })
		})
	}
}

func stdioBench(tb testing.TB, tool string) *connectortest.Bench {
	dir := tb.TempDir()
	conn, err := mcp.New("desk", mcp.Config{Tools: tools(), Place: mcp.Place{Command: os.Args[0], Env: map[string]string{"DESK_DIR": dir}}})
	if err != nil {
		tb.Fatal(err)
	}
	arm := func(fault string) func() {
		return func() { write(tb, filepath.Join(dir, "fault"), fault) }
	}
	b := &connectortest.Bench{
		Connection: conn, Tool: tool, Params: params, Refused: refused,
		Effects: func(n int) int {
			text, _ := os.ReadFile(filepath.Join(dir, "notes"))
			return strings.Count(string(text), fmt.Sprintf(`"title":"t%d"`, n))
		},
	}
	for fault, want := range map[string]keep.Class{
		"die before the effect": keep.ClassUnknown, "die after the effect": keep.ClassUnknown, "refuse": keep.ClassUnknown,
		"refuse after the effect": keep.ClassUnknown, "garbage after the effect": keep.ClassUnknown, "hang after the effect": keep.ClassUnknown,
		"bad params after the effect": keep.ClassUnknown, "bad output after the effect": keep.ClassUnknown, "unknown method after the effect": keep.ClassUnknown,
		"bad input": keep.ClassLogic, "gone": keep.ClassLogic,
	} {
		b.Troubles = append(b.Troubles, connectortest.Trouble{Name: fault, Want: want, Arm: arm(fault), Stalls: strings.HasPrefix(fault, "hang")})
	}
	return b
}

func write(tb testing.TB, file, text string) {
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Error(err)
	}
}

// serveDesk is a server on stdin and stdout, whose notes are lines of a file.
func serveDesk(dir string) {
	type note struct {
		Title string `json:"title"`
		Body  string `json:"body,omitempty"`
	}
	file := filepath.Join(dir, "notes")
	server := sdk.NewServer(&sdk.Implementation{Name: "desk", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "create"}, func(ctx context.Context, _ *sdk.CallToolRequest, n note) (*sdk.CallToolResult, any, error) {
		fault, _ := os.ReadFile(filepath.Join(dir, "fault"))
		_ = os.Remove(filepath.Join(dir, "fault"))
		kind, after := strings.CutSuffix(string(fault), " after the effect")
		if after || kind == "" {
			line, _ := json.Marshal(n)
			f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				return nil, nil, err
			}
			_, err = f.Write(append(line, '\n'))
			if f.Close(); err != nil {
				return nil, nil, err
			}
		}
		switch kind {
		case "die", "die before the effect":
			os.Exit(3)
		case "refuse":
			return nil, nil, fmt.Errorf("upstream timed out")
		case "bad params":
			return nil, nil, &jsonrpc.Error{Code: -32602, Message: "no"}
		case "bad output": // as the TypeScript SDK says it
			return nil, nil, &jsonrpc.Error{Code: -32602, Message: "MCP error -32602: Invalid structured content for tool create: [...]"}
		case "unknown method":
			return nil, nil, &jsonrpc.Error{Code: -32601, Message: "Method not found"}
		case "bad input":
			return nil, nil, &jsonrpc.Error{Code: -32602, Message: "MCP error -32602: Invalid arguments for tool create: [...]"}
		case "gone":
			return nil, nil, &jsonrpc.Error{Code: -32602, Message: "Tool create not found"}
		case "garbage":
			fmt.Println("<html>")
			os.Exit(0)
		case "hang":
			<-ctx.Done()
		}
		return nil, n, nil
	})
	sdk.AddTool(server, &sdk.Tool{Name: "list"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, map[string]any, error) {
		text, _ := os.ReadFile(file)
		notes := []note{}
		for line := range strings.Lines(string(text)) {
			var n note
			if json.Unmarshal([]byte(line), &n) == nil {
				notes = append(notes, n)
			}
		}
		return nil, map[string]any{"notes": notes}, nil
	})
	_ = server.Run(context.Background(), &sdk.StdioTransport{})
}

// TestReads checks what a script gets, and of which class a failure is.
func TestReads(t *testing.T) {
	t.Parallel()
	var answer any
	service, err := twin.Start(twin.NewMCP(twin.MCPTool{Name: "read", Schema: json.RawMessage(`{"type":"object"}`), Do: func(map[string]any) (any, error) {
		if err, bad := answer.(error); bad {
			return nil, err
		}
		return answer, nil
	}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	conn, err := mcp.New("desk", mcp.Config{Tools: map[string]mcp.ToolConfig{"read": {Effect: connector.Get}, "gone": {Effect: connector.Get}},
		Place: mcp.Place{URL: "http://" + service.Addr(), Headers: map[string]string{"Authorization": "Bearer " + service.Secret}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	read := func(name, params string) (string, error) {
		for _, tool := range conn.Tools {
			if tool.Spec().Name == name {
				got, err := tool.(connector.Reader).Read(t.Context(), json.RawMessage(params))
				return string(got), err
			}
		}
		t.Fatalf("there is no %s", name)
		return "", nil
	}
	for _, c := range []struct {
		answer any
		want   string
	}{
		{map[string]any{"a": 1}, `{"a":1}`}, {`{"a":1}`, `{"a":1}`}, {"plain", `"plain"`}, {"[1,2]", `[1,2]`}, {"", `""`},
		{"it has " + service.Secret, `"it has [hidden]"`},
	} {
		answer = c.answer
		if got, err := read("read", `{}`); got != c.want || err != nil {
			t.Errorf("of %v a script gets %s, %v; want %s", c.answer, got, err, c.want)
		}
	}
	answer = fmt.Errorf("no such file")
	for name, want := range map[string]keep.Class{"read": keep.ClassPrecondition, "gone": keep.ClassLogic} {
		_, err := read(name, `{}`)
		if f, ok := err.(*keep.Failure); !ok || f.Class != want || f.Tool != keep.ToolName("desk."+name) {
			t.Errorf("%s: %v, want class %s", name, err, want)
		}
	}
	service.Close()
	if _, err := read("read", `{}`); err.(*keep.Failure).Class != keep.ClassTransient {
		t.Errorf("of a server that is gone: %v", err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := mcp.New("desk", mcp.Config{Place: mcp.Place{URL: "ftp://x", Command: "also"}, Tools: map[string]mcp.ToolConfig{
		"a-b": {Effect: connector.Get}, "nothing": {}, "blind": {Effect: connector.Mutate},
		"read":   {Effect: connector.List, Knowledge: mcp.Knowledge{Unique: true}},
		"lookup": {Effect: connector.Mutate, Knowledge: mcp.Knowledge{Identity: []string{"x"}, Reconcile: &mcp.LookupConfig{Tool: "list"}}},
	}})
	var lines []string
	for line := range strings.Lines(fmt.Sprint(err)) {
		place, _, _ := strings.Cut(line, ": ")
		lines = append(lines, place)
	}
	want := "connections.desk connections.desk.tools.a-b connections.desk.tools.blind.identity connections.desk.tools.lookup connections.desk.tools.nothing.effect connections.desk.tools.read"
	if got := strings.Join(lines, " "); got != want {
		t.Errorf("problems at %s\nwant        %s", got, want)
	}
}

// TestLookupAsksForTheWholeIdentity refuses lookups that take what another call made for the effect of this one.
func TestLookupAsksForTheWholeIdentity(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		match   []string
		args    map[string]any
		token   mcp.TokenConfig
		missing string
	}{
		{match: []string{"customer"}, missing: "invoice"},
		{match: []string{"state"}, args: map[string]any{"of": "{customer}"}, missing: "invoice"},
		{match: []string{"invoice"}, args: map[string]any{"of": "id {customer}"}},
		{match: []string{"invoice"}, args: map[string]any{"filter": []any{map[string]any{"of": "id {customer}"}}}},
		{match: []string{"invoice"}, args: map[string]any{"filter": map[string]any{"{customer}": true}}, missing: "customer"},
		{match: []string{"customer", "invoice"}},
		{match: []string{"customer"}, args: map[string]any{"of": "{token}"}, token: mcp.TokenConfig{Param: "ref"}},
		{token: mcp.TokenConfig{Param: "ref"}},
	} {
		_, err := mcp.New("desk", mcp.Config{Place: mcp.Place{URL: "http://127.0.0.1:1"}, Tools: map[string]mcp.ToolConfig{
			"pay": {Effect: connector.Mutate, Knowledge: mcp.Knowledge{Identity: []string{"customer", "invoice"}, Token: c.token,
				Reconcile: &mcp.LookupConfig{Tool: "list", Match: c.match, Args: c.args}}}}})
		if want := "asks for nothing of " + c.missing + ", which is in identity"; c.missing == "" && err != nil || c.missing != "" && !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("match %v, args %v: %v, want one for %q", c.match, c.args, err, c.missing)
		}
	}
}
