package engine_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// A world is a store, a service and one workflow, and the engines that come and
// go over them.
type world struct {
	tools *engine.Tools // of the engine that was made last

	tracer   trace.Tracer // nil: nobody traces
	measured func(engine.Measure)
	connect  func() []connector.Connection // nil: the service
	clock    func() time.Time              // nil: time.Now
	chance   func() []byte                 // nil: the system's
	logger   *slog.Logger                  // nil: to the output of the test
	t        testing.TB
	store    database
	service  *service
	script   script
	native   engine.Script // handlers in Go; nil: script
	jobItems []string      // of newJobWorld
	def      keep.Definition
	secrets  string // mark of those of the connection
	version  int
	policy   policy.Policy
	budgets  []budget.Rule
	repairs  func() bool // nil: questions about scripts are asked at once

	mu      sync.Mutex // protects commits while an engine runs
	commits int

	onCommit func(c keep.Commit, do func() error) error // stands between engine and store; nil: nothing

	slow time.Duration // zero: no phase is slow

	running *host        // deploys go there; nil: to an engine of their own
	dieAt   engine.Point // the engine dies at this point, once

	skipPoints int // times that dieAt is passed before
}

// A scripted is one function of a script, played in Go.
type scripted func(c *call) any

// script maps paths such as "consumers.addRow.prepare" to functions.
type script map[string]scripted

// A call is a running function with its ctx.
type call struct {
	ctx   context.Context
	c     engine.ScriptCall
	scope int
	items int // begun with this ctx
}

// arg decodes the i-th argument into v.
func (c *call) arg(i int, v any) bool {
	if i >= len(c.c.Args) || c.c.Args[i] == nil {
		return false
	}
	if err := json.Unmarshal(c.c.Args[i], v); err != nil {
		panic(err)
	}
	return true
}

// do makes a host call. An error ends the function: a script cannot catch it.
func (c *call) do(name string, args ...any) json.RawMessage { return c.doBefore(nil, name, args...) }

// doBefore is do with calls waiting behind it.
func (c *call) doBefore(waiting []string, name string, args ...any) json.RawMessage {
	if c.ctx.Err() != nil {
		panic(ended{context.Cause(c.ctx)}) // a script is stopped with its context
	}
	hc := engine.HostCall{Name: name, At: "w.js:1:1", Scope: c.scope, Waiting: waiting}
	for _, a := range args {
		b, err := json.Marshal(a)
		if err != nil {
			panic(err)
		}
		hc.Args = append(hc.Args, b)
	}
	out, err := c.c.Host.HostCall(c.ctx, hc)
	if err != nil {
		panic(ended{err})
	}
	return out
}

// ended unwinds a function whose host call failed.
type ended struct{ err error }

// thrown is what a function panics with to throw.
type thrown string

// Script implements engine.Scripts.
func (w *world) Script(context.Context, keep.Deployment) (engine.Script, error) {
	if w.native != nil {
		return w.native, nil
	}
	return w, nil
}

// Call implements engine.Script.
func (w *world) Call(ctx context.Context, c engine.ScriptCall) (out json.RawMessage, err error) {
	f := w.script[strings.Join(c.Path, ".")]
	if f == nil {
		return nil, fmt.Errorf("no function %v", c.Path)
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case ended:
			out, err = nil, p.err
		case thrown:
			out, err = nil, keep.Failf(keep.ClassLogic, "script-error", "%s", string(p))
		default:
			panic(p)
		}
	}()
	v := f(&call{ctx: ctx, c: c})
	if v == nil {
		return nil, nil
	}
	return json.Marshal(v)
}

// Locate implements engine.Script.
func (w *world) Locate(_ context.Context, path []string) string {
	return "w.js/" + strings.Join(path, ".")
}

// newWorld returns a world with one workflow "w": topic "in", consumer "act"
// that creates one thing per event, and publishes to "out".
func newWorld(t testing.TB) *world {
	w := &world{t: t, store: memory.New(), service: newService(), policy: policy.Default()}
	w.policy.Outage.After = 0 // limit_test.go is about outages; the others tell run from run
	w.def = keep.Definition{Name: "w", Topics: []keep.TopicName{"in", "out"}, Handlers: []keep.Handler{
		{Name: "act", Kind: keep.Consumer, Subscribe: []keep.TopicName{"in"}, HasMutate: true, HasNext: true},
	}}
	w.script = script{
		"consumers.act.prepare": reserveTrigger,
		"consumers.act.mutate": func(c *call) any {
			var p struct{ Data struct{ ID string } }
			c.arg(0, &p)
			c.do("svc.create", map[string]any{"id": p.Data.ID, "text": "hello"})
			panic("unreachable: the mutate call is terminal")
		},
		"consumers.act.next": func(c *call) any {
			var p struct{ Data struct{ ID string } }
			var m struct{ Status string }
			c.arg(0, &p)
			c.arg(1, &m)
			c.do("publish", "out", map[string]any{"messageId": "out:" + p.Data.ID, "status": m.Status})
			return nil
		},
	}
	return w
}

// reserveTrigger is the prepare of most tests: one event, one run.
func reserveTrigger(c *call) any {
	var ev struct{ Topic, MessageID string }
	if !c.arg(0, &ev) {
		return map[string]any{"reservations": []any{}, "data": map[string]any{}}
	}
	return map[string]any{
		"reservations": []any{map[string]any{"topic": ev.Topic, "ids": []string{ev.MessageID}}},
		"data":         map[string]any{"id": ev.MessageID},
		"ui":           map[string]any{"title": "do " + ev.MessageID},
	}
}

// A database is a store with the lists that tests look at.
type database interface {
	engine.Store
	operator.Store
	Runs(context.Context, keep.RunFilter, keep.Page) ([]keep.Run, string, error)
	Trace(context.Context, keep.RunID) ([]keep.TracePart, error)
	Mutations(context.Context, keep.MutationFilter, keep.Page) ([]keep.Mutation, string, error)
	Items(context.Context, keep.ItemFilter, keep.Page) ([]keep.Item, string, error)
	History(context.Context, keep.MutationKey) ([]keep.Move, error)
}

// A countingStore counts commits, and lets a test stand before them.
type countingStore struct {
	database
	w *world
}

func (s countingStore) Commit(ctx context.Context, c keep.Commit) error {
	do := func() error {
		err := s.w.store.Commit(ctx, c)
		countBackstops(err, c)
		if err == nil {
			s.w.mu.Lock()
			s.w.commits++
			s.w.mu.Unlock()
		}
		return err
	}
	if s.w.onCommit != nil {
		return s.w.onCommit(c, do)
	}
	return do()
}

// connections returns what the engine may call.
func (w *world) connections() []connector.Connection {
	if w.connect != nil {
		return w.connect()
	}
	c := w.service.connection()
	c.Secrets = w.secrets
	return []connector.Connection{c}
}

func (w *world) engine() *host {
	w.t.Helper()
	tools, err := engine.NewTools(w.connections())
	if err != nil {
		w.t.Fatal(err)
	}
	w.tools = tools
	e, err := engine.New(countingStore{w.store, w}, w, tools, engine.Config{
		Policy: &w.policy, Chance: w.chance,
		Tracer: w.tracer, Measured: w.measured, Budgets: w.budgets, Repairs: w.repairs,
		Slow:   cmp.Or(w.slow, time.Hour),
		Clock:  w.clock,
		Logger: cmp.Or(w.logger, slog.New(slog.NewTextHandler(w.t.Output(), nil))),
		Trace: func(_ keep.WorkflowName, p engine.Point) {
			if p == w.dieAt {
				if w.skipPoints--; w.skipPoints >= 0 {
					return
				}
				w.dieAt = ""
				runtime.Goexit() // the actor is gone, as after a SIGKILL
			}
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.hostOf(countingStore{w.store, w}, e)
}

// A host is an engine, and what people decide in its process.
type host struct {
	*engine.Engine
	*operator.Operator
}

func (w *world) hostOf(s operator.Store, e *engine.Engine) *host {
	w.t.Helper()
	o, err := operator.New(s, operator.Config{Policy: &w.policy, Now: e.Now, Executor: e, Secrets: w.tools.Secrets, Budgets: e.Budgets,
		Logger: cmp.Or(w.logger, slog.New(slog.NewTextHandler(w.t.Output(), nil)))})
	if err != nil {
		w.t.Fatal(err)
	}
	return &host{e, o}
}

// deploy deploys the world's definition as a new version.
func (w *world) deploy() {
	w.t.Helper()
	w.version++
	e := w.running
	if e == nil {
		e = w.engine()
	}
	_, err := e.Deploy(w.t.Context(), keep.Deployment{
		Workflow: w.def.Name, Hash: fmt.Sprint("v", w.version), Entry: "w.js", Definition: w.def,
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// publish adds events to a topic, as a producer run would.
func (w *world) publish(topic keep.TopicName, ids ...string) {
	w.t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	for _, id := range ids {
		in := keep.Input{ID: keep.InputID("in_" + id), Workflow: w.def.Name, Source: "test", Type: "event", ExternalID: id, Title: id, Status: keep.InputPending, CreatedAt: now}
		ev := keep.Event{Workflow: w.def.Name, Topic: topic, MessageID: keep.MessageID(id), Payload: []byte(`{"n":1}`),
			Status: keep.EventPending, CausedBy: []keep.InputID{in.ID}, CreatedAt: now, UpdatedAt: now}
		err := w.store.Commit(w.t.Context(), keep.Commit{Workflow: w.def.Name, At: now,
			Changes: []keep.Change{keep.PutInput{Input: in}, keep.Publish{Event: ev}}})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// run runs an engine until it is idle, and stops it.
func (w *world) run() {
	w.t.Helper()
	if err := w.runFor(24 * time.Hour); err != nil {
		w.t.Fatalf("not idle: %v", err)
	}
}

// runFor runs an engine until it is idle or d has passed.
func (w *world) runFor(d time.Duration) error {
	w.t.Helper()
	return w.runEngine(w.engine(), d)
}

// runEngine runs e until it is idle or d has passed.
func (w *world) runEngine(e *host, d time.Duration) error {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := e.Run(ctx); err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
	limit, stop := context.WithTimeout(ctx, d)
	err := e.WaitIdle(limit)
	stop()
	cancel()
	wg.Wait()
	w.check()
	return err
}

// check fails the test if the store breaks a law.
func (w *world) check() {
	w.t.Helper()
	checker, ok := any(w.store).(interface {
		Check(context.Context) iter.Seq[error]
	})
	if !ok {
		return
	}
	for err := range checker.Check(w.t.Context()) {
		w.t.Errorf("Check: %v", err)
	}
}

// lastRun returns the newest run.
func (w *world) lastRun() keep.Run {
	w.t.Helper()
	runs := w.runs()
	if len(runs) == 0 {
		w.t.Fatal("no run")
	}
	return runs[0]
}

// runs returns all runs, newest first.
func (w *world) runs() []keep.Run {
	w.t.Helper()
	runs, _, err := w.store.Runs(w.t.Context(), keep.RunFilter{Workflow: w.def.Name}, keep.Page{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return runs
}

// mutation returns the only record of the ledger.
func (w *world) mutation() keep.Mutation {
	w.t.Helper()
	ms, _, err := w.store.Mutations(w.t.Context(), keep.MutationFilter{Workflow: w.def.Name}, keep.Page{})
	if err != nil || len(ms) != 1 {
		w.t.Fatalf("%d mutations, %v; want 1", len(ms), err)
	}
	return ms[0]
}

// newest returns the latest record of the ledger.
func (w *world) newest() keep.Mutation {
	w.t.Helper()
	ms, _, err := w.store.Mutations(w.t.Context(), keep.MutationFilter{Workflow: w.def.Name}, keep.Page{})
	if err != nil || len(ms) == 0 {
		w.t.Fatalf("%d mutations, %v", len(ms), err)
	}
	return ms[0]
}

// event returns an event.
func (w *world) event(topic keep.TopicName, id string) keep.Event {
	w.t.Helper()
	evs, err := w.store.EventsByID(w.t.Context(), w.def.Name, topic, []keep.MessageID{keep.MessageID(id)})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(evs) == 0 {
		return keep.Event{}
	}
	return evs[0]
}

// questions returns the open questions.
func (w *world) questions() []keep.Escalation {
	w.t.Helper()
	qs, _, err := w.store.Escalations(w.t.Context(), keep.EscalationFilter{Open: true}, keep.Page{})
	if err != nil {
		w.t.Fatal(err)
	}
	return qs
}

// decide answers the only open question.
func (w *world) decide(a keep.Action) error {
	w.t.Helper()
	qs := w.questions()
	if len(qs) != 1 {
		w.t.Fatalf("%d open questions, want 1", len(qs))
	}
	return w.engine().Decide(w.t.Context(), qs[0].ID, keep.Decision{Action: a, By: "ann", From: "test", Result: json.RawMessage(`{"id":7}`)})
}

// A service is the world outside: it keeps its own truth about effects, and does
// to callers what the test tells it.
type service struct {
	mu      sync.Mutex
	level   keep.Level
	approve string
	verify  string // what a person is to look at
	unique  bool
	target  bool                                         // lookups find any effect on the target
	marked  bool                                         // lookups find our mark
	byKey   bool                                         // lookups answer for the key of the call
	carries bool                                         // the calls have the host's key in them
	effects map[string]int                               // by token
	calls   int                                          // mutate calls that arrived
	asked   int                                          // lookups
	onCall  func(n int) (effect bool, err error)         // the n-th mutate call, from 1
	onAsk   func(n int) (v connector.Verdict, err error) // nil: the truth
	onRead  func() error

	controlled int                       // control lookups
	onControl  func(n int) (bool, error) // nil: the truth
	onStart    func() error

	// onAskContext waits before a lookup is answered; nil: does not.
	onAskContext func(ctx context.Context, m keep.Mutation) error

	onCallContext func(ctx context.Context) error // waits before the call is made; nil: does not
	onMutation    func(m keep.Mutation) error     // refuses a call; nil: refuses none
	onTarget      func()
	sets          bool              // a call says what is to be
	set           map[string]string // by id: what was sent last
	keyLasts      time.Duration
	timeout       time.Duration
	comparesAge   bool
	result        json.RawMessage // of mutate calls
	read          json.RawMessage // of reads
	schema        json.RawMessage // of the result of create

	compare func(old, new []byte) connector.Difference // by the tool edit
}

func newService() *service {
	return &service{level: keep.LevelWitness, effects: make(map[string]int), set: make(map[string]string),
		result: json.RawMessage(`{"id":7}`), read: json.RawMessage(`{"read":true}`)}
}

func (s *service) connection() connector.Connection {
	base := tool{s: s, spec: connector.Spec{Name: "create", Effect: connector.Mutate, Level: s.level,
		Approve: s.approve, Unique: s.unique, CarriesToken: s.carries, Identity: []string{"id"}, Timeout: cmp.Or(s.timeout, 10*time.Second), SettleAfter: 2 * time.Second,
		ByTarget: s.target, Marked: s.marked, Sets: s.sets, ComparesAge: s.comparesAge, KeyLasts: s.keyLasts, Result: s.schema, VerifyByHand: s.verify}}
	var create connector.Tool = mutator{base}
	if s.level != keep.LevelNone {
		create = asker{mutator{base}}
	}
	other, edit := base, base
	other.spec.Name, edit.spec.Name = "other", "edit"
	return connector.Connection{Name: "svc", Connector: "fake", Tools: []connector.Tool{
		create, mutator{other}, comparer{asker{mutator{edit}}},
		reader{tool{s: s, spec: connector.Spec{Name: "get", Effect: connector.Get}}},
		reader{tool{s: s, spec: connector.Spec{Name: "list", Effect: connector.List}}},
	}}
}

type tool struct {
	s    *service
	spec connector.Spec
}

func (t tool) Spec() connector.Spec { return t.spec }

type reader struct{ tool }

func (r reader) Read(context.Context, json.RawMessage) (json.RawMessage, error) {
	if r.s.onRead != nil {
		if err := r.s.onRead(); err != nil {
			return nil, err
		}
	}
	return r.s.read, nil
}

type mutator struct{ tool }

// Start does what the test says; the ledger must not know of the call yet.
func (m mutator) Start(context.Context) error {
	if m.s.onStart != nil {
		return m.s.onStart()
	}
	return nil
}

func (m mutator) Target(json.RawMessage) string {
	if m.s.onTarget != nil {
		m.s.onTarget()
	}
	return "things"
}

func (m mutator) Mutate(ctx context.Context, r keep.Mutation) (connector.Receipt, error) {
	if m.s.onCallContext != nil {
		if err := m.s.onCallContext(ctx); err != nil {
			return connector.Receipt{}, err
		}
	}
	if m.s.onMutation != nil {
		if err := m.s.onMutation(r); err != nil {
			return connector.Receipt{}, err
		}
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.calls++
	effect, err := true, error(nil)
	if m.s.onCall != nil {
		effect, err = m.s.onCall(m.s.calls)
	}
	if effect {
		m.s.perform(r)
	}
	if err != nil {
		return connector.Receipt{}, err
	}
	return connector.Receipt{Result: m.s.result}, nil
}

// perform does what was asked for; a level A service does it once for a token.
// The caller holds mu.
func (s *service) perform(r keep.Mutation) {
	var p struct{ ID, Text string }
	if s.sets && json.Unmarshal(r.Payload, &p) == nil {
		s.set[p.ID] = p.Text
	}
	if s.level == keep.LevelKey {
		s.effects[r.Token] = 1
		return
	}
	s.effects[r.Token]++
}

type asker struct{ mutator }

func (a asker) Reconcile(ctx context.Context, r keep.Mutation) (connector.Answer, error) {
	if a.s.onAskContext != nil {
		if err := a.s.onAskContext(ctx, r); err != nil {
			return connector.Answer{}, err
		}
	}
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	a.s.asked++
	if a.s.level == keep.LevelKey && a.s.onAsk == nil {
		a.s.perform(r) // sent again, with the same key
	}
	verdict := connector.Absent
	if a.s.effects[r.Token] > 0 {
		verdict = connector.Happened
	}
	if a.s.onAsk != nil {
		v, err := a.s.onAsk(a.s.asked)
		if err != nil {
			return connector.Answer{}, err
		}
		verdict = v
	}
	return connector.Answer{Verdict: verdict, Receipt: connector.Receipt{Result: a.s.result}, ByKey: a.s.byKey}, nil
}

// Control answers what onControl says, or the truth.
func (a asker) Control(_ context.Context, known keep.Mutation) (bool, error) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	a.s.controlled++
	if a.s.onControl != nil {
		return a.s.onControl(a.s.controlled)
	}
	return a.s.effects[known.Token] > 0, nil
}

// A comparer can tell how far apart two payloads are.
type comparer struct{ asker }

func (c comparer) ComparePayload(old, new json.RawMessage) connector.Difference {
	return c.s.compare(old, new)
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

var errReset = errors.New("connection reset by peer") // says nothing about the effect

// history returns the states that the only mutation went through.
func (w *world) history() []string {
	w.t.Helper()
	moves, err := w.store.History(w.t.Context(), ledger.RunKey(w.runs()[len(w.runs())-1].Chain))
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, m := range moves {
		out = append(out, string(m.To))
	}
	return out
}
