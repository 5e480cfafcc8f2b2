package config_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/internal/ceiling"
	"github.com/keep-run/keep/internal/twin"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/testkit/connectortest"
)

// A life is one event whose consumer makes one call of a tool, over hosts that die.
type life struct {
	t      *testing.T
	store  *memory.Store
	tools  *engine.Tools
	call   string
	params json.RawMessage
	settle func() // makes the service do what is late

	ahead atomic.Int64 // how much later it is for the hosts than here, in ns

	mu     sync.Mutex     // protects the fields below
	deaths []engine.Point // where hosts die, in their order
	died   chan struct{}  // of the host that lives: it is closed when it died
	dead   *atomic.Bool   // of the host that lives: it writes nothing any more
}

// dies reports whether the host dies at a point.
func (l *life) dies(at engine.Point) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.died == nil || len(l.deaths) == 0 || l.deaths[0] != at {
		return false
	}
	l.deaths = l.deaths[1:]
	l.end()
	return true
}

// kill ends the host that lives, in the middle of what it does.
func (l *life) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
}

// end is the death of the host that lives, if one does. The caller holds mu.
func (l *life) end() {
	if l.died != nil {
		l.dead.Store(true)
		close(l.died)
		l.died = nil
	}
}

// born is a new host.
func (l *life) born() (died chan struct{}, dead *atomic.Bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.died, l.dead = make(chan struct{}), new(atomic.Bool)
	return l.died, l.dead
}

// errUnwound ends a handler whose host call failed.
var errUnwound = errors.New("the host call failed")

// Script implements engine.Scripts.
func (l *life) Script(context.Context, keep.Deployment) (engine.Script, error) { return l, nil }

// Locate implements engine.Script.
func (l *life) Locate(context.Context, []string) string { return "" }

// Call implements engine.Script: prepare takes the event, mutate makes the call.
func (l *life) Call(ctx context.Context, c engine.ScriptCall) (json.RawMessage, error) {
	switch c.Path[len(c.Path)-1] {
	case "prepare":
		if len(c.Args) == 0 || c.Args[0] == nil {
			return json.RawMessage(`{"reservations":[],"data":{}}`), nil
		}
		return json.RawMessage(`{"reservations":[{"topic":"in","ids":["a"]}],"data":{}}`), nil
	case "mutate":
		_, err := c.Host.HostCall(ctx, engine.HostCall{Name: l.call, At: "w.js:1:1", Args: []json.RawMessage{l.params}})
		return nil, cmp.Or(err, errUnwound)
	}
	return nil, nil
}

// engine returns a host that dies where it is told, once.
func (l *life) engine(dead *atomic.Bool) (*engine.Engine, policy.Policy) {
	p := policy.Default()
	p.Retry.First, p.Retry.Max = time.Millisecond, 5*time.Millisecond
	p.Reconcile.First, p.Reconcile.Max = time.Millisecond, 5*time.Millisecond
	e, err := engine.New(mortal{l.store, dead}, l, l.tools, engine.Config{
		Policy: &p, Slow: time.Hour, Logger: slog.New(slog.DiscardHandler),
		Clock: func() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) },
		Trace: func(_ keep.WorkflowName, at engine.Point) {
			if at == engine.Answered {
				l.settle()                      // late, and before the service is asked
				l.ahead.Add(int64(lifeTimeout)) // nobody waits for the deadline of a call that is over
			}
			if l.dies(at) {
				runtime.Goexit() // the actor is gone, as after a SIGKILL
			}
		},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return e, p
}

// run runs a host until it is idle or dead, and reports whether it died.
func (l *life) run() bool {
	died, isDead := l.born()
	e, _ := l.engine(isDead)
	ctx, cancel := context.WithCancel(l.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { e.Run(ctx) })
	idle := make(chan error, 1)
	wg.Go(func() { idle <- e.WaitIdle(ctx) })
	select {
	case err := <-idle:
		if err != nil && !isDead.Load() {
			l.t.Error(err)
		}
	case <-died:
	}
	cancel()
	wg.Wait()
	return isDead.Load()
}

// begin deploys the workflow and publishes its event.
func (l *life) begin() {
	e, p := l.engine(new(atomic.Bool))
	o, err := operator.New(l.store, operator.Config{Policy: &p, Now: e.Now, Executor: e, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		l.t.Fatal(err)
	}
	def := keep.Definition{Name: "w", Topics: []keep.TopicName{"in"}, Handlers: []keep.Handler{
		{Name: "act", Kind: keep.Consumer, Subscribe: []keep.TopicName{"in"}, HasMutate: true},
	}}
	if _, err := o.Deploy(l.t.Context(), keep.Deployment{Workflow: "w", Hash: "v1", Entry: "w.js", Definition: def}); err != nil {
		l.t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	in := keep.Input{ID: "in_a", Workflow: "w", Source: "test", Type: "event", ExternalID: "a", Title: "a", Status: keep.InputPending, CreatedAt: now}
	ev := keep.Event{Workflow: "w", Topic: "in", MessageID: "a", Payload: []byte(`{}`), Status: keep.EventPending,
		CausedBy: []keep.InputID{in.ID}, CreatedAt: now, UpdatedAt: now}
	err = l.store.Commit(l.t.Context(), keep.Commit{Workflow: "w", At: now, Changes: []keep.Change{keep.PutInput{Input: in}, keep.Publish{Event: ev}}})
	if err != nil {
		l.t.Fatal(err)
	}
}

// A call has lifeTimeout, which a busy machine does not use up: nobody waits for it, and three of
// them are less than what clocks may differ in a lookup since a time. What is under way when its
// connection is cut arrives within lifeSettle.
const (
	lifeTimeout = 19 * time.Second

	// lifeOver is when a call is over whose host died: a request that sets something may be sent again for 35 s.
	lifeOver   = 35 * time.Second
	lifeSettle = 250 * time.Millisecond
)

// A stage is where lives of one tool are lived, one after another: a connection through a
// proxy, whose service each life has anew.
type stage struct {
	conn   *connector.Connection
	tools  *engine.Tools
	proxy  *connectortest.Proxy
	params json.RawMessage
}

// stages are those that nobody lives on, by the name of their test.
var stages struct {
	sync.Mutex
	free map[string][]*stage
}

// takeStage returns a stage for a life, with a new service.
func takeStage(t *testing.T, full string) (*stage, *twin.Twin) {
	service, err := twin.Start(proofs[full].service())
	if err != nil {
		t.Fatal(err)
	}
	stages.Lock()
	if free := stages.free[t.Name()]; len(free) > 0 {
		s := free[len(free)-1]
		stages.free[t.Name()] = free[:len(free)-1]
		stages.Unlock()
		s.proxy.Aim(service.Addr())
		return s, service
	}
	stages.Unlock()
	pack, tool, _ := strings.Cut(full, ".")
	proxy, err := connectortest.NewProxy(service.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	p := proofs[full]
	conn := openPack(t, fmt.Sprintf("[connections.svc]\nconnector = %q\nbase_url = \"http://%s%s\"\nsecret = \"${secret:svc}\"\n[connections.svc.tools.%s]\nsettle_after = %q\ntimeout = %q\n",
		pack, proxy.Addr(), p.path, tool, lifeSettle, lifeTimeout), service.Secret)
	tools, err := engine.NewTools([]connector.Connection{*conn})
	if err != nil {
		t.Fatal(err)
	}
	return &stage{conn, tools, proxy, json.RawMessage(fmt.Sprintf(p.params, 1))}, service
}

// giveStage leaves a stage to the next life, without a connection to the service of this one.
func giveStage(t *testing.T, s *stage, service *twin.Twin) {
	s.proxy.Next()
	_ = s.conn.Close() // idle connections
	service.Close()
	stages.Lock()
	defer stages.Unlock()
	if stages.free == nil {
		stages.free = map[string][]*stage{}
	}
	stages.free[t.Name()] = append(stages.free[t.Name()], s)
}

// lifeFaults are what happens to the first call.
var lifeFaults = map[string]connectortest.Fault{
	"an answer":                     {},
	"an effect without an answer":   {Answer: connectortest.Lost},
	"no effect and no answer":       {Skip: true, Answer: connectortest.Lost},
	"an effect that comes late":     {Late: true, Answer: connectortest.Lost},
	"an effect and 500":             {Status: 500},
	"an HTML page and no effect":    {Skip: true, Answer: connectortest.WrongBody},
	"a refusal that may work later": {Skip: true, Status: 429},
}

// TestPacksOverCrashes kills the host at every point of a call of every mutate tool, under
// every fault: the service has the effect once, or a person is asked. Laws: once, witnessed.
func TestPacksOverCrashes(t *testing.T) {
	t.Parallel()
	for i, full := range slices.Sorted(maps.Keys(proofs)) {
		t.Run(full, func(t *testing.T) {
			t.Parallel()
			faults := slices.Sorted(maps.Keys(lifeFaults))
			points := append(engine.Points(), "")
			atOnce(len(faults)*len(points), func(n int) {
				fault, point := faults[n%len(faults)], points[n/len(faults)]
				if point == engine.Bought || point == engine.AtGate {
					return // only a read that costs comes there, or a call of a connection with limits
				}
				if ceiling.Race && n%len(faults) != (n/len(faults)+i)%len(faults) {
					return
				}
				name := fmt.Sprintf("%s, death at %q", fault, point)
				effects, questions, record := live(t, full, lifeFaults[fault], point)
				switch {
				case effects > 1, effects == 0 && questions == 0:
					t.Errorf("%s: %d effects and %d questions", name, effects, questions)
				case record.SentAs().Pack == nil:
					t.Errorf("%s: the record does not say which pack", name)
				}
			})
		})
	}
}

// live lives one life with one fault and one death, and returns how often the service had the
// effect, how many questions are open, and the record of the call.
func live(t *testing.T, full string, f connectortest.Fault, point engine.Point) (effects, questions int, record keep.Mutation) {
	p := plan{faults: []connectortest.Fault{f}}
	if point != "" {
		p.deaths = []engine.Point{point}
	}
	out := liveThrough(t, full, p)
	return out.effects, out.questions, out.record
}

// liveThrough lives one life.
func liveThrough(t *testing.T, full string, p plan) ending {
	_, tool, _ := strings.Cut(full, ".")
	s, service := takeStage(t, full)
	defer giveStage(t, s, service)
	l := &life{t: t, store: memory.New(), tools: s.tools, call: "svc." + tool, params: s.params, settle: service.Settle, deaths: p.deaths}
	faults := p.faults
	if specIn(s.conn, tool).Level == keep.LevelClaim {
		faults = append([]connectortest.Fault{{}}, faults...) // what comes before the call is answered
	}
	service.Script(faults...)
	l.begin()
	for i := range p.cuts {
		if p.kills[i] {
			p.cuts[i].Then = l.kill
		}
	}
	s.proxy.Next(p.cuts...)
	for l.run() {
		service.Settle()
		l.ahead.Add(int64(lifeOver)) // with its host the call is over, also one that it sent again
	}
	service.Settle()
	list, _, err := l.store.Mutations(t.Context(), keep.MutationFilter{}, keep.Page{})
	if err != nil || len(list) > 1 {
		t.Fatalf("%s: %d records, %v, after %s", full, len(list), err, p)
	}
	open, _, err := l.store.Escalations(t.Context(), keep.EscalationFilter{Open: true}, keep.Page{})
	if err != nil {
		t.Fatal(err)
	}
	end := ending{effects: service.Effects(fmt.Sprintf(proofs[full].effect, 1)), questions: len(open), requests: service.Requests()}
	if len(list) == 0 { // what comes before the call never worked, and nothing was sent
		return end
	}
	moves, err := l.store.History(t.Context(), list[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	end.record = list[0]
	end.doubted = slices.ContainsFunc(moves, func(m keep.Move) bool { return m.To == keep.NeedsReconcile })
	return end
}

// specIn returns the spec of a tool.
func specIn(c *connector.Connection, tool string) connector.Spec {
	for _, t := range c.Tools {
		if t.Spec().Name == tool {
			return t.Spec()
		}
	}
	return connector.Spec{}
}
