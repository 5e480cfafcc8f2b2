package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/redact"
)

// A frozenContext is that of a call whose time is over, and of which this process was not told: it was stopped until then.
type frozenContext struct {
	context.Context
	end time.Time
}

// Deadline is when the time is over.
func (c frozenContext) Deadline() (time.Time, bool) { return c.end, true }

// handshake answers what comes before a call, and reports whether it was that.
func handshake(w http.ResponseWriter, m Message) bool {
	switch {
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "initialize":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}`, m.ID)
	default:
		return false
	}
	return true
}

// A call is not sent after its time, by HTTP: another host may have asked by then. Law: once; see docs/design/0005-leases.md, Calls.
func TestCallAfterItsTime(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m Message
		if json.NewDecoder(r.Body).Decode(&m) == nil && !handshake(w, m) {
			calls.Add(1)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID)
		}
	}))
	t.Cleanup(srv.Close)
	s := NewServer(ServerConfig{Name: "desk", URL: srv.URL})
	t.Cleanup(func() { s.Close() })
	if _, err := s.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(50 * time.Millisecond)
	ctx := httptrace.WithClientTrace(frozenContext{t.Context(), end}, &httptrace.ClientTrace{WroteHeaders: func() {
		for time.Now().Before(end) {
		} // it is stopped when the request is written, and not sent
	}})
	_, err := s.Tool(Pairing{Tool: "add"}, 0).(connector.Mutator).Mutate(ctx, keep.Mutation{Payload: json.RawMessage(`{}`)})
	if n := calls.Load(); n != 0 || err == nil {
		t.Errorf("%d calls came after their time, and the call says %v", n, err)
	}
}

// So it is to a process.
func TestCallOfAProcessAfterItsTime(t *testing.T) {
	t.Parallel()
	out, in := io.Pipe()
	p := &process{cfg: ServerConfig{Logger: slog.New(slog.DiscardHandler), hide: new(redact.Hider)}, in: in,
		waiting: make(map[int64]chan Message), over: make(chan struct{}), writing: make(chan struct{}, 1), asking: make(chan struct{}, maxAsking)}
	read := make(chan string)
	go func() {
		line, err := NewReader(out, 1<<10).Next()
		if err == nil {
			p.end(errors.New("it ended"))
		}
		read <- string(line)
	}()
	_, err := p.call(frozenContext{t.Context(), time.Now().Add(-time.Second)}, request{method: "tools/call"})
	in.Close()
	if _, unsent := errors.AsType[*UnsentError](err); !unsent {
		t.Errorf("%v, want that nothing was sent", err)
	}
	if line := <-read; line != "" {
		t.Errorf("the process was sent %s", line)
	}
}

// A call whose time is over does not wait for a connection that another one makes: that nothing was sent is known at once, and not after
// the host gave up waiting, when the call is in doubt.
func TestCallBesideAConnectionThatIsMade(t *testing.T) {
	t.Parallel()
	asked, hold := make(chan struct{}, 4), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m Message
		if json.NewDecoder(r.Body).Decode(&m) != nil {
			return
		}
		if m.Method == "initialize" {
			asked <- struct{}{}
			<-hold
		}
		handshake(w, m)
	}))
	t.Cleanup(srv.Close)
	s := NewServer(ServerConfig{Name: "desk", URL: srv.URL})
	t.Cleanup(func() { s.Close() })
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := s.Info(t.Context())
		first <- err
	}()
	<-asked
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("its time is over")
	cancel(over)
	go func() {
		_, err := s.Call(ctx, "tools/call", json.RawMessage(`{"name":"add"}`))
		second <- err
	}()
	select {
	case err := <-second:
		if _, unsent := errors.AsType[*UnsentError](err); !unsent || !errors.Is(err, over) {
			t.Errorf("%v, want that nothing was sent since its time is over", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it waits for the connection that another call makes")
	}
	close(hold)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// A request of a server that is too large to be read is refused, also if it has the id of a call that is out: the answer to that one comes
// later. Law doubt-is-not-failure.
func TestRequestThatIsTooLarge(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2<<10)
	for name, asks := range map[string]string{
		"its id first": `{"jsonrpc":"2.0","id":1,"method":"roots/list","params":{"id":7,"x":"` + long + `"}}`,
		"its id last":  `{"jsonrpc":"2.0","params":{"method":"x","x":"` + long + `"},"method":"roots/list","id":1}`,
	} {
		fromUs, in := io.Pipe()
		fromServer, out := io.Pipe()
		p := &process{cfg: ServerConfig{Logger: slog.New(slog.DiscardHandler), hide: new(redact.Hider), MessageLimit: 1 << 10}, in: in,
			waiting: make(map[int64]chan Message), over: make(chan struct{}), writing: make(chan struct{}, 1), asking: make(chan struct{}, maxAsking)}
		go func() { p.end(p.read(fromServer)) }()
		refused := make(chan string, 1)
		go func() {
			frames := NewReader(fromUs, 1<<10)
			_, _ = frames.Next() // the call
			fmt.Fprintln(out, asks)
			answer, _ := frames.Next()
			refused <- string(answer)
			fmt.Fprintln(out, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		}()
		ans, err := p.call(t.Context(), request{method: "tools/call"})
		if err != nil || string(ans.Result) != `{"content":[]}` {
			t.Errorf("%s: the call has %s, %v; want its answer", name, ans.Result, err)
		}
		in.Close()
		if answer := <-refused; !strings.Contains(answer, `"id":1,"error":{"code":-32600,`) {
			t.Errorf("%s: the server was answered %q", name, answer)
		}
		fromUs.Close()
		out.Close()
	}
}

// Law doubt-is-not-failure: a server that needs more for a call has begun with it, whatever becomes of the request that brings it.
func TestCallThatNeededMore(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(w http.ResponseWriter){
		"is not sent": nil,
		"is refused":  func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) },
	} {
		begun := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var m Message
			if json.NewDecoder(r.Body).Decode(&m) != nil || handshake(w, m) {
				return
			}
			if begun++; begun > 1 {
				answer(w)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required"}}`, m.ID)
		}))
		s := NewServer(ServerConfig{Name: "desk", URL: srv.URL})
		c := &Client{Tool: "add", Input: func(context.Context, json.RawMessage) (Inputs, error) {
			if answer == nil {
				srv.Listener.Close()
			}
			return Inputs{Responses: json.RawMessage(`{}`)}, nil
		}}
		ans, err := s.Call(alone(WithClient(t.Context(), c)), "tools/call", json.RawMessage(`{"name":"add"}`))
		if f := Classify("add", ans, err); f == nil || f.Class != keep.ClassUnknown {
			t.Errorf("what it needed %s: %v, want it unknown", name, f)
		}
		s.Close()
		srv.Close()
	}
}

// Law doubt-is-not-failure: an answer with a result was executed, whatever error is beside that.
func TestResultBesideAnError(t *testing.T) {
	t.Parallel()
	for result, want := range map[string]keep.Class{"": keep.ClassLogic, "null": keep.ClassLogic, `{"content":[]}`: keep.ClassUnknown} {
		ans := Message{Result: json.RawMessage(result), Error: &RPCError{Code: -32602, Message: "Unknown tool: add"}}
		if f := Classify("add", ans, nil); f == nil || f.Class != want {
			t.Errorf("beside the result %q: %v, want it %s", result, f, want)
		}
	}
}
