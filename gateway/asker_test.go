//go:build unix

package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/store/sqlite"
)

// serveAsker is an MCP server that says when its tool hold is called, and never answers that. Its tool ask asks whoever is there, and answers
// with what it is told.
func serveAsker() {
	in := bufio.NewReader(os.Stdin)
	var asked json.RawMessage // the call of ask
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		switch {
		case json.Unmarshal(line, &m) != nil || m.ID == nil:
		case m.Method == "initialize":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}}`+"\n", m.ID)
		case m.Method == "tools/list":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"hold","inputSchema":{"type":"object"}},{"name":"ask","inputSchema":{"type":"object"}}]}}`+"\n", m.ID)
		case m.Params.Name == "hold":
			fmt.Println(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`)
		case m.Params.Name == "ask":
			asked = m.ID
			fmt.Println(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"of the call that is held"}}`)
			fmt.Println(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Is it meant?"}}`)
		case m.Method == "":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%q}]}}`+"\n", asked, line)
		}
	}
}

// An agent that came second makes a call of a server that is a process, and goes: what the server asks and tells while that call is out
// may be about it, and does not reach the agent that stays. Law: permitted.
func TestAskedAboutTheCallOfAnother(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	db := sqlite.New(filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(ctx); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	server := mcp.ServerConfig{Name: "s", Command: os.Args[0], Env: map[string]string{"GATEWAY_TEST_ROLE": "asker"}}
	g, err := gateway.New(ctx, db, gateway.Config{Servers: []mcp.ServerConfig{server}, Policy: testPolicy(), Alone: true, Logger: slog.New(slog.DiscardHandler),
		Rules: map[keep.ToolName]gateway.Rule{"s.ask": {Read: true}}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	serve := func(agent string, alone bool) (c *client, ended chan error) {
		ended = make(chan error, 1)
		fromAgent, in := io.Pipe()
		out, toAgent := io.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- gateway.Front{Connect: func(context.Context) (gateway.Link, error) {
				front, back := gateway.NewLink()
				go func() { ended <- g.ServeLink(ctx, agent, alone, back) }() // ends with the link
				return front, nil
			}, Logger: slog.New(slog.DiscardHandler)}.Serve(ctx, fromAgent, toAgent)
			_ = toAgent.Close()
		}()
		c = newClient(t, in, out, func() { <-done })
		c.ask(1, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}}}`)
		return c, ended
	}
	until := func(c *client, parts ...string) (all string) {
		for !slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(all, part) }) {
			line, err := c.out.ReadString('\n')
			if err != nil {
				t.Fatalf("%v after %s", err, all)
			}
			all += line
		}
		return all
	}
	ann, _ := serve("ann", true)
	bob, ended := serve("bob", false)
	ann.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"s__ask"}}`)
	if got := until(ann, `"id":2`); !strings.Contains(got, "-32601") {
		t.Errorf("while there are two agents, ann gets %s", got)
	}
	bob.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"s__hold"}}`)
	until(ann, "notifications/resources/list_changed") // the server has it
	bob.stop()
	<-ended
	ann.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"s__ask"}}`)
	if got := until(ann, `"id":3`, "elicitation/create"); strings.Contains(got, "elicitation/create") || !strings.Contains(got, "-32601") || strings.Contains(got, "that is held") {
		t.Errorf("ann gets %s", got)
	}
}
