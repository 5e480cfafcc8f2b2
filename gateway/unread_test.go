//go:build unix

package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/store/sqlite"
)

// serveAsking is an MCP server by HTTP whose tool ask asks in the stream of its call, and answers with what it is told.
func serveAsking(t *testing.T) string {
	told := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		var m mcp.Message
		_ = json.Unmarshal(text, &m)
		result := `{"content":[]}`
		switch {
		case m.Method == "" && m.ID != nil:
			told <- string(text)
			w.WriteHeader(http.StatusAccepted)
			return
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
			return
		case m.Method == "initialize":
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}`
		case m.Method == "tools/list":
			result = `{"tools":[{"name":"ask","inputSchema":{"type":"object"}}]}`
		case m.Method == "tools/call":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, `data: {"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Is it meant?"}}`+"\n\n")
			w.(http.Flusher).Flush()
			select {
			case answer := <-told:
				content, _ := json.Marshal([]map[string]string{{"type": "text", "text": answer}})
				fmt.Fprintf(w, `data: {"jsonrpc":"2.0","id":%s,"result":{"content":%s}}`+"\n\n", m.ID, content)
			case <-r.Context().Done():
			}
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// An answer of an agent that is too large to be read is one all the same: the server that asked is told that there is none, and does
// not wait without an end. Law: bounded.
func TestAnswerOfAnAgentThatIsTooLarge(t *testing.T) {
	t.Parallel()
	const limit = 16 << 10
	answers := map[string]string{
		"its id first": `{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"x":"` + strings.Repeat("x", 2*limit) + `"}}}`,
		"its id last":  `{"jsonrpc":"2.0","result":{"action":"accept","content":{"x":"` + strings.Repeat("x", limit) + `"}},"id":%s}`,
	}
	for name, serve := range map[string]func(ctx context.Context, t *testing.T, g *gateway.Gateway) *client{
		"stdin and stdout": func(ctx context.Context, t *testing.T, g *gateway.Gateway) *client {
			fromAgent, in := io.Pipe()
			out, toAgent := io.Pipe()
			done := make(chan error, 1)
			go func() {
				done <- g.ServeStdio(ctx, "a", fromAgent, toAgent)
				_ = toAgent.Close()
			}()
			return newClient(t, in, out, func() { <-done })
		},
		"a front": func(ctx context.Context, t *testing.T, g *gateway.Gateway) *client {
			fromAgent, in := io.Pipe()
			out, toAgent := io.Pipe()
			done := make(chan error, 1)
			go func() {
				done <- gateway.Front{Connect: func(context.Context) (gateway.Link, error) {
					front, back := gateway.NewLink()
					go func() { _ = g.ServeLink(ctx, "a", true, back) }() // ends with the link
					return front, nil
				}, MessageLimit: limit, Logger: slog.New(slog.DiscardHandler)}.Serve(ctx, fromAgent, toAgent)
				_ = toAgent.Close()
			}()
			return newClient(t, in, out, func() { <-done })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t.Context(), t, askingGateway(t, limit))
			c.ask(1, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}}}`)
			for which, answer := range answers {
				c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"s__ask"}}`)
				asked := readUntil(t, c.out, "elicitation/create")
				c.send(fmt.Sprintf(answer, asked.ID))
				if got := readUntil(t, c.out, `"id":2`); !strings.Contains(string(got.Result), "a message is larger than 16 KiB") {
					t.Errorf("%s: the server was told, and answered %s", which, got.Result)
				}
			}
		})
	}
	t.Run("HTTP", func(t *testing.T) {
		t.Parallel()
		h, err := askingGateway(t, limit).HTTP(gateway.HTTPConfig{Agents: agentTokens})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(h)
		t.Cleanup(srv.Close)
		a := newAgent(t, srv.URL+"/mcp", "ann")
		_, resp := a.send("initialize", `{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}}}`, nil)
		a.session = resp.Header.Get("Mcp-Session-Id")
		stream, err := a.client.Do(a.request(http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"s__ask"}}`, func(r *http.Request) {
			r.Header.Set("Accept", "application/json, text/event-stream")
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Body.Close()
		out := bufio.NewReader(stream.Body)
		asked := readUntil(t, out, "elicitation/create")
		resp, err = a.client.Do(a.request(http.MethodPost, fmt.Sprintf(answers["its id first"], asked.ID), nil))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := readUntil(t, out, `"id":2`); resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(string(got.Result), "a message is larger than 16 KiB") {
			t.Errorf("%d, and the server was told, and answered %s", resp.StatusCode, got.Result)
		}
	})
}

// askingGateway is a gateway before a server that asks.
func askingGateway(t *testing.T, limit int) *gateway.Gateway {
	t.Helper()
	db := sqlite.New(filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(t.Context(), db, gateway.Config{Servers: []mcp.ServerConfig{{Name: "s", URL: serveAsking(t)}}, Policy: testPolicy(), Alone: true, MessageLimit: limit,
		Logger: slog.New(slog.DiscardHandler), Rules: map[keep.ToolName]gateway.Rule{"s.ask": {Read: true}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// readUntil returns the first message whose line has a text.
func readUntil(t *testing.T, out *bufio.Reader, text string) (m mcp.Message) {
	t.Helper()
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatalf("%v before %s", err, text)
		}
		if strings.Contains(line, text) {
			_ = json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &m)
			return m
		}
	}
}
