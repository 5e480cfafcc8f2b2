// Package llmtest is a service of language models for tests. It speaks both protocols that
// package llm speaks, streams its answers, and says what a test tells it to. It can be as bad
// as a service can: it answers garbage, nothing, or without an end.
package llmtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Key is the API key that the service wants.
const Key = "sk-test-5f1c2d3e4b5a69788796a5b4c3d2e1f0"

// A Fault is how an answer goes wrong.
type Fault string

// The faults.
const (
	None    Fault = ""
	Garbage Fault = "garbage" // a stream of events that are no JSON
	Silent  Fault = "silent"  // nothing, until the client goes
	Endless Fault = "endless" // text without an end, as fast as the client reads
	OneLine Fault = "oneline" // an event without an end
	Cut     Fault = "cut"     // the stream ends in the middle of the answer
	HTML    Fault = "html"    // a page of somebody in between
	Drop    Fault = "drop"    // the connection ends before the header
)

// A Reply is what the service answers to one request.
type Reply struct {
	Text   string
	Calls  []Call
	Fault  Fault
	Status int    // of an error; 0: none
	Kind   string // of the error
	In     int64  // tokens that are reported; 0: 100
	Out    int64  // 0: 50
	Mute   bool   // no tokens are reported
	Long   bool   // the model stopped for its length
}

// A Call is a call of a tool.
type Call struct {
	Name      string
	Arguments any // a string is sent as it is
}

// A Request is one as the service got it.
type Request struct {
	N      int // from 1
	Chat   bool
	Model  string
	System string
	Tools  []string
	Text   string // of all messages of the host, results of calls too
	Last   string // of the newest message
	Turns  int    // answers of the model in it
	Body   []byte
}

// A Server is a service: an http.Handler.
type Server struct {
	URL string // of one that Start started

	server *httptest.Server
	answer func(Request) Reply

	mu       sync.Mutex
	requests []Request
	sent     int64 // bytes of endless answers
}

// New returns a service that answers as answer says, which may be called by several
// goroutines at once.
func New(answer func(Request) Reply) *Server { return &Server{answer: answer} }

// Start starts a service that ends with its test.
func Start(tb testing.TB, answer func(Request) Reply) *Server {
	tb.Helper()
	s := New(answer)
	s.server = httptest.NewServer(s)
	s.URL = s.server.URL
	tb.Cleanup(func() {
		s.server.CloseClientConnections()
		s.server.Close()
	})
	return s
}

// Base returns base_url for a protocol.
func (s *Server) Base(chat bool) string {
	if chat {
		return s.URL + "/v1"
	}
	return s.URL
}

// Requests returns the requests so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Sent returns how many bytes of endless answers clients took.
func (s *Server) Sent() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	chat := r.URL.Path == "/v1/chat/completions"
	body, err := io.ReadAll(io.LimitReader(r.Body, 32<<20))
	switch {
	case err != nil || r.Method != http.MethodPost || !chat && r.URL.Path != "/v1/messages":
		http.Error(w, `{"error":{"type":"not_found_error"}}`, http.StatusNotFound)
		return
	case chat && r.Header.Get("Authorization") != "Bearer "+Key,
		!chat && (r.Header.Get("X-Api-Key") != Key || r.Header.Get("Anthropic-Version") == "" || r.Header.Get("Authorization") != ""):
		// As services do: the key is in the message.
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":{"type":"authentication_error","message":"wrong key %s%s"}}`, r.Header.Get("Authorization"), r.Header.Get("X-Api-Key"))
		return
	}
	q, err := read(chat, body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":{"type":"invalid_request_error","message":%q}}`, err.Error())
		return
	}
	s.mu.Lock()
	q.N = len(s.requests) + 1
	s.requests = append(s.requests, q)
	s.mu.Unlock()
	s.write(w, r, chat, s.answer(q))
}

// write answers.
func (s *Server) write(w http.ResponseWriter, r *http.Request, chat bool, a Reply) {
	switch {
	case a.Status != 0:
		w.WriteHeader(a.Status)
		fmt.Fprintf(w, `{"error":{"type":%q,"message":"no"}}`, a.Kind)
		return
	case a.Fault == Silent:
		<-r.Context().Done()
		return
	case a.Fault == HTML:
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<html>Sign in</html>")
		return
	case a.Fault == Drop:
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	switch a.Fault {
	case Garbage:
		fmt.Fprint(w, "data: {\"type\": \"content_\n\ndata: %%%\n\n")
		return
	case Endless, OneLine:
		s.endless(w, chat, a.Fault == OneLine)
		return
	}
	parts := messages(a)
	if chat {
		parts = completion(a)
	}
	if a.Fault == Cut {
		parts = parts[:len(parts)/2]
	}
	for _, p := range parts {
		fmt.Fprint(w, p)
		w.(http.Flusher).Flush()
	}
}

// endless writes until the client goes.
func (s *Server) endless(w http.ResponseWriter, chat, oneLine bool) {
	part := event("", map[string]any{"choices": []any{map[string]any{"index": 0, "delta": map[string]string{"content": string(make([]byte, 16<<10))}}}})
	if !chat {
		part = event("content_block_delta", map[string]any{"type": "content_block_delta", "index": 0, "delta": map[string]any{"type": "text_delta", "text": string(make([]byte, 16<<10))}})
	}
	if oneLine {
		fmt.Fprint(w, "data: ")
		part = string(make([]byte, 64<<10))
	}
	const most = 1 << 30
	for sent := int64(0); sent < most; {
		n, err := io.WriteString(w, part)
		sent += int64(n)
		s.mu.Lock()
		s.sent += int64(n)
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// event writes an event.
func event(name string, data any) string {
	b, err := json.Marshal(data)
	if err != nil {
		panic(err) // what a test said cannot be said
	}
	if name == "" {
		return "data: " + string(b) + "\n\n"
	}
	return "event: " + name + "\ndata: " + string(b) + "\n\n"
}

func (c Call) arguments() string {
	if s, ok := c.Arguments.(string); ok {
		return s
	}
	b, err := json.Marshal(c.Arguments)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// halves cuts a text, so that it comes in parts.
func halves(s string) []string { return []string{s[:len(s)/2], s[len(s)/2:]} }

func (a Reply) tokens() (in, out int64) {
	in, out = a.In, a.Out
	in = cmp.Or(in, 100)
	if out == 0 {
		out = 50
	}
	if a.Mute {
		in, out = 0, 0
	}
	return in, out
}

// messages returns the events of an answer as Anthropic has them.
func messages(a Reply) []string {
	in, out := a.tokens()
	parts := []string{event("message_start", map[string]any{"type": "message_start", "message": map[string]any{"id": "msg_1", "role": "assistant", "usage": map[string]int64{"input_tokens": in, "output_tokens": min(out, 1)}}}), event("ping", map[string]string{"type": "ping"})}
	block := func(i int, start map[string]any, kind, key string, text string) {
		parts = append(parts, event("content_block_start", map[string]any{"type": "content_block_start", "index": i, "content_block": start}))
		for _, half := range halves(text) {
			parts = append(parts, event("content_block_delta", map[string]any{"type": "content_block_delta", "index": i, "delta": map[string]string{"type": kind, key: half}}))
		}
		parts = append(parts, event("content_block_stop", map[string]any{"type": "content_block_stop", "index": i}))
	}
	block(0, map[string]any{"type": "text", "text": ""}, "text_delta", "text", a.Text)
	stop := "end_turn"
	for i, c := range a.Calls {
		stop = "tool_use"
		block(i+1, map[string]any{"type": "tool_use", "id": fmt.Sprintf("toolu_%d", i+1), "name": c.Name, "input": map[string]any{}}, "input_json_delta", "partial_json", c.arguments())
	}
	if a.Long {
		stop = "max_tokens"
	}
	return append(parts,
		event("message_delta", map[string]any{"type": "message_delta", "delta": map[string]string{"stop_reason": stop}, "usage": map[string]int64{"output_tokens": out}}),
		event("message_stop", map[string]string{"type": "message_stop"}))
}

// completion returns the events of an answer as chat completions have them.
func completion(a Reply) []string {
	var parts []string
	choice := func(delta map[string]any, finish any) {
		parts = append(parts, event("", map[string]any{"object": "chat.completion.chunk", "choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}}))
	}
	choice(map[string]any{"role": "assistant"}, nil)
	for _, half := range halves(a.Text) {
		choice(map[string]any{"content": half}, nil)
	}
	finish := "stop"
	for i, c := range a.Calls {
		finish = "tool_calls"
		choice(map[string]any{"tool_calls": []any{map[string]any{"index": i, "id": fmt.Sprintf("call_%d", i+1), "type": "function", "function": map[string]string{"name": c.Name, "arguments": ""}}}}, nil)
		for _, half := range halves(c.arguments()) {
			choice(map[string]any{"tool_calls": []any{map[string]any{"index": i, "function": map[string]string{"arguments": half}}}}, nil)
		}
	}
	if a.Long {
		finish = "length"
	}
	choice(map[string]any{}, finish)
	if in, out := a.tokens(); in > 0 {
		parts = append(parts, event("", map[string]any{"choices": []any{}, "usage": map[string]int64{"prompt_tokens": in, "completion_tokens": out}}))
	}
	return append(parts, "data: [DONE]\n\n")
}
