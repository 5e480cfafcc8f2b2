package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/internal/room"
)

// Bounds of a gateway by HTTP (law: bounded).
const (
	maxSessions = 200 // of one agent; the one that was used least recently ends for the next
	maxWorking  = 512 // requests of all agents at once; one agent has at most as many as are free
	maxStreams  = 512 // streams of all agents that wait for what servers tell; likewise
)

// writeTime is how long a client may take to read an answer.
const writeTime = 30 * time.Second

// Headers of the protocol.
const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "MCP-Protocol-Version"
)

// Path is where a gateway is.
const Path = "/mcp"

// An HTTPConfig says who may speak to a gateway by HTTP.
type HTTPConfig struct {
	Agents map[string]string // tokens, by the name of their agent

	// Agent returns whose token a token is that is none of Agents; empty: no agent's. Nil: there are
	// no others.
	Agent func(ctx context.Context, token string) (string, error)

	// Hosts are the names by which clients may reach the gateway, with a port if it is not that
	// of the scheme. Empty: those of this machine alone, with any port. A page of another name,
	// which resolves to this machine, is refused.
	Hosts []string

	// Origins are those of pages that may speak to a gateway that is not of their own host, such as
	// https://app.example.com. They need a token like any other client.
	Origins []string
}

// An HTTPHandler serves agents by streamable HTTP, at Path. An http.Server that serves it must have its ConnContext, and a
// listener of Listener: without them no answer counts as delivered before the rejoin time.
type HTTPHandler struct {
	g     *Gateway
	hosts []string
	pages []string                                                // origins that are let in
	other func(ctx context.Context, token string) (string, error) // says whose a token is that is none of names; nil: there are no others
	names map[[sha256.Size]byte]string                            // of agents, by the hash of their token
	room  *room.Room                                              // a place for each request
	aside *room.Room                                              // and one for each stream that waits

	mu       sync.Mutex // protects all below
	sessions map[sessionKey]*session
}

// A sessionKey names a session: no agent reaches that of another.
type sessionKey struct{ agent, id string }

// MinToken is how many characters a token has at least.
const MinToken = 16

// HTTP returns a handler for agents.
func (g *Gateway) HTTP(cfg HTTPConfig) (*HTTPHandler, error) {
	h := &HTTPHandler{g: g, hosts: cfg.Hosts, pages: cfg.Origins, other: cfg.Agent, room: room.New(maxWorking), aside: room.New(maxStreams), sessions: make(map[sessionKey]*session)}
	for _, origin := range cfg.Origins {
		if err := CheckOrigin(origin); err != nil {
			return nil, err
		}
	}
	var err error
	if h.names, err = agentsByToken(cfg.Agents); err != nil {
		return nil, err
	}
	return h, nil
}

// CheckAgents reports what is wrong with the tokens of agents, by name.
func CheckAgents(tokens map[string]string) error {
	_, err := agentsByToken(tokens)
	return err
}

// agentsByToken returns the names of agents by the hashes of their tokens.
func agentsByToken(tokens map[string]string) (map[[sha256.Size]byte]string, error) {
	names := make(map[[sha256.Size]byte]string)
	for agent, token := range tokens {
		sum := sha256.Sum256([]byte(token))
		if err := CheckAgent(agent); err != nil {
			return nil, err
		}
		switch {
		case len(token) < MinToken:
			return nil, fmt.Errorf("the token of the agent %s has fewer than %d characters", agent, MinToken)
		case names[sum] != "":
			return nil, fmt.Errorf("the agents %s and %s have the same token", agent, names[sum])
		}
		names[sum] = agent
	}
	return names, nil
}

type connKey struct{}

var lastConn atomic.Int64

// Listener returns a listener that accepts what l does, and notes of each connection whether its client waits for answers.
func (h *HTTPHandler) Listener(l net.Listener) net.Listener { return wires{l} }

// ConnContext has requests know their connection.
func (h *HTTPHandler) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// forwarding are the headers of a request that a proxy passed on.
var forwarding = []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"}

// noConn is the number of a connection that shows nothing of what its client read.
const noConn = -1

// connOf returns the number of the connection of a request; noConn: it is not known. A connection of HTTP/2 carries
// several answers at once, one of a proxy those of several clients, and a client that did not wait for an answer may not have
// read any: they show nothing.
func connOf(r *http.Request) int64 {
	passedOn := slices.ContainsFunc(forwarding, func(name string) bool { return r.Header[name] != nil })
	if w, ok := r.Context().Value(connKey{}).(*wire); ok && r.ProtoMajor == 1 && !passedOn && w.waits() {
		return w.number
	}
	return noConn
}

// ServeHTTP implements http.Handler.
func (h *HTTPHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if conn, ok := r.Context().Value(connKey{}).(*wire); ok {
		conn.take(r)
	}
	switch {
	case r.URL.Path != Path:
		h.refuse(w, r, http.StatusNotFound, "the gateway is at "+Path)
		return
	case r.URL.RawQuery != "": // a token in it would be in logs
		h.refuse(w, r, http.StatusBadRequest, "the gateway takes no query: a token goes into the header Authorization")
		return
	case !h.knownHost(r.Host):
		h.refuse(w, r, http.StatusForbidden, "this name is not one of the gateway's")
		return
	case !h.knownOrigin(r.Header.Values("Origin")):
		h.refuse(w, r, http.StatusForbidden, "pages of other origins may not speak to the gateway")
		return
	case h.share(w, r):
		return
	}
	agent, err := h.agent(r)
	if err != nil {
		h.g.log.Error("look up a token", "err", err)
		h.refuse(w, r, http.StatusServiceUnavailable, "the database cannot be read now")
		return
	}
	if agent == "" {
		w.Header().Set("WWW-Authenticate", "Bearer")
		h.refuse(w, r, http.StatusUnauthorized, "the token is not one of an agent's")
		return
	}
	in := h.room
	if r.Method == http.MethodGet {
		in = h.aside
	}
	place := in.EnterRequest(agent, w, r)
	if place == nil {
		h.full(w, r)
		return
	}
	defer place.Leave()
	if r.Method != http.MethodPost && !place.Keep() { // that of a message is lent until it is there
		h.full(w, r)
		return
	}
	switch {
	case r.Method == http.MethodPost:
		h.post(w, r, agent, place)
	case r.Header.Get(headerVersion) == mcp.Modern: // it has no sessions
		w.Header().Set("Allow", "POST")
		h.refuse(w, r, http.StatusMethodNotAllowed, "the version of the protocol has only POST")
	case r.Method == http.MethodDelete:
		h.delete(w, r, agent)
	case r.Method == http.MethodGet:
		h.get(w, r, agent)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		h.refuse(w, r, http.StatusMethodNotAllowed, "the gateway takes GET, POST and DELETE")
	}
}

// post takes one message. Its place is lent until the message is there.
func (h *HTTPHandler) post(w http.ResponseWriter, r *http.Request, agent string, place *room.Place) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		h.refuse(w, r, http.StatusUnsupportedMediaType, "the body is application/json")
		return
	}
	frame, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(h.g.cfg.MessageLimit)))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		h.unread(w, r, agent, frame)
		return
	}
	if !place.Keep() {
		h.full(w, r)
		return
	}
	// The server's time to read a request is not for the work on it: its end would cancel the request.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if !utf8.Valid(frame) {
		h.refuse(w, r, http.StatusBadRequest, notUTF8)
		return
	}
	if err == nil && isBatch(frame) {
		h.postBatch(w, r, agent, frame)
		return
	}
	var m mcp.Message
	if err != nil || json.Unmarshal(frame, &m) != nil || m.Version != "2.0" || m.ID != nil && !mcp.ValidID(m.ID) {
		h.refuse(w, r, http.StatusBadRequest, "the body is one message of JSON-RPC 2.0")
		return
	}
	isModern, status, wrong := h.check(r, m)
	if wrong != nil {
		answerHTTP(w, status, mcp.Message{Version: "2.0", ID: m.ID, Error: wrong})
		return
	}
	s, id := h.session(agent, r.Header.Get(headerSession), m.Method == "initialize" && m.ID != nil && !isModern)
	if s == nil {
		h.refuse(w, r, http.StatusNotFound, "there is no such session: begin a new one")
		return
	}
	if id != "" {
		w.Header().Set(headerSession, id)
	}
	conn := connOf(r)
	before := s.written(conn, everything)
	if m.Method == "server/discover" {
		s.anew()
		before = nil
	}
	s.heard(before, m)
	if m.ID == nil || m.Method == "" {
		s.unanswered(m)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if isModern && m.Method == "subscriptions/listen" {
		stream := h.aside.EnterRequest(agent, w, r)
		if stream == nil || !stream.Keep() {
			h.full(w, r)
			return
		}
		defer stream.Leave()
		place.Leave()
	}
	h.answer(w, r, s, m, conn, isModern)
}

// unread refuses a message of which the beginning is there, and the rest is too large. Whoever waits for it, if it is an answer, is told.
func (h *HTTPHandler) unread(w http.ResponseWriter, r *http.Request, agent string, beginning []byte) {
	if s, _ := h.session(agent, r.Header.Get(headerSession), false); s != nil {
		s.answered(unreadAnswer(mcp.Unread(beginning, h.g.cfg.MessageLimit)))
	}
	h.refuse(w, r, http.StatusRequestEntityTooLarge, "the message is too large")
}

// full refuses a request that has no place.
func (h *HTTPHandler) full(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", "1")
	w.Header().Set("Connection", "close") // its body may not be read
	h.refuse(w, r, http.StatusServiceUnavailable, "too many requests are being answered")
}

// check returns the version of a request, and what is wrong with what it says of it.
func (h *HTTPHandler) check(r *http.Request, m mcp.Message) (isModern bool, status int, wrong *mcp.RPCError) {
	header := r.Header.Get(headerVersion)
	if m.ID == nil || m.Method == "" {
		if header != "" && !slices.Contains(speaks(), header) {
			return false, http.StatusBadRequest, unsupported(header).err
		}
		return false, 0, nil
	}
	var version string
	_ = json.Unmarshal(metaOf(m.Params)[metaVersion], &version)
	if header != mcp.Modern && version != mcp.Modern {
		switch {
		case header != "" && version != "" && header != version:
			return false, http.StatusBadRequest, &mcp.RPCError{Code: headerMismatch, Message: fmt.Sprintf("the header %s is %.40q, and the message is of version %.40q", headerVersion, header, version)}
		case version != "" && !slices.Contains(speaks(), version):
			return false, http.StatusBadRequest, unsupported(version).err
		case header != "" && !slices.Contains(speaks(), header):
			return false, http.StatusBadRequest, unsupported(header).err
		}
		return false, 0, nil
	}
	if header != version && version != "" {
		return true, http.StatusBadRequest, &mcp.RPCError{Code: headerMismatch, Message: fmt.Sprintf("the header %s is %.40q, and the message is of version %.40q", headerVersion, header, version)}
	}
	if wrong := checkMeta(m.Params); wrong != nil {
		return true, http.StatusBadRequest, wrong
	}
	if err := mcp.CheckHeaders(r.Header.Get, m.Method, m.Params, h.g.mirrored(m)); err != nil {
		return true, http.StatusBadRequest, &mcp.RPCError{Code: headerMismatch, Message: err.Error()}
	}
	return true, 0, nil
}

// mirrored returns which params of a call are repeated in headers.
func (g *Gateway) mirrored(m mcp.Message) []mcp.Mirrored {
	if m.Method != "tools/call" {
		return nil
	}
	server, tool, _ := strings.Cut(mcp.NameOf(m.Method, m.Params), between)
	g.mu.Lock()
	tools := g.lists[server].tools
	g.mu.Unlock()
	i := slices.IndexFunc(tools, func(t toolEntry) bool { return t.name == tool })
	if i < 0 {
		return nil
	}
	return mcp.MirroredOf(tools[i].raw)
}

// answer works on a request. A call is made to its end though the client does not wait for it. A
// request whose id is in use is worked on like any other: it may be the same one, issued again.
func (h *HTTPHandler) answer(w http.ResponseWriter, r *http.Request, s *session, m mcp.Message, conn int64, isModern bool) {
	ctx, leave, why := s.enter(r.Context(), m.ID, true)
	if why != "" {
		h.refuse(w, r, http.StatusServiceUnavailable, why)
		return
	}
	st, k := newStream(), &sink{w: w, control: http.NewResponseController(w)}
	x := s.exchangeOf(m.Params, isModern, st.sender(r))
	answered := make(chan answer, 1)
	s.work(func() { answered <- s.answer(ctx, x, m) })
	a := until(k, st, answered, leave)
	leave()
	status := http.StatusOK
	if isModern {
		status = statusOf(a.err)
	}
	s.tell(func() (int64, error) {
		frame, wrong := frameOf(a.reply(m.ID))
		return 0, errors.Join(wrong, k.answer(frame, status))
	}, conn, a)
}

// accepts reports whether a client takes a kind of content.
func accepts(r *http.Request, kind string) bool {
	for _, line := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(line, ",") {
			name, _, err := mime.ParseMediaType(strings.TrimSpace(part))
			if err == nil && (name == kind || name == "*/*") {
				return true
			}
		}
	}
	return false
}

// answerHTTP answers with one message.
func answerHTTP(w http.ResponseWriter, status int, m mcp.Message) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(m)
}

// refuse answers what is no message that can be worked on, and says so in the log.
func (h *HTTPHandler) refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	h.g.log.Info("a request to the gateway was refused", "status", status, "why", why, "from", r.RemoteAddr)
	answerHTTP(w, status, mcp.Message{Version: "2.0", ID: json.RawMessage("null"), Error: &mcp.RPCError{Code: invalidRequest, Message: why}})
}

// session returns the session of a request, and the id of one that begins with it; nil: there is
// no such session of this agent. Requests without a session are of one that the agent always has.
func (h *HTTPHandler) session(agent, id string, begins bool) (*session, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh := ""
	key := sessionKey{agent, id}
	switch {
	case begins:
		fresh = rand.Text()
		key = sessionKey{agent, fresh}
	case id != "" && h.sessions[key] == nil:
		return nil, ""
	}
	s := h.sessions[key]
	if s == nil {
		h.bound(agent)
		s = h.g.newSession(agent, nil, nil)
		s.shared = key.id == ""
		h.sessions[key] = s
	}
	s.used = time.Now()
	return s, fresh
}

// bound makes room for a session of an agent. What an ended one began is not stopped.
func (h *HTTPHandler) bound(agent string) {
	var oldest sessionKey
	n := 0
	for key, s := range h.sessions {
		if s.agent != agent {
			continue
		}
		n++
		if n == 1 || s.used.Before(h.sessions[oldest].used) {
			oldest = key
		}
	}
	if n >= maxSessions {
		h.sessions[oldest].end()
		delete(h.sessions, oldest)
	}
}

// delete ends a session.
func (h *HTTPHandler) delete(w http.ResponseWriter, r *http.Request, agent string) {
	key := sessionKey{agent, r.Header.Get(headerSession)}
	var s *session
	if key.id != "" { // the one without a name is of other clients, too
		h.mu.Lock()
		s = h.sessions[key]
		delete(h.sessions, key)
		h.mu.Unlock()
	}
	if s == nil {
		h.refuse(w, r, http.StatusNotFound, "there is no such session")
		return
	}
	s.end()
	w.WriteHeader(http.StatusNoContent)
}

// Serve serves agents on a listener until ctx ends, and returns nil then. Calls that were sent are
// waited for a moment, so that their outcome is recorded. The contexts of requests have the values of ctx.
func (h *HTTPHandler) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{Handler: h, BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) }, ConnContext: h.ConnContext, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(h.g.log.Handler(), slog.LevelDebug)}
	served := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { served <- srv.Serve(h.Listener(l)) })
	defer serving.Wait() // it ends with srv
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	h.mu.Lock()
	for _, s := range h.sessions {
		s.end() // and with it the streams that wait
	}
	h.mu.Unlock()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	_ = srv.Shutdown(end) // what is not done by then is given up with the gateway
	return srv.Close()
}
