package twin

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/keep-run/keep/internal/schema"
)

// MCP is a server of the Model Context Protocol by streamable HTTP: the official SDK, with tools
// that do what the server whose schemas they have says.
type MCP struct {
	tools   map[string]MCPTool
	handler http.Handler
	same    bool // the call under way changed nothing
}

// An MCPTool is a tool. Its calls come one at a time.
type MCPTool struct {
	Name   string
	Schema json.RawMessage // of its arguments, as the server publishes it
	Effect string          // the argument whose first line names its effect; empty: it reads

	// Do performs a call, and returns its structured content, or a text, or a Known. An error is
	// a result with isError, after which nothing has changed.
	Do func(args map[string]any) (any, error)
}

// Known is the result of a call that the server knows again: it changes nothing.
type Known struct{ Result any }

// NewMCP returns a server with these tools.
func NewMCP(tools ...MCPTool) *MCP {
	m := &MCP{tools: make(map[string]MCPTool)}
	server := mcp.NewServer(&mcp.Implementation{Name: "twin", Version: "1"}, nil)
	for _, t := range tools {
		m.tools[t.Name] = t
		fits := mustCompile(t.Schema)
		server.AddTool(&mcp.Tool{Name: t.Name, InputSchema: t.Schema}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return m.call(t, fits, r.Params.Arguments)
		})
	}
	m.handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	return m
}

// mustCompile returns a schema of this package's tests.
func mustCompile(raw json.RawMessage) *jsonschema.Schema {
	s, err := schema.Compile(raw)
	if err != nil {
		panic(err)
	}
	return s
}

// call performs a call whose arguments fit.
func (m *MCP) call(t MCPTool, fits *jsonschema.Schema, raw json.RawMessage) (*mcp.CallToolResult, error) {
	refuse := func(err error) (*mcp.CallToolResult, error) {
		m.same = true
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}}, nil
	}
	doc, err := schema.Value(raw)
	if err == nil {
		err = fits.Validate(doc)
	}
	if err != nil {
		return refuse(err)
	}
	var args map[string]any
	if err := json.Unmarshal(raw, &args); err != nil {
		return refuse(err)
	}
	out, err := t.Do(args)
	if err != nil {
		return refuse(err)
	}
	if k, ok := out.(Known); ok {
		out, m.same = k.Result, true
	}
	if text, ok := out.(string); ok {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	}
	return &mcp.CallToolResult{StructuredContent: out, Content: []mcp.Content{}}, nil
}

// Change performs a request.
func (m *MCP) Change(r *http.Request, body []byte) (string, func() Reply) {
	var frame struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name      string
			Arguments map[string]any
		}
	}
	name := ""
	switch err := json.Unmarshal(body, &frame); {
	case err == nil && frame.Method == "subscriptions/listen": // a stream would hold up all others
		return "", func() Reply {
			return Reply{Status: http.StatusNotFound, Body: map[string]any{"jsonrpc": "2.0", "id": frame.ID, "error": map[string]any{"code": -32601, "message": "there are no subscriptions"}}}
		}
	case err == nil && frame.Method == "tools/call":
		name, _ = frame.Params.Arguments[m.tools[frame.Params.Name].Effect].(string)
		name, _, _ = strings.Cut(name, "\n") // what is appended is a mark
	}
	header := r.Header.Clone()
	return name, func() Reply {
		m.same = false
		req := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/", bytes.NewReader(body))
		req.Header = header
		w := httptest.NewRecorder()
		m.handler.ServeHTTP(w, req)
		reply := Reply{Status: w.Code, Header: http.Header{"Content-Type": w.Header()["Content-Type"]}, Same: m.same}
		if w.Body.Len() > 0 && json.Valid(w.Body.Bytes()) {
			reply.Body = json.RawMessage(w.Body.Bytes())
		}
		return reply
	}
}

// Read answers a GET: there are no streams.
func (*MCP) Read(*http.Request) Reply { return Reply{Status: http.StatusMethodNotAllowed} }
