package plan

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/grant"
	"github.com/keep-run/keep/rehearsal"
)

// A live reads from the real services, and makes up what calls answer.
type live struct {
	readers   map[keep.ToolName]connector.Reader
	specs     map[keep.ToolName]connector.Spec
	approvals map[keep.ToolName]*grant.Approvals
	before    map[keep.ToolName][]keep.ToolName // names that each tool had before

	at  *At          // nil: reads are live
	may *grant.Rules // reads that are made; nil: all

	mu    sync.Mutex // protects all below
	reads []Read
	calls []call
	shut  map[string]refusal // by connection
}

// A refusal is what a service said that wants to be left alone for a time.
type refusal struct {
	why   *keep.Failure
	until time.Time // of the machine's clock: that of a rehearsal does not wait
}

// A call is one that would be made.
type call struct {
	keep.Mutation
	approve *grant.Approvals
	before  []keep.ToolName // names that its tool had
	guessed bool            // the answer was made up
	result  json.RawMessage // that answer
}

func newLive(conns []connector.Connection) *live {
	l := &live{readers: make(map[keep.ToolName]connector.Reader), specs: make(map[keep.ToolName]connector.Spec),
		approvals: make(map[keep.ToolName]*grant.Approvals), before: make(map[keep.ToolName][]keep.ToolName), shut: make(map[string]refusal)}
	for _, c := range conns {
		for _, t := range c.Tools {
			spec := t.Spec()
			name := keep.ToolName(c.Name + "." + spec.Name)
			l.specs[name], l.before[name] = spec, connector.FormerNames(c, spec)
			l.approvals[name], _ = grant.CompileApprovals(connector.Approvals(c, spec)) // what cannot be used asks
			if r, ok := t.(connector.Reader); ok && spec.Effect != connector.Mutate {
				l.readers[name] = r
			}
		}
	}
	return l
}

// Read implements rehearsal.Services.
func (l *live) Read(ctx context.Context, tool keep.ToolName, params json.RawMessage) (json.RawMessage, error) {
	if l.may != nil {
		if v := l.may.Check(tool, params, l.before[tool]...); !v.Allowed {
			return nil, keep.Failf(keep.ClassLogic, "not-granted", "this plan reads only what the workflow was granted: %s", v.Why)
		}
	}
	l.mu.Lock()
	l.reads = append(l.reads, Read{tool, params})
	shut := l.shut[tool.Connection()]
	l.mu.Unlock()
	if l.at != nil {
		return l.at.read(string(tool), params)
	}
	if time.Now().Before(shut.until) {
		return nil, shut.why
	}
	timeout := l.specs[tool].Timeout
	timeout = cmp.Or(timeout, connector.DefaultTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, &keep.TimeoutError{Op: string(tool), After: timeout})
	defer cancel()
	result, err := l.readers[tool].Read(ctx, params)
	if f, ok := errors.AsType[*keep.Failure](err); ok && f.RetryAfter > 0 {
		l.mu.Lock()
		l.shut[tool.Connection()] = refusal{f, time.Now().Add(f.RetryAfter)}
		l.mu.Unlock()
	}
	return result, err
}

// Call implements rehearsal.Services: it writes the call down.
func (l *live) Call(_ context.Context, m keep.Mutation) (connector.Receipt, error) {
	spec := l.specs[m.Tool]
	result := example(spec.Result)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, call{Mutation: m, approve: l.approvals[m.Tool], before: l.before[m.Tool], guessed: true, result: result})
	return connector.Receipt{Result: result}, nil
}

// Lookup implements rehearsal.Services. Every call is answered, so nothing is in doubt.
func (l *live) Lookup(context.Context, keep.Mutation) (connector.Answer, error) {
	return connector.Answer{}, rehearsal.ErrLost
}

// callsByRun returns the calls of each run, in order.
func (l *live) callsByRun() map[keep.RunID][]call {
	out := make(map[keep.RunID][]call)
	for _, c := range l.calls {
		out[c.Run] = append(out[c.Run], c)
	}
	return out
}

// sentence says what was made up.
func (c call) sentence() string {
	if c.result == nil {
		return fmt.Sprintf("What %s answers is not known before it is called; the script got null.", c.Tool)
	}
	return fmt.Sprintf("What %s answers is not known before it is called; the script got an example: %s.", c.Tool, c.result)
}

// maxDepth bounds an example of a schema that contains itself.
const maxDepth = 8

// example returns a value that a simple JSON Schema describes; nil without a schema.
// It is for people and for the next step of a script, and needs not be valid.
func example(schema json.RawMessage) json.RawMessage {
	if len(schema) == 0 {
		return nil
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(schema))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil
	}
	out, err := json.Marshal(exampleOf(v, maxDepth))
	if err != nil || string(out) == "null" {
		return nil
	}
	return out
}

func exampleOf(schema any, depth int) any {
	s, ok := schema.(map[string]any)
	if !ok || depth == 0 {
		return nil
	}
	for _, key := range []string{"const", "default"} {
		if v, ok := s[key]; ok {
			return v
		}
	}
	for _, key := range []string{"examples", "enum"} {
		if list, ok := s[key].([]any); ok && len(list) > 0 {
			return list[0]
		}
	}
	switch kind(s) {
	case "object":
		out := make(map[string]any)
		properties, _ := s["properties"].(map[string]any)
		for name, p := range properties {
			out[name] = exampleOf(p, depth-1)
		}
		return out
	case "array":
		return []any{}
	case "string":
		if s["format"] == "date-time" {
			return time.Unix(0, 0).UTC().Format(time.RFC3339)
		}
		return "example"
	case "integer", "number":
		return 1
	case "boolean":
		return true
	}
	return nil
}

// kind returns the first type that a schema allows.
func kind(s map[string]any) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		if len(t) > 0 {
			first, _ := t[0].(string)
			return first
		}
	}
	return ""
}
