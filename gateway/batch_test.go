//go:build unix

package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/gateway"
)

// A batch of five answers: two equal calls, a ping, and what is no message or no part of a batch.
func aBatch(title string) string {
	call := `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`
	return "[" + strings.Join([]string{
		fmt.Sprintf(call, 21, createParams(title)), `{"jsonrpc":"2.0","method":"notifications/x"}`, `{"jsonrpc":"2.0","id":22,"method":"ping"}`,
		fmt.Sprintf(call, 23, createParams(title)), `5`, `{"jsonrpc":"2.0","id":24,"method":"initialize","params":{}}`,
	}, ",") + "]"
}

// checkBatch checks the answers to aBatch.
func checkBatch(t *testing.T, text string, replayed bool) {
	t.Helper()
	var got []reply
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got) != 5 {
		t.Fatalf("%v: %q", err, text)
	}
	fresh := 0
	for i, id := range []string{"21", "22", "23", "null", "24"} {
		isCall, isWrong := id == "21" || id == "23", i > 2
		if string(got[i].ID) != id || isWrong != (got[i].Error != nil) || isWrong && got[i].Error.Code != -32600 || isCall && got[i].state() != "applied" {
			t.Errorf("answer %d, want that to %s: %s", i, id, text)
		}
		if isCall && got[i].Result.Meta["keep/replayed"] == nil {
			fresh++ // the other joins it, or comes after its end
		}
	}
	if replayed == (fresh > 0) {
		t.Errorf("%d answers were not given before, replayed is %t: %s", fresh, replayed, text)
	}
}

// Version 2025-03-26 has batches: each message is worked on as if it had come alone, and the answers are one. A batch
// that is sent again since its answers were lost makes no call twice, though another message is in it. Law: once.
func TestBatch(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}
	c := start(t, s)
	defer c.stop()
	line := func() string {
		t.Helper()
		text, err := c.out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	c.send(aBatch("x"))
	if got := line(); !strings.Contains(got, "-32600") || effects(t, s.Dir, "x") != 0 {
		t.Errorf("a batch in another version: %s", got)
	}
	if r, _ := c.ask(1, "initialize", `{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`); r.Error != nil {
		t.Fatal(r.raw)
	}
	for _, again := range []bool{false, true} {
		c.send(aBatch("x"))
		checkBatch(t, line(), again)
		if n := effects(t, s.Dir, "x"); n != 1 {
			t.Errorf("%d effects", n)
		}
	}
	c.send(`[{"jsonrpc":"2.0","id":31,"method":"ping"}]`) // shows that the answers were read
	if got := line(); got != `[{"jsonrpc":"2.0","id":31,"result":{}}]`+"\n" {
		t.Errorf("%s", got)
	}
	c.send(`[{"jsonrpc":5,"id":32,"method":"ping"}]`)
	if got := line(); !strings.HasPrefix(got, `[{"jsonrpc":"2.0","id":32,"error":`) {
		t.Errorf("%s", got)
	}
	c.send(aBatch("x"))
	checkBatch(t, line(), false)
	if n := effects(t, s.Dir, "x"); n != 2 {
		t.Errorf("%d effects after the answers were read", n)
	}
	c.send(`[{"jsonrpc":"2.0","method":"notifications/x"}]`) // has no answer
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for name, bad := range map[string]string{"empty": "[]", "too many": "[" + strings.TrimSuffix(strings.Repeat(ping+",", 65), ",") + "]", "cut": `[{"jsonrpc"`} {
		c.send(bad)
		if got := line(); strings.Contains(got, "-32700") != (name == "cut") || strings.Contains(got, "-32600") == (name == "cut") {
			t.Errorf("%s: %s", name, got)
		}
	}
	c.stop()
	check(t, s.Dir)
}

func TestBatchByHTTP(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Rules: paired()}
	a := newAgent(t, openHall(t, s).url, "ann")
	send := func(body, version string) (string, int) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+agentTokens["ann"])
		req.Header.Set("Mcp-Session-Id", a.session)
		if version != "" {
			req.Header.Set("MCP-Protocol-Version", version)
		}
		resp, err := a.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text), resp.StatusCode
	}
	a.begin()
	if text, status := send(aBatch("x"), ""); status != 400 || !strings.Contains(text, "-32600") || effects(t, s.Dir, "x") != 0 {
		t.Errorf("a batch in another version: %d %s", status, text)
	}
	a.session = ""
	a.send("initialize", `{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`, nil)
	for _, version := range []string{"2025-06-18", "2026-07-28"} {
		if text, status := send(aBatch("x"), version); status != 400 || effects(t, s.Dir, "x") != 0 {
			t.Errorf("%s: %d %s", version, status, text)
		}
	}
	for _, again := range []bool{false, true} {
		text, status := send(aBatch("x"), "")
		checkBatch(t, text, again)
		if n := effects(t, s.Dir, "x"); n != 1 || status != 200 {
			t.Errorf("%d effects, status %d", n, status)
		}
	}
	if text, status := send(`[{"jsonrpc":"2.0","method":"notifications/x"}]`, "2025-03-26"); status != 202 || text != "" {
		t.Errorf("notifications alone: %d %s", status, text)
	}
	if text, status := send(aBatch("x"), ""); status != 200 || effects(t, s.Dir, "x") != 2 {
		t.Errorf("after the answers were read: %d effects, %d %s", effects(t, s.Dir, "x"), status, text)
	}
}

// A client that cancels a request of a batch, while another request of that is worked on, does not take its answer. Law: once.
func TestCancelledInABatch(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	let := sync.OnceFunc(func() { close(hold) })
	defer let()
	url, _ := serveHostile(t, func(_ http.ResponseWriter, method string, _ json.RawMessage) bool {
		if method == "tools/call" {
			<-hold
		}
		return false
	})
	d := open(t, setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}, func(cfg *gateway.Config) {
		cfg.Servers = append(cfg.Servers, mcp.ServerConfig{Name: "slow", URL: url})
	})
	d.ask(1, "initialize", `{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
	call := `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`
	d.send("[" + fmt.Sprintf(call, 31, createParams("x")) + "," + fmt.Sprintf(call, 32, `{"name":"slow__create","arguments":{}}`) + "]")
	ctx, cancel := testContext()
	defer cancel()
	for closed := false; !closed; {
		list, _, err := d.db.Runs(ctx, keep.RunFilter{}, keep.Page{})
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range list {
			closed = closed || run.Status == keep.StatusCommitted
		}
		time.Sleep(time.Millisecond)
	}
	d.ping()
	d.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":31}}`)
	d.ping()
	let()
	if line, err := d.out.ReadString('\n'); err != nil || !strings.HasPrefix(line, "[") {
		t.Fatalf("%v: %s", err, line)
	}
	d.ping()
	d.want("again", d.make("x"), "applied", 1, `"keep/replayed":true`)
}
