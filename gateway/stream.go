package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/keep-run/keep/connector/mcp"
)

// maxQueued is how many messages a stream holds for a client that reads slowly (law: bounded). The
// stream of one that reads more slowly is cut off.
const maxQueued = 256

// A stream has messages for one response of HTTP. Whoever has one does not wait for the client.
type stream struct {
	queue chan mcp.Message
	cut   chan struct{} // holds a token when the client was too slow
}

func newStream() *stream {
	return &stream{queue: make(chan mcp.Message, maxQueued), cut: make(chan struct{}, 1)}
}

// errSlow says that a client does not read what it is told.
var errSlow = errors.New("the client reads too slowly, and its stream is cut off")

// push adds a message.
func (s *stream) push(m mcp.Message) error {
	select {
	case s.queue <- m:
		return nil
	default:
	}
	s.close()
	return errSlow
}

// sender returns what adds messages, if the client of a request takes a stream.
func (s *stream) sender(r *http.Request) func(mcp.Message) error {
	if accepts(r, "text/event-stream") {
		return s.push
	}
	return func(mcp.Message) error { return errNoStream }
}

// close cuts the stream off.
func (s *stream) close() {
	select {
	case s.cut <- struct{}{}:
	default:
	}
}

// errNoStream says that what a server tells without being asked does not reach a client.
var errNoStream = errors.New("the client has no stream for notifications")

// toStream writes what belongs to no request.
func (s *session) toStream(m mcp.Message) error {
	s.mu.Lock()
	st := s.stream
	s.mu.Unlock()
	if st == nil {
		return errNoStream
	}
	return st.push(m)
}

// A sink writes a response of HTTP: one message, or a stream of events.
type sink struct {
	w       http.ResponseWriter
	control *http.ResponseController
	events  bool // the response is a stream of events
	gone    bool // the client does not take it
}

// open begins a stream of events.
func (k *sink) open() {
	if k.events {
		return
	}
	k.events = true
	k.w.Header().Set("Content-Type", "text/event-stream")
	k.w.Header().Set("Cache-Control", "no-store")
	k.w.Header().Set("X-Accel-Buffering", "no") // proxies must not hold events back
	k.w.WriteHeader(http.StatusOK)
}

// event writes a message as an event.
func (k *sink) event(m mcp.Message) error {
	frame, err := mcp.Frame(m)
	if err != nil {
		return err
	}
	return k.eventOf(frame)
}

// eventOf writes a frame as an event.
func (k *sink) eventOf(frame []byte) error {
	k.open()
	return k.write(append(append([]byte("event: message\ndata: "), frame...), "\n\n"...))
}

// write writes to a client that has writeTime to take it.
func (k *sink) write(b []byte) error {
	_ = k.control.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := k.w.Write(b); err != nil {
		return err
	}
	return k.control.Flush()
}

// drain writes the messages that are there, of a stream that was not cut off.
func (k *sink) drain(s *stream) error {
	select {
	case <-s.cut:
		return errSlow
	default:
	}
	for {
		select {
		case m := <-s.queue:
			if err := k.event(m); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// until writes the messages of a stream until the answer is there. A client that does not take them
// does not wait for the answer, either.
func until[T any](k *sink, st *stream, answered <-chan T, cancel context.CancelFunc) T {
	for {
		select {
		case m := <-st.queue:
			if k.event(m) != nil {
				k.gone = true
				cancel()
			}
		case <-st.cut:
			k.gone = true
			cancel()
		case a := <-answered:
			if k.drain(st) != nil {
				k.gone = true
			}
			return a
		}
	}
}

// answer writes the answer to a request, with a status if it is the one message of the response.
func (k *sink) answer(frame []byte, status int) error {
	if k.gone {
		return errSlow
	}
	if k.events {
		return k.eventOf(frame)
	}
	k.w.Header().Set("Content-Type", "application/json")
	k.w.Header().Set("Content-Length", fmt.Sprint(len(frame)))
	k.w.WriteHeader(status)
	return k.write(frame)
}

// statusOf returns the status of an answer of the version of 2026-07-28.
func statusOf(e *mcp.RPCError) int {
	switch {
	case e == nil:
	case e.Code == methodNotFound:
		return http.StatusNotFound
	case e.Code <= headerMismatch && e.Code >= unsupportedVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// get gives a session a stream for what belongs to no request. Another one takes its place.
func (h *HTTPHandler) get(w http.ResponseWriter, r *http.Request, agent string) {
	if !accepts(r, "text/event-stream") {
		h.refuse(w, r, http.StatusNotAcceptable, "a GET is for a stream of events (Accept: text/event-stream)")
		return
	}
	h.mu.Lock()
	s := h.sessions[sessionKey{agent, r.Header.Get(headerSession)}]
	h.mu.Unlock()
	if s == nil || r.Header.Get(headerSession) == "" {
		h.refuse(w, r, http.StatusNotFound, "there is no such session: begin a new one")
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	k, st := &sink{w: w, control: control}, newStream()
	s.mu.Lock()
	old := s.stream
	s.stream = st
	s.mu.Unlock()
	if old != nil {
		old.close()
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.stream == st {
			s.stream = nil
		}
	}()
	k.open()
	for err := k.write(nil); err == nil; {
		select {
		case m := <-st.queue:
			err = k.event(m)
		case <-st.cut:
			return
		case <-r.Context().Done():
			return
		case <-s.over:
			return
		}
	}
}
