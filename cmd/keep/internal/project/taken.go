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

// A TakenError is returned when a configuration takes away tools that versions in force call.
type TakenError struct{ Calls []TakenCall }

// A TakenCall is one tool that is gone, and who calls it.
type TakenCall struct {
	Workflow keep.WorkflowName
	Version  keep.Version
	Tool     keep.ToolName
	Conn     bool // its connection is gone
}

// Error says which, and what to do.
func (e *TakenError) Error() string {
	lines := make([]string, len(e.Calls))
	for i, c := range e.Calls {
		conn, tool, _ := strings.Cut(string(c.Tool), ".")
		was, of := tool, "that tool"
		if c.Conn {
			was, of = conn, "its connection"
		}
		lines[i] = fmt.Sprintf("version %s of the workflow %s is in force and calls %s, which is gone: if %s has another name now, write was = %q there; "+
			"if not, deploy a version that does without it first, or pause it: keep pause %s", c.Version, c.Workflow, c.Tool, of, was, c.Workflow)
	}
	return strings.Join(lines, "\n")
}

// TakenAway returns a *TakenError if a version in force of one of the workflows (nil: of any) calls a tool of the connections of
// before that those of after have under no name.
func TakenAway(ctx context.Context, db store.Reader, rt *sandbox.Runtime, of []keep.WorkflowName, before, after []connector.Connection) error {
	had, has := namesOf(before), namesOf(after)
	gone := func(t keep.ToolName) bool { return slices.Contains(had, t) && !slices.Contains(has, t) }
	if !slices.ContainsFunc(had, gone) {
		return nil
	}
	return lacking(ctx, db, rt, of, after, gone)
}

// Lacking returns a *TakenError if a version in force of one of the workflows (nil: of any) calls a tool that conns have under
// no name.
func Lacking(ctx context.Context, db store.Reader, rt *sandbox.Runtime, of []keep.WorkflowName, conns []connector.Connection) error {
	return lacking(ctx, db, rt, of, conns, func(keep.ToolName) bool { return true })
}

// lacking is Lacking for the tools of which counts is true. A workflow that is paused calls nothing, and is passed over.
func lacking(ctx context.Context, db store.Reader, rt *sandbox.Runtime, of []keep.WorkflowName, conns []connector.Connection, counts func(keep.ToolName) bool) error {
	all, err := db.Workflows(ctx)
	if err != nil {
		return err
	}
	names := namesOf(conns)
	e := new(TakenError)
	for _, wf := range all {
		if wf.Paused || wf.Version.IsZero() || of != nil && !slices.Contains(of, wf.Name) {
			continue
		}
		tools, err := lackedBy(ctx, db, rt, wf, conns)
		if err != nil {
			return err
		}
		for _, t := range tools {
			if conn, _, _ := strings.Cut(string(t), "."); counts(t) {
				has := func(n keep.ToolName) bool { return strings.HasPrefix(string(n), conn+".") }
				e.Calls = append(e.Calls, TakenCall{wf.Name, wf.Version, t, !slices.ContainsFunc(names, has)})
			}
		}
	}
	if len(e.Calls) == 0 {
		return nil
	}
	return e
}

// lackedBy returns the tools that the version in force of a workflow calls and none of conns has.
func lackedBy(ctx context.Context, db store.Reader, rt *sandbox.Runtime, wf keep.Workflow, conns []connector.Connection) ([]keep.ToolName, error) {
	d, err := db.Deployment(ctx, wf.Name, wf.Version)
	if err != nil || !host.HasScript(d) {
		return nil, err
	}
	w, err := host.LoadBundle(ctx, rt, &sandbox.Bundle{Entry: d.Entry, Code: d.Code, Map: d.Map})
	if err != nil {
		return nil, fmt.Errorf("load version %s of %s: %w", d.Version, d.Workflow, err)
	}
	effects, err := workflow.Effects(w.Declaration, w.Sources, conns)
	if err != nil {
		return nil, fmt.Errorf("effects of version %s of %s: %w", d.Version, d.Workflow, err)
	}
	return effects.Missing, nil
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
