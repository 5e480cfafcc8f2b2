// Package twin has services that behave as their vendors document, for tests of packs. Each
// twin says which page of the documentation it follows, knows the truth about its effects,
// and breaks the next calls as it is told.
package twin

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/keep-run/keep/testkit/connectortest"
)

// A Reply is what a service answers.
type Reply struct {
	Status int
	Header http.Header
	Body   any
	Same   bool // nothing changed: things were already as the request wants them
}

// A Service is the behaviour of one vendor. Its methods are called one at a time.
type Service interface {
	// Change returns what a request that changes something does and answers. The name is
	// that of the effect, for Effects, which counts if the status is 2xx and something
	// changed; empty: the request has none, because it is refused, repeats a known one, or
	// only reads.
	Change(r *http.Request, body []byte) (name string, do func() Reply)

	// Read answers a request that changes nothing.
	Read(r *http.Request) Reply
}

// An Authorizer is a Service that does not want a bearer token.
type Authorizer interface {
	// Authorized reports whether the request is by somebody who knows the secret.
	Authorized(r *http.Request, body []byte, secret string) bool
}

// A Runner is a Service that knows a request again while it still works on it.
type Runner interface {
	// Running says that the service has begun with a request and is not done.
	Running(r *http.Request)
}

// A Keeper is a Service that answers a request again as it did the first time, also if that was with an error of its own.
type Keeper interface {
	// Failed says that a request was answered with 500.
	Failed(r *http.Request, body []byte, answer Reply)
}

// A Twin is a running service.
type Twin struct {
	Secret string // what it wants to know of its callers

	service Service
	ln      net.Listener
	server  *http.Server
	wait    sync.WaitGroup

	mu      sync.Mutex // protects the fields below, and the service
	script  []connectortest.Fault
	late    []func()
	effects []string
	calls   int
}

// Secret is what twins want to know of their callers: a bearer token, and a key that signs.
const Secret = "whsec_Y2FuYXJ5LXNlY3JldC10b2tlbg=="

// Start starts a service on a free port of this machine. Close ends it.
func Start(s Service) (*Twin, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &Twin{Secret: Secret, service: s, ln: ln}
	t.server = &http.Server{Handler: http.HandlerFunc(t.serve)}
	t.wait.Go(func() { t.server.Serve(ln) })
	return t, nil
}

// Addr returns host:port.
func (t *Twin) Addr() string { return t.ln.Addr().String() }

// Close ends the service and its connections.
func (t *Twin) Close() {
	t.server.Close()
	t.wait.Wait()
}

// Script sets what goes wrong with the next changes, in their order.
func (t *Twin) Script(faults ...connectortest.Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.script = slices.Clone(faults)
}

// Settle makes late effects happen.
func (t *Twin) Settle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, do := range t.late {
		do()
	}
	t.late = nil
}

// Effects returns how many effects of that name there were.
func (t *Twin) Effects(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, e := range t.effects {
		if e == name {
			n++
		}
	}
	return n
}

// Requests returns how many requests came in.
func (t *Twin) Requests() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.calls
}

// serve answers one request.
func (t *Twin) serve(w http.ResponseWriter, r *http.Request) {
	t.mu.Lock()
	t.calls++
	t.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // half a request does nothing
	}
	if !t.authorized(r, body) {
		http.Error(w, `{"error":"unauthorized"}`, http.StatusUnauthorized)
		return
	}
	if r.Method == http.MethodGet {
		t.mu.Lock()
		reply := t.service.Read(r)
		t.mu.Unlock()
		answer(w, r, connectortest.Fault{}, reply)
		return
	}
	f, reply := t.change(r, body)
	answer(w, r, f, reply)
}

// authorized reports whether the request is by somebody who knows the secret.
func (t *Twin) authorized(r *http.Request, body []byte) bool {
	if a, ok := t.service.(Authorizer); ok {
		return a.Authorized(r, body, t.Secret)
	}
	return r.Header.Get("Authorization") == "Bearer "+t.Secret
}

// change performs a change, or what its fault makes of it.
func (t *Twin) change(r *http.Request, body []byte) (connectortest.Fault, Reply) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name, do := t.service.Change(r, body)
	var f connectortest.Fault
	if name != "" && len(t.script) > 0 {
		f, t.script = t.script[0], t.script[1:]
	}
	keeper, keeps := t.service.(Keeper)
	defer func() {
		if keeps && name != "" && f.Status == http.StatusInternalServerError {
			keeper.Failed(r, body, Reply{Status: f.Status})
		}
	}()
	perform := func() Reply {
		reply := do()
		if name != "" && !reply.Same && reply.Status/100 == 2 {
			t.effects = append(t.effects, name)
		}
		return reply
	}
	switch {
	case f.Skip:
		return f, Reply{Status: http.StatusOK}
	case f.Late:
		if s, ok := t.service.(Runner); ok && name != "" {
			s.Running(r)
		}
		t.late = append(t.late, func() { perform() })
		return f, Reply{Status: http.StatusOK}
	}
	return f, perform()
}

// padding makes the header of every answer longer than where proxies cut it.
var padding = strings.Repeat("0123456789", 20)

// answer writes a reply, or what its fault makes of it.
func answer(w http.ResponseWriter, r *http.Request, f connectortest.Fault, reply Reply) {
	w.Header().Set("X-Request-Padding", padding)
	for name, values := range reply.Header {
		w.Header()[name] = values
	}
	raw, err := json.Marshal(reply.Body)
	if err != nil {
		panic(err) // of what this package made
	}
	f.Reply(w, r, reply.Status, raw)
}
