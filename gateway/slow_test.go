//go:build unix

package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/store/sqlite"
)

// An agent that does not read what servers tell it does not keep another one from its answers. Law: bounded.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Rules: paired()}
	db := sqlite.New(filepath.Join(s.Dir, "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	g, err := gateway.New(t.Context(), db, gateway.Config{Servers: []mcp.ServerConfig{s.serverConfig()}, Rules: s.Rules, Policy: testPolicy(), Alone: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	link := func(agent string) (front gateway.Link) {
		front, back := gateway.NewLink()
		go func() { _ = g.ServeLink(context.Background(), agent, false, back) }() // ends with front
		fmt.Fprintln(front, `0 {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		return front
	}
	ann := link("ann") // who reads nothing
	defer ann.Close()
	bob := link("bob")
	defer bob.Close()
	fail(t, s.Dir, "changes")
	fmt.Fprintln(bob, `0 {"jsonrpc":"2.0","id":7,"method":"tools/call","params":`+createParams("x")+`}`)
	c := &client{t: t, in: bob, out: bufio.NewReader(bob), wait: func() {}}
	if r, _ := c.read(7); r.state() != "applied" {
		t.Errorf("%s", r.raw)
	}
}
