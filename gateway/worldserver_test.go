//go:build unix

package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Times of the server. What keep.toml says is never better than they are; see keepFile.
const (
	longestWork = 14 * time.Second // from a request to its effect
	longestLag  = 3 * time.Second  // from an effect to a list that shows it
	remembers   = 2 * time.Hour    // a key
)

// done is something that the server did.
type done struct {
	tool, title, body, key string
	shows                  time.Time
}

// A worldConn is a connection to the server.
type worldConn struct {
	net.Conn
	p *process
}

// A worldListener has the connections that come to a server.
type worldListener struct {
	conns <-chan net.Conn
	once  sync.Once
	over  chan struct{}
}

func listenTo(conns <-chan net.Conn) *worldListener {
	return &worldListener{conns: conns, over: make(chan struct{})}
}

func (l *worldListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

func (l *worldListener) Close() error {
	l.once.Do(func() { close(l.over) })
	return nil
}

func (l *worldListener) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects a gateway to the server.
func (w *world) dial(ctx context.Context) (net.Conn, error) {
	p, _ := ctx.Value(processKey{}).(*process)
	if p == nil || p.gone.Load() {
		return nil, errGone
	}
	ours, theirs := net.Pipe()
	p.holds(ours)
	select {
	case w.dials <- &worldConn{theirs, p}:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// variants of the tool, by their number.
func toolOf(variant int) string {
	key := `,"key":{"type":"string"}`
	if variant%3 == 2 {
		key = ""
	}
	return fmt.Sprintf(`{"name":"create","description":"adds a note, as of %d","inputSchema":{"type":"object","properties":{"title":{"type":"string"},"body":{"type":"string"}%s}}}`, variant, key)
}

// serve answers a request to the server.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	w.working.Add(1)
	defer w.working.Done()
	text, err := io.ReadAll(r.Body)
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name      string
			Arguments struct{ Title, Body, Key string }
			Meta      map[string]any `json:"_meta"`
		}
	}
	if err != nil || json.Unmarshal(text, &m) != nil || r.Method != http.MethodPost {
		rw.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if m.ID == nil {
		rw.WriteHeader(http.StatusAccepted)
		return
	}
	result, tell := "", &telling{w: w, rw: rw, token: m.Params.Meta["progressToken"]}
	switch {
	case m.Method == "initialize":
		result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}`
	case m.Method == "tools/list":
		w.mu.Lock()
		wait := span(w.lucky, 5*time.Millisecond)
		if chance(w.lucky, w.rough(0.3)) {
			wait = span(w.lucky, 10*time.Second)
		}
		w.mu.Unlock()
		time.Sleep(wait)
		w.mu.Lock()
		result = fmt.Sprintf(`{"tools":[%s,{"name":"list","inputSchema":{"type":"object"}}%s]}`, toolOf(w.variant), w.more())
		w.mu.Unlock()
	case m.Method != "tools/call":
		rw.WriteHeader(http.StatusMethodNotAllowed)
		return
	case m.Params.Name == "list":
		if result = w.listed(); result == "" {
			panic(http.ErrAbortHandler)
		}
	default:
		call, _ := m.Params.Meta[metaCall].(string)
		result = w.create(r.Context(), done{tool: m.Params.Name, title: m.Params.Arguments.Title, body: m.Params.Arguments.Body, key: m.Params.Arguments.Key}, call, tell)
		if result == "" {
			return
		}
	}
	tell.answer(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
}

// A telling is an answer of the server, before which it may tell how far it is.
type telling struct {
	w      *world
	rw     http.ResponseWriter
	token  any // of progress; nil: the call has none
	events bool
}

// progress tells how far the server is, perhaps. mu is not held.
func (t *telling) progress() {
	if t.token == nil {
		return
	}
	t.w.mu.Lock()
	tells := chance(t.w.tells, 0.5)
	t.w.mu.Unlock()
	if !tells {
		return
	}
	t.rw.Header().Set("Content-Type", "text/event-stream")
	t.events = true
	t.answer(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%q,"progress":1}}`, t.token))
	_ = http.NewResponseController(t.rw).Flush()
}

// answer writes a message.
func (t *telling) answer(message string) {
	if t.events {
		fmt.Fprintf(t.rw, "event: message\ndata: %s\n\n", message)
		return
	}
	t.rw.Header().Set("Content-Type", "application/json")
	fmt.Fprint(t.rw, message)
}

// metaCall is the member of _meta that says which call of an agent is made.
const metaCall = "world.example/call"

// listed returns what the list of the server shows; empty: it does not answer.
func (w *world) listed() string {
	w.mu.Lock()
	wait, lost := span(w.lucky, time.Second), chance(w.lucky, w.rough(0.2))
	w.mu.Unlock()
	time.Sleep(wait)
	if lost {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	rows := []map[string]string{}
	for _, d := range w.done {
		if !d.shows.After(time.Now()) {
			rows = append(rows, map[string]string{"title": d.title, "body": d.body, "key": d.key})
		}
	}
	text, _ := json.Marshal(map[string]any{"notes": rows})
	return fmt.Sprintf(`{"content":[],"structuredContent":%s}`, text)
}

// rough returns a chance of the chaos, which is none when that is over. mu is held.
func (w *world) rough(p float64) float64 {
	select {
	case <-w.calm:
		return 0
	default:
		return p
	}
}

// A plan is what becomes of a request.
type plan struct {
	work, lag, answer time.Duration
	fate              string
}

// planned draws what becomes of a request. mu is held.
func (w *world) planned(r *rand.Rand) plan {
	pl := plan{work: span(r, 400*time.Millisecond), lag: span(r, longestLag), answer: span(r, 100*time.Millisecond)}
	if chance(r, w.rough(0.25)) {
		pl.work = span(r, longestWork)
	}
	if chance(r, w.rough(0.4)) {
		pl.fate = pick(r, "lost before", "lost after", "lost after", "error before", "error after", "refused", "late")
	}
	if pl.fate == "late" {
		pl.answer = 20*time.Second + span(r, 30*time.Second)
	}
	return pl
}

// create makes a note, as the server does. An empty result says that it answered already.
func (w *world) create(ctx context.Context, d done, call string, tell *telling) (result string) {
	w.mu.Lock()
	p := ctx.Value(processKey{}).(*process)
	pl := w.planned(w.lucky)
	rec := w.arrives(p, d, call)
	if d.tool == toCreate {
		w.agreed(p)
	}
	w.note("server: %s%s from gateway %d, call %q: %s", d.title, map[bool]string{true: " by key"}[d.key != ""], p.n, call, pl.fate)
	w.saw("server: " + pl.fate)
	if rec == nil {
		w.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	rec.out++
	w.sentAgain(ctx, p, rec)
	w.mu.Unlock()
	over := func() { rec.out-- }
	if pl.fate != "refused" {
		tell.progress()
	}
	time.Sleep(pl.work)
	if pl.fate != "lost before" && pl.fate != "error before" && pl.fate != "refused" {
		w.mu.Lock()
		w.effect(rec, d, pl.lag)
		w.mu.Unlock()
	}
	w.mu.Lock()
	over()
	w.mu.Unlock()
	if pl.fate != "refused" {
		tell.progress()
	}
	time.Sleep(pl.answer)
	switch {
	case strings.HasPrefix(pl.fate, "lost"):
		panic(http.ErrAbortHandler)
	case strings.HasPrefix(pl.fate, "error"):
		return `{"isError":true,"content":[{"type":"text","text":"upstream timed out"}]}`
	case pl.fate == "refused":
		tell.rw.WriteHeader(http.StatusTooManyRequests)
		return ""
	}
	return fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, d.title)
}

// effect does what a request wants, unless the server knows its key. mu is held.
func (w *world) effect(rec *record, d done, lag time.Duration) {
	if was := w.keys[d.key]; d.key != "" && was != nil && time.Since(was.at) < remembers {
		w.saw("server: knows the key")
		return
	}
	d.shows = time.Now().Add(lag)
	w.done = append(w.done, d)
	rec.effects++
	rec.at = time.Now()
	w.note("server: did %s, effect %d of %s", d.title, rec.effects, rec)
	if d.key != "" {
		w.keys[d.key] = rec
	}
	if rec.effects > 1 && d.tool != toSet {
		w.broken("once", "%s has %d effects", rec, rec.effects)
	}
}
