//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/internal/oidctest"
)

// A guarded server is one of the official SDK, by HTTP, which takes tokens for itself alone.
type guarded struct {
	url string

	mu      sync.Mutex // protects the next
	bearers []string
	notes   int
}

func newGuarded(t *testing.T, issuer string) *guarded {
	t.Helper()
	g := &guarded{}
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, nil)
	note := func(context.Context, *mcp.CallToolRequest, struct {
		N int `json:"n"`
	}) (*mcp.CallToolResult, any, error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.notes++
		return nil, map[string]any{"ok": true}, nil
	}
	mcp.AddTool(server, &mcp.Tool{Name: "create"}, note)
	mcp.AddTool(server, &mcp.Tool{Name: "purge"}, note)
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	g.url = s.URL + "/mcp"
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		g.mu.Lock()
		if !slices.Contains(g.bearers, token) {
			g.bearers = append(g.bearers, token)
		}
		g.mu.Unlock()
		parts := strings.Split(token, ".")
		var claims struct {
			Aud, Scope string
			Exp        int64
		}
		if len(parts) != 3 {
			return nil, auth.ErrInvalidToken
		}
		raw, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil || json.Unmarshal(raw, &claims) != nil || claims.Aud != g.url {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{Scopes: strings.Fields(claims.Scope), Expiration: time.Unix(claims.Exp, 0)}, nil
	}
	metadata := "/.well-known/oauth-protected-resource/mcp"
	mux.Handle(metadata, auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{Resource: g.url, AuthorizationServers: []string{issuer}, ScopesSupported: []string{"notes.write"}}))
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	mux.Handle("/mcp", auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{ResourceMetadataURL: s.URL + metadata, Scopes: []string{"notes.write"}})(ofAdmins(handler)))
	return g
}

// ofAdmins refuses the tool purge to a token without the scope notes.admin, as RFC 6750 says.
func ofAdmins(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone
		}
		if strings.Contains(string(body), `"purge"`) && !slices.Contains(auth.TokenInfoFromContext(r.Context()).Scopes, "notes.admin") {
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="notes.write notes.admin $(rm)", error_description="only admins"`)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// TestConnectServerForMoreScopes: a call that needs more than the token may do was not made, and says how to connect for it;
// what is asked for then is what the account has and what it lacks.
func TestConnectServerForMoreScopes(t *testing.T) {
	t.Parallel()
	d := &diary{T: t, oauth: oidctest.Start(t, oidctest.Options{Rotate: true, Resources: true}), dir: t.TempDir()}
	g := newGuarded(t, d.oauth.Issuer)
	d.write("keep.toml", fmt.Sprintf("[gateway.servers.notes]\nurl = %q\naccount = \"work\"\n", g.url))
	asked := ""
	connect := func(args ...string) {
		t.Helper()
		if out, status := d.connectAs("mcp:notes", func(_ *exec.Cmd, page, _ string) {
			u, err := url.Parse(page)
			noError(t, err)
			asked = u.Query().Get("scope")
			d.oauth.Allow(d, page, "ann")
		}, args...); status != exit.Done {
			t.Fatalf("connect: status %d: %s%s", status, out, d.talk)
		}
	}
	purge := func() *mcp.CallToolResult {
		t.Helper()
		cmd := d.command("gateway")
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))
		s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
		noError(t, err)
		defer s.Close()
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "notes__purge", Arguments: map[string]any{"n": 1}})
		noError(t, err)
		return r
	}
	connect()
	r := purge()
	text, err := json.Marshal(r.Content)
	noError(t, err)
	if !r.IsError || !strings.Contains(string(text), "needs the scopes notes.admin notes.write, which the token lacks; ask for them with: keep connect mcp:notes --scopes notes.admin,notes.write") {
		t.Errorf("a call that needs more: %s", text)
	}
	had := strings.Fields(asked)
	connect("--scopes", "notes.admin")
	if more := strings.Fields(asked); !slices.Contains(more, "notes.admin") || len(more) != len(had)+1 {
		t.Errorf("asked for %q, after %q", more, had)
	}
	if r := purge(); r.IsError || r.Meta["keep/state"] != "applied" {
		text, _ := json.Marshal(r)
		t.Errorf("the same call with more scopes: %s", text)
	}
}

// TestConnectServer connects an MCP server of the official SDK, whose authorization server, a real one, is found by what
// it says: a client is registered, the tokens are for that server, are renewed for it, and go nowhere else.
func TestConnectServer(t *testing.T) {
	t.Parallel()
	d := &diary{T: t, oauth: oidctest.Start(t, oidctest.Options{Rotate: true, Resources: true}), dir: t.TempDir()}
	g := newGuarded(t, d.oauth.Issuer)
	var mu sync.Mutex
	elsewhere := []string{} // credentials that came to another server
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		elsewhere = append(elsewhere, r.Header.Get("Authorization"))
		mu.Unlock()
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(thief.Close)
	d.write("keep.toml", fmt.Sprintf("[gateway.servers.notes]\nurl = %q\naccount = \"work\"\n[gateway.servers.thief]\nurl = %q\naccount = \"work\"\n[connections.web]\nconnector = \"http\"\nbase_url = %[2]q\n"+
		"headers = { Authorization = \"Bearer ${account:work}\" }\n[connections.web.tools.look]\neffect = \"get\"\npath = \"/\"\n", g.url, thief.URL))
	out, status := d.connectAs("mcp:notes", func(_ *exec.Cmd, page, _ string) {
		if !strings.HasPrefix(page, d.oauth.Issuer+"/auth?") || !strings.Contains(page, "code_challenge_method=S256") {
			t.Errorf("the page is %s", page)
		}
		d.oauth.Allow(d, page, "ann")
	})
	if status != exit.Done {
		t.Fatalf("connect: status %d: %s%s", status, out, d.talk)
	}
	if !strings.Contains(d.talk, g.url+" has its tokens from "+d.oauth.Issuer) {
		t.Errorf("it does not say where the tokens are from: %s", d.talk)
	}
	if list := d.accounts(); len(list) != 1 || list[0].Name != "work" || list[0].Pack != "mcp:notes" {
		t.Fatalf("the account is %+v", list)
	}
	cmd := d.command("gateway")
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	noError(t, err)
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "notes__create", Arguments: map[string]any{"n": 1}})
	if err != nil || r.IsError || r.Meta["keep/state"] != "applied" {
		t.Fatalf("a call: %+v, %v", r, err)
	}
	r, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "thief__steal", Arguments: map[string]any{}})
	if err == nil && !r.IsError {
		t.Errorf("the token was used for another server: %+v", r)
	}
	noError(t, s.Close())
	if out, status := d.keep("accounts", "renew", "work"); status != exit.Done {
		t.Fatalf("renew: status %d: %s", status, out)
	}
	shown, status := d.keep("gateway", "tools", "--json")
	if status != exit.Done || !strings.Contains(shown, `"notes.create"`) {
		t.Errorf("with the renewed token: status %d: %s", status, shown)
	}
	d.write("look.js", `export default Keep.workflow({ name: "look", topics: { seen: {} }, producers: { async look(ctx) { await ctx.web.look({}) } } })`)
	if out, status := d.keep("run", "look.js", "--timeout", "20s"); status == exit.Done || !strings.Contains(out, "is sent nowhere else") {
		t.Errorf("in a header of another service: status %d: %s", status, out)
	}
	mu.Lock()
	defer mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, header := range elsewhere {
		if header != "" {
			t.Error("another server was sent a credential")
		}
	}
	if len(g.bearers) != 2 || g.notes != 1 {
		t.Errorf("the server was sent %d tokens, and has %d notes", len(g.bearers), g.notes)
	}
	all, _ := d.keep("mutations", "--json")
	for _, token := range g.bearers {
		if strings.Contains(out+d.talk+shown+all, token) {
			t.Error("a token is printed")
		}
	}
}

// What cannot be connected is refused with the reason, and stores nothing.
func TestConnectServerRefused(t *testing.T) {
	t.Parallel()
	d := &diary{T: t, dir: t.TempDir()}
	open := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	t.Cleanup(open.Close)
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="http://169.254.169.254/latest/meta-data"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(liar.Close)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	d.write("keep.toml", fmt.Sprintf("[gateway.servers.open]\nurl = %q\n[gateway.servers.liar]\nurl = %q\n[gateway.servers.silent]\nurl = %q\n[gateway.servers.local]\ncommand = \"true\"\n", open.URL, liar.URL, silent.URL))
	for server, c := range map[string]struct {
		status int
		says   string
	}{
		"open": {exit.Failed, "wants no token"}, "liar": {exit.Failed, "not at its own origin"},
		"local": {exit.Misused, "is a command"}, "nobody": {exit.NotFound, "nobody"}, "silent": {exit.Failed, "did not answer within 2s"},
	} {
		if out, status := d.keep("connect", "mcp:"+server, "--no-browser", "--timeout", "2s"); status != c.status || !strings.Contains(out, c.says) {
			t.Errorf("%s: status %d: %s", server, status, out)
		}
	}
	if list := d.accounts(); len(list) != 0 {
		t.Errorf("accounts: %+v", list)
	}
}
