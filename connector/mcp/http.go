package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
)

// An httpLink is a session with a server by streamable HTTP.
type httpLink struct {
	cfg    ServerConfig
	client *http.Client
	n      atomic.Int64

	mu      sync.Mutex // protects all below
	session string
	version string
	gone    bool
}

func newHTTP(cfg ServerConfig) *httpLink {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true
	return &httpLink{cfg: cfg, client: &http.Client{Transport: t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// agree notes the version that both sides speak.
func (h *httpLink) agree(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version = version
}

func (h *httpLink) dead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone
}

func (h *httpLink) close() { h.client.CloseIdleConnections() }

// A StatusError is an answer of a server that is none of the protocol.
type StatusError struct{ Status int }

// Error names the status.
func (e *StatusError) Error() string { return fmt.Sprintf("the MCP server answered HTTP %d", e.Status) }

func (h *httpLink) notify(ctx context.Context, method string, params json.RawMessage) error {
	resp, err := h.post(ctx, Message{Version: "2.0", Method: method, Params: params}, new(atomic.Bool))
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (h *httpLink) call(ctx context.Context, method string, params json.RawMessage) (Message, error) {
	id := json.RawMessage(itoa(int(h.n.Add(1))))
	var left atomic.Bool
	resp, err := h.post(ctx, Message{Version: "2.0", ID: id, Method: method, Params: params}, &left)
	if err != nil {
		if !left.Load() {
			err = &UnsentError{err}
		}
		return Message{}, err
	}
	defer resp.Body.Close()
	if s := resp.Header.Get("Mcp-Session-Id"); s != "" && method == "initialize" {
		h.mu.Lock()
		h.session = s
		h.mu.Unlock()
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case kind == "text/event-stream" && resp.StatusCode == http.StatusOK:
		return h.stream(resp.Body, id)
	case kind == "application/json":
		if m, err := h.whole(resp.Body, id); err == nil || resp.StatusCode == http.StatusOK {
			return m, err
		}
	}
	if resp.StatusCode == http.StatusNotFound {
		h.mu.Lock()
		h.gone = true // the session is over; the next call begins another
		h.mu.Unlock()
	}
	return Message{}, &StatusError{resp.StatusCode}
}

// post sends a frame. It notes in left that something of it may have left.
func (h *httpLink) post(ctx context.Context, m Message, left *atomic.Bool) (*http.Response, error) {
	frame, err := Frame(m)
	if err != nil {
		return nil, err
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { left.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.cfg.URL, bytes.NewReader(frame))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // the transport must not send it again
	for k, v := range h.cfg.Headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	h.mu.Lock()
	if h.session != "" {
		req.Header.Set("Mcp-Session-Id", h.session)
	}
	if h.version != "" {
		req.Header.Set("MCP-Protocol-Version", h.version)
	}
	h.mu.Unlock()
	return h.client.Do(req)
}

// whole reads an answer that is one frame.
func (h *httpLink) whole(body io.Reader, id json.RawMessage) (Message, error) {
	text, err := io.ReadAll(io.LimitReader(body, int64(h.cfg.MessageLimit)+1))
	if err != nil {
		return Message{}, fmt.Errorf("read the answer: %w", err)
	}
	if len(text) > h.cfg.MessageLimit {
		return Message{}, &TooLargeError{id, h.cfg.MessageLimit}
	}
	var m Message
	if err := json.Unmarshal(text, &m); err != nil {
		return Message{}, fmt.Errorf("the answer is no message: %w", err)
	}
	if !bytes.Equal(m.ID, id) {
		return Message{}, errors.New("the answer is to another request")
	}
	return m, nil
}

// stream reads events until the answer to the request is among them.
func (h *httpLink) stream(body io.Reader, id json.RawMessage) (Message, error) {
	lines := bufio.NewReaderSize(body, 64<<10)
	var data []byte
	for {
		line, err := readLine(lines, h.cfg.MessageLimit)
		if err != nil {
			return Message{}, fmt.Errorf("the stream ended before the answer: %w", err)
		}
		if rest, ok := strings.CutPrefix(line, "data:"); ok {
			if data = append(data, strings.TrimPrefix(rest, " ")...); len(data) > h.cfg.MessageLimit {
				return Message{}, &TooLargeError{id, h.cfg.MessageLimit}
			}
			continue
		}
		if line != "" || len(data) == 0 {
			continue
		}
		var m Message
		err = json.Unmarshal(data, &m)
		data = data[:0]
		switch {
		case err != nil:
		case m.Method == "" && bytes.Equal(m.ID, id):
			return m, nil
		case m.Method != "" && m.ID == nil && h.cfg.Notified != nil:
			m.Params = bytes.Clone(m.Params)
			h.cfg.Notified(m)
		}
	}
}

// readLine returns a line without its end.
func readLine(r *bufio.Reader, limit int) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); len(line) > limit+16 {
			return "", &TooLargeError{nil, limit}
		}
		if err == nil {
			return strings.TrimRight(string(line), "\r\n"), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return "", err
		}
	}
}
