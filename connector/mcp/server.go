// Package mcp speaks to servers of the Model Context Protocol: processes on stdin and stdout,
// and HTTP. Their tools become tools of Keep by a Pairing, which says how the outcome of a call
// can be known; without one it cannot (level D).
//
// # What a call proves
//
// A call has failed for sure only if it was never sent, or if the server answered with an error (in the words of SDKs) or
// a status of HTTP that it can only give before it executes a tool. Every other end of a call that was begun is
// unknown: a lost connection, a dead process, a time that is over, an error of the server's own,
// and a result with isError, since servers report a time-out behind them in that way. Without isError a
// result shows that the call was executed, unless it says itself that it failed and a script made the call.
// The owner of a tool may say what its results mean: refused_if, applied_if.
package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/redact"
)

// Limits of what is read and kept.
const (
	DefaultMessageLimit = 4 << 20
	DefaultResultLimit  = 1 << 20
	DefaultTimeout      = 60 * time.Second
	DefaultKeyLasts     = 24 * time.Hour // of a token that a server honours as a key
	DefaultSetLasts     = time.Hour      // of a call that says what is to be: later somebody else may have said otherwise
	MaxTools            = 1000           // of one server

	startTimeout = 30 * time.Second
	maxPages     = 100
	maxAsking    = 64               // requests of a server that are answered at once: of a process, or on one stream; the next ones are not read
	maxAnswering = 16               // of these, what is sent to a server by HTTP at once
	answerTime   = 10 * time.Second // in which a server has to take an answer to its request
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
	Cwd     string // Dir as the pin has it; empty: it does not

	URL     string
	Headers map[string]string

	// Account is an account whose access token each request carries; Accounts has it. Empty:
	// the headers have all credentials.
	Account  string
	Accounts connector.Accounts

	// Sender says whose credentials it is given; see connector.Connection. Nil: nobody's, or it is not known.
	Sender connector.Sender

	// Secrets are values that must never show: they are hidden in all that the server says (see message), and in errors.
	Secrets []string

	// Pack is the file of what is known of its tools, for the records of calls. Nil: there is none.
	Pack *keep.Pack

	MessageLimit int // zero: DefaultMessageLimit

	// Notified is called with each notification of the server that is not told to the client of a
	// request, in their order. Nil: they are dropped.
	Notified func(Message)

	// Allowed is asked about each call of a tool, whatever it is made for, once there is a connection for it: a server
	// that was connected to again may have other tools. An error keeps the call back, and nothing is sent. Nil: none is.
	Allowed func(ctx context.Context, tool string, args json.RawMessage) error

	// Asked answers a request of a server that is a process. Nil: it is refused.
	Asked func(context.Context, Message) Message

	Logger *slog.Logger // nil: slog.Default()

	hide *redact.Hider // has Secrets, and the credentials of requests
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
	call(ctx context.Context, r request) (Message, error)
	notify(ctx context.Context, r request) error
	dead() bool
	close()
}

// A connection is a link whose sides agreed on a version.
type connection struct {
	link
	info Info
}

func (c *connection) modern() bool { return c.info.Version == Modern }

// A slot has the connection for clients that can do the same.
type slot struct {
	making chan struct{} // holds a token while a connection is made or looked at; it protects the next two
	conn   *connection   // nil: none
	had    bool          // there was one

	subscriptions // protected by the mutex of Server
}

// A Server is one server, started or connected to when it is first needed, and again after it
// was lost. Its methods may be called at once. A server that is a process has one connection. By
// HTTP there is one for each version and set of capabilities: with a handshake, they are declared
// once.
type Server struct {
	cfg ServerConfig

	mu       sync.Mutex // protects all below
	slots    map[string]*slot
	made     int // how many connections there were
	closed   bool
	mirrored map[string][]Mirrored // by tool
	watched  []string              // resources whose changes matter, sorted
	rewatch  chan struct{}         // closed when that changes, or something is unwanted
	watches  sync.WaitGroup        // end with the connections
}

// Info is what a server said of itself.
type Info struct {
	Version      string          // of the protocol
	Capabilities json.RawMessage // an object
	Instructions string
}

// NewServer returns a server. It starts nothing.
func NewServer(cfg ServerConfig) *Server {
	cfg.MessageLimit = cmp.Or(cfg.MessageLimit, DefaultMessageLimit)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg.hide = new(redact.Hider)
	s := &Server{cfg: cfg, slots: make(map[string]*slot), rewatch: make(chan struct{})}
	cfg.hide.Add(cfg.Secrets...)
	for name, value := range cfg.Headers {
		if _, word, ok := strings.Cut(value, " "); ok && strings.EqualFold(name, "Authorization") {
			cfg.hide.Add(value, word)
		}
	}
	return s
}

// Name returns the name of the server.
func (s *Server) Name() string { return s.cfg.Name }

// Pack returns the file of what is known of the server's tools; nil: there is none.
func (s *Server) Pack() *keep.Pack { return s.cfg.Pack }

// Sender returns what says whose credentials the server is given; see connector.Connection.
func (s *Server) Sender() connector.Sender {
	return s.cfg.Sender
}

// Close ends the connections.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	var slots []*slot
	for _, sl := range s.slots {
		slots = append(slots, sl)
	}
	s.mu.Unlock()
	for _, sl := range slots {
		sl.making <- struct{}{}
		if sl.conn != nil {
			sl.conn.close()
			sl.conn = nil
		}
		<-sl.making
	}
	s.watches.Wait()
	return nil
}

// Info connects if need be, and returns what the server said of itself.
func (s *Server) Info(ctx context.Context) (Info, error) {
	c, err := s.connect(ctx)
	if err != nil {
		return Info{}, err
	}
	return c.info, nil
}

// Connection connects if need be, and returns the number of the last connection. After another one
// the server may be another program, with other tools.
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
	m, err := s.call(ctx, method, params)
	if method == "tools/call" {
		m.Result = listed(m.Result)
	}
	return m, s.hidden(err)
}

func (s *Server) call(ctx context.Context, method string, params json.RawMessage) (m Message, err error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return Message{}, &UnsentError{fmt.Errorf("start the MCP server %s: %w", s.cfg.Name, err)}
	}
	if err := s.allowed(ctx, method, params); err != nil {
		return Message{}, &UnsentError{err}
	}
	c := clientOf(ctx)
	if method == "resources/subscribe" && !conn.modern() {
		defer s.subscribes(c, params)(&m, &err)
	}
	return c.rounds(ctx, method, params, func(params json.RawMessage) (Message, error) {
		r := request{method: method, params: params}
		if conn.modern() {
			if r, err = s.modernRequest(c, method, params); err != nil {
				return Message{}, &UnsentError{err}
			}
		}
		return conn.call(ctx, r)
	})
}

// allowed returns why a request is kept back; nil: it is not.
func (s *Server) allowed(ctx context.Context, method string, params json.RawMessage) error {
	if method != "tools/call" || s.cfg.Allowed == nil {
		return nil
	}
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return err
	}
	return s.cfg.Allowed(ctx, p.Name, p.Arguments)
}

// read calls a tool that changes nothing. It is called once more if it was refused for a
// credential that was renewed meanwhile.
func (s *Server) read(ctx context.Context, params json.RawMessage) (Message, error) {
	ans, err := s.Call(ctx, "tools/call", params)
	if renewed(err) {
		return s.Call(ctx, "tools/call", params)
	}
	return ans, err
}

// renewed reports whether a request was refused for a credential, and there is another one now.
func renewed(err error) bool {
	refused, ok := errors.AsType[*StatusError](err)
	return ok && refused.renewed
}

// slot returns where the connection for a client is.
func (s *Server) slot(c *Client) (*slot, error) {
	key := "" // of a process
	switch {
	case s.cfg.URL != "" && c.Modern:
		key = Modern
	case s.cfg.URL != "":
		key = c.handshake(false)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("it was closed")
	}
	if s.slots[key] == nil {
		s.slots[key] = &slot{making: make(chan struct{}, 1), subscriptions: subscriptions{took: make(map[string]bool), unwanted: make(map[string]struct{})}}
	}
	return s.slots[key], nil
}

// connect returns a connection that works, as far as it is known.
func (s *Server) connect(ctx context.Context) (_ *connection, err error) {
	defer func() { err = s.hidden(err) }()
	c := clientOf(ctx)
	sl, err := s.slot(c)
	if err != nil {
		return nil, err
	}
	select { // one that is being made may take longer than the caller has
	case sl.making <- struct{}{}:
		defer func() { <-sl.making }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if sl.conn != nil && !sl.conn.dead() {
		return sl.conn, nil
	}
	if sl.conn != nil {
		sl.conn.close()
		sl.conn = nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	conn, err := s.agree(ctx, c)
	if renewed(err) {
		conn, err = s.agree(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.close()
		return nil, errors.New("it was closed")
	}
	s.made++
	again := sl.had
	sl.conn, sl.had = conn, true
	clear(sl.unwanted) // the server does not know it any more
	if s.cfg.Notified != nil {
		s.watches.Go(func() { s.watch(sl, conn, again) })
	}
	return conn, nil
}

// open makes a link.
func (s *Server) open() (link, error) {
	if s.cfg.URL != "" {
		return newHTTP(s.cfg), nil
	}
	return startProcess(s.cfg)
}

// discoverTime is how long a server has to say whether it knows a version without a handshake.
const discoverTime = 5 * time.Second

// agree makes a connection of the version of the client, or of the other kind if the server knows
// only that.
func (s *Server) agree(ctx context.Context, c *Client) (*connection, error) {
	kinds := []func(context.Context, link) (Info, error){
		func(ctx context.Context, l link) (Info, error) { return s.initialize(ctx, c, l) },
		func(ctx context.Context, l link) (Info, error) {
			ctx, cancel := context.WithTimeout(ctx, discoverTime)
			defer cancel()
			return s.discover(ctx, l)
		},
	}
	if c.Modern {
		slices.Reverse(kinds)
	}
	var first error
	var l link
	for i, kind := range kinds {
		if l == nil || l.dead() || s.cfg.URL != "" {
			if l != nil {
				l.close()
			}
			var err error
			if l, err = s.open(); err != nil {
				return nil, err
			}
		}
		info, err := kind(ctx, l)
		if err == nil {
			return &connection{l, info}, nil
		}
		if i == 0 {
			first = err
		}
		if _, unsent := errors.AsType[*UnsentError](err); unsent || ctx.Err() != nil {
			break
		}
	}
	l.close()
	return nil, first
}

// initialize agrees on a version by a handshake.
func (s *Server) initialize(ctx context.Context, c *Client, l link) (Info, error) {
	ans, err := l.call(ctx, request{method: "initialize", params: json.RawMessage(`{"protocolVersion":"` + Latest + `","capabilities":` + c.handshake(s.cfg.URL == "") +
		`,"clientInfo":{"name":"keep","version":"1"}}`)})
	if err != nil {
		return Info{}, err
	}
	if ans.Error != nil {
		return Info{}, fmt.Errorf("initialize: %w (%d)", ans.Error, ans.Error.Code)
	}
	var r struct {
		ProtocolVersion string          `json:"protocolVersion"`
		Capabilities    json.RawMessage `json:"capabilities"`
		Instructions    string          `json:"instructions"`
	}
	if err := json.Unmarshal(ans.Result, &r); err != nil {
		return Info{}, fmt.Errorf("read the answer to initialize: %w", err)
	}
	if !slices.Contains(versions, r.ProtocolVersion) {
		return Info{}, fmt.Errorf("it speaks version %.40q of the protocol, which is not known here", r.ProtocolVersion)
	}
	if h, ok := l.(*httpLink); ok {
		h.agree(r.ProtocolVersion)
	}
	return Info{r.ProtocolVersion, r.Capabilities, r.Instructions}, l.notify(ctx, request{method: "notifications/initialized"})
}

// A ToolInfo is a tool as its server lists it.
type ToolInfo struct {
	Name string
	Raw  json.RawMessage // the whole entry
}

// ErrTooManyTools is returned for the list of a server with more than MaxTools.
var ErrTooManyTools = fmt.Errorf("it lists more than %d tools", MaxTools)

// Tools lists the tools of the server. One of more than MaxTools is an error.
func (s *Server) Tools(ctx context.Context) ([]ToolInfo, error) {
	tools, left, err := s.SomeTools(ctx, func(string) bool { return false })
	if err == nil && left > 0 {
		return nil, ErrTooManyTools
	}
	return tools, err
}

// SomeTools lists the tools of the server, of a wanted name the first. If there are more than MaxTools others it leaves
// all of these out, and returns how many they are.
func (s *Server) SomeTools(ctx context.Context, wanted func(tool string) bool) (tools []ToolInfo, left int, err error) {
	var kept []ToolInfo // the wanted ones
	names := make(map[string]bool)
	err = s.List(ctx, "tools/list", "tools", func(raw json.RawMessage) error {
		var t struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(raw, &t); err != nil || t.Name == "" {
			return errors.New("a tool has no name")
		}
		tool := ToolInfo{t.Name, raw}
		if wanted(t.Name) && !names[t.Name] {
			names[t.Name] = true
			kept = append(kept, tool)
		} else {
			left++
		}
		if left <= MaxTools {
			tools = append(tools, tool)
		}
		return nil
	})
	if left > MaxTools {
		tools = kept
	} else {
		left = 0
	}
	if err == nil {
		mirrored := make(map[string][]Mirrored)
		for _, t := range slices.Backward(tools) { // the first of a name counts
			mirrored[t.Name] = MirroredOf(t.Raw)
		}
		s.mu.Lock()
		s.mirrored = mirrored
		s.mu.Unlock()
	}
	return tools, left, err
}

// List calls f with each entry of a list that the server gives in pages, which are as large as one message in all.
func (s *Server) List(ctx context.Context, method, member string, f func(json.RawMessage) error) (err error) {
	defer func() { err = s.hidden(err) }()
	params, left := json.RawMessage(`{}`), s.cfg.MessageLimit
	for range maxPages {
		ans, err := s.Call(ctx, method, params)
		if err != nil {
			return err
		}
		if ans.Error != nil {
			return fmt.Errorf("%s of %s: %w", method, s.cfg.Name, ans.Error)
		}
		if left -= len(ans.Result); left < 0 {
			return fmt.Errorf("%s of %s: %w", method, s.cfg.Name, &TooLargeError{Limit: s.cfg.MessageLimit, list: true})
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
