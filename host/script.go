package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/sandbox"
)

// keptVersions is how many versions of one workflow stay loaded: the current
// one, and those whose runs are not over.
const keptVersions = 4

// scripts keeps the programs of versions loaded. It is safe for concurrent use.
type scripts struct {
	rt *sandbox.Runtime

	mu     sync.Mutex // protects loaded
	loaded map[keep.WorkflowName][]*script
}

func newScripts(rt *sandbox.Runtime) *scripts {
	return &scripts{rt: rt, loaded: make(map[keep.WorkflowName][]*script)}
}

// Script implements engine.Scripts. A script that is slow to load delays no
// other workflow: only the actor of its own workflow asks for it.
func (s *scripts) Script(ctx context.Context, d keep.Deployment) (engine.Script, error) {
	if sc := s.find(d); sc != nil {
		return sc, nil
	}
	p, err := s.rt.Load(ctx, &sandbox.Bundle{Entry: d.Entry, Code: d.Code, Map: d.Map})
	if err != nil {
		return nil, fmt.Errorf("workflow %s version %s: %w", d.Workflow, d.Version, err)
	}
	sc := &script{version: d.Version, program: p}
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.loaded[d.Workflow]
	if len(have) >= keptVersions {
		// The engine asks again for a version that it needs again.
		if err := have[0].program.Close(); err != nil {
			return nil, err
		}
		have = have[1:]
	}
	s.loaded[d.Workflow] = append(have[:len(have):len(have)], sc)
	return sc, nil
}

// find returns the version if it is loaded, and nil if not.
func (s *scripts) find(d keep.Deployment) *script {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sc := range s.loaded[d.Workflow] {
		if sc.version == d.Version {
			return sc
		}
	}
	return nil
}

// A script is a loaded version as the engine wants it.
type script struct {
	version keep.Version
	program *sandbox.Program
}

// Call implements engine.Script.
func (s *script) Call(ctx context.Context, c engine.ScriptCall) (json.RawMessage, error) {
	out, err := s.program.Call(ctx, sandbox.Call{
		Path: c.Path, Args: c.Args, Now: c.Now, Host: calls{c.Host},
		Log: func(level, text string, at sandbox.Position) { c.Log(level, text, at.String()) },
	})
	if err == nil {
		return out, nil
	}
	if _, ok := errors.AsType[*sandbox.HostError](err); ok {
		return nil, err // the engine's own error is inside
	}
	if e, ok := errors.AsType[*sandbox.LimitError](err); ok {
		return nil, limitFailure(e)
	}
	if e, ok := errors.AsType[*sandbox.ScriptError](err); ok {
		return nil, &keep.Failure{Class: keep.ClassLogic, Code: "script-error", Message: bare(e), At: e.At.String()}
	}
	return nil, err
}

// bare returns the message of a sandbox error without its place, which a failure
// carries on its own.
func bare(err error) string {
	switch e := err.(type) {
	case *sandbox.LimitError:
		b := *e
		b.At = sandbox.Position{}
		return b.Error()
	case *sandbox.ScriptError:
		b := *e
		b.At = sandbox.Position{}
		return b.Error()
	}
	return err.Error()
}

// calls passes the calls of a script on to the engine.
type calls struct{ host engine.ScriptHost }

// Call implements sandbox.Host.
func (h calls) Call(ctx context.Context, c sandbox.HostCall) (json.RawMessage, error) {
	out, err := h.host.HostCall(ctx, engine.HostCall{
		Name: c.Name, Args: c.Args, At: c.At.String(), Scope: c.Scope, Waiting: c.Waiting,
	})
	// A read that the end of the phase cut off has not failed: the phase has.
	f, ok := errors.AsType[*keep.Failure](err)
	limit, over := errors.AsType[*sandbox.LimitError](context.Cause(ctx))
	if ok && over && f.Class == keep.ClassTransient {
		return nil, limitFailure(limit)
	}
	return out, err
}

func limitFailure(e *sandbox.LimitError) *keep.Failure {
	return &keep.Failure{Class: keep.ClassLogic, Code: "limit-" + e.Limit, Message: bare(e), At: e.At.String()}
}
