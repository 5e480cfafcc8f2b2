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
			"if not, deploy a version that does without it first, or pause it: keep pause %s", c.Version, c.Workflow, c.Tool, of, was, c.Workflow))
	}
	for _, u := range e.Unloaded {
		lines = append(lines, fmt.Sprintf("version %s of the workflow %s is in force and does not load (%v), so it is not known whether it calls what is gone (%s): "+
			"deploy a version that loads first, or pause it: keep pause %s", u.Version, u.Workflow, u.Err, firstOf(e.Gone), u.Workflow))
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
	has := namesOf(after)
	e := &TakenError{Gone: slices.DeleteFunc(namesOf(before), func(t keep.ToolName) bool { return slices.Contains(has, t) })}
	if len(e.Gone) == 0 {
		return nil
	}
	return lacking(ctx, db, rt, of, after, e)
}

// Lacking returns a *TakenError if a version in force of one of the workflows (nil: of any) calls a tool that conns have under
// no name.
func Lacking(ctx context.Context, db store.Reader, rt *sandbox.Runtime, of []keep.WorkflowName, conns []connector.Connection) error {
	return lacking(ctx, db, rt, of, conns, new(TakenError))
}

// lacking adds to e what versions in force lack, and returns it if there is anything. Of e.Gone, if there are any, it looks for
// these tools alone, and adds versions that do not load. A workflow that is paused calls nothing, and is passed over.
func lacking(ctx context.Context, db store.Reader, rt *sandbox.Runtime, of []keep.WorkflowName, conns []connector.Connection, e *TakenError) error {
	all, err := db.Workflows(ctx)
	if err != nil {
		return err
	}
	names := namesOf(conns)
	for _, wf := range all {
		if wf.Paused || wf.Version.IsZero() || of != nil && !slices.Contains(of, wf.Name) {
			continue
		}
		d, err := db.Deployment(ctx, wf.Name, wf.Version)
		if err != nil {
			return err
		}
		if !host.HasScript(d) {
			continue
		}
		tools, err := lackedBy(ctx, rt, d, conns)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && len(e.Gone) > 0:
			e.Unloaded = append(e.Unloaded, UnloadedVersion{wf.Name, wf.Version, err})
		}
		for _, t := range tools {
			if conn, _, _ := strings.Cut(string(t), "."); len(e.Gone) == 0 || slices.Contains(e.Gone, t) {
				has := func(n keep.ToolName) bool { return strings.HasPrefix(string(n), conn+".") }
				e.Calls = append(e.Calls, TakenCall{wf.Name, wf.Version, t, !slices.ContainsFunc(names, has)})
			}
		}
	}
	if len(e.Calls) == 0 && len(e.Unloaded) == 0 {
		return nil
	}
	return e
}

// lackedBy returns the tools that a version calls and none of conns has.
func lackedBy(ctx context.Context, rt *sandbox.Runtime, d keep.Deployment, conns []connector.Connection) ([]keep.ToolName, error) {
	w, err := host.LoadBundle(ctx, rt, &sandbox.Bundle{Entry: d.Entry, Code: d.Code, Map: d.Map})
	if err != nil {
		return nil, err
	}
	effects, err := workflow.Effects(w.Declaration, w.Sources, conns)
	return effects.Missing, err
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
