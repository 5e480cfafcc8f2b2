//go:build unix

package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/keep-run/keep"
)

// serveModern starts a server of the official SDK that speaks 2026-07-28 alone. Its tool create asks for a
// body before it adds a note; its tool talk says more about a call than a client that does not read can take.
func serveModern(t *testing.T, dir string) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	s := sdk.NewServer(&sdk.Implementation{Name: "notes", Version: "1"}, &sdk.ServerOptions{SupportedProtocolVersions: []string{"2026-07-28"}})
	sdk.AddTool(s, &sdk.Tool{Name: "create"}, func(_ context.Context, r *sdk.CallToolRequest, n map[string]any) (*sdk.CallToolResult, any, error) {
		given, ok := r.Params.InputResponses["body"].(*sdk.ElicitResult)
		if !ok || given.Action != "accept" {
			asked.Add(1)
			return &sdk.CallToolResult{RequestState: "one", InputRequests: sdk.InputRequestMap{"body": &sdk.ElicitParams{Message: "What is in it?",
				RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"text": map[string]string{"type": "string"}}}}}}, nil, nil
		}
		f, err := os.OpenFile(filepath.Join(dir, "effects"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, err
		}
		defer f.Close()
		row, _ := json.Marshal(note{fmt.Sprint(n["title"]), fmt.Sprint(given.Content["text"])})
		_, err = f.Write(append(row, '\n'))
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "created"}}}, nil, err
	})
	sdk.AddTool(s, &sdk.Tool{Name: "talk"}, func(ctx context.Context, r *sdk.CallToolRequest, _ map[string]any) (*sdk.CallToolResult, any, error) {
		for i := range 20_000 {
			_ = r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i), Message: strings.Repeat("x", 1000)})
		}
		return &sdk.CallToolResult{}, nil, os.WriteFile(filepath.Join(dir, "talked"), nil, 0o600)
	})
	srv := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(srv.Close)
	return srv.URL, asked
}

// modern makes a request one of 2026-07-28.
func modern(method, name string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("MCP-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", method)
		r.Header.Set("Mcp-Name", name)
		r.Header.Set("Accept", "application/json, text/event-stream")
	}
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"progressToken":"p"}`

// ask calls create as an agent of 2026-07-28. More are the inputs.
func (a *httpAgent) ask(title, more string) reply {
	a.t.Helper()
	r, _ := a.send("tools/call", fmt.Sprintf(`{"name":"notes__create","arguments":{"title":%q}%s,%s}`, title, more, modernMeta), modern("tools/call", "notes__create"))
	return r
}

const given = `,"requestState":"one","inputResponses":{"body":{"action":"accept","content":{"text":"hello"}}}`

// A server that needs more for a call is asked by its agent, in rounds of one record: a round that was lost and
// is issued again is the same one, and the call is made once.
func TestRounds(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir()}
	var asked *atomic.Int64
	s.URL, asked = serveModern(t, s.Dir)
	h := openHall(t, s)
	a := newAgent(t, h.url, "ann")
	for range 2 {
		if r := a.ask("x", ""); !strings.Contains(r.raw, `"resultType":"input_required"`) || !strings.Contains(r.raw, `"requestState":"one"`) || asked.Load() != 1 {
			t.Fatalf("asked %d times: %s", asked.Load(), r.raw)
		}
	}
	if list, _, err := h.db.Mutations(t.Context(), keep.MutationFilter{}, keep.Page{}); err != nil || len(list) != 1 || list[0].State != keep.InFlight {
		t.Errorf("%+v, %v", list, err)
	}
	if r := a.ask("x", `,"requestState":"other","inputResponses":{}`); r.Error == nil || r.Error.Code != -32602 {
		t.Errorf("a state that nobody gave: %s", r.raw)
	}
	for _, wrong := range []string{`12`, `[]`, `null`, `{"body":12}`, `{"body":null}`, `{"body":[]}`} {
		if r := a.ask("x", `,"requestState":"one","inputResponses":`+wrong); r.Error == nil || r.Error.Code != -32602 || !strings.Contains(r.Error.Message, "was not passed on") || asked.Load() != 1 {
			t.Errorf("inputs %s: asked %d times, %s", wrong, asked.Load(), r.raw)
		}
	}
	for i := range 2 {
		if r := a.ask("x", given); r.state() != "applied" || (r.Result.Meta["keep/replayed"] == true) != (i == 1) || effects(t, s.Dir, "x") != 1 {
			t.Errorf("%d: %d effects, %s", i, effects(t, s.Dir, "x"), r.raw)
		}
	}
	if list, _, err := h.db.Mutations(t.Context(), keep.MutationFilter{}, keep.Page{}); err != nil || len(list) != 1 || list[0].State != keep.Applied || list[0].Attempt > 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// A client with a handshake, in front of a server without one, is asked by a request.
func TestRoundsByRequest(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Agent: "a"}
	s.URL, _ = serveModern(t, s.Dir)
	c := start(t, s)
	c.ask(2, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"1"}}`)
	c.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"notes__create","arguments":{"title":"x"}}}`)
	line, err := c.out.ReadString('\n')
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if err != nil || json.Unmarshal([]byte(line), &m) != nil || m.Method != "elicitation/create" {
		t.Fatalf("%s, %v", line, err)
	}
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"text":"hello"}}}`, m.ID))
	if r, ok := c.read(7); !ok || r.state() != "applied" || effects(t, s.Dir, "x") != 1 {
		t.Errorf("%s", r.raw)
	}
}

// A gateway that is killed while a server waits for more leaves a call whose outcome nobody knows.
func TestRoundsKilled(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir()}
	s.URL, _ = serveModern(t, s.Dir)
	url, _, kill := startKillable(t, s)
	a := newAgent(t, url, "ann")
	if r := a.ask("x", ""); !strings.Contains(r.raw, "input_required") {
		t.Fatalf("%s", r.raw)
	}
	kill()
	h := openHall(t, s)
	b := newAgent(t, h.url, "ann")
	if r := b.ask("x", given); r.state() != "indeterminate" || effects(t, s.Dir, "x") != 0 {
		t.Errorf("%d effects, %s", effects(t, s.Dir, "x"), r.raw)
	}
	if list, _, err := h.db.Escalations(t.Context(), keep.EscalationFilter{Open: true}, keep.Page{}); err != nil || len(list) != 1 {
		t.Errorf("%d questions, want 1: %v", len(list), err)
	}
}

// A client that does not read what it is told is cut off. Its call is made to its end, and whoever makes it again
// gets the answer.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir()}
	s.URL, _ = serveModern(t, s.Dir)
	h := openHall(t, s)
	a := newAgent(t, h.url, "ann")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url, strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"notes__talk","arguments":{},`+modernMeta+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+agentTokens["ann"])
	modern("tools/call", "notes__talk")(req)
	resp, err := a.client.Do(req)
	if err != nil || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v, %v", resp, err)
	}
	defer resp.Body.Close()
	for { // nothing is read until the server has said everything
		if _, err := os.Stat(filepath.Join(s.Dir, "talked")); err == nil {
			break
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the server waits for the client")
		case <-time.After(time.Millisecond):
		}
	}
	text, _ := io.ReadAll(resp.Body)
	if n := strings.Count(string(text), "notifications/progress"); n == 0 || n > 19_999 || strings.Contains(string(text), `"id":7`) {
		t.Errorf("%d messages of 20,000 were told to a client that read none, and the answer", n)
	}
	b := newAgent(t, h.url, "ann")
	r, _ := b.send("tools/call", `{"name":"notes__talk","arguments":{},`+strings.Replace(modernMeta, `,"progressToken":"p"`, "", 1)+`}`, modern("tools/call", "notes__talk"))
	for r.state() == "in_flight" {
		r, _ = b.send("tools/call", `{"name":"notes__talk","arguments":{},`+strings.Replace(modernMeta, `,"progressToken":"p"`, "", 1)+`}`, modern("tools/call", "notes__talk"))
	}
	if r.state() != "applied" {
		t.Errorf("%s", r.raw)
	}
}
