package rehearsal

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// Services plays the services of a rehearsal. Its methods are called by several
// goroutines at once. An error counts as it does from a connector: one without a
// *keep.Failure is transient for a read and unknown for a call.
type Services interface {
	// Read answers a call of a list or get tool.
	Read(ctx context.Context, tool keep.ToolName, params json.RawMessage) (json.RawMessage, error)

	// Call answers a call of a mutate tool.
	Call(ctx context.Context, m keep.Mutation) (connector.Receipt, error)

	// Lookup answers the question whether a call happened, for a tool that can be
	// asked.
	Lookup(ctx context.Context, m keep.Mutation) (connector.Answer, error)
}

// A Describer is what a rehearsal knows of a mutate tool: nothing that makes a call.
type Describer interface {
	Spec() connector.Spec
	Target(params json.RawMessage) string
}

// play returns the tools of a rehearsal.
func play(cfg Config, c *clock) []connector.Connection {
	out := make([]connector.Connection, 0, len(cfg.Connections))
	for _, conn := range cfg.Connections {
		played := connector.Connection{Name: conn.Name, Connector: conn.Connector, Was: conn.Was, ToolWas: conn.ToolWas, New: conn.New, ToolNew: conn.ToolNew}
		if !cfg.Approved {
			played.Approve = conn.Approve
		}
		for _, t := range conn.Tools {
			played.Tools = append(played.Tools, playTool(conn.Name, t, cfg, c))
		}
		out = append(out, played)
	}
	return out
}

func playTool(conn string, t connector.Tool, cfg Config, c *clock) connector.Tool {
	s := cfg.Services
	spec := t.Spec()
	if cfg.Approved {
		spec.Approve = ""
	}
	name := keep.ToolName(conn + "." + spec.Name)
	if spec.Effect != connector.Mutate {
		return playedReader{spec, name, s}
	}
	m := playedMutator{spec: spec, services: s}
	if d, ok := t.(Describer); ok {
		m.target = d.Target
	}
	if c, ok := t.(connector.Comparer); ok {
		m.compare = c.ComparePayload
	}
	if _, ok := t.(connector.Reconciler); ok {
		return playedReconciler{m, c, new(sync.Map)}
	}
	return m
}

// A playedReader is a list or get tool.
type playedReader struct {
	spec     connector.Spec
	name     keep.ToolName
	services Services
}

func (r playedReader) Spec() connector.Spec { return r.spec }

func (r playedReader) Read(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	return r.services.Read(ctx, r.name, params)
}

// A playedMutator is a mutate tool that can't be asked.
type playedMutator struct {
	spec     connector.Spec
	services Services
	target   func(params json.RawMessage) string                      // nil: no target
	compare  func(before, after json.RawMessage) connector.Difference // nil: every difference is significant
}

func (m playedMutator) Spec() connector.Spec { return m.spec }

func (m playedMutator) Target(params json.RawMessage) string {
	if m.target == nil {
		return ""
	}
	return m.target(params)
}

func (m playedMutator) Mutate(ctx context.Context, mutation keep.Mutation) (connector.Receipt, error) {
	return m.services.Call(ctx, mutation)
}

// ComparePayload implements connector.Comparer.
func (m playedMutator) ComparePayload(before, after json.RawMessage) connector.Difference {
	if m.compare == nil {
		return connector.Significant
	}
	return m.compare(before, after)
}

// A playedReconciler is a mutate tool that can be asked.
type playedReconciler struct {
	playedMutator
	clock *clock
	early *sync.Map // absences by keep.MutationKey that were asked for before they count
}

// Reconcile implements connector.Reconciler. An absence counts at once: nothing that
// was played can still be on its way. One that was asked for too early is given once more.
func (m playedReconciler) Reconcile(ctx context.Context, mutation keep.Mutation) (connector.Answer, error) {
	if a, known := m.early.LoadAndDelete(mutation.Key); known {
		return a.(connector.Answer), nil
	}
	asked := m.clock.now()
	a, err := m.services.Lookup(ctx, mutation)
	if settles := mutation.SettlesAt(); err == nil && a.Verdict == connector.Absent && asked.Before(settles) {
		m.early.Store(mutation.Key, a)
		m.clock.reach(settles)
	}
	return a, err
}

// ErrLost is the error of a call whose outcome is unknown, and of a lookup that
// brought no answer.
var ErrLost = errors.New("the answer was lost")
