package idempotency_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// A keyClient sends requests until they are answered.
type keyClient struct {
	w      *keyWorld
	name   string
	rng    *rand.Rand
	tokens []string // its credentials, the present one first
	n      int
	tries  int
	open   []*wanted
}

// A keyAnswer is what a client gets.
type keyAnswer struct {
	status    int
	body      string
	replayed  bool
	problem   idempotency.Kind
	detail    string
	reference string
	p         *keyProcess // that answered
	header    http.Header
	cut       bool // its end did not come
}

// live sends the requests of the client.
func (c *keyClient) live() {
	for range 3 + c.rng.IntN(6) {
		time.Sleep(span(c.rng, 40*time.Second))
		m := c.wants("")
		if !c.settle(m, 1+c.rng.IntN(6)) {
			c.open = append(c.open, m)
			continue
		}
		c.afterwards(m)
	}
	<-c.w.calm
	for _, m := range c.open {
		c.settle(m, 150)
	}
}

// wants returns the next request; of names the one whose key it uses, too.
func (c *keyClient) wants(of string) *wanted {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	c.n++
	m := &wanted{n: len(w.wanted) + 1, client: c.name, key: fmt.Sprintf("key-%d", c.n/2), host: []string{"a.example", "b.example"}[c.n%2]}
	if of != "" {
		m.key, m.another = of, true
	}
	if w.kind == kindProxy { // a probe asks for a key
		m.key += "-" + m.host[:1]
	}
	m.as(w.file.stable)
	m.body = fmt.Sprintf("%s %d", c.name, m.n)
	w.wanted[key.NewFingerprint(http.MethodPost, "/orders", "", "", []byte(m.body), key.Form{})] = m
	w.note("%s wants %s under %s", c.name, m, m.key)
	return m
}

// afterwards does what a client does after an answer.
func (c *keyClient) afterwards(m *wanted) {
	w := c.w
	what := pick(c.rng, "", "", "comes back", "comes back", "comes back late", "another request")
	w.mu.Lock()
	w.saw("client: " + what)
	if what == "another request" && w.mixed {
		what = "comes back"
	}
	late := time.Until(m.expires) + span(c.rng, pick(c.rng, 20*time.Second, 3*time.Minute))
	ttl := m.expires
	w.mu.Unlock()
	switch what {
	case "comes back":
		time.Sleep(span(c.rng, 4*time.Minute))
		c.settle(m, 3)
	case "comes back late":
		if !ttl.IsZero() && late < 3*time.Hour {
			time.Sleep(max(late, time.Millisecond))
			if m.reference != "" && chance(c.rng, 0.5) {
				c.asks(m, m.reference, "asks late")
			}
			if !c.settle(m, 3) {
				w.mu.Lock()
				m.end = ""
				w.mu.Unlock()
				c.open = append(c.open, m)
			}
		}
	case "another request":
		if time.Until(ttl) > 5*time.Minute {
			o := c.wants(m.key)
			o.host = m.host
			if c.settle(o, 3) {
				return
			}
			w.mu.Lock()
			o.end = "given up"
			w.mu.Unlock()
		}
	}
}

// settle sends a request until it is answered, or gives up for now.
func (c *keyClient) settle(m *wanted, tries int) bool {
	for range tries {
		if c.try(m) {
			c.w.mu.Lock()
			m.end = "answered"
			c.w.mu.Unlock()
			return true
		}
		time.Sleep(span(c.rng, 10*time.Second))
	}
	return false
}

// try sends a request once, or twice at the same time, and reports whether it is answered.
func (c *keyClient) try(m *wanted) bool {
	w := c.w
	rough := 0.0
	select {
	case <-w.calm:
	default:
		rough = 1
	}
	if !w.file.stable && chance(c.rng, 0.05*rough) { // it never changes
		w.mu.Lock()
		w.saw("client: renews its credential")
		c.tokens = slices.Insert(c.tokens, 0, fmt.Sprintf("%s-%d", c.name, len(c.tokens)+1))
		w.mu.Unlock()
	}
	twice := chance(c.rng, 0.2*rough)
	patience := 5 * time.Minute
	if chance(c.rng, 0.25*rough) {
		patience = span(c.rng, pick(c.rng, 100*time.Millisecond, 5*time.Second, time.Minute))
	}
	var other sync.WaitGroup
	last := false
	if twice {
		w.mu.Lock()
		w.saw("client: twice")
		w.mu.Unlock()
		delay := span(c.rng, 2*time.Second)
		other.Go(func() {
			time.Sleep(delay)
			_, _ = c.send(m, 5*time.Minute, rand.New(rand.NewPCG(c.w.seed, uint64(delay))))
		})
	}
	a, answered := c.send(m, patience, c.rng)
	other.Wait()
	if a == nil {
		return false
	}
	last = answered
	switch {
	case a.problem == idempotency.KindCallerChanged: // it was made with another credential
		c.tokens = append(c.tokens[1:], c.tokens[0])
	case a.reference != "":
		if m.reference = a.reference; chance(c.rng, 0.5) {
			c.asks(m, a.reference, "asks")
		}
	}
	return last
}

// request returns a request of the client.
func (c *keyClient) request(ctx context.Context, rng *rand.Rand, m *wanted, method, target, body string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	r.Host = pick(rng, m.host, m.host, strings.ToUpper(m.host), m.host+":80") // all are one
	r.Header.Set("X-User", c.name)
	r.Header.Set("Authorization", "Bearer "+c.tokens[0])
	r.Header.Set("X-Wanted", fmt.Sprint(m.n))
	return r
}

// send sends a request once; without an answer the client went away, or its connection was lost.
func (c *keyClient) send(m *wanted, patience time.Duration, rng *rand.Rand) (*keyAnswer, bool) {
	w := c.w
	alive := w.alive()
	if len(alive) == 0 {
		return nil, false
	}
	p := pick(rng, alive...)
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	w.mu.Lock()
	c.tries++
	m.tries++
	if len(c.tokens) > 1 {
		m.renewedAt = m.tries
	}
	try := fmt.Sprintf("%s %d", c.name, c.tries)
	r := c.request(ctx, rng, m, http.MethodPost, "/orders", m.body)
	w.note("%s sends %s to process %d (%s, %s), and waits for %s", c.name, m, p.n, try, c.tokens[0], patience)
	w.mu.Unlock()
	r.Header.Set("Idempotency-Key", m.key)
	if w.kind == kindProxy {
		c.writesOtherwise(r, m, rng)
	}
	r.Header.Set("X-Try", try)
	a := c.do(p, r, patience)
	w.mu.Lock()
	defer w.mu.Unlock()
	if a == nil {
		return nil, false
	}
	return a, w.answered(m, try, a)
}

// asks asks what became of a request.
func (c *keyClient) asks(m *wanted, reference, how string) {
	alive := c.w.alive()
	if len(alive) == 0 {
		return
	}
	p := pick(c.rng, alive...)
	r := c.request(context.Background(), c.rng, m, http.MethodGet, idempotency.InstancePath+reference, "")
	if a := c.do(p, r, time.Minute); a != nil {
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		c.w.saw("client: " + how)
		c.w.asked(m, a)
	}
}

// do has a process answer a request; nil: there was no answer.
func (c *keyClient) do(p *keyProcess, r *http.Request, patience time.Duration) *keyAnswer {
	w := c.w
	if w.kind == kindProxy {
		return c.overHTTP(p, r, patience)
	}
	ctx, leave := context.WithCancel(r.Context())
	defer leave()
	rec := httptest.NewRecorder()
	whole := make(chan bool, 1)
	w.working.Go(func() {
		ok := false
		defer func() {
			_ = recover() // as net/http
			whole <- ok
		}()
		p.guard.Handler(http.HandlerFunc(p.handler)).ServeHTTP(rec, r.WithContext(ctx))
		ok = true
	})
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case ok := <-whole:
		if !ok || p.gone.Load() {
			return nil
		}
	case <-p.dead:
		return nil
	case <-timer.C:
		w.mu.Lock()
		w.saw("client: goes away")
		w.note("%s goes away", c.name)
		w.mu.Unlock()
		return nil
	}
	return c.read(p, rec.Code, rec.Header(), rec.Body.String())
}

// read reads an answer.
func (c *keyClient) read(p *keyProcess, status int, header http.Header, body string) *keyAnswer {
	a := &keyAnswer{p: p, header: header, status: status, body: body, replayed: header.Get(idempotency.ReplayedHeader) == "true"}
	if header.Get("Content-Type") == "application/problem+json" {
		var p struct{ Type, Detail, Reference string }
		if err := json.Unmarshal([]byte(strings.TrimSpace(body)), &p); err != nil {
			c.w.t.Error(err)
		}
		a.problem, a.detail, a.reference = idempotency.Kind(strings.TrimPrefix(p.Type, idempotency.ProblemBase)), p.Detail, p.Reference
	}
	return a
}
