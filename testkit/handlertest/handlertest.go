package handlertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/internal/utf8json"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/rehearsal"
)

// A Bench is what a handler finds when it runs.
type Bench struct {
	// Workflow has the handler. Required.
	Workflow *handler.Workflow

	// Connections say which tools there are, and are those of the program: their names, effects, schemas and
	// identities hold. Nothing of them is called.
	Connections []connector.Connection

	// Fakes answer the tools. A read without one is a failure; a call without one answers null.
	Fakes map[keep.ToolName]Fake

	Events     []Event        // that are pending, the oldest first
	Checkpoint map[string]any // of a producer
	Done       []string       // ids of items of a job that are done

	Now time.Time // what a handler finds all along; if zero, the current time
}

// An Event is one message of a topic.
type Event struct {
	Topic   keep.TopicName
	ID      keep.MessageID
	Payload any // becomes JSON; nil: {}. Of a Result it is a json.RawMessage
}

// A Fake answers a tool: what it returns becomes JSON. An error is that of a tool: without a *keep.Failure it is transient from
// a read, and leaves unknown from a call whether that happened.
type Fake func(params json.RawMessage) (any, error)

// Returns is a Fake that returns v each time.
func Returns(v any) Fake { return func(json.RawMessage) (any, error) { return v, nil } }

// Fails is a Fake that returns err each time.
func Fails(err error) Fake { return func(json.RawMessage) (any, error) { return nil, err } }

// Skipped is a Fake of a call whose answer is lost, and that a person skips: nobody knows whether it happened.
func Skipped(json.RawMessage) (any, error) { return nil, errSkipped }

var errSkipped = errors.New("no answer came, and a person skips the call")

// A Call is one of a tool that changes something.
type Call struct {
	Tool   keep.ToolName
	Params json.RawMessage
	Item   string // empty: it is of a consumer
}

// A Result is what a handler did in one run.
type Result struct {
	Reserved  []keep.EventRef            // by Prepare
	Data      json.RawMessage            // that Prepare returned
	Title     string                     // of the run
	WakeAt    time.Time                  // when Prepare wants to be called again; zero: when there are new events
	Calls     []Call                     // in their order, also those that failed
	Published []Event                    // none if the run failed
	Stored    map[string]json.RawMessage // of the checkpoint; null: it was deleted
	Items     []keep.Item                // that the run began, but those of Bench.Done
}

// Run executes the handler once, with all its phases, and returns what it did. If the run failed, the error is the
// *keep.Failure that a host would record, which it would retry or ask a person about, and the Result has what was done before. Any other error says that
// the bench is wrong.
func (b Bench) Run(ctx context.Context, name keep.HandlerName) (*Result, error) {
	w, err := host.LoadGo(b.Workflow, "handlertest")
	if err != nil {
		return nil, err
	}
	h, ok := w.Handler(name)
	if !ok {
		return nil, fmt.Errorf("workflow %s has no handler %q", w.Name, name)
	}
	for tool := range b.Fakes {
		if why := connector.Lacks(b.Connections, string(tool)); why != "" {
			return nil, fmt.Errorf("a fake of %s", why)
		}
	}
	once := policy.Default()
	once.Retry.Attempts = 0
	s := &stage{fakes: b.Fakes, skips: make(map[keep.MutationKey]bool)}
	cfg := rehearsal.Config{
		Script: w, Handlers: []keep.HandlerName{name}, Works: 1, Approved: true,
		Connections: b.Connections, Services: s, Policy: &once, Now: b.Now, Skips: s.skipped,
	}
	if err := b.furnish(&cfg, w.Definition, h); err != nil {
		return nil, err
	}
	out, err := rehearsal.Run(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return s.result(w.Definition, out)
}

// furnish adds what is there when the handler runs.
func (b Bench) furnish(cfg *rehearsal.Config, d keep.Definition, h keep.Handler) (err error) {
	if len(b.Checkpoint) > 0 && h.Kind != keep.Producer || len(b.Done) > 0 && h.Kind != keep.Job {
		return fmt.Errorf("%s is a %s: a producer has a Checkpoint, and a job has items that are Done", h.Name, h.Kind)
	}
	for _, ev := range b.Events {
		payload := json.RawMessage("{}")
		if ev.Payload != nil {
			if payload, err = utf8json.Marshal(ev.Payload); err != nil {
				return fmt.Errorf("payload of event %q: %w", ev.ID, err)
			}
		}
		topic := d.TopicOf(ev.Topic)
		if !d.HasTopic(topic) {
			return fmt.Errorf("event %q: workflow %s has no topic %q", ev.ID, d.Name, ev.Topic)
		}
		if err := ev.ID.Validate(); err != nil {
			return fmt.Errorf("event %q: %w", ev.ID, err)
		}
		cfg.Events = append(cfg.Events, keep.Event{Topic: topic, MessageID: ev.ID, Payload: payload})
	}
	cfg.KV = make(map[string]json.RawMessage)
	for key, v := range b.Checkpoint {
		if cfg.KV[key], err = utf8json.Marshal(v); err != nil {
			return fmt.Errorf("checkpoint %q: %w", key, err)
		}
	}
	for _, id := range b.Done {
		cfg.Items = append(cfg.Items, keep.Item{ID: id, Title: id, Status: keep.ItemDone})
	}
	return nil
}

// A stage plays the tools.
type stage struct {
	fakes map[keep.ToolName]Fake

	mu    sync.Mutex // protects all below
	calls []Call
	skips map[keep.MutationKey]bool
}

// skipped reports whether the fake of a call was Skipped.
func (s *stage) skipped(m keep.Mutation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.skips[m.Key]
}

// answer is what the fake of a tool answers.
func (s *stage) answer(tool keep.ToolName, params json.RawMessage) (json.RawMessage, error) {
	v, err := s.fakes[tool](params)
	if err != nil {
		return nil, err
	}
	raw, err := utf8json.Marshal(v)
	if err != nil {
		return nil, keep.Failf(keep.ClassLogic, "bad-result", "the fake of %s: %v", tool, err)
	}
	return raw, nil
}

// Read implements rehearsal.Services.
func (s *stage) Read(_ context.Context, tool keep.ToolName, params json.RawMessage) (json.RawMessage, error) {
	if s.fakes[tool] == nil {
		return nil, keep.Failf(keep.ClassPrecondition, "no-fake", "it was read with %s, and the test has no fake of it", params)
	}
	return s.answer(tool, params)
}

// Call implements rehearsal.Services.
func (s *stage) Call(_ context.Context, m keep.Mutation) (connector.Receipt, error) {
	s.mu.Lock()
	s.calls = append(s.calls, Call{m.Tool, m.Payload, m.Item})
	s.mu.Unlock()
	if s.fakes[m.Tool] == nil {
		return connector.Receipt{}, nil
	}
	result, err := s.answer(m.Tool, m.Payload)
	s.mu.Lock()
	s.skips[m.Key] = errors.Is(err, errSkipped)
	s.mu.Unlock()
	return connector.Receipt{Result: result}, err
}

// Lookup implements rehearsal.Services: nobody knows what became of a call whose fake failed.
func (s *stage) Lookup(context.Context, keep.Mutation) (connector.Answer, error) {
	return connector.Answer{Verdict: connector.Retry, Detail: "the fake of the tool failed"}, nil
}

// errNotRun says that a handler had nothing to do.
var errNotRun = errors.New("the handler did not run: there is no event for it")

// result is what the run left.
func (s *stage) result(d keep.Definition, out *rehearsal.Result) (*Result, error) {
	if len(out.Runs) == 0 {
		return nil, errNotRun
	}
	r := &Result{Calls: slices.Clone(s.calls), Stored: out.Stored, Items: out.Items}
	run := out.Runs[0]
	for _, r := range out.Runs {
		if r.Chain == run.Chain { // after a call that was skipped there is another attempt
			run = r
		}
	}
	r.Title, r.WakeAt = run.Title, run.WakeAt
	for _, res := range run.Reservations {
		for _, id := range res.IDs {
			r.Reserved = append(r.Reserved, keep.EventRef{Topic: d.CalledIn(res.Topic), MessageID: id})
		}
	}
	if run.Prepared != nil {
		var prepared struct{ Data json.RawMessage }
		if err := json.Unmarshal(run.Prepared, &prepared); err != nil {
			return nil, err
		}
		r.Data = prepared.Data
	}
	for _, ev := range out.Events {
		r.Published = append(r.Published, Event{d.CalledIn(ev.Topic), ev.MessageID, ev.Payload})
	}
	if run.Error != nil {
		return r, run.Error
	}
	return r, nil
}
