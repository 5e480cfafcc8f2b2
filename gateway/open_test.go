//go:build unix

package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/store/sqlite"
)

// A vault is a server that has everything, and notes what it is asked.
type vault struct {
	url    string
	hook   func(method string) // called before a request is answered; nil: nothing is
	modern bool                // it speaks 2026-07-28 alone

	mu     sync.Mutex // protects all below
	asked  []string
	begins int        // how often it began
	told   []string   // what it tells outside of requests: each stream has all of it
	more   *sync.Cond // there is more in asked or told
}

// begin has the vault begin anew: what was agreed on with it is over.
func (v *vault) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.begins++
}

// count returns how often the vault was asked for something.
func (v *vault) count(method string) (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.counted(method)
}

// counted is count; mu is held.
func (v *vault) counted(method string) (n int) {
	for _, text := range v.asked {
		if strings.HasPrefix(text, method+" ") {
			n++
		}
	}
	return n
}

// await waits until the vault was asked for something n times.
func (v *vault) await(t *testing.T, method string, n int) {
	t.Helper()
	var late atomic.Bool
	defer time.AfterFunc(time.Minute, func() {
		late.Store(true)
		v.more.Broadcast()
	}).Stop()
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.counted(method) < n {
		if late.Load() {
			t.Fatalf("the vault was asked for %s %d times, want %d", method, v.counted(method), n)
		}
		v.more.Wait()
	}
}

func serveVault(t *testing.T) *vault {
	t.Helper()
	v := new(vault)
	v.more = sync.NewCond(&v.mu)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		var m struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.Unmarshal(text, &m)
		v.mu.Lock()
		v.asked = append(v.asked, m.Method+" "+string(text))
		v.more.Broadcast()
		session := fmt.Sprintf("session-%d", v.begins)
		v.mu.Unlock()
		if v.hook != nil {
			v.hook(m.Method)
		}
		if v.modern {
			v.answerModern(w, r, m.Method, m.ID)
			return
		}
		if m.Method == "initialize" {
			w.Header().Set("Mcp-Session-Id", session)
		} else if r.Header.Get("Mcp-Session-Id") != session {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if r.Method == http.MethodGet {
			v.stream(w, r)
			return
		}
		if r.Method != http.MethodPost || m.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		result := `{"content":[],"contents":[],"messages":[],"completion":{"values":["of the vault"]},"_meta":{"from":"vault"}}`
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"resources":{"subscribe":true},"prompts":{},"completions":{},"logging":{}}}`
		case "tools/list":
			result = `{"tools":[{"name":"open","inputSchema":{"type":"object"}}]}`
		case "resources/list":
			result = `{"resources":[{"uri":"vault://x","name":"x"}]}`
		case "resources/templates/list":
			result = `{"resourceTemplates":[{"uriTemplate":"vault://{x}","name":"x"}]}`
		case "prompts/list":
			result = `{"prompts":[{"name":"vault"}]}`
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}))
	t.Cleanup(srv.Close)
	v.url = srv.URL
	return v
}

// stream writes what the vault tells, until the client is gone.
func (v *vault) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	defer context.AfterFunc(r.Context(), v.more.Broadcast)()
	for i := 0; ; i++ {
		_ = http.NewResponseController(w).Flush()
		v.mu.Lock()
		for i >= len(v.told) && r.Context().Err() == nil {
			v.more.Wait()
		}
		told := v.told
		v.mu.Unlock()
		if r.Context().Err() != nil {
			return
		}
		fmt.Fprintf(w, "data: %s\n\n", told[i])
	}
}

// answerModern answers a request as a server of 2026-07-28.
func (v *vault) answerModern(w http.ResponseWriter, r *http.Request, method string, id json.RawMessage) {
	w.Header().Set("Content-Type", "application/json")
	switch method {
	case "subscriptions/listen":
		v.stream(w, r)
	case "server/discover":
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{"subscribe":true}}}}`, id)
	case "tools/list":
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","tools":[]}}`, id)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, id)
	}
}

// openOwn opens a gateway to two servers, vault and own, of which bob reaches only the second, and returns its address.
func openOwn(t *testing.T, rules map[keep.ToolName]gateway.Rule, vault, own string) (url string) {
	t.Helper()
	db := sqlite.New(filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	g, err := gateway.New(t.Context(), db, gateway.Config{
		Servers: []mcp.ServerConfig{{Name: "vault", URL: vault}, {Name: "own", URL: own}}, Rules: rules,
		Grants: map[string][]string{"bob": {"own.*"}}, Policy: testPolicy(), Alone: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	h, err := g.HTTP(gateway.HTTPConfig{Agents: agentTokens})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL + "/mcp"
}

// An agent whose tools name none of a server reaches nothing of that server: its resources and prompts are neither listed nor
// read, and it is not told what such an agent asks. Law: permitted.
func TestServerThatIsNotTheAgents(t *testing.T) {
	t.Parallel()
	v, own := serveVault(t), serveVault(t)
	url := openOwn(t, nil, v.url, own.url)
	requests := []struct{ method, params string }{
		{"tools/list", `{}`}, {"resources/list", `{}`}, {"resources/templates/list", `{}`}, {"prompts/list", `{}`},
		{"resources/read", `{"uri":"vault://x"}`}, {"prompts/get", `{"name":"vault__vault"}`}, {"tools/call", `{"name":"vault__open"}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"vault__vault"},"argument":{"name":"a","value":""}}`},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"vault://x"},"argument":{"name":"a","value":""}}`},
		{"resources/subscribe", `{"uri":"vault://x"}`}, {"resources/unsubscribe", `{"uri":"vault://x"}`}, {"logging/setLevel", `{"level":"debug"}`},
	}
	for _, agent := range []string{"bob", "Bob", "ann"} {
		a := newAgent(t, url, agent)
		a.begin()
		for _, c := range requests {
			r, _ := a.send(c.method, c.params, nil)
			if strings.Contains(c.method, "list") && strings.Contains(strings.ReplaceAll(r.raw, "own__vault", ""), "vault__") != (agent == "ann" && !strings.Contains(c.method, "resources")) {
				t.Errorf("%s: %s: %s", agent, c.method, r.raw)
			}
			if agent != "ann" && strings.Contains(c.params, "vault__") && r.Error == nil && !r.Result.IsError {
				t.Errorf("%s %s: %s", c.method, c.params, r.raw)
			}
		}
		if agent == "ann" {
			v.await(t, "resources/unsubscribe", 1) // nobody waits for it
		}
		v.mu.Lock()
		if agent != "ann" && len(v.asked) > 0 {
			t.Errorf("the vault was asked: %q", v.asked)
		}
		if agent == "ann" {
			for _, c := range requests {
				if !slices.ContainsFunc(v.asked, func(text string) bool { return strings.HasPrefix(text, c.method+" ") }) {
					t.Errorf("the agent that may call all has no %s", c.method)
				}
			}
		}
		v.mu.Unlock()
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	for _, method := range []string{"resources/list", "prompts/list", "resources/read", "resources/subscribe", "logging/setLevel"} {
		if !slices.ContainsFunc(own.asked, func(text string) bool { return strings.HasPrefix(text, method+" ") }) {
			t.Errorf("bob does not reach %s of his own server: %q", method, own.asked)
		}
	}
}

// A server that is not the agent's says nothing into the calls of the agent, whatever token it names; progress of the server that
// has the call is passed on. Law: permitted.
func TestProgressOfAnotherServer(t *testing.T) {
	t.Parallel()
	out, forged := make(chan struct{}), make(chan struct{})
	serve := func(call func(tell func(token, text string), token string)) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var m struct {
				ID     json.RawMessage
				Method string
				Params struct {
					Meta struct{ ProgressToken string } `json:"_meta"`
				}
			}
			_ = json.NewDecoder(r.Body).Decode(&m)
			if r.Method != http.MethodPost || m.ID == nil {
				w.WriteHeader(http.StatusAccepted)
				return
			}
			result := `{"content":[]}`
			switch m.Method {
			case "initialize":
				result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}`
			case "tools/list":
				result = `{"tools":[{"name":"open","inputSchema":{"type":"object"}},{"name":"make","inputSchema":{"type":"object"}}]}`
			}
			w.Header().Set("Content-Type", "text/event-stream")
			if m.Method == "tools/call" {
				call(func(token, text string) {
					fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%q,\"progress\":1,\"message\":%q}}\n\n", token, text)
				}, m.Params.Meta.ProgressToken)
			}
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", m.ID, result)
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	tokens := make(chan string, 1)
	vault := serve(func(tell func(token, text string), _ string) {
		tell(<-tokens, "of the vault")
	})
	own := serve(func(tell func(token, text string), token string) {
		tokens <- token
		out <- struct{}{}
		<-forged
		tell(token, "of its own")
	})
	url := openOwn(t, map[keep.ToolName]gateway.Rule{"vault.open": {Read: true}, "own.open": {Read: true}}, vault, own)
	for _, tool := range []string{"open", "make"} { // what is read, and what is recorded
		got := make(chan string, 1)
		go func() {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"own__`+tool+`","arguments":{},"_meta":{"progressToken":"p"}}}`))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			req.Header.Set("Authorization", "Bearer "+agentTokens["bob"])
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				got <- err.Error()
				return
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			got <- string(text)
		}()
		<-out
		newAgent(t, url, "ann").send("tools/call", `{"name":"vault__open","arguments":{}}`, nil)
		forged <- struct{}{}
		if text := <-got; strings.Contains(text, "of the vault") || !strings.Contains(text, "of its own") {
			t.Errorf("%s: the agent gets %s", tool, text)
		}
	}
}

// Who is told that a resource is watched has a server that tells of it: each agent one of its own, which gives it up when
// nobody of those watches it any more.
func TestSubscriptionsOfAgents(t *testing.T) {
	t.Parallel()
	v, own := serveVault(t), serveVault(t)
	url := openOwn(t, nil, v.url, own.url)
	agent := func(name string) *httpAgent {
		a := newAgent(t, url, name)
		a.begin()
		return a
	}
	ann, other, bob := agent("ann"), agent("ann"), agent("bob")
	const on, off, x = "resources/subscribe", "resources/unsubscribe", `{"uri":"vault://x"}`
	for i, c := range []struct {
		a             *httpAgent
		method        string
		on, off       int // of the vault after that
		ownOn, ownOff int
	}{
		{a: ann, method: on, on: 1},
		{a: bob, method: on, on: 1, ownOn: 1},
		{a: other, method: on, on: 2, ownOn: 1},
		{a: ann, method: off, on: 2, ownOn: 1},
		{a: ann, method: off, on: 2, ownOn: 1},
		{a: other, method: off, on: 2, off: 1, ownOn: 1},
		{a: bob, method: off, on: 2, off: 1, ownOn: 1, ownOff: 1},
	} {
		if r, _ := c.a.send(c.method, x, nil); r.Error != nil {
			t.Errorf("%d: %s", i, r.raw)
		}
		v.await(t, off, c.off)
		own.await(t, off, c.ownOff)
		if v.count(on) != c.on || v.count(off) != c.off || own.count(on) != c.ownOn || own.count(off) != c.ownOff {
			t.Errorf("%d, %s by %s: the vault was asked %d and %d times, the other %d and %d", i, c.method, c.a.agent, v.count(on), v.count(off), own.count(on), own.count(off))
		}
	}
	for i := range 257 {
		r, _ := ann.send(on, fmt.Sprintf(`{"uri":"vault://%d"}`, i), nil)
		if (r.Error != nil) != (i == 256) {
			t.Errorf("subscription %d: %s", i, r.raw)
		}
	}
}

// A server that begins anew is asked again to tell of what is watched, as it does not know it any more.
func TestSubscriptionsAreMadeAgain(t *testing.T) {
	t.Parallel()
	v := serveVault(t)
	subscribed := make(chan bool, 10)
	v.hook = func(method string) {
		if method == "resources/subscribe" {
			subscribed <- true
		}
	}
	ann := newAgent(t, openOwn(t, nil, v.url, serveVault(t).url), "ann")
	ann.begin()
	ann.send("resources/subscribe", `{"uri":"vault://x"}`, nil)
	<-subscribed
	v.begin()
	if r, _ := ann.send("resources/read", `{"uri":"vault://x"}`, nil); r.Error != nil {
		t.Fatal(r.raw)
	}
	<-subscribed
}

// A subscription that is made while the last one before it is given up holds, in whatever order the server takes both.
func TestSubscriptionWhileOneIsGivenUp(t *testing.T) {
	t.Parallel()
	v := serveVault(t)
	url := openOwn(t, nil, v.url, serveVault(t).url)
	ann, other := newAgent(t, url, "ann"), newAgent(t, url, "ann")
	v.hook = func(method string) {
		if method == "resources/unsubscribe" {
			other.send("resources/subscribe", `{"uri":"vault://x"}`, nil)
		}
	}
	ann.begin()
	other.begin()
	ann.send("resources/subscribe", `{"uri":"vault://x"}`, nil)
	ann.send("resources/unsubscribe", `{"uri":"vault://x"}`, nil)
	v.await(t, "resources/subscribe", 3)
	v.mu.Lock()
	defer v.mu.Unlock()
	if last := v.asked[len(v.asked)-1]; !strings.HasPrefix(last, "resources/subscribe ") {
		t.Errorf("the vault was asked last: %s", last)
	}
}

// A server with a handshake that takes any subscription does not keep one of 2026-07-28 from telling of its resource.
func TestSubscriptionBesideAServerThatTakesAny(t *testing.T) {
	t.Parallel()
	v, own := serveVault(t), serveVault(t)
	own.modern = true
	listened := make(chan bool, 100)
	own.hook = func(method string) {
		if method == "subscriptions/listen" {
			listened <- true
		}
	}
	ann := newAgent(t, openOwn(t, nil, v.url, own.url), "ann")
	ann.begin()
	if r, _ := ann.send("resources/subscribe", `{"uri":"own://x"}`, nil); r.Error != nil || v.count("resources/subscribe") != 1 {
		t.Fatal(r.raw)
	}
	<-listened
	own.mu.Lock()
	defer own.mu.Unlock()
	if !slices.ContainsFunc(own.asked, func(text string) bool {
		return strings.HasPrefix(text, "subscriptions/listen ") && strings.Contains(text, `"own://x"`)
	}) {
		t.Errorf("the server of 2026-07-28 was asked %q", own.asked)
	}
}
