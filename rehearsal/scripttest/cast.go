package scripttest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/rehearsal"
)

// A cast plays the services of one test, and writes down what nobody wrote for it.
type cast struct {
	def keep.Definition // of the script that is tested

	mu       sync.Mutex // protects all below
	reads    []Read     // not returned yet
	answers  []Answer   // not given yet
	calls    []call
	problems []string
}

// A call is one that a script made.
type call struct {
	tool   keep.ToolName
	params json.RawMessage
	key    keep.MutationKey
}

// Read implements rehearsal.Services: it returns the first read of the tool whose
// params are among those of the call.
func (c *cast) Read(_ context.Context, tool keep.ToolName, params json.RawMessage) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range c.reads {
		if r.Tool != string(tool) || r.Params != nil && !covers(r.Params, params) {
			continue
		}
		c.reads = append(c.reads[:i:i], c.reads[i+1:]...)
		if r.Error != nil {
			return nil, r.Error.failure(keep.ClassTransient)
		}
		return toJSON(r.Result, r.JSON)
	}
	return nil, c.missing("%s was read with %s, and no [[test.read]] is left for it", tool, params)
}

// Call implements rehearsal.Services.
func (c *cast) Call(_ context.Context, m keep.Mutation) (connector.Receipt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call{m.Tool, m.Payload, m.Key})
	a, ok := c.next(m.Tool, Says.toCall)
	if !ok {
		return connector.Receipt{}, nil
	}
	switch a.Says {
	case Refused:
		return connector.Receipt{}, a.Error.failure(keep.ClassLogic)
	case Lost:
		return connector.Receipt{}, rehearsal.ErrLost
	}
	result, err := toJSON(a.Result, a.JSON)
	return connector.Receipt{Result: result}, err
}

// Lookup implements rehearsal.Services.
func (c *cast) Lookup(_ context.Context, m keep.Mutation) (connector.Answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.next(m.Tool, Says.toLookup)
	if !ok {
		return connector.Answer{}, c.missing("%s was looked up (%s), and no [[test.answer]] says found, absent or lost", m.Tool, m.Payload)
	}
	switch a.Says {
	case Lost:
		return connector.Answer{Verdict: connector.Retry, Detail: "the test says lost"}, nil
	case Absent:
		return connector.Answer{Verdict: connector.Absent, Detail: "the test says absent"}, nil
	}
	result, err := toJSON(a.Result, a.JSON)
	return connector.Answer{Verdict: connector.Happened, Receipt: connector.Receipt{Result: result}, Detail: "the test says found"}, err
}

// next takes the first answer of the tool that is of the kind.
func (c *cast) next(tool keep.ToolName, kind func(Says) bool) (Answer, bool) {
	for i, a := range c.answers {
		if a.Tool == string(tool) && kind(a.Says) {
			c.answers = append(c.answers[:i:i], c.answers[i+1:]...)
			return a, true
		}
	}
	return Answer{}, false
}

// missing writes a problem down and returns the error that ends the script's phase
// for good, so that the test doesn't go astray.
func (c *cast) missing(format string, args ...any) error {
	problem := fmt.Sprintf(format, args...)
	if !slices.Contains(c.problems, problem) { // lookups are repeated
		c.problems = append(c.problems, problem)
	}
	return keep.Failf(keep.ClassPrecondition, "test", "%s", problem)
}

// failure returns f as a connector reports it.
func (f *Failure) failure(class keep.Class) *keep.Failure {
	message := "refused by the test"
	if f != nil {
		if f.Class != "" {
			class = keep.Class(f.Class)
		}
		if f.Message != "" {
			message = f.Message
		}
	}
	return &keep.Failure{Class: class, Code: "test", Message: message}
}
