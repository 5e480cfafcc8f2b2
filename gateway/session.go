package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
)

// Codes of errors of the protocol.
const (
	parseError     = -32700
	invalidRequest = -32600
	methodNotFound = -32601
	invalidParams  = -32602
	internalError  = -32603
)

// maxInFlight is how many requests of a session are worked on at once (law: bounded).
const maxInFlight = 64

// A session is one client: a process on stdin and stdout, or a session of HTTP.
type session struct {
	g      *Gateway
	agent  string
	alone  bool          // it is the one client of the gateway
	shared bool          // by HTTP, it is of all clients of the agent that have none: their ids may be the same
	hangUp func()        // ends the connection, before what is left is cancelled; nil: its owner does
	over   chan struct{} // closed at its end

	// out writes a frame, and returns how many it wrote, if that is counted. An error means that it was not taken
	// whole. Nil: by HTTP.
	out func(frame []byte) (int64, error)

	// push has a frame written that answers nothing; nil: by out. It does not wait for a client that does not read.
	push func(frame []byte) error

	telling chan struct{} // holds a token while a last answer is written

	mu           sync.Mutex            // protects all below
	working      int                   // functions that work began and that have not returned
	idle         chan struct{}         // closed when there are none; nil: nobody waits for that
	underWay     map[string]*underWay  // requests, by their id
	made         int64                 // last answers
	unwritten    map[int64]string      // those that are not written yet, by their number: the ids of their requests
	told         map[string]toldAnswer // calls whose last answer was written, by name
	used         time.Time             // by HTTP, when its last message came
	version      string                // that was agreed on by a handshake; empty: there was none
	capabilities json.RawMessage       // as the client declared them by a handshake
	logLevel     string
	asked        map[string]chan mcp.Message // requests of servers that the client has, by their id
	asks         int
	listens      map[*listen]struct{}
	watches      map[string]*watch // resources
	stream       *stream           // by HTTP, of what belongs to no request; nil: the client reads none
}

// An underWay is a request under way.
type underWay struct {
	id      string
	cancel  context.CancelFunc
	givenUp bool // the client does not take its answer any more; the session's mutex protects it
}

type underWayKey struct{}

// maxTold is how many answers are remembered beside those of one frame (law: bounded). A client that opens a connection for each request
// never shows that it has them; those of the oldest connection count as not delivered.
const maxTold = 512

// A toldAnswer is a last answer that was written.
type toldAnswer struct {
	run  keep.RunID
	conn int64 // on which: a later message on it shows that the client read the answer
	at   int64 // which frame of the session it was, if they are counted

	request string // the id of the request that it answered
}

// newSession returns a session whose frames are written by out; nil: by HTTP. Those that answer nothing are by push, unless it
// is nil.
func (g *Gateway) newSession(agent string, out func(frame []byte) (int64, error), push func(frame []byte) error) *session {
	s := &session{g: g, agent: agent, out: out, push: push, over: make(chan struct{}), telling: make(chan struct{}, 1),
		underWay: make(map[string]*underWay), unwritten: make(map[int64]string), told: make(map[string]toldAnswer), asked: make(map[string]chan mcp.Message),
		listens: make(map[*listen]struct{}), watches: make(map[string]*watch)}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sessions[s] = struct{}{}
	return s
}

// write writes what belongs to no request by HTTP.
func (s *session) write(m mcp.Message) error {
	if s.out == nil {
		return s.toStream(m)
	}
	frame, err := mcp.Frame(m)
	if err == nil && s.push != nil {
		return s.push(frame)
	}
	if err == nil {
		_, err = s.out(frame)
	}
	return err
}

// end forgets the session. What it began is not stopped.
func (s *session) end() {
	s.g.mu.Lock()
	_, known := s.g.sessions[s]
	delete(s.g.sessions, s)
	s.g.mu.Unlock()
	if known {
		close(s.over)
		s.g.watch()
	}
}

// take handles a frame of the client, with the answers that were written before it came. A request is worked on
// beside the next ones.
func (s *session) take(ctx context.Context, frame []byte, before map[string]keep.RunID) {
	if !utf8.Valid(frame) {
		s.refuseFrame(frame, parseError, notUTF8)
		return
	}
	if isBatch(frame) {
		s.takeTogether(ctx, frame, before)
		return
	}
	var m mcp.Message
	if err := json.Unmarshal(frame, &m); err != nil {
		s.refuse(nil, parseError, "the message is not JSON")
		return
	}
	switch wrong := wrongWith(m); {
	case wrong != "":
		s.refuse(m.ID, invalidRequest, wrong)
	case m.ID == nil || m.Method == "":
		s.heard(before, m)
		s.unanswered(m)
	default:
		s.heard(before, m)
		s.begin(ctx, m)
	}
}

// notUTF8 refuses a message in which two texts could become one.
const notUTF8 = "the message is not UTF-8"

// wrongWith returns what is wrong with a message; empty: nothing.
func wrongWith(m mcp.Message) string {
	switch {
	case m.Version != "2.0":
		return `jsonrpc must be "2.0"`
	case m.Method == "" && m.ID == nil:
		return "the message has no method"
	case m.Method != "" && m.ID != nil && !mcp.ValidID(m.ID):
		return "the id of a request is a text or a number"
	}
	return ""
}

// unanswered handles what wants no answer: a notification, or the client's own answer.
func (s *session) unanswered(m mcp.Message) {
	if m.Method != "" {
		s.notification(m)
	} else {
		s.answered(m)
	}
}

// takeTogether handles a batch, whose answers are written as one.
func (s *session) takeTogether(ctx context.Context, frame []byte, before map[string]keep.RunID) {
	s.mu.Lock()
	version := s.version
	s.mu.Unlock()
	members, wrong := membersOf(frame, version)
	if wrong != nil {
		s.refuseFrame(frame, wrong.Code, wrong.Message)
		return
	}
	b := s.takeBatch(ctx, members, before, s.write, false)
	s.work(func() {
		frame, answers, err := b.wait()
		s.tell(func() (int64, error) {
			if frame == nil {
				return 0, nil
			}
			at, wrong := s.out(frame)
			return at, errors.Join(wrong, err)
		}, 0, answers...)
	})
}

// enter takes a place for a request, whose context ends when it is cancelled or leaves; why it has none is
// empty if it has. Again says that its id may be in use.
func (s *session) enter(ctx context.Context, id json.RawMessage, again bool) (_ context.Context, leave func(), why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := string(id)
	_, used := s.underWay[key]
	switch {
	case used && !again:
		return ctx, nil, "a request with this id is still being answered"
	case len(s.underWay) >= maxInFlight:
		return ctx, nil, fmt.Sprintf("%d requests are being answered, and more are not taken", maxInFlight)
	case used:
		key += " " + rand.Text()
	}
	ctx, cancel := context.WithCancel(ctx)
	u := &underWay{id: string(id), cancel: cancel}
	s.underWay[key] = u
	return context.WithValue(ctx, underWayKey{}, u), sync.OnceFunc(func() {
		s.mu.Lock()
		delete(s.underWay, key)
		s.mu.Unlock()
		cancel()
	}), ""
}

// begin works on a request.
func (s *session) begin(ctx context.Context, m mcp.Message) {
	ctx, leave, why := s.enter(ctx, m.ID, false)
	if why != "" {
		s.refuse(m.ID, invalidRequest, why)
		return
	}
	s.work(func() {
		a := s.answer(ctx, s.exchangeOf(m.Params, isModern(m.Params), s.write), m)
		leave() // who has the answer may use the id again
		s.tell(func() (int64, error) {
			frame, wrong := frameOf(a.reply(m.ID))
			at, err := s.out(frame)
			return at, errors.Join(wrong, err)
		}, 0, a)
	})
}

// note gives the last answer to a request its number, unless the client cancelled the request. It is called while the context of the
// request can be cancelled: from then on a cancellation finds the answer, until it is written and after. Every answer
// that is noted has to be told.
func (s *session) note(ctx context.Context, id json.RawMessage, a *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, _ := ctx.Value(underWayKey{}).(*underWay)
	if a.of != "" && ctx.Err() == nil && !(u != nil && u.givenUp) {
		s.made++
		a.number = s.made
		s.unwritten[a.number] = string(id)
	}
}

// forget removes the answers to requests that the client cancelled, written or not: it does not take them any more. mu is held.
func (s *session) forget(cancelled ...string) {
	maps.DeleteFunc(s.unwritten, func(_ int64, request string) bool { return slices.Contains(cancelled, request) })
	maps.DeleteFunc(s.told, func(_ string, t toldAnswer) bool { return slices.Contains(cancelled, t.request) })
}

// tell writes answers, and keeps those that were noted and not cancelled since. While a last answer is written, written waits: the
// client may have read it, and sent its next message, before this goroutine keeps that.
func (s *session) tell(write func() (at int64, err error), conn int64, answers ...answer) {
	if !slices.ContainsFunc(answers, func(a answer) bool { return a.number != 0 }) {
		_, _ = write()
		return
	}
	s.telling <- struct{}{}
	defer func() { <-s.telling }()
	at, err := write()
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := err == nil && conn != noConn
	if taken && len(s.told) >= maxTold {
		oldest := conn
		for _, t := range s.told {
			oldest = min(oldest, t.conn)
		}
		maps.DeleteFunc(s.told, func(_ string, t toldAnswer) bool { return t.conn == oldest })
	}
	for _, a := range answers {
		if request, kept := s.unwritten[a.number]; kept && taken {
			s.told[a.of] = toldAnswer{a.run, conn, at, request}
		}
		delete(s.unwritten, a.number)
	}
}

// patience is how long a message waits for an answer that is being written: a client that does
// not read must not keep its own messages from being read for good.
const patience = 100 * time.Millisecond

// everything is more frames than any client reads.
const everything = math.MaxInt64

// written returns the last answers that were written so far on a connection, among the first frames of the
// session. It is asked when a message arrives: what is written while that one is worked on, its sender did not have.
func (s *session) written(conn, frames int64) map[string]keep.RunID {
	select {
	case s.telling <- struct{}{}:
		<-s.telling
	case <-time.After(patience):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := make(map[string]keep.RunID)
	for id, t := range s.told {
		if t.conn == conn && t.at <= frames {
			before[id] = t.run
		}
	}
	return before
}

// anew notes that a client begins: it may be the one that the last answers did not reach, behind a proxy
// that kept the connection. They count as not delivered.
func (s *session) anew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.unwritten)
	clear(s.told)
}

// heard notes that the client sent messages, as one: it has the answers that were written before. Those of calls that it makes
// again may be lost, and those of requests that it cancels are: it does not take them any more. It is called before
// the next message is taken, which may be such a call.
func (s *session) heard(before map[string]keep.RunID, messages ...mcp.Message) {
	var cancelled, again []string
	s.mu.Lock()
	told := len(s.told) > 0
	s.mu.Unlock()
	for _, m := range messages {
		if told {
			again = append(again, s.namesOf(m)...)
		}
		if id := cancelledBy(m); id != "" {
			cancelled = append(cancelled, id)
		}
	}
	now := s.g.engine.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(cancelled...)
	for _, name := range again { // whatever becomes of it: a later message does not show that the answer before was read, either
		delete(s.told, name)
	}
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	for id, run := range before {
		if s.told[id].run == run {
			delete(s.told, id)
			s.g.delivered[id] = delivery{Run: run, Delivered: now}
		}
	}
}

// refuse answers what is no request.
func (s *session) refuse(id json.RawMessage, code int, why string) {
	if frame, err := mcp.Frame(refusal(id, code, why)); err == nil {
		_, _ = s.out(frame)
	}
}

// refuseFrame answers a frame of which nothing is worked on.
func (s *session) refuseFrame(frame []byte, code int, why string) {
	if refused, err := refusedFrame(frame, code, why); err == nil {
		_, _ = s.out(refused)
	}
}

// refusal is the answer to what is no request; without an id it is that to nobody knows what.
func refusal(id json.RawMessage, code int, why string) mcp.Message {
	if id == nil {
		id = json.RawMessage("null")
	}
	return mcp.Message{Version: "2.0", ID: id, Error: &mcp.RPCError{Code: code, Message: why}}
}

// notification handles what wants no answer. Servers were told that the client is ready, and know nothing of roots.
func (s *session) notification(m mcp.Message) {
	id := cancelledBy(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.underWay {
		switch {
		case u.id != id:
		case s.shared: // it may be that of another client, which waits for it
			u.givenUp = true
		default:
			u.cancel() // of reads, and of who waits: a call that was sent is not stopped
		}
	}
	s.forget(id) // it may have been answered since heard
}

// cancelledBy returns the id of the request that a message cancels; empty: it cancels none.
func cancelledBy(m mcp.Message) string {
	var p struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if m.Method != "notifications/cancelled" || json.Unmarshal(m.Params, &p) != nil {
		return ""
	}
	return string(p.RequestID)
}

// answer works on one request. The answer has to be told.
func (s *session) answer(ctx context.Context, x *exchange, m mcp.Message) answer {
	if version, refused := refusedVersion(m.Params); refused {
		return unsupported(version)
	}
	if err := checkInputs(x.inputs); err != nil {
		return answer{err: err}
	}
	ctx = mcp.WithClient(ctx, x.client())
	var a answer
	if m.Method == "tools/call" {
		a = s.callTool(ctx, x, m.Params)
	} else {
		a = s.other(ctx, x, m)
	}
	if x.modern && a.err == nil {
		a.result = complete(a.result, m.Method)
	}
	s.note(ctx, m.ID, &a)
	return a
}

// handshaking are the methods that the version of 2026-07-28 has not.
var handshaking = []string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}

// other answers what is no call of a tool.
func (s *session) other(ctx context.Context, x *exchange, m mcp.Message) answer {
	if x.modern && slices.Contains(handshaking, m.Method) {
		return answer{err: &mcp.RPCError{Code: methodNotFound, Message: fmt.Sprintf("version %s of the protocol has no method %s", mcp.Modern, m.Method)}}
	}
	switch m.Method {
	case "server/discover":
		return s.discover(ctx)
	case "subscriptions/listen":
		if x.modern {
			return s.listen(ctx, x, m)
		}
	case "initialize":
		return s.initialize(ctx, x, m.Params)
	case "ping":
		return answer{result: json.RawMessage(`{}`)}
	case "tools/list":
		return s.g.listTools(ctx, s.agent)
	case "resources/subscribe":
		return s.subscribe(ctx, m)
	case "resources/unsubscribe":
		return s.unsubscribe(m)
	case "logging/setLevel":
		return s.setLevel(ctx, m)
	}
	return s.g.pass(ctx, x, m)
}

// setLevel answers logging/setLevel: all servers of the agent that have a log are told.
func (s *session) setLevel(ctx context.Context, m mcp.Message) answer {
	var p struct {
		Level string `json:"level"`
	}
	if json.Unmarshal(m.Params, &p) != nil || p.Level == "" {
		return answer{err: &mcp.RPCError{Code: invalidParams, Message: "logging/setLevel takes {level}"}}
	}
	s.mu.Lock()
	s.logLevel = p.Level
	s.mu.Unlock()
	a := answer{err: &mcp.RPCError{Code: methodNotFound, Message: "no server has logging"}}
	servers := s.g.serversOf(s.agent)
	for i, info := range s.g.infos(ctx, servers) {
		switch {
		case !can(info, "logging"):
		case info.Version == mcp.Modern: // it is told with each request
			a = answer{result: json.RawMessage("{}")}
		default:
			if one := s.g.relay(ctx, servers[i], m.Method, with(m.Params, "", nil)); a.err != nil {
				a = one
			}
		}
	}
	return a
}

// callTool answers a call of a tool.
func (s *session) callTool(ctx context.Context, x *exchange, params json.RawMessage) answer {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(params, &p); err != nil || p.Name == "" {
		return answer{err: &mcp.RPCError{Code: invalidParams, Message: "tools/call takes {name, arguments}"}}
	}
	if p.Name == outcomeTool {
		return s.g.outcome(ctx, s.agent, p.Arguments)
	}
	name, ok := toolOf(p.Name)
	if !ok {
		return unknownTool(p.Name)
	}
	if s.g.rule(name).Read {
		if a, refused := s.g.refused(ctx, s.agent, name, nil); refused {
			return a
		}
		return s.g.read(ctx, x, name, p.Arguments, p.Meta)
	}
	intent, _ := passed(p.Meta, "")
	r, err := s.g.newRequest(s.agent, name, p.Arguments, intent)
	if err != nil {
		return answer{err: err}
	}
	r.meta, r.ctx = p.Meta, ctx
	return s.g.call(ctx, x, r)
}
