package project

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/script/workflow"
	"github.com/keep-run/keep/store"
)

// A TakenError is returned when a configuration takes away tools that versions in force call, or may call.
type TakenError struct {
	Calls    []TakenCall
	Unloaded []UnloadedVersion
	Gone     []keep.ToolName // all tools that are gone
}

// An UnloadedVersion is a version in force that does not load: nobody knows what it calls.
type UnloadedVersion struct {
	Workflow keep.WorkflowName
	Version  keep.Version
	Err      error
}

// A TakenCall is one tool that is gone, and who calls it.
type TakenCall struct {
	Workflow keep.WorkflowName
	Version  keep.Version
	Tool     keep.ToolName
	Conn     bool // its connection is gone
}

// Error says which, and what to do.
func (e *TakenError) Error() string {
	var lines []string
	for _, c := range e.Calls {
		conn, tool, _ := strings.Cut(string(c.Tool), ".")
		was, of := tool, "that tool"
		if c.Conn {
			was, of = conn, "its connection"
		}
		lines = append(lines, fmt.Sprintf("version %s of the workflow %s is in force and calls %s, which is gone: if %s has another name now, write was = %q there; "+
			"if not, deploy a version that does without it first", c.Version, c.Workflow, c.Tool, of, was))
	}
	for _, u := range e.Unloaded {
		lines = append(lines, fmt.Sprintf("version %s of the workflow %s is in force and does not load (%v), so it is not known whether it calls what is gone (%s): "+
			"deploy a version that loads first", u.Version, u.Workflow, u.Err, firstOf(e.Gone)))
	}
	return strings.Join(lines, "\n")
}

// firstOf returns the first of some tools.
func firstOf(tools []keep.ToolName) string {
	const shown = 5
	var names []string
	for i, t := range tools {
		if i == shown {
			names = append(names, fmt.Sprintf("and %d more", len(tools)-shown))
			break
		}
		names = append(names, string(t))
	}
	return strings.Join(names, ", ")
}

// TakenAway returns a *TakenError if a version in force of one of the workflows (nil: of any) calls a tool of the connections of
// before that those of after have under no name, or does not load.
func TakenAway(ctx context.Context, db store.Reader, rt *sandbox.Runtime, of []keep.WorkflowName, before, after []connector.Connection) error {
	names := namesOf(after)
	gone := func(t keep.ToolName) bool { return !slices.Contains(names, t) }
	e := &TakenError{Gone: slices.DeleteFunc(namesOf(before), func(t keep.ToolName) bool { return !gone(t) })}
	if len(e.Gone) == 0 {
		return nil
	}
	current, err := db.Current(ctx)
	if err != nil {
		return err
	}
	for _, d := range current {
		if host.InGo(d.Entry) || of != nil && !slices.Contains(of, d.Workflow) {
			continue
		}
		if d, err = db.Deployment(ctx, d.Workflow, d.Version); err != nil {
			return err
		}
		calls, err := callsOf(ctx, rt, d, before)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			e.Unloaded = append(e.Unloaded, UnloadedVersion{d.Workflow, d.Version, err})
		}
		for _, t := range calls {
			if !gone(t) {
				continue
			}
			conn, _, _ := strings.Cut(string(t), ".")
			has := func(n keep.ToolName) bool { return strings.HasPrefix(string(n), conn+".") }
			e.Calls = append(e.Calls, TakenCall{d.Workflow, d.Version, t, !slices.ContainsFunc(names, has)})
		}
	}
	if len(e.Calls) == 0 && len(e.Unloaded) == 0 {
		return nil
	}
	return e
}

// callsOf returns the tools that a version may call.
func callsOf(ctx context.Context, rt *sandbox.Runtime, d keep.Deployment, conns []connector.Connection) ([]keep.ToolName, error) {
	w, err := host.LoadBundle(ctx, rt, &sandbox.Bundle{Entry: d.Entry, Code: d.Code, Map: d.Map})
	if err != nil {
		return nil, err
	}
	effects, err := workflow.Effects(w.Declaration, w.Sources, conns)
	return called(effects), err
}

// called returns the tools that a script may call, by every name by which it does.
func called(r workflow.Report) []keep.ToolName {
	out := slices.Clone(r.Former)
	for _, t := range r.Tools {
		out = append(out, t.Tool)
	}
	return out
}

// namesOf returns the names of tools, those of before too.
func namesOf(conns []connector.Connection) (out []keep.ToolName) {
	for _, c := range conns {
		for _, t := range c.Tools {
			out = append(append(out, keep.ToolName(c.Name+"."+t.Spec().Name)), connector.FormerNames(c, t.Spec())...)
		}
	}
	return out
}
