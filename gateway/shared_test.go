//go:build unix

package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keep-run/keep/connector/mcp"
)

// serveHeld is an MCP server by HTTP whose tool create says that it was called, and waits until it may answer.
func serveHeld(t *testing.T) (url string, called, answers chan struct{}) {
	called, answers = make(chan struct{}, 1), make(chan struct{}, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m mcp.Message
		_ = json.NewDecoder(r.Body).Decode(&m)
		result := `{"content":[]}`
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}`
		case "tools/list":
			result = `{"tools":[{"name":"create","inputSchema":{"type":"object"}}]}`
		case "tools/call":
			called <- struct{}{}
			select {
			case <-answers:
			case <-r.Context().Done():
				return
			}
		}
		if m.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, called, answers
}

// Clients of an agent that have no session may give their requests the same ids: what one of them gives up, another one may wait for. The
// answer to it counts as not delivered all the same, since it may be that one which does not take it. Law: once.
func TestCancelledWithoutASession(t *testing.T) {
	t.Parallel()
	url, called, answers := serveHeld(t)
	h := openHall(t, setup{Dir: t.TempDir(), URL: url})
	waits, other := newAgent(t, h.url, "ann"), newAgent(t, h.url, "ann")
	got := make(chan reply, 1)
	go func() { got <- waits.create("x") }()
	<-called
	resp, err := other.client.Do(other.request(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, nil))
	if err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%v, %v", resp, err)
	}
	resp.Body.Close()
	answers <- struct{}{}
	if r := <-got; r.state() != "applied" {
		t.Errorf("who waits gets %s", r.raw)
	}
	waits.send("ping", `{}`, nil)
	if again := waits.create("x"); again.Result.Meta["keep/replayed"] != true {
		t.Errorf("an equal call of the client that may have given it up gets %s", again.raw)
	}
}

// What all clients of an agent share that have no session, none of them ends; and what is no request begins no session.
func TestSessionThatHasNoName(t *testing.T) {
	t.Parallel()
	h := openHall(t, setup{Dir: t.TempDir()})
	a := newAgent(t, h.url, "ann")
	a.send("ping", `{}`, nil)
	for _, session := range []string{"", "none"} {
		a.session = session
		resp, err := a.client.Do(a.request(http.MethodDelete, "", nil))
		if err != nil || resp.StatusCode != http.StatusNotFound {
			t.Errorf("DELETE of %q: %v, %v", session, resp, err)
		}
		resp.Body.Close()
	}
	a.session = ""
	resp, err := a.client.Do(a.request(http.MethodPost, `{"jsonrpc":"2.0","method":"initialize","params":{"protocolVersion":"2025-06-18"}}`, nil))
	if err != nil || resp.StatusCode != http.StatusAccepted || resp.Header.Get("Mcp-Session-Id") != "" {
		t.Errorf("a notification: %v, %v, %s", resp, err, strings.Join(resp.Header["Mcp-Session-Id"], " "))
	}
	resp.Body.Close()
}
