//go:build unix

package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/gateway"
)

// A fileServer is a server whose tool write_file sets what a file has. What fails names contents after which it says that something
// went wrong, and has written nothing.
type fileServer struct {
	mu    sync.Mutex
	fails map[string]bool
	file  string
	calls map[string]int // by content
}

func (f *fileServer) serve(t *testing.T) (url string) {
	s := sdk.NewServer(&sdk.Implementation{Name: "files", Version: "1"}, nil)
	sdk.AddTool(s, &sdk.Tool{Name: "write_file"}, func(_ context.Context, _ *sdk.CallToolRequest, in map[string]any) (*sdk.CallToolResult, any, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		text := fmt.Sprint(in["content"])
		f.calls[text]++
		if f.fails[text] {
			return nil, nil, fmt.Errorf("the disk did not answer")
		}
		f.file = text
		return nil, nil, nil
	})
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

func (f *fileServer) has() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file
}

// The answer of a call of ann that sets something is lost. What bob sets meanwhile is not undone when the gateway finds out what became of it:
// a person is asked, who reads what bob set. Law: once.
func TestSettingOfTwoAgents(t *testing.T) {
	t.Parallel()
	f := &fileServer{fails: map[string]bool{"v1": true}, calls: make(map[string]int)}
	s := setup{Dir: t.TempDir(), URL: f.serve(t), Rules: map[keep.ToolName]gateway.Rule{
		"notes.write_file": {Pairing: mcp.Pairing{Tool: "write_file", Sets: true, Identity: []string{"path"}, Timeout: time.Second}}}}
	h := openHall(t, s)
	ann, bob := newAgent(t, h.url, "ann"), newAgent(t, h.url, "bob")
	ann.begin()
	bob.begin()
	write := func(a *httpAgent, content string) reply {
		t.Helper()
		r, _ := a.send("tools/call", fmt.Sprintf(`{"name":"notes__write_file","arguments":{"path":"p","content":%q}}`, content), nil)
		return r
	}
	if r := write(ann, "v0"); r.state() != "applied" {
		t.Fatalf("%s", r.raw)
	}
	bob.send("ping", `{}`, nil)
	ann.send("ping", `{}`, nil)
	if r := write(ann, "v1"); r.state() == "applied" || r.state() == "failed" {
		t.Fatalf("a call in doubt: %s", r.raw)
	}
	if r := write(bob, "v2"); r.state() != "applied" { // ann's is sent again all the time, and fails each time
		t.Fatalf("%s", r.raw)
	}
	f.mu.Lock()
	f.fails = nil
	f.mu.Unlock()
	for deadline := time.Now().Add(20 * time.Second); ; {
		list, _, err := h.db.Escalations(t.Context(), keep.EscalationFilter{Open: true}, keep.Page{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 1 {
			if q := list[0]; q.Kind != keep.AskUnknownOutcome || !strings.Contains(q.Why, "the agent bob") || !strings.Contains(q.Why, `"content":"v2"`) {
				t.Errorf("the question does not say what was set since: %+v", q)
			}
			break
		}
		if f.has() != "v2" || time.Now().After(deadline) {
			t.Fatalf("the file has %q, and nobody was asked; want v2 and a question", f.has())
		}
		if r := write(ann, "v1"); r.state() == "applied" {
			t.Fatalf("%s", r.raw)
		}
	}
	if r := write(ann, "v1"); r.state() != "indeterminate" || f.has() != "v2" {
		t.Errorf("ann is told %s, and the file has %q; want that it is indeterminate, v2", r.raw, f.has())
	}
}
