package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/keep-run/keep/connector/mcp"
)

// A server with a handshake that begins anew is asked on each of its connections for what it took on that one, and for nothing else.
func TestSubscribesAgainWhereItDid(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // protects what follows
	alive := make(map[string]bool)
	asked := make(map[string][]string) // URIs, by session
	begun := 0
	last, given := make(chan string, 100), make(chan string, 100)
	url := serve(t, func(w http.ResponseWriter, r said) bool {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Method == "initialize":
			begun++
			name := fmt.Sprint(begun)
			alive[name] = true
			w.Header().Set("Mcp-Session-Id", name)
		case !alive[r.session]:
			w.WriteHeader(http.StatusNotFound)
			return true
		case r.Method == "resources/unsubscribe":
			given <- r.session
		case r.Method == "resources/subscribe":
			var p struct{ URI string }
			_ = json.Unmarshal(r.Params, &p)
			asked[r.session] = append(asked[r.session], p.URI)
			if p.URI == "z" {
				last <- r.session
			}
		}
		return false
	})
	s := mcp.NewServer(mcp.ServerConfig{Name: "desk", URL: url, Notified: func(mcp.Message) {}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	defer s.Close()
	s.Watch([]string{"a", "b", "c", "d", "z"})
	first := t.Context()
	second := mcp.WithClient(t.Context(), &mcp.Client{Capabilities: json.RawMessage(`{"sampling":{}}`)})
	for _, uri := range []string{"b", "z"} {
		_, _ = s.Call(first, "resources/subscribe", json.RawMessage(fmt.Sprintf(`{"uri":%q}`, uri)))
	}
	for _, uri := range []string{"c", "d", "z"} {
		_, _ = s.Call(second, "resources/subscribe", json.RawMessage(fmt.Sprintf(`{"uri":%q}`, uri)))
	}
	s.Watch([]string{"z", "a", "b", "c"})
	<-last
	<-last
	if session := <-given; session != "2" {
		t.Errorf("session %s gives up what nobody wants", session)
	}
	mu.Lock()
	clear(alive)
	mu.Unlock()
	for _, c := range []struct {
		ctx  context.Context
		want []string
	}{{first, []string{"b", "z"}}, {second, []string{"c", "z"}}} {
		for range 2 { // the first one notices that the connection is over
			_, _ = s.Call(c.ctx, "tools/list", json.RawMessage("{}"))
		}
		session := <-last
		mu.Lock()
		if got := asked[session]; !slices.Equal(got, c.want) {
			t.Errorf("asked for %q, want %q", got, c.want)
		}
		mu.Unlock()
	}
}

// What a server is to end is bounded: it keeps the rest. What follows is ended, too.
func TestGivesUpInBounds(t *testing.T) {
	t.Parallel()
	const all, bound = 1100, 1024
	given := make(chan string, all)
	url := serve(t, func(_ http.ResponseWriter, r said) bool {
		if r.Method == "resources/unsubscribe" {
			var p struct{ URI string }
			_ = json.Unmarshal(r.Params, &p)
			given <- p.URI
		}
		return false
	})
	s := mcp.NewServer(mcp.ServerConfig{Name: "desk", URL: url, Notified: func(mcp.Message) {}, Logger: slog.New(slog.DiscardHandler)})
	defer s.Close()
	uris := []string{"next"}
	for i := range all {
		uris = append(uris, fmt.Sprint(i))
	}
	s.Watch(uris)
	ask := func(uri string) {
		if _, err := s.Call(t.Context(), "resources/subscribe", json.RawMessage(fmt.Sprintf(`{"uri":%q}`, uri))); err != nil {
			t.Fatal(err)
		}
	}
	for _, uri := range uris[1:] {
		ask(uri)
	}
	s.Watch([]string{"next"})
	for range bound {
		<-given
	}
	ask("next")
	s.Watch(nil)
	if uri := <-given; uri != "next" {
		t.Errorf("after %d resources the server is to give up %s", bound, uri)
	}
}

// A subscription whose answer was lost is ended: the server may have taken it, and the client was told that it was not.
func TestGivesUpWhatHasNoAnswer(t *testing.T) {
	t.Parallel()
	given := make(chan bool, 1)
	url := serve(t, func(_ http.ResponseWriter, r said) bool {
		switch r.Method {
		case "resources/subscribe":
			panic(http.ErrAbortHandler)
		case "resources/unsubscribe":
			given <- true
		}
		return false
	})
	s := mcp.NewServer(mcp.ServerConfig{Name: "desk", URL: url, Notified: func(mcp.Message) {}, Logger: slog.New(slog.DiscardHandler)})
	defer s.Close()
	s.Watch([]string{"x"})
	if _, err := s.Call(t.Context(), "resources/subscribe", json.RawMessage(`{"uri":"x"}`)); err == nil {
		t.Fatal("the answer was to be lost")
	}
	<-given
}
