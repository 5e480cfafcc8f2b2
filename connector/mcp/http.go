package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/ontime"
)

// An httpLink is a session with a server by streamable HTTP.
type httpLink struct {
	cfg    ServerConfig
	client *http.Client
	single *http.Client // has a connection for each request, of which none was used before, and sends nothing after its time
	n      atomic.Int64
	loops  sync.WaitGroup // end with the link
	asking chan struct{}  // a token for each answer to a request of the server that is sent
	ctx    context.Context
	stop   context.CancelFunc

	mu      sync.Mutex // protects all below
	session string
	version string
	gone    bool
}

func newHTTP(cfg ServerConfig) *httpLink {
	client := func(alone bool) *http.Client {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DisableCompression, t.DisableKeepAlives = true, alone
		t.DialContext = ontime.Dialing(t.DialContext)
		return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	h := &httpLink{cfg: cfg, client: client(false), single: client(true), asking: make(chan struct{}, maxAnswering)}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

type aloneKey struct{}

// alone returns a context whose call gets a connection of its own: one that was used before may
// have been closed by the server without the client's knowledge, and then nobody knows whether
// the call reached it.
func alone(ctx context.Context) context.Context { return context.WithValue(ctx, aloneKey{}, true) }

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

// inSession reports whether the server gave the connection a session.
func (h *httpLink) inSession() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.session != ""
}

func (h *httpLink) close() {
	h.stop()
	h.loops.Wait()
	h.client.CloseIdleConnections()
}

// A StatusError is an answer of a server that is none of the protocol.
type StatusError struct {
	Status int

	server     string
	said       string   // by the server, of why; empty: nothing
	scopes     []string // that the credential lacks, as the server says
	account    string   // whose credential was refused; empty: of none
	generation int64    // of that account
	renewed    bool     // there is another credential now
	unread     bool     // the server did not read which tool is called
	over       bool     // the server does not know the session any more; the next call begins another one
	retryAfter time.Duration
}

// Error names the status, and what a person can do about it.
func (e *StatusError) Error() string {
	said := fmt.Sprintf("the MCP server answered HTTP %d", e.Status)
	if e.said != "" {
		said += ": " + e.said
	}
	if len(e.scopes) == 0 {
		return said
	}
	return fmt.Sprintf("%s: the call needs the scopes %s, which the token lacks; ask for them with: keep connect mcp:%s --scopes %s",
		said, strings.Join(e.scopes, " "), e.server, strings.Join(e.scopes, ","))
}

func (h *httpLink) notify(ctx context.Context, r request) error {
	resp, credential, err := h.post(ctx, Message{Version: "2.0", Method: r.method, Params: r.params}, r.header, new(atomic.Bool))
	if err != nil {
		return err
	}
	if resp.StatusCode >= 400 { // some servers agree on a version that they do not speak
		resp.Body.Close()
		return h.refused(ctx, resp, credential)
	}
	return resp.Body.Close()
}

func (h *httpLink) call(ctx context.Context, r request) (Message, error) {
	id := json.RawMessage(itoa(int(h.n.Add(1))))
	var left atomic.Bool
	m, err := h.exchange(ctx, r, id, &left)
	if ctx.Err() != nil && clientOf(ctx).Cancels && r.header == nil { // with the headers of 2026-07-28, the end of the stream says it
		h.loops.Go(func() {
			ctx, cancel := context.WithTimeout(h.ctx, stopTime)
			defer cancel()
			_ = h.notify(ctx, cancelled(string(id)))
		})
	}
	if err != nil && !left.Load() {
		err = &UnsentError{err}
	}
	return m, err
}

// exchange sends a request and reads its answer.
func (h *httpLink) exchange(ctx context.Context, r request, id json.RawMessage, left *atomic.Bool) (Message, error) {
	resp, credential, err := h.post(ctx, Message{Version: "2.0", ID: id, Method: r.method, Params: r.params}, r.header, left)
	if err != nil {
		return Message{}, err
	}
	defer resp.Body.Close()
	noteClock(ctx, resp)
	if s := resp.Header.Get("Mcp-Session-Id"); s != "" && r.method == "initialize" {
		h.mu.Lock()
		h.session = s
		h.mu.Unlock()
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	var m Message
	unread := false
	switch {
	case len(lacking(resp)) > 0:
		return Message{}, h.refused(ctx, resp, credential)
	case kind == "text/event-stream" && resp.StatusCode == http.StatusOK:
		return h.stream(ctx, resp.Body, id)
	case kind == "application/json":
		m, err = h.whole(resp.Body, id)
		unread = ofTransport(resp.StatusCode, m, err == nil, r.header != nil)
		if resp.StatusCode == http.StatusOK || err == nil && !unread && !refusedBy(resp.StatusCode, m, h.inSession()) {
			return m, err
		}
	}
	over := resp.StatusCode == http.StatusNotFound || unread
	if over {
		h.mu.Lock()
		h.gone = true // the session is over; the next call begins another
		h.mu.Unlock()
	}
	e := h.refused(ctx, resp, credential)
	e.unread = unread
	e.over = over && h.inSession()
	if m.Error != nil {
		e.said = keep.OneLine(shorten(m.Error.Message, 2000))
	}
	return Message{}, e
}

// refused returns what an answer says that is none of the protocol.
func (h *httpLink) refused(ctx context.Context, resp *http.Response, c connector.Credential) *StatusError {
	e := &StatusError{Status: resp.StatusCode, server: h.cfg.Name, scopes: lacking(resp)}
	n, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // of too large a number the largest, and else zero
	e.retryAfter = time.Duration(min(max(n, 0), 24*60*60)) * time.Second
	if h.cfg.Account != "" && e.Status == http.StatusUnauthorized {
		e.account, e.generation = h.cfg.Account, c.Generation
		e.renewed = h.cfg.Accounts.Refused(ctx, h.cfg.Account, c)
	}
	if h.cfg.Account != "" && len(e.scopes) > 0 {
		e.account, e.generation = h.cfg.Account, c.Generation // what waits continues when it is connected with more
	}
	return e
}

// A scope is printed as a part of a command, so one of other characters is not taken.
var (
	scopeParam = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)[ ,]scope="([^"]*)"`) })
	scopeText  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_./:+~-]{1,200}$`) })
	scopeError = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)^bearer\b.*[ ,]error="?insufficient_scope"?(,|$)`)
	})
)

// lacking returns the scopes that a refusal names as needed for the request (RFC 6750, insufficient_scope);
// none: it is another answer.
func lacking(resp *http.Response) (scopes []string) {
	if resp.StatusCode != http.StatusForbidden {
		return nil
	}
	for _, challenge := range resp.Header.Values("WWW-Authenticate") {
		said := scopeParam().FindStringSubmatch(challenge)
		if said == nil || !scopeError().MatchString(challenge) {
			continue
		}
		for _, s := range strings.Fields(said[1]) {
			if scopeText().MatchString(s) && len(scopes) < 20 {
				scopes = append(scopes, s)
			}
		}
	}
	slices.Sort(scopes)
	return slices.Compact(scopes)
}

// post sends a frame, and returns the credential that it carried. It notes in left that something
// of it may have left.
func (h *httpLink) post(ctx context.Context, m Message, header map[string]string, left *atomic.Bool) (*http.Response, connector.Credential, error) {
	frame, err := Frame(m)
	if err != nil {
		return nil, connector.Credential{}, err
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { left.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.cfg.URL, bytes.NewReader(frame))
	if err != nil {
		return nil, connector.Credential{}, withoutURL(err)
	}
	req.GetBody = nil // the transport must not send it again
	req.Header.Set("Content-Type", "application/json")
	h.head(req, header)
	return h.do(req)
}

// do sends a request with the account's credential, which it returns.
func (h *httpLink) do(req *http.Request) (resp *http.Response, c connector.Credential, err error) {
	ctx, client := req.Context(), h.client
	if ctx.Value(aloneKey{}) != nil {
		client, req = h.single, req.WithContext(ontime.WithEnd(ctx))
	}
	if h.cfg.Account == "" {
		resp, err = client.Do(req)
		return resp, c, withoutURL(err)
	}
	if h.cfg.Accounts == nil {
		return nil, c, keep.Failf(keep.ClassPermission, keep.CodeAccount, "the account %s is in the database, which is not open", h.cfg.Account)
	}
	if c, err = h.cfg.Accounts.Credential(ctx, h.cfg.Account); err != nil {
		return nil, c, err
	}
	h.cfg.hide.Remember(append(c.Secrets, c.Value)...)
	req.Header.Set("Authorization", "Bearer "+c.Value)
	if resp, err = client.Do(req); err == nil && resp.StatusCode < http.StatusMultipleChoices {
		h.cfg.Accounts.Accepted(context.WithoutCancel(ctx), h.cfg.Account)
	}
	return resp, c, withoutURL(err)
}

// withoutURL returns an error of net/http without the URL of the request, which may hold a secret.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// head sets the headers of every request.
func (h *httpLink) head(req *http.Request, header map[string]string) {
	for k, v := range h.cfg.Headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != "" {
		req.Header.Set("Mcp-Session-Id", h.session)
	}
	if h.version != "" {
		req.Header.Set("MCP-Protocol-Version", h.version)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
}

// whole reads an answer that is one frame.
func (h *httpLink) whole(body io.Reader, id json.RawMessage) (Message, error) {
	text, err := io.ReadAll(io.LimitReader(body, int64(h.cfg.MessageLimit)+1))
	if err != nil {
		return Message{}, fmt.Errorf("read the answer: %w", err)
	}
	if len(text) > h.cfg.MessageLimit {
		return Message{}, &TooLargeError{ID: id, Limit: h.cfg.MessageLimit}
	}
	m, err := h.cfg.message(text)
	if err != nil {
		return Message{}, fmt.Errorf("the answer is no message: %w", err)
	}
	if !bytes.Equal(m.ID, id) {
		return m, errors.New("the answer is to another request")
	}
	return m, nil
}

// stream reads events until the answer to the request is among them.
func (h *httpLink) stream(ctx context.Context, body io.Reader, id json.RawMessage) (Message, error) {
	c := clientOf(ctx)
	events := newEvents(body, h.cfg)
	asking := make(chan struct{}, maxAsking)
	for {
		m, err := events.next()
		switch {
		case err != nil:
			return Message{}, fmt.Errorf("the stream ended before the answer: %w", err)
		case m.Method == "" && bytes.Equal(m.ID, id):
			return m.read()
		case m.Method != "" && m.ID != nil:
			select {
			case asking <- struct{}{}:
			case <-ctx.Done():
				return Message{}, context.Cause(ctx)
			case <-h.ctx.Done():
				return Message{}, context.Cause(h.ctx)
			}
			h.loops.Go(func() { // it must not keep the answer from being read
				defer func() { <-asking }()
				h.answer(ctx, m, c.Ask)
			})
		case m.Method == "notifications/message" && c.Tell != nil:
			c.Tell(m)
		case m.Method != "" && h.cfg.Notified != nil:
			h.cfg.Notified(m)
		}
	}
}

// answer answers a request of the server.
func (h *httpLink) answer(ctx context.Context, m Message, ask func(context.Context, Message) Message) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	ans := answerTo(ctx, m, ask)
	select {
	case h.asking <- struct{}{}:
		defer func() { <-h.asking }()
	case <-ctx.Done():
		return
	}
	ctx, late := context.WithTimeout(ctx, answerTime)
	defer late()
	if resp, _, err := h.post(ctx, ans, nil, new(atomic.Bool)); err == nil {
		resp.Body.Close()
	}
}

// listen reads what a server with a handshake tells outside of requests, until the connection is
// over. False: the server tells nothing.
func (h *httpLink) listen() bool {
	req, err := http.NewRequestWithContext(h.ctx, http.MethodGet, h.cfg.URL, nil)
	if err != nil {
		return false
	}
	h.head(req, nil)
	req.Header.Set("Accept", "text/event-stream")
	resp, _, err := h.do(req)
	if err != nil {
		return true
	}
	defer resp.Body.Close()
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind != "text/event-stream" || resp.StatusCode != http.StatusOK {
		return false
	}
	events := newEvents(resp.Body, h.cfg)
	for {
		m, err := events.next()
		switch {
		case err != nil:
			return true
		case m.Method != "" && m.ID != nil:
			h.answer(h.ctx, m, nil)
		case m.Method != "" && h.cfg.Notified != nil:
			h.cfg.Notified(m)
		}
	}
}
