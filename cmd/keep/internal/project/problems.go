package project

import (
	"cmp"
	"errors"
	"path/filepath"
	"strings"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/internal/regular"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/script/workflow"
)

// Problems takes an error apart that rejects a script or the configuration. It
// returns nothing for any other. Files of scripts are below root.
//
// If root is empty, the script came from elsewhere, and no file is read for its lines of code.
func Problems(root string, err error) []terminal.Problem {
	if err == nil {
		return nil
	}
	if all := exit.Flatten(err); len(all) > 1 {
		var out []terminal.Problem
		for _, e := range all {
			out = append(out, Problems(root, e)...)
		}
		return out
	}
	if e, ok := errors.AsType[rejection](err); ok {
		return e.problems()
	}
	if e, ok := errors.AsType[*config.Error](err); ok {
		return ConfigProblems(e.Problems, workflow.Error)
	}
	if e, ok := errors.AsType[*sandbox.BuildError](err); ok {
		return ofBuild(root, e)
	}
	if e, ok := errors.AsType[*workflow.DeclarationError](err); ok {
		var out []terminal.Problem
		for _, p := range e.Problems {
			out = append(out, at(root, p.Position, orPath(p.Path, p.Message), p.Fix))
		}
		return withCode("declaration", out)
	}
	if e, ok := errors.AsType[*api.ScriptError](err); ok {
		var out []terminal.Problem
		for _, m := range e.Mistakes {
			out = append(out, at(root, workflow.Position{File: m.File, Line: m.Line, Column: m.Column}, m.Message, ""))
		}
		return withCode("script", out)
	}
	if e, ok := errors.AsType[*sandbox.ScriptError](err); ok {
		return withCode("script-error", []terminal.Problem{at(root, workflow.Position(e.At), e.Name+": "+e.Message, "")})
	}
	if e, ok := errors.AsType[*sandbox.LimitError](err); ok {
		// The place is said by the problem; the message of the error would say it once more.
		bare := *e
		bare.At = sandbox.Position{}
		return withCode("limit-"+e.Limit, []terminal.Problem{at(root, workflow.Position(e.At), bare.Error(), "")})
	}
	return nil
}

// A rejection is an error of this package that rejects scripts or the configuration.
type rejection interface {
	error
	problems() []terminal.Problem
}

// A FoundError rejects scripts for problems that were found in them, which Problems returns.
type FoundError struct{ Found []terminal.Problem }

// Error is all of them.
func (e *FoundError) Error() string {
	lines := make([]string, 0, len(e.Found))
	for _, p := range e.Found {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "; ")
}

func (e *FoundError) problems() []terminal.Problem { return e.Found }

// Unwrap returns the status.
func (e *FoundError) Unwrap() error { return exit.With(exit.Misused) }

// withCode gives problems their code.
func withCode(code string, all []terminal.Problem) []terminal.Problem {
	for i := range all {
		all[i].Code = code
	}
	return all
}

// orPath puts a path before a message, if there is one.
func orPath(path, message string) string {
	if path == "" {
		return message
	}
	return path + ": " + message
}

// ConfigProblems returns the complaints of problems with keep.toml.
func ConfigProblems(ps []config.Problem, s workflow.Severity) []terminal.Problem {
	out := make([]terminal.Problem, 0, len(ps))
	for _, p := range ps {
		out = append(out, terminal.Problem{Severity: string(s), Code: "configuration", File: p.File, Line: p.Line, Column: p.Column,
			Message: orPath(p.Path, p.Message), Fix: p.Fix})
	}
	return out
}

// ofBuild returns the complaints of a script that could not be bundled.
func ofBuild(root string, e *sandbox.BuildError) []terminal.Problem {
	out := make([]terminal.Problem, 0, len(e.Problems))
	for _, p := range e.Problems {
		c := at(root, workflow.Position{File: p.File, Line: p.Line, Column: p.Column}, p.Text, "")
		c.Code = "syntax"
		c.Source = cmp.Or(c.Source, p.Source)
		out = append(out, c)
	}
	return out
}

// at returns a complaint about a place in a script, with its line of code.
func at(root string, p workflow.Position, message, fix string) terminal.Problem {
	c := terminal.Problem{Severity: string(workflow.Error), File: p.File, Line: p.Line, Column: p.Column, Message: message, Fix: fix}
	if root == "" || p.File == "" {
		return c
	}
	file := filepath.Join(root, filepath.FromSlash(p.File))
	c.File = terminal.Short(file)
	if data, err := regular.Read(file, config.MaxFile); err == nil && p.Line > 0 {
		if lines := strings.Split(string(data), "\n"); p.Line <= len(lines) {
			c.Source = strings.TrimRight(lines[p.Line-1], "\r")
		}
	}
	return c
}

// Findings returns what Effects noticed as complaints.
func Findings(root string, r workflow.Report) []terminal.Problem {
	var out []terminal.Problem
	for _, f := range r.Findings {
		c := at(root, f.Position, f.Text(), f.Fix)
		c.Severity, c.Code = string(f.Severity), string(f.Code)
		out = append(out, c)
	}
	return out
}
