package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
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

	session string
}

// serve starts a server by HTTP that answers a method as it should, unless lie answers it.
func serve(t *testing.T, lie func(w http.ResponseWriter, r said) bool) (url string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m said
		_ = json.NewDecoder(r.Body).Decode(&m)
		m.session = r.Header.Get("Mcp-Session-Id")
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

// TestErrorsAreOneLine checks that what a server says in an error cannot be taken for another line, nor move what is on a terminal.
func TestErrorsAreOneLine(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"initialize", "tools/list"} {
		for _, status := range []int{http.StatusOK, http.StatusTeapot} {
			s := mcp.NewServer(mcp.ServerConfig{Name: "desk", URL: serve(t, func(w http.ResponseWriter, r said) bool {
				if r.Method == method {
					w.WriteHeader(status)
					fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no\nkeep: done\r\u001b[2J\u202e\u2028"}}`, r.ID)
				}
				return r.Method == method
			})})
			_, err := s.Tools(t.Context())
			if err == nil || strings.ContainsFunc(err.Error(), keep.Deceives) || !strings.Contains(err.Error(), `no\nkeep: done\u{000D}\u{001B}[2J\u{202E}\u{2028}`) {
				t.Errorf("%s, %d: %q", method, status, err)
			}
			s.Close()
		}
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

// renewing is an account whose token is another one once it was refused.
type renewing struct{ refused int }

// Credential implements connector.Accounts.
func (r *renewing) Credential(context.Context, string) (connector.Credential, error) {
	return connector.Credential{Value: fmt.Sprintf("token-%d", r.refused)}, nil
}

// Owner implements connector.Accounts.
func (r *renewing) Owner(context.Context, string) (string, error) { return "ann", nil }

// Refused implements connector.Accounts.
func (r *renewing) Refused(context.Context, string, connector.Credential) bool {
	r.refused++
	return true
}

// Accepted implements connector.Accounts.
func (r *renewing) Accepted(context.Context, string) {}

// TestRefusedByStatus checks what an answer proves that has a status of HTTP and a message with the id of the call: a
// refusal by a status that no tool gives is one, and renews the token or begins another session.
func TestRefusedByStatus(t *testing.T) {
	t.Parallel()
	failed := func(code int) string { return fmt.Sprintf(`"error":{"code":%d,"message":"no"}`, code) }
	const another, same, outside = "s1 s2", "s1 s1", " "
	for _, c := range []struct {
		status   int
		said     string // in the message
		class    keep.Class
		code     string
		sessions string // of the call, and of the next one
		refused  int    // how often the token was
	}{
		{401, failed(-32001), keep.ClassTransient, "http-401", same, 1}, // since there is another token
		{401, failed(-32600), keep.ClassTransient, "http-401", same, 1},
		{403, failed(-32003), keep.ClassPermission, "http-403", same, 0},
		{404, failed(-32001), keep.ClassTransient, "http-404", another, 0}, // of a session that is over: a server that was restarted knows none
		{404, failed(-32600), keep.ClassTransient, "http-404", another, 0},
		{404, failed(-32001), keep.ClassLogic, "http-404", outside, 0},
		{404, failed(-32601), keep.ClassUnknown, "mcp-32601", outside, 0},
		{413, failed(-32000), keep.ClassLogic, "http-413", same, 0},
		{429, failed(-32000), keep.ClassTransient, "http-429", same, 0},
		// These may be of the call itself, after its effect: only a text that no tool gives is a refusal.
		{400, failed(-32602), keep.ClassUnknown, "mcp-32602", same, 0},
		{400, `"error":{"code":-32602,"message":"Unknown tool: x, no"}`, keep.ClassUnknown, "mcp-32602", same, 0},
		{400, `"error":{"code":-32602,"message":"unknown tool \"x\""}`, keep.ClassLogic, "mcp-32602", same, 0},
		{400, `"error":{"code":-32603,"message":"Tool x not found"}`, keep.ClassUnknown, "mcp-32603", same, 0},
		{200, `"error":{"code":-32602,"message":"MCP error -32602: Invalid arguments for tool x: no"}`, keep.ClassLogic, "mcp-32602", same, 0},
		{200, `"error":{"code":-32602,"message":"MCP error -32602: Invalid structured content for tool x: no"}`, keep.ClassUnknown, "mcp-32602", same, 0},
		{200, `"result":{"isError":true,"content":[{"type":"text","text":"MCP error -32602: Input validation error: Invalid arguments for tool x: no"}]}`, keep.ClassLogic, mcp.CodeToolError, same, 0},
		{200, `"result":{"isError":true,"content":[{"type":"text","text":"MCP error -32602: Output validation error: Invalid structured content for tool x: no"}]}`, keep.ClassUnknown, mcp.CodeToolError, same, 0},
		{200, `"result":{"isError":true,"content":[{"type":"text","text":"Invalid arguments for tool x: no"}]}`, keep.ClassUnknown, mcp.CodeToolError, same, 0},
		{400, failed(-32603), keep.ClassUnknown, "mcp-32603", same, 0},
		{422, failed(-32000), keep.ClassUnknown, "mcp-32000", same, 0},
		{500, failed(-32000), keep.ClassUnknown, "mcp-32000", same, 0},
		{500, failed(-32602), keep.ClassUnknown, "mcp-32602", same, 0},
		{400, `"x":1`, keep.ClassUnknown, "no-answer", same, 0},
		{400, `"id":null,"error":{"code":-32000,"message":"no"}`, keep.ClassUnknown, "http-400", same, 0},
		{400, `"id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided, no"}`, keep.ClassTransient, "http-400", another, 0}, // as SDKs' transports say it
		{422, `"id":null,"error":{"code":-32000,"message":"Bad Request: no"}`, keep.ClassUnknown, "http-422", same, 0},
		{429, `"x":1`, keep.ClassTransient, "http-429", same, 0},
		{403, `"result":{"content":[],"isError":true}`, keep.ClassUnknown, mcp.CodeToolError, same, 0}, // a tool said it
	} {
		var sessions []string
		begun := 0
		url := serve(t, func(w http.ResponseWriter, r said) bool {
			switch r.Method {
			case "initialize":
				begun++
				if c.sessions != outside {
					w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", begun))
				}
			case "tools/call":
				if sessions = append(sessions, r.session); len(sessions) == 1 {
					w.WriteHeader(c.status)
					fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, r.ID, c.said)
					return true
				}
			}
			return false
		})
		account := new(renewing)
		s := mcp.NewServer(mcp.ServerConfig{Name: "desk", URL: url, Account: "desk", Accounts: account})
		call := func() *keep.Failure {
			return func() *keep.Failure {
				ans, err := s.Call(t.Context(), "tools/call", json.RawMessage(`{"name":"x"}`))
				return mcp.Classify("x", ans, err)
			}()
		}
		f, next := call(), call()
		if f == nil || f.Class != c.class || f.Code != c.code || next != nil || account.refused != c.refused || strings.Join(sessions, " ") != c.sessions {
			t.Errorf("%d %s: %+v, then %v; sessions %v, %d tokens refused", c.status, c.said, f, next, sessions, account.refused)
		}
		if f != nil && strings.Contains(c.said, "no") && !strings.Contains(f.Message, "no") {
			t.Errorf("%d %s: the server's words are lost: %s", c.status, c.said, f.Message)
		}
		s.Close()
	}
}

// TestListRepeatsAName has a server list a wanted tool more often than there may be tools: the first entry is kept.
func TestListRepeatsAName(t *testing.T) {
	t.Parallel()
	var list []string
	for i := range 5 * mcp.MaxTools {
		list = append(list, fmt.Sprintf(`{"name":"wanted","n":%d}`, i))
	}
	for _, others := range []int{0, 2} {
		entries := append(slices.Repeat([]string{`{"name":"other"}`}, others), list...)
		url := serve(t, func(w http.ResponseWriter, r said) bool {
			if r.Method == "tools/list" {
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}`, r.ID, strings.Join(entries, ","))
			}
			return r.Method == "tools/list"
		})
		s := mcp.NewServer(mcp.ServerConfig{Name: "x", URL: url})
		t.Cleanup(func() { _ = s.Close() })
		tools, left, err := s.SomeTools(t.Context(), func(tool string) bool { return tool == "wanted" })
		if err != nil || len(tools) != 1 || left != len(entries)-1 || string(tools[0].Raw) != list[0] {
			t.Errorf("%d others: %d tools and %d left out, %v; want 1 and %d", others, len(tools), left, err, len(entries)-1)
		}
	}
}

// A server that asks on the stream of a call, and does not take the answers, gets no more of them at once than a few.
func TestServerThatTakesNoAnswers(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}, 100), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m said
		_ = json.NewDecoder(r.Body).Decode(&m)
		switch {
		case m.Method == "" && m.ID != nil:
			arrived <- struct{}{}
			<-release
			w.WriteHeader(http.StatusAccepted)
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "initialize":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}`, m.ID)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range cap(arrived) {
				fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"ping\"}\n\n", i)
			}
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", m.ID)
		}
	}))
	t.Cleanup(srv.Close)
	s := mcp.NewServer(mcp.ServerConfig{Name: "desk", URL: srv.URL})
	t.Cleanup(func() { s.Close() })
	answered := make(chan error, 1)
	go func() {
		_, err := s.Call(t.Context(), "tools/call", json.RawMessage(`{"name":"x"}`))
		answered <- err
	}()
	for range 16 {
		<-arrived
	}
	select {
	case <-arrived:
		t.Error("more answers are sent at once")
	case <-time.After(200 * time.Millisecond):
	}
	close(release)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// The pages of a list are as large as one message in all, and a list is not read beyond that.
func TestListIsBounded(t *testing.T) {
	t.Parallel()
	pages := 0
	s := mcp.NewServer(mcp.ServerConfig{Name: "desk", MessageLimit: 100 << 10, URL: serve(t, func(w http.ResponseWriter, r said) bool {
		if r.Method == "resources/list" {
			pages++
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resources":[{"description":%q}],"nextCursor":"more"}}`, r.ID, strings.Repeat("x", 30<<10))
		}
		return r.Method == "resources/list"
	})})
	defer s.Close()
	err := s.List(t.Context(), "resources/list", "resources", func(json.RawMessage) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "the list is larger than 100 KiB") || pages != 4 {
		t.Errorf("%d pages, %v", pages, err)
	}
}

// What a server asks for is respected, up to a day.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for after, want := range map[string]time.Duration{"7": 7 * time.Second, "100000": 24 * time.Hour, "99999999999999999999": 24 * time.Hour, "-1": 0, "soon": 0} {
		s := mcp.NewServer(mcp.ServerConfig{Name: "desk", URL: serve(t, func(w http.ResponseWriter, r said) bool {
			if r.Method != "tools/call" {
				return false
			}
			w.Header().Set("Retry-After", after)
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		})})
		_, err := s.Tool(mcp.Pairing{Tool: "add"}, 0).(connector.Mutator).Mutate(t.Context(), keep.Mutation{Payload: json.RawMessage(`{}`)})
		if f, ok := errors.AsType[*keep.Failure](err); !ok || f.RetryAfter != want || f.Class != keep.ClassTransient {
			t.Errorf("%s: %v, want it again after %s", after, err, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLookupByAServerWhoseClockIsBehind asks since the call: what is older there than we say is found all the same, and where a server does
// not say what time it is, nothing shows that there is nothing.
func TestLookupByAServerWhoseClockIsBehind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		behind time.Duration
		tells  bool
		made   bool
		want   connector.Verdict
	}{
		"made":                            {0, true, true, connector.Happened},
		"not made":                        {0, true, false, connector.Absent},
		"made, an hour behind":            {time.Hour, true, true, connector.Happened},
		"not made, an hour behind":        {time.Hour, true, false, connector.Absent},
		"made, an hour behind, no time":   {time.Hour, false, true, connector.Unwitnessed},
		"not made, and no time is told":   {0, false, false, connector.Unwitnessed},
		"made, and no time is told":       {0, false, true, connector.Happened},
		"made, an hour ahead, no trouble": {-time.Hour, true, true, connector.Happened},
	} {
		made := time.Now().Add(-c.behind)
		url := serve(t, func(w http.ResponseWriter, r said) bool {
			if w.Header()["Date"] = nil; c.tells {
				w.Header().Set("Date", time.Now().Add(-c.behind).UTC().Format(http.TimeFormat))
			}
			var p struct {
				Arguments struct{ Since time.Time }
			}
			if r.Method != "tools/call" || json.Unmarshal(r.Params, &p) != nil {
				return false
			}
			rows := ""
			if c.made && !made.Before(p.Arguments.Since) {
				rows = `{"title":"x tok_1"}`
			}
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"rows":[%s]}}}`, r.ID, rows)
			return true
		})
		conn, err := mcp.New("desk", mcp.Config{Place: mcp.Place{URL: url}, Tools: map[string]mcp.ToolConfig{
			"create": {Effect: connector.Mutate, Knowledge: mcp.Knowledge{Identity: []string{"title"}, Token: mcp.TokenConfig{Param: "title", Append: " {token}"},
				Reconcile: &mcp.LookupConfig{Tool: "list", Args: map[string]any{"since": "{sent_at}"}, Found: "$.rows", Complete: true}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		m := keep.Mutation{Payload: json.RawMessage(`{"title":"x"}`), Token: "tok_1", CreatedAt: time.Now()}
		if a, err := conn.Tools[0].(connector.Reconciler).Reconcile(t.Context(), m); err != nil || a.Verdict != c.want {
			t.Errorf("%s: %q, %s, %v; want %q", name, a.Verdict, a.Detail, err, c.want)
		}
		if !conn.Tools[0].Spec().ComparesAge {
			t.Errorf("%s: the age of a call is not by the clock of this machine", name)
		}
	}
}
