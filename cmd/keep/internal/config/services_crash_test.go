package config_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
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
	dieAt  atomic.Value // engine.Point, once
	died   chan struct{}
	settle func() // makes the service do what is late
}

// errUnwound ends a handler whose host call failed.
var errUnwound = errors.New("the host call failed")

// Script implements engine.Scripts.
func (l *life) Script(context.Context, keep.Deployment) (engine.Script, error) { return l, nil }

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
func (l *life) engine() (*engine.Engine, policy.Policy) {
	p := policy.Default()
	p.Retry.First, p.Retry.Max = time.Millisecond, 5*time.Millisecond
	p.Reconcile.First, p.Reconcile.Max = time.Millisecond, 5*time.Millisecond
	e, err := engine.New(l.store, l, l.tools, engine.Config{
		Policy: &p, Slow: time.Hour, Logger: slog.New(slog.DiscardHandler),
		Trace: func(_ keep.WorkflowName, at engine.Point) {
			if at == engine.Answered {
				l.settle() // late, and before the service is asked
			}
			if l.dieAt.CompareAndSwap(at, engine.Point("")) {
				close(l.died)
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
	e, _ := l.engine()
	ctx, cancel := context.WithCancel(l.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { e.Run(ctx) })
	idle := make(chan error, 1)
	wg.Go(func() { idle <- e.WaitIdle(ctx) })
	dead := false
	select {
	case err := <-idle:
		if err != nil {
			l.t.Error(err)
		}
	case <-l.died:
		dead, l.died = true, nil
	}
	cancel()
	wg.Wait()
	return dead
}

// begin deploys the workflow and publishes its event.
func (l *life) begin() {
	e, p := l.engine()
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
	for full := range proofs {
		t.Run(full, func(t *testing.T) {
			t.Parallel()
			for fault, f := range lifeFaults {
				for _, point := range append(engine.Points(), "") {
					if point == engine.Bought {
						continue // only a read that costs comes there
					}
					name := fmt.Sprintf("%s, death at %q", fault, point)
					effects, questions, record := live(t, full, f, point)
					switch {
					case effects > 1, effects == 0 && questions == 0:
						t.Errorf("%s: %d effects and %d questions", name, effects, questions)
					case record.SentAs().Pack == nil:
						t.Errorf("%s: the record does not say which pack", name)
					}
				}
			}
		})
	}
}

// live lives one life, and returns how often the service had the effect, how many questions
// are open, and the record of the call.
func live(t *testing.T, full string, f connectortest.Fault, point engine.Point) (effects, questions int, record keep.Mutation) {
	pack, tool, _ := strings.Cut(full, ".")
	b, service := proofs[full].start(t, pack, tool, fmt.Sprintf("[connections.svc.tools.%s]\nsettle_after = \"1ms\"\ntimeout = \"300ms\"\n", tool))
	tools, err := engine.NewTools([]connector.Connection{*b.Connection})
	if err != nil {
		t.Fatal(err)
	}
	l := &life{t: t, store: memory.New(), tools: tools, call: "svc." + tool, params: b.Params(1), died: make(chan struct{}), settle: service.Settle}
	l.dieAt.Store(point)
	if specIn(b.Connection, tool).Level == keep.LevelClaim {
		service.Script(connectortest.Fault{}, f) // what comes before the call is answered
	} else {
		service.Script(f)
	}
	l.begin()
	for l.run() {
	}
	service.Settle()
	list, _, err := l.store.Mutations(t.Context(), keep.MutationFilter{}, keep.Page{})
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %d records, %v", full, len(list), err)
	}
	open, _, err := l.store.Escalations(t.Context(), keep.EscalationFilter{Open: true}, keep.Page{})
	if err != nil {
		t.Fatal(err)
	}
	if b.Connection.Close != nil {
		b.Connection.Close()
	}
	return b.Effects(1), len(open), list[0]
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
