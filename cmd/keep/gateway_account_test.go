//go:build unix

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestGatewayWithAnAccount has a server by HTTP whose token is an account of a real OAuth server. A
// token that the server refuses is renewed, the call that it refused was not made, and the same
// call again is.
func TestGatewayWithAnAccount(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	if out, status := d.connect(func(_ *exec.Cmd, page, _ string) { d.oauth.Allow(d, page, "ann") }); status != 0 {
		t.Fatalf("connect: status %d: %s", status, out)
	}
	var mu sync.Mutex // protects the next three
	bearer, refuse, notes := "", "", 0
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "create"}, func(context.Context, *mcp.CallToolRequest, struct {
		N int `json:"n"`
	}) (*mcp.CallToolResult, any, error) {
		mu.Lock()
		defer mu.Unlock()
		notes++
		return nil, map[string]any{"ok": true}, nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		bearer, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		bad := bearer == "" || bearer == refuse
		mu.Unlock()
		if bad {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(service.Close)
	d.write("keep.toml", fmt.Sprintf("[packs.diary]\nclient_id = \"public\"\n[gateway.servers.notes]\nurl = %q\naccount = \"diary\"\n", service.URL))
	cmd := d.command("gateway")
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	call := func(n int) *mcp.CallToolResult {
		t.Helper()
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "notes__create", Arguments: map[string]any{"n": n}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := call(1); r.IsError || r.Meta["keep/state"] != "applied" {
		t.Fatalf("with the first token: %+v", r)
	}
	mu.Lock()
	refuse = bearer
	mu.Unlock()
	if r := call(2); !r.IsError || r.Meta["keep/state"] != "failed" {
		t.Errorf("with a token that is refused: %+v", r)
	}
	if r := call(2); r.IsError || r.Meta["keep/state"] != "applied" {
		t.Errorf("the same call again: %+v", r)
	}
	mu.Lock()
	defer mu.Unlock()
	if notes != 2 || bearer == refuse {
		t.Errorf("%d notes, want 2; the last token is that of before: %t", notes, bearer == refuse)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if list := d.accounts(); len(list) != 1 || list[0].Generation != 2 {
		t.Errorf("the account is %+v, want one renewal", list)
	}
	if out, _ := d.keep("mutations", "--json"); strings.Contains(out, refuse) || strings.Contains(out, bearer) {
		t.Errorf("a token is in the ledger: %s", out)
	}
}
