//go:build unix

package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/gateway"
)

// Agents by HTTP. A client reads what comes as it comes, unless it reads late: what it does not take it loses afterwards, as it would from the buffers of
// its machine.

// A webKind is what a world with agents by HTTP is like.
type webKind struct {
	shared bool // two agents have one name
}

func newWebKind(seed uint64) *webKind {
	r := rand.New(rand.NewPCG(seed, 5))
	if chance(r, 0.5) {
		return nil
	}
	return &webKind{shared: chance(r, 0.4)}
}

// Ways to a gateway.
const (
	byPipe    = "stdin and stdout"
	bySession = "sessions of HTTP"
	byModern  = "HTTP without sessions"
)

// A webAgent is what an agent needs that has clients by HTTP.
type webAgent struct {
	a    *worldAgent
	rng  *rand.Rand
	ways []string
	kept *webClient // whose session was not ended; nil: there is none
}

// byHTTP has an agent be one by HTTP, perhaps.
func (w *world) byHTTP(a *worldAgent, i int) {
	if w.web == nil {
		return
	}
	r := rand.New(rand.NewPCG(w.seed, 20+uint64(i)))
	if i > 0 && w.web.shared {
		a.name, a.mark = "ann", "u"
	}
	ways := pick(r, []string{bySession}, []string{byModern}, []string{byPipe, bySession, byModern}, nil)
	if ways != nil {
		a.web = &webAgent{a: a, rng: r, ways: ways}
	}
}

// A webDoor is where a gateway serves agents by HTTP.
type webDoor struct {
	conns  chan net.Conn
	stop   context.CancelFunc
	served chan struct{} // closed when it serves nobody any more
}

// opens has a gateway serve agents by HTTP, if there are any.
func (p *process) opens() {
	if p.w.web == nil {
		return
	}
	h, err := p.gateway.HTTP(gateway.HTTPConfig{Agents: agentTokens})
	if err != nil {
		p.w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithValue(context.Background(), processKey{}, p))
	p.web = &webDoor{conns: make(chan net.Conn), stop: stop, served: make(chan struct{})}
	go func() {
		defer close(p.web.served)
		_ = h.Serve(ctx, listenTo(p.web.conns))
	}()
}

// shut has a gateway serve nobody by HTTP any more; at once: it does not wait for that.
func (p *process) shut(once bool) {
	if p.web == nil {
		return
	}
	p.web.stop()
	if !once {
		<-p.web.served
	}
}

// A webConn is a connection of an agent to a gateway.
type webConn struct {
	net.Conn
	r     *bufio.Reader
	left  atomic.Int64 // bytes that the client reads before the connection breaks; negative: all
	pause atomic.Int64 // for how long it reads nothing when an answer comes
}

// Read implements io.Reader.
func (c *webConn) Read(b []byte) (int, error) {
	if c.pause.Load() > 0 { // it takes one byte, so that the gateway is at writing
		n, err := c.Conn.Read(b[:1])
		time.Sleep(time.Duration(c.pause.Swap(0)))
		return n, err
	}
	left := c.left.Load()
	if left == 0 {
		_ = c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	if left > 0 {
		b = b[:min(int64(len(b)), left)]
	}
	n, err := c.Conn.Read(b)
	if left > 0 {
		c.left.Add(int64(-n))
	}
	return n, err
}

// dial connects an agent to the gateway; nil: it is gone.
func (p *process) dial() *webConn {
	ours, theirs := net.Pipe()
	select {
	case p.web.conns <- theirs:
	case <-p.web.served:
		return nil
	}
	c := &webConn{Conn: ours}
	c.left.Store(-1)
	c.r = bufio.NewReader(c)
	p.holds(c)
	return c
}

// A webClient is a client of a gateway by HTTP.
type webClient struct {
	a       *worldAgent
	rng     *rand.Rand
	p       *process
	modern  bool
	batches bool
	proxied bool   // a proxy says that it is one, and sends what others say on the same connection
	session string // its id

	ids       int
	idle      []*webConn // connections that carry no request
	carried   *webConn   // that brought the last answer
	lossy     *webConn   // that brought an answer that was lost; nil: none
	elsewhere bool       // the next message goes by a new connection
	posts     []*post    // whose responses are not over, as far as collect knows
	showed    bool       // the message that was sent last shows that the answer before it was read
}

// A post is a request of HTTP that is answered.
type post struct {
	w       *world
	on      *webConn
	id      int           // of the request in it
	breaks  bool          // the client hangs up when it is told something before the answer
	hurries []byte        // what the client sends behind the request before it has an answer, of which it takes none then
	over    chan struct{} // closed when the response is over; then:

	whole    bool // it came whole, and the connection can be used again
	status   int
	session  string
	answer   reply
	answered bool
}

// begin begins a client of a gateway; nil: that is gone.
func (g *webAgent) begin(p *process) worldClient {
	way := pick(g.rng, g.ways...)
	if kept := g.kept; kept != nil && chance(g.rng, 0.7) {
		g.kept, kept.p = nil, p // which may be another one, that knows nothing of it
		kept.a.w.sees("agent: continues a session by another connection")
		return kept
	}
	if way == byPipe {
		return g.a.begin(p)
	}
	g.a.w.sees("agent: by " + way)
	c := &webClient{a: g.a, rng: g.rng, p: p, modern: way == byModern, proxied: chance(g.rng, g.a.w.rough(0.15)), batches: chance(g.rng, 0.2)}
	if !c.handshake(p.dial()) {
		_ = c.Close()
		return nil
	}
	return c
}

// anew reports whether the client may begin anew, which ends what others of its name without a session showed.
func (c *webClient) anew() bool { return !c.modern || !c.a.w.web.shared }

// handshake begins a session, on a connection that may have been used before.
func (c *webClient) handshake(conn *webConn) bool {
	c.session = ""
	version := "2025-06-18"
	if c.batches {
		version = "2025-03-26"
	}
	method, params := "initialize", fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"a","version":"1"}}`, version)
	if c.modern {
		method, params = "server/discover", "{}"
	}
	body := c.frame(method, params)
	x := c.post(conn, c.request(http.MethodPost, method, params, body), &post{id: c.ids})
	if x == nil {
		return false
	}
	<-x.over
	c.collect()
	c.session = x.session
	return x.answered
}

// isBehind reports whether a proxy is between the client and the gateway, which is so until all is well: what comes by it shows nothing.
func (c *webClient) isBehind() bool { return c.proxied && c.a.w.rough(1) > 0 }

func (c *webClient) of() *process { return c.p }

func (c *webClient) shows() bool { return c.showed }

// Close implements io.Closer.
func (c *webClient) Close() error {
	c.collect()
	for _, x := range c.posts {
		c.drop(x.on)
	}
	for _, conn := range c.idle {
		c.drop(conn)
	}
	c.idle, c.carried = nil, nil
	return nil
}

func (c *webClient) drop(conn *webConn) {
	c.p.drops(conn)
	_ = conn.Close()
}

// leave ends the client, and its session perhaps.
func (c *webClient) leave() {
	if c.session != "" && chance(c.rng, 0.3) {
		c.a.w.sees("agent: ends a session")
		if x := c.post(c.conn(), c.request(http.MethodDelete, "", "", ""), new(post)); x != nil {
			<-x.over
		}
		c.session = ""
	}
	_ = c.Close()
	if c.session != "" || c.modern {
		c.a.web.kept = c
	}
}

// frame returns the text of a request, whose id is the next one.
func (c *webClient) frame(method, params string) string {
	c.ids++
	if c.modern {
		var all map[string]json.RawMessage
		meta := make(map[string]any)
		_ = json.Unmarshal([]byte(params), &all)
		_ = json.Unmarshal(all["_meta"], &meta)
		meta["io.modelcontextprotocol/protocolVersion"], meta["io.modelcontextprotocol/clientCapabilities"] = mcp.Modern, struct{}{}
		all["_meta"], _ = json.Marshal(meta)
		text, _ := json.Marshal(all)
		params = string(text)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, c.ids, method, params)
}

// asked returns the request of an id; nil: it is over.
func (c *webClient) asked(id int) *post {
	i := slices.IndexFunc(c.posts, func(x *post) bool { return x.id == id })
	if i < 0 {
		return nil
	}
	return c.posts[i]
}

// request returns a request of HTTP.
func (c *webClient) request(verb, method, params, body string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nAccept: application/json, text/event-stream\r\n", verb, agentTokens[c.a.name])
	if c.modern {
		fmt.Fprintf(&b, "MCP-Protocol-Version: %s\r\nMcp-Method: %s\r\n", mcp.Modern, method)
		if name := mcp.NameOf(method, json.RawMessage(params)); name != "" {
			fmt.Fprintf(&b, "Mcp-Name: %s\r\n", name)
		}
	}
	if c.session != "" {
		fmt.Fprintf(&b, "Mcp-Session-Id: %s\r\n", c.session)
	}
	if c.isBehind() {
		fmt.Fprint(&b, "Via: 1.1 proxy\r\n")
	}
	if verb == http.MethodPost {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return append(b.Bytes(), "\r\n"+body...)
}

// collect takes back the connections whose responses are over.
func (c *webClient) collect() {
	c.posts = slices.DeleteFunc(c.posts, func(x *post) bool {
		select {
		case <-x.over:
		default:
			return false
		}
		if x.whole {
			c.idle = append(c.idle, x.on)
		} else {
			c.drop(x.on)
		}
		return true
	})
}

// conn returns a connection for the next request: that of the last answer, mostly, or else another one.
func (c *webClient) conn() *webConn {
	c.collect()
	if c.elsewhere {
		c.elsewhere = false
		return c.p.dial()
	}
	i := slices.Index(c.idle, c.carried)
	if i < 0 && len(c.idle) > 0 {
		i = c.rng.IntN(len(c.idle))
	}
	if chance(c.rng, c.a.w.rough(0.2)) {
		i = c.rng.IntN(len(c.idle)+1) - 1
		c.a.w.sees("agent: sends on another connection")
	}
	if i < 0 {
		return c.p.dial()
	}
	conn := c.idle[i]
	conn.left.Store(-1)
	conn.pause.Store(0)
	c.idle = slices.Delete(c.idle, i, i+1)
	return conn
}

// post sends a request of HTTP; nil: nobody takes it.
func (c *webClient) post(conn *webConn, request []byte, x *post) *post {
	if conn == nil {
		return nil
	}
	c.showed = conn == c.carried && !c.isBehind()
	if c.lossy != nil && c.lossy != conn { // a message on it would show that the answer was read
		c.idle = slices.DeleteFunc(c.idle, func(idle *webConn) bool { return idle == c.lossy })
		c.drop(c.lossy)
	}
	c.lossy = nil
	x.w, x.on, x.over = c.a.w, conn, make(chan struct{})
	c.posts = append(c.posts, x)
	go x.exchange(request)
	return x
}

// exchange sends a request and reads the response.
func (x *post) exchange(request []byte) {
	defer close(x.over)
	defer func() {
		if !x.whole {
			_ = x.on.Close()
		}
	}()
	if _, err := x.on.Write(append(request, x.hurries...)); err != nil {
		return
	}
	resp, err := http.ReadResponse(x.on.r, &http.Request{Method: http.MethodPost})
	if err != nil {
		return
	}
	x.status, x.session = resp.StatusCode, resp.Header.Get("Mcp-Session-Id")
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		err = x.events(resp.Body)
	} else {
		var text []byte
		if text, err = io.ReadAll(resp.Body); err == nil {
			x.take(text)
		}
	}
	x.whole = err == nil && !resp.Close && x.hurries == nil
	x.answered = x.answered && err == nil && x.hurries == nil
	if x.hurries != nil && err == nil { // and so it has the gateway answer both
		_, _ = http.ReadResponse(x.on.r, nil)
	}
}

// events reads a stream.
func (x *post) events(body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if ok && !x.take([]byte(data)) {
			x.w.sees("told: how far it is")
			if x.breaks {
				return io.ErrUnexpectedEOF
			}
		}
	}
	return lines.Err()
}

// take takes a message of a response, and reports whether it has the answer.
func (x *post) take(text []byte) bool {
	replies := []json.RawMessage{text}
	_ = json.Unmarshal(text, &replies)
	for _, raw := range replies {
		var r reply
		if json.Unmarshal(raw, &r) == nil && string(r.ID) == fmt.Sprint(x.id) {
			r.raw = string(raw)
			x.answer, x.answered = r, true
		}
	}
	return x.answered
}

func (c *webClient) send(method, params string, odd bool) int {
	if odd && chance(c.rng, c.a.w.rough(0.1)) && c.anew() {
		c.a.w.sees("agent: begins anew on its connection")
		c.handshake(c.conn())
	}
	body := c.frame(method, params)
	if c.batches && !c.modern && chance(c.rng, 0.5) {
		c.a.w.sees("agent: sends a batch")
		body = fmt.Sprintf(`[{"jsonrpc":"2.0","id":%d,"method":"ping"},%s]`, c.ids+100000, body)
	}
	if c.session == "" && !c.modern {
		return c.ids // its handshake failed
	}
	x, conn := &post{id: c.ids}, c.conn()
	if conn != nil && odd {
		c.oddly(x, conn)
	}
	request := c.request(http.MethodPost, method, params, body)
	if conn != nil && odd && chance(c.rng, c.a.w.rough(0.05)) {
		c.a.w.sees("agent: does not wait for the answer, and loses it")
		x.hurries = append(x.hurries, c.pinging()...)
	}
	c.post(conn, request, x)
	return c.ids
}

// pinging returns a request that says nothing, and has no effect.
func (c *webClient) pinging() []byte {
	method, params := "ping", "{}"
	if c.modern {
		method, params = "tools/call", `{"name":"keep_outcome","arguments":{"ref":"none"}}`
	}
	body := c.frame(method, params)
	c.ids--
	return c.request(http.MethodPost, method, params, body)
}

// oddly has something become of the exchange that comes.
func (c *webClient) oddly(x *post, conn *webConn) {
	if !chance(c.rng, c.a.w.rough(0.3)) {
		return
	}
	what := pick(c.rng, "hangs up when it is told something", "reads a part", "reads late")
	switch what {
	case "reads a part":
		conn.left.Store(1 + c.rng.Int64N(900))
	case "reads late":
		conn.pause.Store(int64(span(c.rng, 45*time.Second)))
	default:
		x.breaks = true
	}
	c.a.w.sees("agent: " + what)
}

func (c *webClient) await(id int, within time.Duration) (r reply, ok, over bool) {
	x := c.asked(id)
	if x == nil {
		return r, false, true
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-x.over:
	case <-timer.C:
		return r, false, false
	}
	c.collect()
	if !x.answered {
		if x.status == http.StatusNotFound {
			c.a.w.sees("agent: has no session any more")
			c.session, c.a.web.kept = "", nil
		}
		return r, false, true
	}
	c.carried = x.on
	return x.answer, true, false
}

// cancel cancels a request, by the protocol: without sessions a client hangs up.
func (c *webClient) cancel(id int) {
	x := c.asked(id)
	switch {
	case c.modern && x != nil:
		c.drop(x.on)
		return
	case c.modern: // it was answered
		c.idle = slices.DeleteFunc(c.idle, func(conn *webConn) bool { return conn == c.carried })
		c.drop(c.carried)
		return
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id)
	if x := c.post(c.conn(), c.request(http.MethodPost, "", "", body), new(post)); x != nil {
		<-x.over
	}
}

// ping sends a message that says nothing, and has no effect.
func (c *webClient) ping() int {
	if c.modern {
		return c.send("tools/call", `{"name":"keep_outcome","arguments":{"ref":"none"}}`, false)
	}
	return c.send("ping", `{}`, false)
}

// loses has the client lose the answer that came last, and stay. Of others it may be told something meanwhile: on another connection, or on the
// same one by a proxy, which has another client there.
func (c *webClient) loses() {
	if i := slices.Index(c.idle, c.carried); i >= 0 && c.anew() && chance(c.rng, 0.5) {
		c.a.w.sees("agent: loses an answer, and begins anew on its connection")
		conn := c.idle[i]
		c.idle = slices.Delete(c.idle, i, i+1)
		if c.handshake(conn) {
			c.a.ping()
		}
		return
	}
	c.lossy = c.carried
	if !c.isBehind() && !chance(c.rng, 0.4) {
		return
	}
	c.a.w.sees("agent: loses an answer, and another message comes before the call again")
	c.elsewhere = !c.isBehind()
	c.a.ping()
}
