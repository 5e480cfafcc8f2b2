//go:build unix

package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// An agent that sends half messages keeps no other agent out, nor itself.
func TestHalfMessages(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir()}
	s.URL, _ = serveHostile(t, func(http.ResponseWriter, string, json.RawMessage) bool { return false })
	url := openHall(t, s).url
	first := halfMessage(t, url, "bob")
	for range 511 {
		halfMessage(t, url, "bob")
	}
	for _, name := range []string{"ann", "bob"} {
		a := newAgent(t, url, name)
		if r, resp := a.send("ping", "{}", nil); resp == nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s beside 512 half messages of bob: %s", name, r.raw)
		}
	}
	resp, err := http.ReadResponse(first, nil)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !resp.Close {
		t.Errorf("the oldest half message got %+v, %v, want 503 and its end", resp, err)
	}
}

// halfMessage begins a message of an agent, whose body is being read when it returns, and sends no more of it.
func halfMessage(t *testing.T, url, agent string) *bufio.Reader {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n", agentTokens[agent])
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); !strings.Contains(line, "100 Continue") {
		t.Fatalf("the message is not read: %q, %v", line, err)
	}
	_, _ = in.ReadString('\n')
	_, _ = io.WriteString(conn, "{")
	return in
}
