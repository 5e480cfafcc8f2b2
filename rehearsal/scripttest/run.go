package scripttest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/rehearsal"
	"github.com/keep-run/keep/script/sandbox"
)

// Config is what the tests of one script have in common.
type Config struct {
	Script      *host.Workflow
	Connections []connector.Connection // described; nothing of them is called
	Policy      *policy.Policy         // nil: policy.Default()
	Runtime     *sandbox.Runtime

	// Shared is what tests share, for speed alone. If nil, each loads the script.
	Shared *rehearsal.Shared

	// Now is when tests without a time of their own begin. If zero, each at the current time.
	Now time.Time
}

// A Verdict is the outcome of one test.
type Verdict struct {
	Name     string
	Problems []string // none: it passed
	Took     time.Duration
}

// Run runs one test. An error means that it could not be run.
func Run(ctx context.Context, cfg Config, t Test) (Verdict, error) {
	began := time.Now()
	result, c, err := rehearse(ctx, cfg, t)
	if wrong, ok := errors.AsType[*mistake](err); ok {
		return Verdict{Name: t.Name, Problems: []string{wrong.Error()}}, nil
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("test %q: %w", t.Name, err)
	}
	problems := judge(t.Expect, result, c)
	if result.Cut && len(result.Runs) >= t.maxRuns() {
		problems = []string{fmt.Sprintf("it comes to no end after %d runs: say runs = N if the script is to find more to do", len(result.Runs))}
	}
	return Verdict{Name: t.Name, Problems: problems, Took: time.Since(began)}, nil
}

// MaxRuns is how many runs a test has at most, attempts included, if it does not say for how many it waits (law: bounded).
const MaxRuns = 1000

// MaxWorks is for how many runs a test can wait (law: bounded): a model may have written it.
const MaxWorks = 10_000

// maxRuns returns after how many runs the test has no end. A run may have attempts.
func (t Test) maxRuns() int { return max(MaxRuns, 10*t.Runs) }

// A mistake is what a test wants of a script that has no such thing.
type mistake struct{ problem string }

// Error returns the problem.
func (m *mistake) Error() string { return m.problem }

// rehearse executes the script as the test says.
func rehearse(ctx context.Context, cfg Config, t Test) (*rehearsal.Result, *cast, error) {
	rc := rehearsal.Config{
		Script: cfg.Script, Connections: cfg.Connections, Policy: cfg.Policy, Runtime: cfg.Runtime,
		Shared: cfg.Shared, Now: t.Now, Works: t.Runs, MaxRuns: t.maxRuns(), Approved: t.Approved, KV: make(map[string]json.RawMessage),
	}
	if t.Now.IsZero() {
		rc.Now = cfg.Now
	}
	var err error
	if rc.Events, err = t.pending(cfg.Script.Definition); err != nil {
		return nil, nil, &mistake{err.Error()}
	}
	if t.Handler != "" {
		rc.Handlers = []keep.HandlerName{keep.HandlerName(t.Handler)}
		if _, ok := cfg.Script.Handler(rc.Handlers[0]); !ok {
			return nil, nil, &mistake{fmt.Sprintf("the script has no handler %q", t.Handler)}
		}
	}
	for key, v := range t.KV {
		if rc.KV[key], err = toJSON(v, ""); err != nil {
			return nil, nil, &mistake{fmt.Sprintf("kv %s: %v", key, err)}
		}
	}
	for _, it := range t.Items {
		rc.Items = append(rc.Items, keep.Item{ID: it.ID, Title: cmp.Or(it.Title, it.ID), Status: cmp.Or(it.Status, keep.ItemDone)})
	}
	if err := t.cast(cfg.Connections); err != nil {
		return nil, nil, &mistake{err.Error()}
	}
	c := &cast{def: cfg.Script.Definition, reads: t.Reads, answers: t.Answers}
	rc.Services = c
	result, err := rehearsal.Run(ctx, rc)
	return result, c, err
}

// cast returns an error if a tool that the test plays is not there: no script could call it, so that what the test says of
// it would come to nothing.
func (t Test) cast(conns []connector.Connection) error {
	known := make(map[keep.ToolName]bool)
	for _, conn := range conns {
		for _, tool := range conn.Tools {
			spec := tool.Spec()
			known[keep.ToolName(conn.Name+"."+spec.Name)] = true
			for _, name := range connector.FormerNames(conn, spec) {
				known[name] = true
			}
		}
	}
	for _, r := range t.Reads {
		if !known[keep.ToolName(r.Tool)] {
			return fmt.Errorf("[[test.read]]: there is no tool %s", r.Tool)
		}
	}
	for _, a := range t.Answers {
		if !known[keep.ToolName(a.Tool)] {
			return fmt.Errorf("[[test.answer]]: there is no tool %s", a.Tool)
		}
	}
	return nil
}

// pending returns the events that are there when the test begins.
func (t Test) pending(d keep.Definition) ([]keep.Event, error) {
	events := make([]keep.Event, 0, len(t.Events))
	for _, e := range t.Events {
		topic := d.TopicOf(keep.TopicName(e.Topic))
		if !d.HasTopic(topic) {
			return nil, fmt.Errorf("event %s: the script declares no topic %q", e.MessageID, e.Topic)
		}
		payload, err := toJSON(e.Payload, e.JSON)
		if err != nil {
			return nil, fmt.Errorf("event %s: payload: %w", e.MessageID, err)
		}
		if payload == nil {
			payload = json.RawMessage("{}")
		}
		events = append(events, keep.Event{Topic: topic, MessageID: keep.MessageID(e.MessageID), Payload: payload})
	}
	return events, nil
}
