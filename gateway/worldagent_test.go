//go:build unix

package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// A meant call is one that an agent means to be made once.
type meant struct {
	n                                int
	agent, tool, title, body, intent string

	end     string   // how it ended for the agent; empty: it has no last answer
	ref     string   // of its last answer
	by      *process // that gave it
	shownTo *process
	excused int                    // records of it that may have an effect beside another; see beside
	asked   map[*process]time.Time // when each gateway was asked for it first
	tries   int
	told    string // what the agent was told last
}

func (m *meant) String() string { return fmt.Sprintf("call %d of %s (%s)", m.n, m.agent, m.title) }

// equals reports whether two calls are equal to a gateway that knows both.
func (m *meant) equals(o *meant) bool {
	return m.agent == o.agent && m.tool == o.tool && m.title == o.title && m.body == o.body && m.intent == o.intent
}

// A worldAgent is a client that obeys the protocol.
type worldAgent struct {
	w     *world
	name  string
	mark  string // that its contents have, and those of no other agent of this name
	rng   *rand.Rand
	n     int
	s     worldClient // nil: there is none
	lost  bool        // it lost the last answer, and makes the call again, or leaves
	open  []*meant    // without a last answer
	read  []*meant    // whose last answer was read, and shown to be
	tools *rand.Rand  // of which tool it calls
	web   *webAgent   // nil: all its clients are on stdin and stdout
}

// A worldClient is a client of a gateway, by whichever way.
type worldClient interface {
	io.Closer
	of() *process

	// send sends a request, and returns its id. In odd ways, if odd is set, and the client knows any.
	send(method, params string, odd bool) int

	// await returns the answer to a request, if it comes in time. Over says that the session is, or may be.
	await(id int, within time.Duration) (r reply, ok, over bool)

	cancel(id int)
	ping() (id int)
	shows() bool // whether the message that was sent last shows that the answer before it was read
	loses()      // it stays, and does not take the answer that came last
	leave()      // ends the session
}

// A worldSession is a client of a gateway on stdin and stdout.
type worldSession struct {
	p      *process
	in     io.WriteCloser
	out    io.ReadCloser
	frames chan reply // closed at its end
	ids    int
}

// Close implements io.Closer.
func (s *worldSession) Close() error {
	_ = s.in.Close()
	return s.out.Close()
}

// connect begins a session with a gateway.
func (a *worldAgent) connect() worldClient {
	w := a.w
	for {
		w.mu.Lock()
		live, more := w.gateways, w.begins
		if len(live) > 0 {
			p := pick(a.rng, live...)
			w.mu.Unlock()
			if a.web == nil {
				return a.begin(p)
			}
			if c := a.web.begin(p); c != nil {
				return c
			}
			time.Sleep(span(a.web.rng, time.Second))
			continue
		}
		w.mu.Unlock()
		<-more
		time.Sleep(span(a.rng, time.Second))
	}
}

// begin begins a session with a gateway that lives.
func (a *worldAgent) begin(p *process) *worldSession {
	toGateway, in := io.Pipe()
	out, fromGateway := io.Pipe()
	s := &worldSession{p: p, in: in, out: out, frames: make(chan reply, 64)}
	go func() {
		_ = p.serve(a.name, toGateway, fromGateway)
		_ = toGateway.CloseWithError(io.EOF)
		_ = fromGateway.Close()
	}()
	go func() {
		defer close(s.frames)
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			var r reply
			if json.Unmarshal([]byte(line), &r) == nil && r.ID != nil {
				r.raw = line
				s.frames <- r
			}
		}
	}()
	p.holds(s)
	return s
}

func (s *worldSession) of() *process { return s.p }

func (s *worldSession) shows() bool { return true }

func (s *worldSession) loses() {}

func (s *worldSession) ping() int { return s.send("ping", `{}`, false) }

func (s *worldSession) leave() {
	s.p.drops(s)
	_ = s.Close()
}

func (s *worldSession) cancel(id int) {
	_, _ = fmt.Fprintf(s.in, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`+"\n", id)
}

func (s *worldSession) send(method, params string, _ bool) int {
	s.ids++
	_, _ = fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", s.ids, method, params)
	return s.ids
}

func (s *worldSession) await(id int, within time.Duration) (r reply, ok, over bool) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case r, open := <-s.frames:
			if !open {
				return r, false, true
			}
			if string(r.ID) == fmt.Sprint(id) {
				return r, true, false
			}
		case <-timer.C:
			return r, false, false
		}
	}
}

// leave ends the session.
func (a *worldAgent) leave() {
	if a.s != nil {
		a.s.leave()
		a.s = nil
	}
}

// live makes the calls of the agent.
func (a *worldAgent) live() {
	defer a.leave()
	for range 4 + a.rng.IntN(6) {
		time.Sleep(span(a.rng, 20*time.Second))
		m := a.means()
		if !a.settle(m, 1+a.rng.IntN(6)) {
			a.open = append(a.open, m)
		}
	}
	<-a.w.calm
	time.Sleep(span(a.rng, time.Second))
	for _, m := range a.open {
		if !a.settle(m, 200) {
			a.w.mu.Lock()
			a.w.broken("nothing-lost", "%s has no answer after %d tries; the last was %s", m, m.tries, m.told)
			a.w.mu.Unlock()
		}
	}
}

// means returns the next call: one like no other, one that is equal to one whose answer was shown to be read, or one with an intent.
func (a *worldAgent) means() *meant {
	w := a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	a.n++
	m := &meant{n: len(w.calls) + 1, agent: a.name, title: fmt.Sprintf("%s%d", a.mark, a.n), body: "text", tool: toCreate, asked: make(map[*process]time.Time)}
	// An equal call of one that has no last answer is that one.
	was := slices.DeleteFunc(slices.Clone(a.read), func(r *meant) bool { return slices.ContainsFunc(a.open, r.equals) })
	if len(was) > 0 && chance(a.rng, 0.4) {
		like := was[len(was)-1-a.rng.IntN(min(2, len(was)))]
		m.tool, m.title, m.body, m.intent = like.tool, like.title, like.body, like.intent
		w.saw("agent: an equal call")
		if chance(a.rng, 0.2) {
			m.intent = fmt.Sprintf("intent %d", m.n)
			m.setsAnew()
		}
	} else if len(a.open) > 0 && chance(a.rng, 0.4) {
		like := pick(a.rng, a.open...)
		m.tool, m.title, m.body, m.intent = like.tool, like.title, like.body, fmt.Sprintf("intent %d", m.n)
		m.setsAnew()
		w.saw("agent: an intent beside a doubt")
	} else {
		w.tools.other(a, m)
	}
	w.calls = append(w.calls, m)
	w.note("%s: means %s, intent %q", a.name, m, m.intent)
	return m
}

// settle makes a call until it has its last answer, or gives up for now.
func (a *worldAgent) settle(m *meant, tries int) bool {
	for range tries {
		if a.try(m) {
			return true
		}
		time.Sleep(span(a.rng, 8*time.Second))
		if m.tries > 40 && a.w.clock != nil { // a key that is younger than the clock says is not believed before key_lasts
			time.Sleep(time.Minute)
		}
	}
	if a.lost { // another message would show that it was read
		a.leave()
	}
	return false
}

// params returns the params of a call.
func (m *meant) params(p *process, progress bool) string {
	meta := map[string]string{metaCall: fmt.Sprint(m.n)}
	if progress {
		meta["progressToken"] = fmt.Sprint("call ", m.n)
	}
	if m.intent != "" {
		meta["keep/intent"] = m.intent
	}
	text, _ := json.Marshal(map[string]any{"name": p.file.name + "__" + m.tool, "arguments": map[string]string{"title": m.title, "body": m.body}, "_meta": meta})
	return string(text)
}

// try makes a call once, and reports whether it has its last answer.
func (a *worldAgent) try(m *meant) bool {
	w := a.w
	if a.s == nil {
		a.s = a.connect()
	}
	s, p := a.s, a.s.of()
	a.lost = false
	w.mu.Lock()
	m.tries++
	fate, patience := "", 3*time.Minute
	if chance(a.rng, w.rough(0.4)) {
		fate = pick(a.rng, "goes away", "goes away", "cancels", "loses the answer", "loses the answer, and stays", "cancels what was answered")
	}
	if m.asked[p].IsZero() {
		m.asked[p] = time.Now()
	}
	w.note("%s: makes %s at gateway %d: %s", a.name, m, p.n, fate)
	w.saw("agent: " + fate)
	w.mu.Unlock()
	if fate == "goes away" || fate == "cancels" {
		patience = span(a.rng, pick(a.rng, 100*time.Millisecond, time.Second, 25*time.Second))
	}
	id := s.send("tools/call", m.params(p, a.web != nil), fate == "")
	r, ok, over := s.await(id, patience)
	switch {
	case over, ok && fate == "loses the answer":
		a.leave()
	case ok && fate == "loses the answer, and stays":
		a.lost = true
		s.loses()
	case !ok && fate == "cancels", ok && fate == "cancels what was answered":
		s.cancel(id)
		if chance(a.rng, 0.5) {
			a.ping()
		}
	case ok:
		return a.took(m, r)
	case fate == "goes away":
		a.leave()
	default:
		w.mu.Lock()
		w.broken("explained", "%s got no answer in %s", m, patience)
		w.mu.Unlock()
		a.leave()
	}
	return false
}

// ping sends a message that says nothing, and reports whether it shows that the answer before it was read, and was answered.
func (a *worldAgent) ping() bool {
	id := a.s.ping()
	shows := a.s.shows()
	_, ok, _ := a.s.await(id, time.Minute)
	if !ok {
		a.leave()
	}
	return ok && shows
}

// took has the agent read an answer.
func (a *worldAgent) took(m *meant, r reply) (last bool) {
	w, p := a.w, a.s.of()
	w.mu.Lock()
	end, ref := w.told(p, m, r)
	again := end == "failed" && (chance(a.rng, 0.6) || w.rough(1) == 0 && m.tries < 190)
	if end != "" && !again && end != "given again" {
		m.end, m.ref, m.by, last = end, ref, p, true
		w.saw("end: " + end)
	}
	w.mu.Unlock()
	switch {
	case last && chance(a.rng, 0.7):
		if a.ping() {
			w.mu.Lock()
			m.shownTo = p
			w.note("%s: showed to gateway %d that %s was read", a.name, p.n, m)
			w.mu.Unlock()
			a.read = append(a.read, m)
		}
	case last && chance(a.rng, 0.5):
		a.leave()
	case end == "given again":
		a.ping()
	case ref != "" && chance(a.rng, 0.4):
		a.ask(m, ref)
	}
	return last
}

// ask asks keep_outcome. It is not the answer of the call.
func (a *worldAgent) ask(m *meant, ref string) {
	id := a.s.send("tools/call", fmt.Sprintf(`{"name":"keep_outcome","arguments":{"ref":%q}}`, ref), false)
	p := a.s.of()
	r, ok, _ := a.s.await(id, 2*time.Minute)
	if !ok {
		a.leave()
		return
	}
	var out struct {
		Ref   string
		State string
	}
	if json.Unmarshal([]byte(r.text()), &out) == nil && out.Ref != "" {
		a.w.mu.Lock()
		a.w.saw("outcome: " + out.State)
		a.w.says(p, m, out.Ref, out.State)
		a.w.mu.Unlock()
	}
}

// serve serves an agent.
func (p *process) serve(agent string, in io.Reader, out io.Writer) error {
	return p.gateway.ServeStdio(context.WithValue(context.Background(), processKey{}, p), agent, in, out)
}

// refOf returns the reference in an answer.
func refOf(r reply) string { s, _ := r.Result.Meta["keep/ref"].(string); return s }
