package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/law/canonical"
)

// An exchange is a request of a client while it is answered: what belongs to it, and reaches the
// client beside it, goes by send.
type exchange struct {
	s            *session
	modern       bool
	capabilities json.RawMessage
	logLevel     string                  // of a request of 2026-07-28
	send         func(mcp.Message) error // does not block by HTTP
	token        json.RawMessage         // of progress, as the client gave it; nil: it wants none
	inputs       mcp.Inputs              // that the client adds to an earlier request
}

// client returns for whom requests are sent upstream.
func (x *exchange) client() *mcp.Client {
	c := &mcp.Client{Modern: x.modern, Alone: x.s.alone, Capabilities: x.capabilities, LogLevel: x.logLevel, Tell: x.tell}
	if !x.modern {
		c.Ask, c.LogLevel = x.ask, x.s.level()
	}
	return c
}

// reading returns a context for a request that changes nothing: its end is passed on. What a server
// needs for it is asked of a client with a handshake; any other makes the request again with it.
func (x *exchange) reading(ctx context.Context, tool string) context.Context {
	c := x.client()
	c.Cancels, c.Tool = true, tool
	if !x.modern {
		c.Input = x.input
	}
	return mcp.WithClient(ctx, c)
}

// tell passes on what a server says about the request.
func (x *exchange) tell(m mcp.Message) {
	if x.modern && x.logLevel == "" && m.Method == "notifications/message" {
		return // the client did not ask for a log
	}
	_ = x.send(mcp.Message{Version: "2.0", Method: m.Method, Params: m.Params})
}

// ask passes a request of a server on to the client, and returns the answer.
func (x *exchange) ask(ctx context.Context, m mcp.Message) mcp.Message {
	if x.modern {
		return mcp.Refused(m)
	}
	id, answered, done := x.s.asking()
	defer done()
	if answered == nil {
		return failedToAsk(errors.New("the client is asked too much at once"))
	}
	unsent := make(chan error, 1)
	go func() { // ends with the client's stream: one that does not read holds nobody else up
		if err := x.send(mcp.Message{Version: "2.0", ID: id, Method: m.Method, Params: m.Params}); err != nil {
			unsent <- err
		}
	}()
	select {
	case ans := <-answered:
		return ans
	case err := <-unsent:
		return failedToAsk(err)
	case <-ctx.Done():
		return failedToAsk(context.Cause(ctx))
	case <-x.s.over:
		return failedToAsk(errors.New("the client is gone"))
	}
}

func failedToAsk(err error) mcp.Message {
	return mcp.Message{Error: &mcp.RPCError{Code: internalError, Message: "the client was not asked: " + err.Error()}}
}

// maxAsked is how many requests of servers a client has to answer at once (law: bounded).
const maxAsked = 32

// asking returns the id of a request to the client, and where its answer comes; nil: there are too many.
func (s *session) asking() (id json.RawMessage, answered <-chan mcp.Message, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) >= maxAsked {
		return nil, nil, func() {}
	}
	s.asks++
	id, _ = json.Marshal(fmt.Sprintf("keep-%s-%d", s.g.name, s.asks)) // an answer to another gateway's request is none to this one's
	ch := make(chan mcp.Message, 1)
	key := string(id)
	s.asked[key] = ch
	return id, ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.asked, key)
	}
}

// answered takes an answer of the client, and reports whether somebody waits for it: another one is dropped.
func (s *session) answered(m mcp.Message) bool {
	s.mu.Lock()
	ch := s.asked[string(m.ID)]
	delete(s.asked, string(m.ID))
	s.mu.Unlock()
	if ch != nil {
		ch <- m
	}
	return ch != nil
}

// unread handles a message of the client that was too large to be read. Whoever waits for it, if it is an answer, is told that there is none.
func (s *session) unread(e *mcp.TooLargeError) {
	if e.Asks || !s.answered(unreadAnswer(e)) {
		s.refuse(e.ID, invalidRequest, e.Error())
	}
}

// unreadAnswer stands for an answer that was too large to be read.
func unreadAnswer(e *mcp.TooLargeError) mcp.Message {
	return mcp.Message{Version: "2.0", ID: e.ID, Error: &mcp.RPCError{Code: internalError, Message: "the client's answer was not read: " + e.Error()}}
}

// level returns the level of the log that the client asked for.
func (s *session) level() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logLevel
}

// input returns what a server needs before it completes a call, from a client that is asked by
// requests.
func (x *exchange) input(ctx context.Context, result json.RawMessage) (mcp.Inputs, error) {
	var need struct {
		Requests map[string]struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		} `json:"inputRequests"`
		State json.RawMessage `json:"requestState"`
	}
	if err := json.Unmarshal(result, &need); err != nil {
		return mcp.Inputs{}, err
	}
	if len(need.Requests) > maxAsked {
		return mcp.Inputs{}, fmt.Errorf("the server asks for %d things at once", len(need.Requests))
	}
	responses := make(map[string]json.RawMessage)
	for name, r := range need.Requests {
		ans := x.ask(ctx, mcp.Message{Method: r.Method, Params: r.Params})
		if ans.Error != nil {
			return mcp.Inputs{}, fmt.Errorf("the server asked for %s, and the client did not give it: %w", r.Method, ans.Error)
		}
		responses[name] = ans.Result
	}
	raw, err := json.Marshal(responses)
	return mcp.Inputs{Responses: raw, State: need.State}, err
}

// exchangeOf returns the exchange of a request.
func (s *session) exchangeOf(params json.RawMessage, modern bool, send func(mcp.Message) error) *exchange {
	var p struct {
		Meta map[string]json.RawMessage `json:"_meta"`
		mcp.Inputs
	}
	_ = json.Unmarshal(params, &p)
	x := &exchange{s: s, modern: modern, send: send, token: p.Meta["progressToken"], inputs: p.Inputs}
	if !modern {
		s.mu.Lock()
		x.capabilities = s.capabilities
		s.mu.Unlock()
		return x
	}
	x.capabilities = p.Meta[metaCapabilities]
	_ = json.Unmarshal(p.Meta[metaLogLevel], &x.logLevel)
	return x
}

// passed returns what is passed on of the _meta of a call, with another token of progress, and the
// intent that the client names.
func passed(raw json.RawMessage, token string) (intent string, meta json.RawMessage) {
	var all map[string]json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &all) != nil {
		return "", nil
	}
	// Of a text that Unicode cannot hold another one would become, of many the same.
	if v := all[metaIntent]; v != nil && (canonical.WellFormed(v) != nil || json.Unmarshal(v, &intent) != nil) {
		intent = string(v)
	}
	for k := range all {
		if k == metaIntent || k == "progressToken" || strings.HasPrefix(k, metaProtocol) { // of this side alone
			delete(all, k)
		}
	}
	if token != "" {
		all["progressToken"], _ = json.Marshal(token)
	}
	if len(all) == 0 {
		return intent, nil
	}
	meta, _ = json.Marshal(all)
	return intent, meta
}

// A progress is where the progress of a call goes.
type progress struct {
	server string // that has the call: no other one says what becomes of it
	to     func() *exchange
}

// progressing has the progress of a call of a server go to whom to returns, under a token that no other call has.
func (g *Gateway) progressing(server string, to func() *exchange) (token string, done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tokens++
	token = fmt.Sprintf("keep-%d", g.tokens)
	g.progress[token] = progress{server, to}
	return token, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.progress, token)
	}
}

// passProgress passes the progress of a call on, under the token that its client gave. A token of a call that another server
// has is dropped.
func (g *Gateway) passProgress(server string, m mcp.Message) {
	var all map[string]json.RawMessage
	var token string
	if json.Unmarshal(m.Params, &all) != nil || json.Unmarshal(all["progressToken"], &token) != nil {
		return
	}
	g.mu.Lock()
	p, known := g.progress[token]
	g.mu.Unlock()
	if !known || p.server != server {
		return
	}
	x := p.to()
	if x.token == nil {
		return // who waits now wants none
	}
	all["progressToken"] = x.token
	if params, err := json.Marshal(all); err == nil {
		_ = x.send(mcp.Message{Version: "2.0", Method: m.Method, Params: params})
	}
}
