package main

import (
	"context"
	"fmt"
	"path"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/sandbox"
	"github.com/keep-run/keep/workflow"
)

// A scriptDeployer takes scripts that come over HTTP, with the checks of keep
// deploy against the connections that it has.
type scriptDeployer struct {
	a       *app
	host    *host.Host
	runtime *sandbox.Runtime
	conns   []connector.Connection
}

// Deploy checks the script and makes it current.
func (d *scriptDeployer) Deploy(ctx context.Context, name keep.WorkflowName, s api.Script, over *keep.Version) (keep.Version, error) {
	w, err := d.load(ctx, s)
	if err != nil {
		return keep.Version{}, d.asScriptError(err)
	}
	if w.Name != name {
		return keep.Version{}, &api.ScriptError{Mistakes: []api.Mistake{{File: s.File, Line: 1, Column: 1,
			Message: fmt.Sprintf("it declares the workflow %q, not %q", w.Name, name)}}}
	}
	effects, err := workflow.Effects(w.Declaration, w.Sources, d.conns)
	if err != nil {
		return keep.Version{}, err
	}
	var mistakes []api.Mistake
	for _, f := range effects.Findings {
		if f.Severity == workflow.Error {
			mistakes = append(mistakes, api.Mistake{File: f.Position.File, Line: f.Position.Line, Column: f.Position.Column,
				Message: fmt.Sprintf("%s, %s: %s", f.Handler, f.Place, withFix(f.Message, f.Fix))})
		}
	}
	if len(mistakes) > 0 {
		return keep.Version{}, &api.ScriptError{Mistakes: mistakes}
	}
	if over != nil {
		return d.host.Replace(ctx, w, *over)
	}
	return d.host.Deploy(ctx, w)
}

func (d *scriptDeployer) load(ctx context.Context, s api.Script) (*host.Workflow, error) {
	files := map[string][]byte{}
	for name, text := range s.Imports {
		files[name] = []byte(text)
	}
	files[path.Clean(s.File)] = []byte(s.Source)
	b, err := sandbox.BuildFiles(s.File, files)
	if err != nil {
		return nil, err
	}
	return host.LoadBundle(ctx, d.runtime, b)
}

// asScriptError returns what is wrong with a script as the API says it.
func (d *scriptDeployer) asScriptError(err error) error {
	found := d.a.complaints("", err)
	if len(found) == 0 {
		return err
	}
	e := &api.ScriptError{}
	for _, c := range found {
		e.Mistakes = append(e.Mistakes, api.Mistake{File: c.File, Line: c.Line, Column: c.Column, Message: withFix(c.Message, c.Fix)})
	}
	return e
}

// withFix adds to a message what mends it.
func withFix(message, fix string) string {
	if fix == "" {
		return message
	}
	return message + " (" + fix + ")"
}
