package scripttest

import (
	"context"
	"encoding/json"
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
	events, err := t.pending(cfg.Script.Definition)
	if err != nil {
		return Verdict{Name: t.Name, Problems: []string{err.Error()}}, nil
	}
	var handlers []keep.HandlerName
	if t.Handler != "" {
		handlers = []keep.HandlerName{keep.HandlerName(t.Handler)}
		if _, ok := cfg.Script.Handler(handlers[0]); !ok {
			return Verdict{Name: t.Name, Problems: []string{fmt.Sprintf("the script has no handler %q", t.Handler)}}, nil
		}
	}
	c := &cast{reads: t.Reads, answers: t.Answers}
	result, err := rehearsal.Run(ctx, rehearsal.Config{
		Script: cfg.Script, Handlers: handlers, Events: events, Connections: cfg.Connections,
		Services: c, Policy: cfg.Policy, Runtime: cfg.Runtime, Now: t.Now,
	})
	if err != nil {
		return Verdict{}, fmt.Errorf("test %q: %w", t.Name, err)
	}
	return Verdict{Name: t.Name, Problems: judge(t.Expect, result, c), Took: time.Since(began)}, nil
}

// pending returns the events that are there when the test begins.
func (t Test) pending(d keep.Definition) ([]keep.Event, error) {
	events := make([]keep.Event, 0, len(t.Events))
	for _, e := range t.Events {
		if !d.HasTopic(keep.TopicName(e.Topic)) {
			return nil, fmt.Errorf("event %s: the script declares no topic %q", e.MessageID, e.Topic)
		}
		payload, err := toJSON(e.Payload)
		if err != nil {
			return nil, fmt.Errorf("event %s: payload: %w", e.MessageID, err)
		}
		if payload == nil {
			payload = json.RawMessage("{}")
		}
		events = append(events, keep.Event{Topic: keep.TopicName(e.Topic), MessageID: keep.MessageID(e.MessageID), Payload: payload})
	}
	return events, nil
}
