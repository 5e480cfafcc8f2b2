package idempotency_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/law/key"
)

// # Worlds of proxies
//
// A process is a proxy with a server, a transport and connections in memory. Behind it is one backend, which knows what it did and outlives the
// processes: its answers are whole, cut at each place where an answer can be, without an end, too long, too slow, after 1xx, an upgrade, or those
// of a gateway; it closes connections before and after its effect. Clients read HTTP, leave in the middle of what they send and read, write keys
// and hosts in other ways, and sign.
//
// What is held to besides: an answer that is shown to its end is all that the backend sent, byte for byte, with its trailer; a kept one is a whole
// one; what was not sent was not executed, and half a request neither.

// Of a proxy in a world.
const (
	keySilence = 40 * time.Second // of the backend: with the time to connect it is keyEffects
	keyLimit   = 2 << 10          // of an answer that is kept
)

// A keyFront is what a proxy listens on, and its connections.
type keyFront struct {
	server *http.Server
	accept chan net.Conn
	closed chan struct{}

	mu    sync.Mutex // protects what follows
	conns []net.Conn
	dead  bool
}

func (f *keyFront) Accept() (net.Conn, error) {
	select {
	case c := <-f.accept:
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

func (f *keyFront) Close() error   { return nil }
func (f *keyFront) Addr() net.Addr { return &net.TCPAddr{} }

// holds notes a connection of the process, and reports whether it lives.
func (f *keyFront) holds(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		_ = c.Close()
		return false
	}
	f.conns = append(f.conns, c)
	return true
}

// dies ends all connections.
func (f *keyFront) dies() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	close(f.closed)
	for _, c := range f.conns {
		_ = c.Close()
	}
}

// drawProxy draws what a proxy has.
func (w *keyWorld) drawProxy() {
	f := &w.file
	f.remote, f.repeatable, f.failOpen = true, false, false
	f.probes = f.probes && f.stable
	w.backend = &keyBackend{w: w, rng: rand.New(rand.NewPCG(w.seed, 6)), oneHost: chance(w.kin, 0.2)}
	w.note("proxy: one host %t, probes %t", w.backend.oneHost, f.probes)
}

// openProxy has the process listen.
func (p *keyProcess) openProxy() {
	f, b := p.file, p.w.backend
	route := proxy.Route{
		Policy: string(f.policy), AfterCrash: string(f.crash), Wait: proxy.Duration(f.wait), TTL: proxy.Duration(f.ttl), AllowShortTTL: true,
		NotExecuted: []int{409}, SettleAfter: proxy.Duration(keySettles), ResponseLimit: keyLimit,
	}
	if f.stable {
		route.Caller = "header:X-User"
	}
	if f.probes && f.stable {
		route.Probe, route.ProbeCaller = "http://backend.example/probe/{key}?by={caller}", "value"
	}
	front := &keyFront{accept: make(chan net.Conn), closed: make(chan struct{})}
	cfg := proxy.Config{
		Upstream: "http://backend.example", Lease: proxy.Duration(keyLease), UpstreamTimeout: proxy.Duration(keySilence), Logger: slog.New(slog.DiscardHandler),
		Routes: []proxy.Route{route}, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return b.dialled(ctx, p) },
	}
	if b.oneHost {
		cfg.Host = "api.example"
	}
	px, err := proxy.New(p.openStore(), cfg)
	if err != nil {
		p.w.t.Error(err)
		return
	}
	handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		p.w.working.Add(1)
		defer p.w.working.Done()
		px.Handler().ServeHTTP(rw, r)
	})
	front.server = &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	p.front = front
	p.w.working.Go(func() { _ = front.server.Serve(front) })
}

// A keyBackend is the service behind all proxies.
type keyBackend struct {
	w       *keyWorld
	rng     *rand.Rand // w.mu protects it
	oneHost bool
}

var errRefused = errors.New("connection refused")

// dialled connects a process.
func (b *keyBackend) dialled(ctx context.Context, p *keyProcess) (net.Conn, error) {
	w := b.w
	w.mu.Lock()
	slow, refused := span(b.rng, 3*time.Millisecond), w.faults > 0 && chance(b.rng, 0.05)
	if chance(b.rng, w.faults/2) {
		slow = span(b.rng, 15*time.Second)
	}
	w.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if refused {
		return nil, errRefused
	}
	near, far := net.Pipe()
	if !p.front.holds(near) {
		return nil, errLost
	}
	w.working.Go(func() { b.serves(far, p) })
	return near, nil
}

// serves answers what comes over a connection.
func (b *keyBackend) serves(conn net.Conn, p *keyProcess) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for n := 0; ; n++ {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if b.closesIdle(n) {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if r.Method == http.MethodGet {
			b.isAsked(conn, p, r)
			return
		}
		if p.at("before a handler") || !b.handles(conn, p, r, body) {
			return
		}
	}
}

// closesIdle reports whether a connection that was used before breaks under the next request.
func (b *keyBackend) closesIdle(n int) bool {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	if n == 0 || !chance(b.rng, 0.1) || b.w.faults == 0 {
		return false
	}
	b.w.saw("backend: closes an idle connection")
	return true
}

// Shapes of answers.
const (
	shapeLength  = "with a length"
	shapeChunks  = "in chunks"
	shapeTrailer = "with a trailer"
	shapeHints   = "after 1xx"
	shapeEmpty   = "204"
	shapeJSON    = "JSON without an end"
	shapeLong    = "too long"
	shapeLongs   = "too long, in chunks"
	shapeStream  = "a stream"
	shapeSlow    = "slow in the middle"

	shapeText     = "text without an end"
	shapeHalfJSON = "half JSON without an end"

	cutLength  = "cut, with a length"
	cutChunks  = "cut in chunks"
	cutTrailer = "cut before its trailer"
	cutHeaders = "headers only"
	cutStatus  = "half a header"
	cutLong    = "too long, and cut"
	cutStream  = "a stream, cut"
	cutNothing = "closed"
	garbage    = "garbage"
	upgrades   = "an upgrade"
)

func wholeShapes() []string {
	return []string{shapeLength, shapeLength, shapeLength, shapeChunks, shapeTrailer, shapeHints, shapeEmpty, shapeJSON, shapeLong, shapeLongs, shapeStream, shapeSlow, shapeText, shapeHalfJSON}
}

func cutShapes() []string {
	return []string{cutLength, cutChunks, cutTrailer, cutHeaders, cutStatus, cutLong, cutStream, cutNothing, cutNothing, garbage, upgrades}
}

// A keySent is what a backend answers.
type keySent struct {
	status  int
	shape   string
	text    string // the whole body, as far as its reader can know
	trailer string
	nothing bool // it says that it did nothing
	passed  bool // it is not kept
	effect  bool
}

// draw draws what the backend does. w.mu is held.
func (b *keyBackend) draw(e *execution, r *http.Request) keySent {
	f := e.p.file
	s := keySent{status: 201, effect: true, shape: pick(b.rng, wholeShapes()...)}
	calm := false
	select {
	case <-b.w.calm:
		calm = true
	default:
	}
	switch what := b.rng.IntN(20); {
	case calm, what < 9:
	case what < 12: // refused, or a gateway that did not pass it on
		s.effect, s.shape = false, pick(b.rng, shapeLength, shapeChunks, shapeTrailer, shapeHints)
		s.status = pick(b.rng, 401, 403, 429, 409, 422, 500, 502, 503, 504, 520)
	case what < 14 && f.policy == key.AtMostOnce: // a gateway that passed it on
		s.status, s.shape = pick(b.rng, 500, 502, 503, 504, 520), pick(b.rng, shapeLength, shapeChunks, shapeTrailer, shapeHints)
	default:
		s.shape, s.effect = pick(b.rng, cutShapes()...), chance(b.rng, 0.7)
	}
	if s.shape == upgrades && r.Header.Get("Upgrade") == "" && chance(b.rng, 0.5) {
		s.shape = cutNothing
	}
	b.writes(e, &s)
	whole := !slices.Contains(cutShapes(), s.shape)
	switch s.status {
	case 401, 403, 429, 409:
		s.nothing = whole
	case 500, 502, 503, 504, 520:
		s.nothing = whole && f.policy == key.Retry5xx
	}
	return s
}

// writes writes the body of an answer. w.mu is held.
func (b *keyBackend) writes(e *execution, s *keySent) {
	s.text = e.body + " says so"
	switch s.shape {
	case shapeEmpty:
		s.status, s.text = 204, ""
	case shapeJSON:
		s.text = fmt.Sprintf(" {\"for\": %q} ", e.body)
	case shapeText:
		s.passed = true
	case shapeHalfJSON:
		s.text, s.passed = fmt.Sprintf("{\"for\": %q, \"and\"", e.body), true
	case shapeLong, shapeLongs, cutLong:
		s.text, s.passed = e.body+strings.Repeat(" and so on", keyLimit/8), true
	case shapeStream, cutStream:
		s.passed = true
	case upgrades:
		s.status, s.passed = 101, true
	case shapeTrailer, cutTrailer:
		s.trailer = fmt.Sprint("sum-", e.n)
	}
}

// handles does what a request is for, and answers. It reports whether the connection is good for another one.
func (b *keyBackend) handles(conn net.Conn, p *keyProcess, r *http.Request, body []byte) bool {
	w := b.w
	w.mu.Lock()
	if m := w.byReference(r.Header.Get("X-Wanted")); r.Header.Get("X-Half") != "" {
		w.broken("once", "half of %s is executed", m)
	}
	e := w.executes(p, r, body)
	e.how, e.sent = "backend", b.draw(e, r)
	before, after := span(b.rng, time.Second), span(b.rng, time.Second)
	if w.faults > 0 && chance(b.rng, 0.15) {
		before = span(b.rng, 50*time.Second)
	}
	if w.faults > 0 && chance(b.rng, 0.15) {
		after = span(b.rng, 45*time.Second)
	}
	pause := span(b.rng, pick(b.rng, time.Second, 50*time.Second))
	e.waits = e.sent.effect
	w.note("the backend executes %s (%s): %d %s, effect %t, %s and %s", e, e.try, e.sent.status, e.sent.shape, e.sent.effect, before, after)
	w.saw("backend: " + e.sent.shape)
	w.saw(fmt.Sprintf("backend: %d, effect %t", e.sent.status, e.sent.effect))
	w.mu.Unlock()
	time.Sleep(before)
	w.mu.Lock()
	if e.waits = false; e.sent.effect {
		w.effect(e)
	}
	w.mu.Unlock()
	time.Sleep(after)
	w.mu.Lock()
	e.over = true
	if e.sent.nothing && !p.gone.Load() {
		e.of.as(p.file.stable).held = false
	}
	w.mu.Unlock()
	again := e.send(conn, pause)
	return !p.at("after a handler") && again
}

// send sends the answer, and reports whether the connection is good for another one.
func (e *execution) send(conn net.Conn, pause time.Duration) bool {
	s := e.sent
	head := fmt.Sprintf("HTTP/1.1 %d Something\r\nX-Execution: %d\r\n", s.status, e.n)
	if e.n == 0 { // a probe's
		head, _, _ = strings.Cut(head, "X-Execution")
	}
	say := func(parts ...string) {
		for _, part := range parts {
			if _, err := io.WriteString(conn, part); err != nil {
				return
			}
		}
	}
	length := fmt.Sprintf("Content-Length: %d\r\n\r\n", len(s.text))
	chunked := "Transfer-Encoding: chunked\r\n\r\n"
	half, rest := s.text[:len(s.text)/2], s.text[len(s.text)/2:]
	chunk := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
	switch s.shape {
	case shapeLength, shapeLong:
		say(head, length, s.text)
	case shapeChunks, shapeLongs:
		say(head, chunked, chunk(half), chunk(rest), "0\r\n\r\n")
	case shapeTrailer:
		say(head, "Trailer: X-Sum\r\n", chunked, chunk(half), chunk(rest), "0\r\nX-Sum: ", s.trailer, "\r\n\r\n")
	case shapeHints:
		say("HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\nX-Execution: hint\r\n\r\n", head, length, s.text)
	case shapeEmpty:
		say(head, "\r\n")
	case shapeJSON, shapeText, shapeHalfJSON:
		say(head, "Connection: close\r\n\r\n", half, rest)
		return false
	case shapeStream:
		say(head, "Content-Type: text/event-stream\r\n", chunked, chunk(half))
		time.Sleep(pause)
		say(chunk(rest), "0\r\n\r\n")
	case shapeSlow:
		say(head, length, half)
		time.Sleep(pause)
		say(rest)
	case upgrades:
		say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Execution: ", itoa(e.n), "\r\n\r\n", s.text)
		return false
	default:
		e.sendCut(say, head, length, chunked, half, chunk)
		return false
	}
	return true
}

// sendCut sends an answer that is not whole.
func (e *execution) sendCut(say func(...string), head, length, chunked, half string, chunk func(string) string) {
	switch e.sent.shape {
	case cutLength, cutLong:
		say(head, length, half)
	case cutChunks:
		say(head, chunked, chunk(half))
	case cutTrailer:
		say(head, "Trailer: X-Sum\r\n", chunked, chunk(e.sent.text), "0\r\nX-Su")
	case cutStream:
		say(head, "Content-Type: text/event-stream\r\n", chunked, chunk(half), "7f\r\n")
	case cutHeaders:
		say(head, length)
	case cutStatus:
		say(head[:len(head)-4])
	case garbage:
		say("SSH-2.0-OpenSSH_9.6\r\n")
	}
}

// isAsked answers a probe.
func (b *keyBackend) isAsked(conn net.Conn, p *keyProcess, r *http.Request) {
	w := b.w
	name, by := strings.TrimPrefix(r.URL.Path, "/probe/"), r.URL.Query().Get("by")
	w.mu.Lock()
	var m *wanted
	latest := 0
	for _, o := range w.wanted { // the key is that of two requests if a client mixes them up
		if n := len(o.executions); o.key == name && o.client == by && (m == nil || n > 0 && o.executions[n-1].n > latest) {
			if m = o; n > 0 {
				latest = o.executions[n-1].n
			}
		}
	}
	if m == nil {
		w.broken("truth", "a probe asks about %q of %q, which nobody sent", name, by)
		w.mu.Unlock()
		return
	}
	m.as(p.file.stable)
	slow, happened := span(b.rng, time.Second), m.effects > 0
	how := pick(b.rng, shapeLength, shapeLength, shapeLength, shapeChunks)
	if w.faults > 0 && chance(b.rng, 0.3) {
		how = pick(b.rng, cutLength, cutChunks, cutNothing, "500", shapeText)
	}
	if how == shapeText {
		m.halved = m.halved || happened
	}
	w.note("process %d probes %s: %t, %s", p.n, m, happened, how)
	w.saw(fmt.Sprintf("probe: %t", happened))
	text := m.String() + " found"
	w.mu.Unlock()
	time.Sleep(slow)
	s := &execution{sent: keySent{status: 201, shape: how, text: text}}
	switch {
	case how == "500":
		s.sent.status, s.sent.shape = 500, shapeLength
	case !happened:
		s.sent.status, s.sent.text = 404, ""
		if how == cutLength || how == cutChunks {
			s.sent.shape = shapeLength // a 404 says all
		}
	}
	s.send(conn, 0)
}

// writesOtherwise writes a request as other clients do.
func (c *keyClient) writesOtherwise(r *http.Request, m *wanted, rng *rand.Rand) {
	if c.w.backend.oneHost {
		r.Host = pick(rng, "a.example", "b.example", "c.example:8080")
	}
	switch rng.IntN(12) {
	case 0:
		r.Header.Set("Idempotency-Key", fmt.Sprintf("%q", m.key))
	case 1:
		r.Header.Set("X-Idempotency-Key", m.key)
	case 2:
		r.Header.Set("Connection", "Idempotency-Key, X-User")
	case 3:
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
	case 4:
		r.ContentLength = -1
	case 5:
		select {
		case <-c.w.calm:
		default:
			r.Header.Set("X-Half", "true")
		}
	case 6:
		r.Header.Set("Authorization", fmt.Sprintf("Signature nonce=%d", rng.Int()))
	}
}

// overHTTP has a process answer a request; nil: there was no whole answer.
func (c *keyClient) overHTTP(p *keyProcess, r *http.Request, patience time.Duration) *keyAnswer {
	near, far := net.Pipe()
	defer near.Close()
	if !p.front.holds(far) {
		return nil
	}
	select {
	case p.front.accept <- far:
	case <-p.dead:
		return nil
	}
	got := make(chan *keyAnswer, 1)
	c.w.working.Go(func() {
		a, err := c.exchange(p, near, r)
		if err != nil {
			a = nil
		}
		got <- a
	})
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case a := <-got:
		if p.gone.Load() {
			return nil
		}
		return a
	case <-p.dead:
		return nil
	case <-timer.C:
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		c.w.saw("client: goes away")
		c.w.note("%s goes away", c.name)
		return nil
	}
}

// exchange sends a request and reads its answer.
func (c *keyClient) exchange(p *keyProcess, conn net.Conn, r *http.Request) (*keyAnswer, error) {
	if r.Header.Get("X-Half") != "" {
		_, err := fmt.Fprintf(conn, "POST /orders HTTP/1.1\r\nHost: %s\r\nX-User: %s\r\nX-Half: true\r\nX-Wanted: %s\r\nX-Try: %s\r\nAuthorization: %s\r\nIdempotency-Key: %s\r\nContent-Length: 9\r\n\r\nhalf",
			r.Host, c.name, r.Header.Get("X-Wanted"), r.Header.Get("X-Try"), r.Header.Get("Authorization"), r.Header.Get("Idempotency-Key"))
		c.w.mu.Lock()
		c.w.saw("client: sends half")
		c.w.mu.Unlock()
		return nil, errors.Join(err, errLost)
	}
	c.w.working.Go(func() { _ = r.Write(conn) })
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, r)
	for err == nil && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(in, r)
	}
	if err != nil {
		return nil, err
	}
	var body []byte
	if resp.StatusCode != http.StatusSwitchingProtocols {
		body, err = io.ReadAll(resp.Body)
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if err != nil {
		c.w.saw("client: sees that an answer is cut")
	}
	a := c.read(p, resp.StatusCode, resp.Header, string(body))
	a.cut = err != nil
	c.compare(r, a, resp.Trailer)
	return a, err
}

// compare compares an answer with what the backend sent. w.mu is held.
func (c *keyClient) compare(r *http.Request, a *keyAnswer, trailer http.Header) {
	w, n := c.w, a.header.Get("X-Execution")
	if n == "" {
		return
	}
	m := w.byReference(r.Header.Get("X-Wanted"))
	var of *execution
	for _, e := range m.executions {
		if itoa(e.n) == n {
			of = e
		}
	}
	s := keySent{}
	if of != nil {
		s = of.sent
	}
	switch {
	case of == nil:
		w.broken("permitted", "%s gets the answer of execution %q, of which it has none", m, n)
	case a.replayed && (slices.Contains(cutShapes(), s.shape) || s.passed):
		w.broken("kept", "%s gets again the answer of %s, which was %s", m, of, s.shape)
	case a.status == http.StatusSwitchingProtocols && s.shape == upgrades:
		w.saw("answer: an upgrade, replayed false")
		a.body = of.body
	case a.cut && strings.HasPrefix(s.text, a.body):
	case a.status != s.status || a.body != s.text:
		w.broken("kept", "%s gets %d %q of %s (%s), which was %d %q", m, a.status, a.body, of, s.shape, s.status, s.text)
	case trailer.Get("X-Sum") != s.trailer:
		w.broken("kept", "%s gets the trailer %q of %s (%s), which was %q, replayed %t", m, trailer.Get("X-Sum"), of, s.shape, s.trailer, a.replayed)
	default:
		w.saw("answer: " + s.shape + fmt.Sprintf(", replayed %t", a.replayed))
		a.body = of.body
	}
}

// isTextOf reports whether a text is the whole answer to a request. w.mu is held.
func (w *keyWorld) isTextOf(m *wanted, text string) bool {
	return slices.ContainsFunc(m.executions, func(e *execution) bool {
		return e.sent.text == text && !e.sent.passed && !slices.Contains(cutShapes(), e.sent.shape)
	})
}

// proxyProblem reports whether a problem is one that only a proxy has. w.mu is held.
func (w *keyWorld) proxyProblem(m *wanted, try string, a *keyAnswer) bool {
	switch a.problem {
	case idempotency.KindNotSent:
		if slices.ContainsFunc(m.executions, func(e *execution) bool { return e.try == try }) {
			w.broken("truth", "%s is told that it was not sent, and it was executed", m)
		}
		if strings.Contains(a.detail, "nothing was done. ") && m.effects > 0 {
			w.broken("truth", "%s is told that nothing was done: %s", m, a.detail)
		}
		return true
	case idempotency.KindCallerUnknown:
		return !a.p.file.stable
	}
	return false
}

func proxySights() []string {
	sights := []string{
		"backend: closes an idle connection", "client: sends half", "client: sees that an answer is cut", "client: goes away", "problem: not-sent", "problem: caller-unknown",
		"probe: true", "probe: false", "problem: outcome-unknown", "problem: body-not-stored", "problem: caller-changed", "released by a probe", "a doubt", "a key is over",
		"backend: 503, effect true", "backend: 503, effect false", "backend: 429, effect false", "answer: an upgrade, replayed false",
	}
	for _, s := range slices.Concat(wholeShapes(), cutShapes()) {
		sights = append(sights, "backend: "+s)
	}
	for _, s := range []string{shapeLength, shapeChunks, shapeTrailer, shapeHints, shapeEmpty, shapeJSON, shapeSlow} {
		sights = append(sights, "answer: "+s+", replayed true")
	}
	return sights
}
