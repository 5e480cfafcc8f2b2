package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keep-run/keep"
)

// What a server tells or asks by HTTP before the answer to a call, and which is too large to be read, does not end the call in doubt:
// it is left out or refused, and the answer that comes behind it counts. An answer that is too large is none. Law doubt-is-not-failure.
func TestEventThatIsTooLarge(t *testing.T) {
	t.Parallel()
	const limit = 8 << 10
	long := strings.Repeat("x", 3*limit)
	for name, c := range map[string]struct {
		event   string // %s is the id of the call
		refused string // the id of a request of the server that is refused
		fails   bool
	}{
		"a log":                      {event: "event: message\ndata: " + `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + long + `"}}` + "\n\n"},
		"a log in many lines":        {event: strings.Repeat("data: "+strings.Repeat(" ", limit/2)+"\n", 8) + `data: {"jsonrpc":"2.0","method":"notifications/message"}` + "\n\n"},
		"a comment":                  {event: ": " + long + "\n\n"},
		"a question":                 {event: `data: {"jsonrpc":"2.0","id":"q","method":"roots/list","params":{"x":"` + long + `"}}` + "\n\n", refused: `"q"`},
		"a question of the same id":  {event: `data: {"jsonrpc":"2.0","params":{"x":"` + long + `"},"method":"roots/list","id":%s}` + "\n\n", refused: "2"},
		"the answer to another call": {event: `data: {"jsonrpc":"2.0","id":77,"result":{"x":"` + long + `"}}` + "\n\n"},
		"the answer":                 {event: `data: {"jsonrpc":"2.0","id":%s,"result":{"x":"` + long + `"}}` + "\n\n", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := make(chan Message, 1)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var m Message
				switch {
				case json.NewDecoder(r.Body).Decode(&m) != nil:
				case m.Error != nil:
					told <- m
					w.WriteHeader(http.StatusAccepted)
				case !handshake(w, m):
					w.Header().Set("Content-Type", "text/event-stream")
					fmt.Fprint(w, strings.Replace(c.event, "%s", string(m.ID), 1))
					w.(http.Flusher).Flush()
					if c.refused != "" {
						if m := waited(r.Context(), told); string(m.ID) != c.refused || m.Error.Code != -32600 {
							t.Errorf("the server is answered %+v", m)
						}
					}
					fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", m.ID)
				}
			}))
			t.Cleanup(srv.Close)
			s := NewServer(ServerConfig{Name: "desk", URL: srv.URL, MessageLimit: limit})
			t.Cleanup(func() { s.Close() })
			ans, err := s.Call(alone(t.Context()), "tools/call", json.RawMessage(`{"name":"add"}`))
			if c.fails {
				if f := Classify("add", ans, err); f == nil || f.Class != keep.ClassUnknown || f.Message != "a message is larger than 8 KiB" {
					t.Errorf("%v; want that it is too large and unknown", f)
				}
				return
			}
			if err != nil || string(ans.Result) != `{"content":[]}` {
				t.Errorf("%s, %v; want its answer", ans.Result, err)
			}
		})
	}
}

// waited returns the next message, or none if nobody waits for the answer any more.
func waited(ctx context.Context, told <-chan Message) Message {
	select {
	case m := <-told:
		return m
	case <-ctx.Done():
		return Message{Error: new(RPCError)}
	}
}
