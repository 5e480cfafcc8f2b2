package host

import (
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/script/workflow"
)

// maxLoaded is how many scripts stay loaded: those that ran last. A loaded script
// costs some 100 KiB and up, used or not; to load one again takes half a
// millisecond.
const maxLoaded = 512

// scripts keeps programs loaded. It is safe for concurrent use.
type scripts struct {
	loader func(ctx context.Context, b *sandbox.Bundle) (*sandbox.Program, error)

	mu     sync.Mutex // protects all below, and the program and place of each script
	loaded map[versionOf]*script
	recent list.List         // of those in loaded, the last used first
	native map[string]native // versions written in Go, by their hash

	claims map[keep.WorkflowName]keep.WorkflowName // see claim
}

// A versionOf names one version of one workflow.
type versionOf struct {
	workflow keep.WorkflowName
	version  keep.Version
}

func newScripts(load func(context.Context, *sandbox.Bundle) (*sandbox.Program, error)) *scripts {
	return &scripts{loader: load, loaded: make(map[versionOf]*script), native: make(map[string]native), claims: make(map[keep.WorkflowName]keep.WorkflowName)}
}

// Script implements engine.Scripts. A script that is slow to load delays no
// other workflow: only the actor of its own workflow asks for it.
func (s *scripts) Script(ctx context.Context, d keep.Deployment) (engine.Script, error) {
	if d.Definition.Go {
		return s.nativeOf(d)
	}
	of := versionOf{d.Workflow, d.Version}
	if sc := s.find(of); sc != nil {
		return sc, nil
	}
	sc := &script{owner: s, of: of, bundle: bundleOf(d)}
	if _, err := sc.load(ctx); err != nil {
		return nil, fmt.Errorf("workflow %s version %s: %w", d.Workflow, d.Version, err)
	}
	return sc, nil
}

// LoadScript returns the script of a version, or another one in its place, for who calls its
// handlers without a host. If other is nil, it is the version's own.
func LoadScript(ctx context.Context, rt *sandbox.Runtime, d keep.Deployment, other *sandbox.Bundle) (engine.Script, error) {
	if d.Definition.Go {
		return nil, fmt.Errorf("version %s of workflow %s is written in Go, and only the program that has its handlers can go through its runs: %w", d.Version, d.Workflow, engine.ErrNotHere)
	}
	sc := &script{owner: newScripts(rt.Load), of: versionOf{d.Workflow, d.Version}, bundle: bundleOf(d)}
	if other != nil {
		sc.bundle.Entry, sc.bundle.Code, sc.bundle.Map = other.Entry, other.Code, other.Map
	}
	if _, err := sc.load(ctx); err != nil {
		return nil, fmt.Errorf("workflow %s version %s: %w", d.Workflow, d.Version, err)
	}
	return sc, nil
}

// bundleOf returns the script of a version. Its top level leaves the same state whenever and
// wherever it is loaded.
func bundleOf(d keep.Deployment) *sandbox.Bundle {
	return &sandbox.Bundle{Entry: d.Entry, Code: d.Code, Map: d.Map,
		At: d.CreatedAt, Seed: append(d.CreatedAt.AppendFormat(nil, time.RFC3339Nano), d.Hash...)}
}

// find returns the script of a version if it is loaded, and nil if not.
func (s *scripts) find(of versionOf) *script {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded[of]
}

// A script is one version as the engine wants it. Its program is there while it
// is among those that were used last.
type script struct {
	owner   *scripts
	of      versionOf
	bundle  *sandbox.Bundle
	program *sandbox.Program // nil: not loaded
	place   *list.Element    // in owner.recent
}

// load returns the program of the script, loaded again if it was dropped.
func (s *script) load(ctx context.Context) (*sandbox.Program, error) {
	if p := s.use(nil); p != nil {
		return p, nil
	}
	p, err := s.owner.loader(ctx, s.bundle)
	if err != nil {
		return nil, err
	}
	return s.use(p), nil
}

// use makes the script the last used and returns its program, which is loaded if
// it has none; nil if there is neither.
func (s *script) use(loaded *sandbox.Program) *sandbox.Program {
	o := s.owner
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case s.program != nil:
		o.recent.MoveToFront(s.place)
	case loaded != nil:
		if same := o.loaded[s.of]; same != nil {
			o.drop(same)
		}
		s.program, s.place, o.loaded[s.of] = loaded, o.recent.PushFront(s), s
		if o.recent.Len() > maxLoaded {
			o.drop(o.recent.Back().Value.(*script))
		}
	}
	return s.program
}

// drop forgets the program of a script; a call that runs has it still. The caller
// holds mu.
func (s *scripts) drop(sc *script) {
	s.recent.Remove(sc.place)
	delete(s.loaded, sc.of)
	sc.program, sc.place = nil, nil
}

// Call implements engine.Script.
func (s *script) Call(ctx context.Context, c engine.ScriptCall) (json.RawMessage, error) {
	program, err := s.load(ctx)
	var out json.RawMessage
	if err == nil {
		out, err = program.Call(ctx, sandbox.Call{
			Path: c.Path, Args: c.Args, Now: c.Now, Seed: c.Seed, Pure: c.Pure, Host: calls{c.Host},
			Log: func(level, text string, at sandbox.Position) { c.Log(level, text, at.String()) },
		})
	}
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

// Locate implements engine.Script.
func (s *script) Locate(ctx context.Context, path []string) string {
	program, err := s.load(ctx)
	if err != nil {
		return ""
	}
	return workflow.Locate(program.Declaration(), sources(s.bundle.Map), path).String()
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
		Name: c.Name, Args: c.Args, At: c.At.String(), Scope: c.Scope, Waiting: c.Waiting, Pause: c.Pause,
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
