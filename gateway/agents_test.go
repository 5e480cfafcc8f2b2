//go:build unix

package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/store/sqlite"
)

// agentTokens are those of the tests.
var agentTokens = map[string]string{"ann": "token-of-ann-0123456789", "bob": "token-of-bob-0123456789", "Bob": "token-of-Bob-0123456789"}

// serveAgents serves agents by HTTP until the end of stdin.
func serveAgents(g *gateway.Gateway) error {
	h, err := g.HTTP(gateway.HTTPConfig{Agents: agentTokens})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/mcp\n", l.Addr())
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return h.Serve(ctx, l)
}

// A hall is a gateway in this process, to which agents speak by HTTP.
type hall struct {
	url     string
	db      *sqlite.DB
	handler http.Handler
}

func openHall(t *testing.T, s setup) hall {
	t.Helper()
	db := sqlite.New(filepath.Join(s.Dir, "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(t.Context(), db, gateway.Config{Servers: []mcp.ServerConfig{s.serverConfig()}, Rules: s.Rules, Policy: testPolicy(), Alone: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h, err := g.HTTP(gateway.HTTPConfig{Agents: agentTokens, Origins: []string{"https://app.example.com", "http://app.example.com:8080"}})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ConnContext, srv.Listener = h.ConnContext, h.Listener(srv.Listener)
	srv.Start()
	t.Cleanup(func() {
		srv.Close()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return hall{srv.URL + "/mcp", db, h}
}

// An httpAgent speaks by HTTP, on a connection of its own.
type httpAgent struct {
	t                   *testing.T
	url, agent, session string
	client              *http.Client
}

func newAgent(t *testing.T, url, agent string) *httpAgent {
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	return &httpAgent{t, url, agent, "", &http.Client{Transport: transport}}
}

// request returns a request of the agent, in its session if it has one; header changes its headers.
func (a *httpAgent) request(method, body string, header func(*http.Request)) *http.Request {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.url, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+agentTokens[a.agent])
	if a.session != "" {
		req.Header.Set("Mcp-Session-Id", a.session)
	}
	if header != nil {
		header(req)
	}
	return req
}

// send sends a message; header changes its headers. The reply is empty if no whole answer came.
func (a *httpAgent) send(method, params string, header func(*http.Request)) (reply, *http.Response) {
	a.t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params)
	resp, err := a.client.Do(a.request(http.MethodPost, body, header))
	if err != nil {
		return reply{}, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}, nil
	}
	var r reply
	if err := json.Unmarshal(text, &r); err != nil {
		a.t.Fatalf("%d: %v: %q", resp.StatusCode, err, text)
	}
	r.raw = string(bytes.TrimSpace(text))
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" && method == "initialize" {
		a.session = id
	}
	return r, resp
}

func (a *httpAgent) begin() {
	a.t.Helper()
	a.session = ""
	if _, resp := a.send("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`, nil); resp == nil || a.session == "" {
		a.t.Fatal("no session")
	}
}

func (a *httpAgent) create(title string) reply {
	a.t.Helper()
	r, _ := a.send("tools/call", createParams(title), nil)
	return r
}

// Two agents that make the same call make two, also at once; a session is of one agent alone.
func TestAgentsByHTTP(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Rules: paired()}
	h := openHall(t, s)
	ann, bob := newAgent(t, h.url, "ann"), newAgent(t, h.url, "bob")
	ann.begin()
	bob.begin()
	got := make(chan reply, 2)
	for _, a := range []*httpAgent{ann, bob} {
		go func() { got <- a.create("same") }()
	}
	for range 2 {
		if r := <-got; r.state() != "applied" || r.Result.Meta["keep/replayed"] != nil {
			t.Errorf("%s", r.raw)
		}
	}
	if n := effects(t, s.Dir, "same"); n != 2 {
		t.Errorf("%d effects", n)
	}
	if _, resp := bob.send("ping", `{}`, func(r *http.Request) { r.Header.Set("Mcp-Session-Id", ann.session) }); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an agent uses the session of another: %s", resp.Status)
	}
}

// An answer is delivered when the next message of its session comes on the connection that brought
// it: what another connection brings shows nothing.
func TestDeliveredByHTTP(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Rules: paired()}
	h := openHall(t, s)
	a := newAgent(t, h.url, "ann")
	a.begin()
	if r := a.create("x"); r.state() != "applied" {
		t.Fatalf("%s", r.raw)
	}
	other := newAgent(t, h.url, "ann")
	other.session = a.session
	other.send("ping", `{}`, nil)
	if r := other.create("x"); r.Result.Meta["keep/replayed"] != true || effects(t, s.Dir, "x") != 1 {
		t.Errorf("on another connection: %d effects, %s", effects(t, s.Dir, "x"), r.raw)
	}
	fresh := newAgent(t, h.url, "ann") // a client that began anew and calls again
	fresh.begin()
	if r := fresh.create("x"); r.Result.Meta["keep/replayed"] != true || effects(t, s.Dir, "x") != 1 {
		t.Errorf("in another session: %d effects, %s", effects(t, s.Dir, "x"), r.raw)
	}
	fresh.send("ping", `{}`, nil)
	if r := fresh.create("x"); r.state() != "applied" || effects(t, s.Dir, "x") != 2 {
		t.Errorf("after it was delivered: %d effects, %s", effects(t, s.Dir, "x"), r.raw)
	}
}

// A proxy carries several clients on one connection: a client whose stream breaks begins anew, and makes the
// call again. What it begins with does not show that it has the answer. Law: once.
func TestRepeatedBehindAProxy(t *testing.T) {
	t.Parallel()
	for name, forwarded := range map[string]bool{"a client that begins anew": false, "another client of the same agent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup{Dir: t.TempDir(), Rules: paired()}
			h := openHall(t, s)
			at, err := url.Parse(strings.TrimSuffix(h.url, "/mcp"))
			if err != nil {
				t.Fatal(err)
			}
			proxy, lost := &httputil.ReverseProxy{Transport: new(http.Transport)}, atomic.Bool{}
			proxy.Rewrite = func(r *httputil.ProxyRequest) {
				r.SetURL(at)
				if forwarded {
					r.SetXForwarded()
				}
			}
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Mcp-Method") == "tools/call" && lost.CompareAndSwap(false, true) {
					proxy.ServeHTTP(httptest.NewRecorder(), r)
					panic(http.ErrAbortHandler)
				}
				proxy.ServeHTTP(w, r)
			}))
			t.Cleanup(front.Close)
			connect := func() *sdk.ClientSession {
				t.Helper()
				c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{
					Endpoint: front.URL + "/mcp", HTTPClient: &http.Client{Transport: withToken(agentTokens["ann"])}, MaxRetries: -1, DisableStandaloneSSE: true}, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				return c
			}
			call := &sdk.CallToolParams{Name: "notes__create", Arguments: map[string]any{"title": "x"}}
			first, again := connect(), (*sdk.ClientSession)(nil)
			if forwarded {
				again = connect() // it was there before, and does not begin anew
			}
			if r, err := first.CallTool(t.Context(), call); err == nil {
				t.Fatalf("the answer was to be lost: %+v", r)
			}
			if !forwarded {
				again = connect()
			} else {
				if _, err := again.ListTools(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
			}
			r, err := again.CallTool(t.Context(), call)
			if n := effects(t, s.Dir, "x"); err != nil || n != 1 || r.Meta["keep/replayed"] != true {
				t.Errorf("%d effects, %+v, %v", n, r, err)
			}
		})
	}
}

// What a page, a stranger or a broken client sends is refused.
func TestRefusedByHTTP(t *testing.T) {
	t.Parallel()
	h := openHall(t, setup{Dir: t.TempDir()})
	for name, c := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"another host":       {func(r *http.Request) { r.Host = "evil.example:80" }, 403},
		"a host that begins": {func(r *http.Request) { r.Host = "localhost.evil.example" }, 403},
		"localhost":          {func(r *http.Request) { r.Host = "localhost:1234" }, 200},
		"IPv6":               {func(r *http.Request) { r.Host = "[::1]:80" }, 200},
		"another origin":     {func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403},
		"null origin":        {func(r *http.Request) { r.Header.Set("Origin", "null") }, 403},
		"two origins":        {func(r *http.Request) { r.Header["Origin"] = []string{"http://localhost", "https://evil.example"} }, 403},
		"own origin":         {func(r *http.Request) { r.Header.Set("Origin", "http://localhost:80") }, 200},
		"a listed origin":    {func(r *http.Request) { r.Header.Set("Origin", "https://app.example.com") }, 200},
		"its port":           {func(r *http.Request) { r.Header.Set("Origin", "http://app.example.com:8080") }, 200},
		"another port":       {func(r *http.Request) { r.Header.Set("Origin", "https://app.example.com:8080") }, 403},
		"another scheme":     {func(r *http.Request) { r.Header.Set("Origin", "http://app.example.com") }, 403},
		"a name below it":    {func(r *http.Request) { r.Header.Set("Origin", "https://evil.app.example.com") }, 403},
		"a name around it":   {func(r *http.Request) { r.Header.Set("Origin", "https://app.example.com.evil.example") }, 403},
		"a host as origin": {func(r *http.Request) {
			r.Host = "app.example.com"
			r.Header.Set("Origin", "https://app.example.com")
		}, 403},
		"its page without a token": {func(r *http.Request) {
			r.Header.Set("Origin", "https://app.example.com")
			r.Header.Del("Authorization")
		}, 401},
		"no token":           {func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		"wrong token":        {func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, 401},
		"empty token":        {func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }, 401},
		"two tokens":         {func(r *http.Request) { r.Header.Add("Authorization", "Bearer "+agentTokens["bob"]) }, 401},
		"no session":         {func(r *http.Request) { r.Header.Set("Mcp-Session-Id", "x") }, 404},
		"version":            {func(r *http.Request) { r.Header.Set("MCP-Protocol-Version", "1999-01-01") }, 400},
		"another path":       {func(r *http.Request) { r.URL.Path = "/mcp/../mcp" }, 404},
		"the root":           {func(r *http.Request) { r.URL.Path = "/" }, 404},
		"a token in the URL": {func(r *http.Request) { r.URL.RawQuery = "access_token=" + agentTokens["ann"] }, 400},
		"a form":             {func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415},
		"PUT":                {func(r *http.Request) { r.Method = http.MethodPut }, 405},
		"GET of nothing":     {func(r *http.Request) { r.Method = http.MethodGet }, 406},
	} {
		if r, resp := newAgent(t, h.url, "ann").send("ping", `{}`, c.change); resp == nil || resp.StatusCode != c.status {
			t.Errorf("%s: %v %s", name, resp, r.raw)
		}
	}
	a := newAgent(t, h.url, "ann")
	a.begin()
	first := a.session
	for range 200 {
		a.begin()
	}
	a.session = first
	if _, resp := a.send("ping", `{}`, nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("sessions have no bound: %s", resp.Status)
	}
}

// The browser of a page that is listed may ask without a token whether the page may call, and is told so; no other is.
func TestPagesByHTTP(t *testing.T) {
	t.Parallel()
	h := openHall(t, setup{Dir: t.TempDir()})
	for origin, want := range map[string]int{"https://app.example.com": 204, "https://evil.example": 403, "http://localhost:1": 401} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, h.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", origin)
		req.Header.Set("Access-Control-Request-Method", "POST")
		req.Header.Set("Access-Control-Request-Headers", "authorization,content-type,mcp-session-id")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		allowed, headers := resp.Header.Get("Access-Control-Allow-Origin"), resp.Header.Get("Access-Control-Allow-Headers")
		if resp.StatusCode != want || (allowed == origin) != (want == 204) || (headers != "") != (want == 204) {
			t.Errorf("%s: %s, allowed is %q with %q", origin, resp.Status, allowed, headers)
		}
	}
	_, resp := newAgent(t, h.url, "ann").send("ping", `{}`, func(r *http.Request) { r.Header.Set("Origin", "https://app.example.com") })
	if got := resp.Header; got.Get("Access-Control-Allow-Origin") != "https://app.example.com" || got.Get("Access-Control-Expose-Headers") != "Mcp-Session-Id" || got.Get("Vary") != "Origin" {
		t.Errorf("the page may not read its answer: %v", got)
	}
	for _, origin := range []string{"null", "*", "https://app.example.com/", "https://a@b.example", "app.example.com", "file:///x", "https://"} {
		if gateway.CheckOrigin(origin) == nil {
			t.Errorf("%q is an origin", origin)
		}
	}
}

// A request that its client gave up before it was taken begins no call: the client may have made it again, and that
// answer may be delivered, so that it would be another one.
func TestGivenUpByHTTP(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Rules: paired()}
	h := openHall(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, h.url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+createParams("x")+`}`))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+agentTokens["ann"])
	h.handler.ServeHTTP(httptest.NewRecorder(), req)
	if r := newAgent(t, h.url, "ann").create("y"); r.state() != "applied" || effects(t, s.Dir, "x") != 0 {
		t.Errorf("%d effects, %s", effects(t, s.Dir, "x"), r.raw)
	}
}

// withToken adds the token of an agent.
type withToken string

// RoundTrip implements http.RoundTripper.
func (token withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultTransport.RoundTrip(r)
}

// TestOfficialClientByHTTP speaks to the gateway with the client of the official SDK.
func TestOfficialClientByHTTP(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Rules: paired()}
	h := openHall(t, s)
	for _, agent := range []string{"ann", "bob"} {
		session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
			&sdk.StreamableClientTransport{Endpoint: h.url, HTTPClient: &http.Client{Transport: withToken(agentTokens[agent])}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		tools, err := session.ListTools(t.Context(), nil)
		if err != nil || len(tools.Tools) != 3 {
			t.Errorf("%v, %v", tools, err)
		}
		r, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "notes__create", Arguments: map[string]any{"title": "x"}})
		if err != nil || r.IsError || r.Meta["keep/state"] != "applied" {
			t.Errorf("%+v, %v", r, err)
		}
		if err := session.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := effects(t, s.Dir, "x"); n != 2 {
		t.Errorf("%d effects", n)
	}
}

// startHTTP starts a gateway as a process of its own.
func startHTTP(t *testing.T, s setup) (url string, stop func()) {
	url, stop, _ = startKillable(t, s)
	return url, stop
}

// startKillable starts a gateway that can be stopped in order, or killed.
func startKillable(t *testing.T, s setup) (url string, stop, kill func()) {
	t.Helper()
	url, cmd, stop := startProcess(t, s)
	return url, stop, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
}

// startMeasured starts a gateway, and returns the number of its process.
func startMeasured(t *testing.T, s setup) (url string, pid int, stop func()) {
	t.Helper()
	url, cmd, stop := startProcess(t, s)
	return url, cmd.Process.Pid, stop
}

func startProcess(t *testing.T, s setup) (url string, cmd *exec.Cmd, stop func()) {
	t.Helper()
	s.HTTP = true
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GATEWAY_TEST_ROLE=gateway", "GATEWAY_TEST_SETUP="+string(text))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %v: %s", err, cmd.Wait(), said.String())
	}
	return strings.TrimSpace(line), cmd, func() { in.Close(); _ = cmd.Wait() }
}

// The gateway is killed at every point of a call, and the client begins a session of the next one
// and issues the call again. Law: once.
func TestKilledByHTTP(t *testing.T) {
	for _, p := range []engine.Point{engine.BeforeCall, engine.Recorded, engine.Answered, engine.AfterCommit} {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			s := setup{Dir: t.TempDir(), Rules: paired()}
			dying := s
			dying.KillAt = p
			url, stop := startHTTP(t, dying)
			a := newAgent(t, url, "ann")
			a.begin()
			if r := a.create("x"); r.raw != "" {
				t.Errorf("it was to die: %s", r.raw)
			}
			stop()
			url, stop = startHTTP(t, s)
			again := newAgent(t, url, "ann")
			again.begin()
			r := again.create("x")
			for end := time.Now().Add(time.Minute); r.state() != "applied" && time.Now().Before(end); {
				r = again.create("x")
			}
			stop()
			if n := effects(t, s.Dir, "x"); n != 1 || r.state() != "applied" {
				t.Errorf("%d effects, %s", n, r.raw)
			}
			if q := check(t, s.Dir); len(q) != 0 {
				t.Errorf("%d questions", len(q))
			}
		})
	}
}

// A timedRecorder notes until when its request may be read.
type timedRecorder struct {
	*httptest.ResponseRecorder
	read time.Time
}

func (r *timedRecorder) SetReadDeadline(t time.Time) error { r.read = t; return nil }

// TestLongCallByHTTP shows that the server's time to read a request ends with its body: passing later, it
// would cancel a call that takes longer.
func TestLongCallByHTTP(t *testing.T) {
	t.Parallel()
	db := sqlite.New(filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	g, err := gateway.New(t.Context(), db, gateway.Config{Policy: testPolicy(), Alone: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	h, err := g.HTTP(gateway.HTTPConfig{Agents: agentTokens})
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+agentTokens["ann"])
	w := &timedRecorder{httptest.NewRecorder(), time.Now()}
	h.ServeHTTP(w, req)
	if w.Code != http.StatusOK || !w.read.IsZero() {
		t.Errorf("status %d, the request may be read until %v, want 200 and no end", w.Code, w.read)
	}
}

// Names that two records could hold as one, or that would change what a terminal shows, are refused.
func TestNamesOfAgents(t *testing.T) {
	for name, ok := range map[string]bool{"bob": true, "Jörg M.": true, "": false, "a\xff": false, "a\x1b[2J": false, strings.Repeat("a", 65): false} {
		if err := gateway.CheckAgent(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
