package mcp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mcp"
)

// A said request is what a server was sent.
type said struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
}

// serve starts a server by HTTP that answers a method as it should, unless lie answers it.
func serve(t *testing.T, lie func(w http.ResponseWriter, r said) bool) (url string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m said
		_ = json.NewDecoder(r.Body).Decode(&m)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case lie(w, m):
		case m.Method == "initialize":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}`, m.ID)
		case m.Method == "server/discover":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}`, m.ID)
		case m.Method == "tools/list":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}`, m.ID)
		default:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{}}}`, m.ID)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// errorsOf returns the errors of all methods of a server that send something.
func errorsOf(t *testing.T, s *mcp.Server) map[string]error {
	t.Helper()
	all := make(map[string]error)
	_, all["Info"] = s.Info(t.Context())
	_, all["Connection"] = s.Connection(t.Context())
	ans, err := s.Call(t.Context(), "tools/call", json.RawMessage(`{"name":"x"}`))
	if all["Call"] = err; err == nil && ans.Error != nil {
		all["Call"] = fmt.Errorf("%w %s", ans.Error, ans.Error.Data)
	}
	_, all["Tools"] = s.Tools(t.Context())
	all["List"] = s.List(t.Context(), "prompts/list", "content", func(json.RawMessage) error { return nil })
	return all
}

// TestErrorsHideSecrets checks that the errors of a server show neither its URL nor a secret that it quotes,
// and that they are what they were.
func TestErrorsHideSecrets(t *testing.T) {
	t.Parallel()
	const secret, all = "s3cr3t-canary-0123456789", "Info Connection Call Tools List"
	quoting := func(method string) string {
		return serve(t, func(w http.ResponseWriter, r said) bool {
			if r.Method == method {
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no key %s","data":[%q]}}`, r.ID, secret, secret)
			}
			return r.Method == method
		})
	}
	for name, c := range map[string]struct {
		url     string
		secrets []string
		fail    string // which methods do
	}{
		"nobody there":        {"http://127.0.0.1:1/mcp?key=" + secret, nil, all},
		"no address":          {"http://127.0.0.1:1x/mcp?key=" + secret, nil, all},
		"a secret port":       {"http://127.0.0.1:" + secret, []string{secret}, all},
		"a handshake refused": {quoting("initialize"), []string{secret}, all},
		"a call refused":      {quoting("tools/call"), []string{secret}, "Call"},
		"a list refused":      {quoting("tools/list"), []string{secret}, "Tools"},
	} {
		s := mcp.NewServer(mcp.ServerConfig{Name: "desk", URL: c.url, Secrets: c.secrets})
		for method, err := range errorsOf(t, s) {
			if (err != nil) != strings.Contains(c.fail, method) {
				t.Errorf("%s: %s: %v", name, method, err)
			}
			if err != nil && (strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "key=")) {
				t.Errorf("%s: %s shows the secret: %v", name, method, err)
			}
			if _, unsent := errors.AsType[*mcp.UnsentError](err); method == "Call" && unsent != (c.fail == all) {
				t.Errorf("%s: unsent is %t: %v", name, unsent, err)
			}
			if _, known := errors.AsType[*net.OpError](err); name == "nobody there" && !known {
				t.Errorf("%s: %s does not say why: %v", name, method, err)
			}
		}
		s.Close()
	}
}

// TestLookupAsksByTheHost checks that {token} and {sent_at} of a lookup are the host's, also where a call has params of
// these names: else the caller decides which rows show its call.
func TestLookupAsksByTheHost(t *testing.T) {
	t.Parallel()
	var asked json.RawMessage
	url := serve(t, func(_ http.ResponseWriter, r said) bool {
		if r.Method == "tools/call" {
			asked = r.Params
		}
		return false
	})
	conn, err := mcp.New("desk", mcp.Config{Place: mcp.Place{URL: url}, Tools: map[string]mcp.ToolConfig{
		"create": {Effect: connector.Mutate, Knowledge: mcp.Knowledge{
			Identity: []string{"title"}, Token: mcp.TokenConfig{Param: "title", Append: " {token}"},
			Reconcile: &mcp.LookupConfig{Tool: "list", Args: map[string]any{"since": "{sent_at}", "from": "from {sent_at}", "q": "{token}", "like": "%{token}%", "page": "{page}"}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	m := keep.Mutation{Payload: json.RawMessage(`{"title":"x","sent_at":"2099-01-01T00:00:00Z","token":"of the agent","page":3}`),
		Token: "tok_1", CreatedAt: time.Date(2026, 11, 27, 12, 1, 0, 0, time.UTC)}
	if _, err := conn.Tools[0].(connector.Reconciler).Reconcile(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	want := `{"arguments":{"from":"from 2026-11-27T12:00:00Z","like":"%tok_1%","page":3,"q":"tok_1","since":"2026-11-27T12:00:00Z"},"name":"list"}`
	if string(asked) != want {
		t.Errorf("the lookup has %s\nwant            %s", asked, want)
	}
}
