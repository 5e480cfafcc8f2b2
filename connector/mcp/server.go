// Package mcp speaks to servers of the Model Context Protocol: processes on stdin and stdout,
// and HTTP. Their tools become tools of Keep by a Pairing, which says how the outcome of a call
// can be known; without one it cannot (level D).
//
// # What a call proves
//
// A call has failed for sure only if it was never sent, or if the server answered with an error
// that it can only give before it executes a tool. Every other end of a call that was begun is
// unknown: a lost connection, a dead process, a time that is over, an error of the server's own,
// and a result with isError, since servers report a time-out behind them in that way.
package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"
)

// Limits of what is read and kept.
const (
	DefaultMessageLimit = 4 << 20
	DefaultResultLimit  = 1 << 20
	DefaultTimeout      = 60 * time.Second
	MaxTools            = 1000 // of one server

	startTimeout = 30 * time.Second
	maxPages     = 100
)

// Latest is the version of the protocol that servers are asked for; they may answer with an
// older one.
const Latest = "2025-11-25"

// versions that a server may answer with.
var versions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// A ServerConfig says where a server is: a command, or a URL.
type ServerConfig struct {
	Name string

	Command string
	Args    []string
	Env     map[string]string // beside the few variables that every program needs; nothing else of Keep's is inherited
	Dir     string

	URL     string
	Headers map[string]string

	MessageLimit int // zero: DefaultMessageLimit

	// Notified is called with each notification of the server, in their order. Nil: they are
	// dropped.
	Notified func(Message)

	Logger *slog.Logger // nil: slog.Default()
}

// An UnsentError says that a request never left.
type UnsentError struct{ Err error }

// Error is that of what kept it from being sent.
func (e *UnsentError) Error() string { return e.Err.Error() }

// Unwrap returns it.
func (e *UnsentError) Unwrap() error { return e.Err }

// A link is a connection to a server. It lives until its first failure.
type link interface {
	// call sends a request and waits for its response. The error is an *UnsentError if
	// the request provably never left.
	call(ctx context.Context, method string, params json.RawMessage) (Message, error)
	notify(ctx context.Context, method string, params json.RawMessage) error
	dead() bool
	close()
}

// A Server is one server, started or connected to when it is first needed, and again after it
// was lost. Its methods may be called at once.
type Server struct {
	cfg ServerConfig

	mu     sync.Mutex // protects all below
	link   link       // nil: none
	made   int        // how many connections there were
	info   Info
	closed bool
}

// Info is what a server said of itself.
type Info struct {
	Version      string          // of the protocol
	Capabilities json.RawMessage // an object
	Instructions string
}

// NewServer returns a server. It starts nothing.
func NewServer(cfg ServerConfig) *Server {
	if cfg.MessageLimit == 0 {
		cfg.MessageLimit = DefaultMessageLimit
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Server{cfg: cfg}
}

// Name returns the name of the server.
func (s *Server) Name() string { return s.cfg.Name }

// Close ends the connection.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.link != nil {
		s.link.close()
		s.link = nil
	}
	return nil
}

// Info connects if need be, and returns what the server said of itself.
func (s *Server) Info(ctx context.Context) (Info, error) {
	_, err := s.connect(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info, err
}

// Connection connects if need be, and returns the number of the connection. After another one the
// server may be another program, with other tools.
func (s *Server) Connection(ctx context.Context) (int, error) {
	_, err := s.connect(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made, err
}

// Call sends a request and returns its response. An error of the protocol is in the message. The
// error is an *UnsentError if the request provably never left; after every other one nobody
// knows whether the server acted on it.
func (s *Server) Call(ctx context.Context, method string, params json.RawMessage) (Message, error) {
	l, err := s.connect(ctx)
	if err != nil {
		return Message{}, &UnsentError{fmt.Errorf("start the MCP server %s: %w", s.cfg.Name, err)}
	}
	return l.call(ctx, method, params)
}

// Notify sends a notification.
func (s *Server) Notify(ctx context.Context, method string, params json.RawMessage) error {
	l, err := s.connect(ctx)
	if err != nil {
		return err
	}
	return l.notify(ctx, method, params)
}

// connect returns a connection that works, as far as it is known.
func (s *Server) connect(ctx context.Context) (link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("it was closed")
	}
	if s.link != nil && !s.link.dead() {
		return s.link, nil
	}
	if s.link != nil {
		s.link.close()
		s.link = nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	l, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	if s.info, err = handshake(ctx, l); err != nil {
		l.close()
		return nil, err
	}
	s.link = l
	s.made++
	return l, nil
}

// open makes the connection.
func (s *Server) open(ctx context.Context) (link, error) {
	if s.cfg.URL != "" {
		return newHTTP(s.cfg), nil
	}
	return startProcess(ctx, s.cfg)
}

// handshake agrees on a version.
func handshake(ctx context.Context, l link) (Info, error) {
	ans, err := l.call(ctx, "initialize", json.RawMessage(`{"protocolVersion":"`+Latest+`","capabilities":{},"clientInfo":{"name":"keep","version":"1"}}`))
	if err != nil {
		return Info{}, err
	}
	if ans.Error != nil {
		return Info{}, fmt.Errorf("initialize: %s (%d)", ans.Error.Message, ans.Error.Code)
	}
	var r struct {
		ProtocolVersion string          `json:"protocolVersion"`
		Capabilities    json.RawMessage `json:"capabilities"`
		Instructions    string          `json:"instructions"`
	}
	if err := json.Unmarshal(ans.Result, &r); err != nil {
		return Info{}, fmt.Errorf("read the answer to initialize: %w", err)
	}
	known := false
	for _, v := range versions {
		known = known || v == r.ProtocolVersion
	}
	if !known {
		return Info{}, fmt.Errorf("it speaks version %.40q of the protocol, which is not known here", r.ProtocolVersion)
	}
	if h, ok := l.(*httpLink); ok {
		h.agree(r.ProtocolVersion)
	}
	return Info{r.ProtocolVersion, r.Capabilities, r.Instructions}, l.notify(ctx, "notifications/initialized", nil)
}

// A ToolInfo is a tool as its server lists it.
type ToolInfo struct {
	Name string
	Raw  json.RawMessage // the whole entry
}

// Tools lists the tools of the server.
func (s *Server) Tools(ctx context.Context) ([]ToolInfo, error) {
	var tools []ToolInfo
	err := s.List(ctx, "tools/list", "tools", func(raw json.RawMessage) error {
		var t struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(raw, &t); err != nil || t.Name == "" {
			return errors.New("a tool has no name")
		}
		if tools = append(tools, ToolInfo{t.Name, raw}); len(tools) > MaxTools {
			return fmt.Errorf("it has more than %d tools", MaxTools)
		}
		return nil
	})
	return tools, err
}

// List calls f with each entry of a list that the server gives in pages.
func (s *Server) List(ctx context.Context, method, member string, f func(json.RawMessage) error) error {
	params := json.RawMessage(`{}`)
	for range maxPages {
		ans, err := s.Call(ctx, method, params)
		if err != nil {
			return err
		}
		if ans.Error != nil {
			return fmt.Errorf("%s of %s: %w", method, s.cfg.Name, ans.Error)
		}
		var page map[string]json.RawMessage
		var list []json.RawMessage
		var cursor string
		if json.Unmarshal(ans.Result, &page) != nil || json.Unmarshal(page[member], &list) != nil {
			return fmt.Errorf("%s of %s: the answer has no list %q", method, s.cfg.Name, member)
		}
		for _, raw := range list {
			if err := f(raw); err != nil {
				return fmt.Errorf("%s of %s: %w", method, s.cfg.Name, err)
			}
		}
		if page["nextCursor"] == nil || json.Unmarshal(page["nextCursor"], &cursor) != nil || cursor == "" {
			return nil
		}
		params, _ = json.Marshal(map[string]string{"cursor": cursor})
	}
	return fmt.Errorf("%s of %s: more than %d pages", method, s.cfg.Name, maxPages)
}

func itoa(n int) string { return strconv.Itoa(n) }
