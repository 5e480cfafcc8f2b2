package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// A service is the world outside, connection "svc". It keeps its own truth about
// what it was asked and what it did, and does to callers what a test tells it.
//
//	list, get       read
//	create, other   mutate, level C: can be searched for the token
//	keyed           mutate, level A: de-duplicates by the token
//	blind           mutate, level D
type service struct {
	mu      sync.Mutex
	calls   []string       // every call that arrived, by tool
	effects map[string]int // by token

	onCall  func(ctx context.Context, m keep.Mutation, n int) (effect bool, err error) // the n-th mutate call, from 1
	onAsk   func(n int) (connector.Verdict, error)                                     // the n-th lookup; nil: the truth
	onRead  func(ctx context.Context, params json.RawMessage) (json.RawMessage, error)
	onStart func(ctx context.Context) error // before a mutate call is recorded; nil: nothing
	result  json.RawMessage                 // of mutate calls

	timeout, settle time.Duration // of mutate tools
}

var errReset = errors.New("connection reset by peer") // says nothing about the effect

func newService() *service {
	return &service{effects: make(map[string]int), result: json.RawMessage(`{"id":7}`), timeout: 10 * time.Second, settle: 2 * time.Second}
}

func (s *service) connection() connector.Connection {
	spec := func(name string, e connector.Effect, l keep.Level) tool {
		t := tool{s, connector.Spec{Name: name, Effect: e, Level: l}}
		if e == connector.Mutate {
			t.spec.Identity, t.spec.Timeout, t.spec.SettleAfter = []string{"id"}, s.timeout, s.settle
		}
		return t
	}
	return connector.Connection{Name: "svc", Connector: "fake", Tools: []connector.Tool{
		reader{spec("list", connector.List, "")},
		reader{spec("get", connector.Get, "")},
		asker{mutator{spec("create", connector.Mutate, keep.LevelWitness)}},
		asker{mutator{spec("other", connector.Mutate, keep.LevelWitness)}},
		asker{mutator{spec("keyed", connector.Mutate, keep.LevelKey)}},
		mutator{spec("blind", connector.Mutate, keep.LevelNone)},
	}}
}

type tool struct {
	s    *service
	spec connector.Spec
}

func (t tool) Spec() connector.Spec { return t.spec }

// arrived notes a call and returns how many of its kind there were.
func (t tool) arrived(kind string) int {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.s.calls = append(t.s.calls, kind+t.spec.Name)
	n := 0
	for _, c := range t.s.calls {
		if isMutate := slices.Contains([]string{"create", "other", "keyed", "blind"}, c); kind == "ask " && c[0:3] == "ask" || kind == "" && isMutate {
			n++
		}
	}
	return n
}

type reader struct{ tool }

func (r reader) Read(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	r.arrived("")
	if r.s.onRead != nil {
		return r.s.onRead(ctx, params)
	}
	return json.RawMessage(`{"read":true}`), nil
}

type mutator struct{ tool }

// Start implements connector.Starter.
func (m mutator) Start(ctx context.Context) error {
	if m.s.onStart != nil {
		return m.s.onStart(ctx)
	}
	return nil
}

func (m mutator) Target(params json.RawMessage) string { return "things" }

func (m mutator) Mutate(ctx context.Context, r keep.Mutation) (connector.Receipt, error) {
	n := m.arrived("")
	effect, err := true, error(nil)
	if m.s.onCall != nil {
		effect, err = m.s.onCall(ctx, r, n)
	}
	if effect {
		m.s.perform(r.Token, m.spec.Level)
	}
	if err != nil {
		return connector.Receipt{}, err
	}
	return connector.Receipt{Result: m.s.result}, nil
}

// perform does what was asked for; a level A service does it once for a token.
func (s *service) perform(token string, l keep.Level) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l == keep.LevelKey {
		s.effects[token] = 1
		return
	}
	s.effects[token]++
}

func (s *service) did(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects[token] > 0
}

type asker struct{ mutator }

// Reconcile looks the token up; at level A it sends the call again.
func (a asker) Reconcile(_ context.Context, r keep.Mutation) (connector.Answer, error) {
	n := a.arrived("ask ")
	if a.s.onAsk != nil {
		v, err := a.s.onAsk(n)
		return connector.Answer{Verdict: v, Receipt: connector.Receipt{Result: a.s.result}}, err
	}
	if a.spec.Level == keep.LevelKey {
		a.s.perform(r.Token, a.spec.Level)
	}
	if a.s.did(r.Token) {
		return connector.Answer{Verdict: connector.Happened, Receipt: connector.Receipt{Result: a.s.result}}, nil
	}
	return connector.Answer{Verdict: connector.Absent}, nil
}

// total returns how many effects the service performed.
func (s *service) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, k := range s.effects {
		n += k
	}
	return n
}

// received returns the calls that arrived, in order.
func (s *service) received() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}
