package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/config"
	"github.com/keep-run/keep/sandbox"
	"github.com/keep-run/keep/workflow"
)

// A complaint is one thing wrong with a script or the configuration, as people
// and editors are told of it.
type complaint struct {
	Severity string `json:"severity"` // error, warning or note
	File     string `json:"file"`     // as the person would open it
	Line     int    `json:"line"`     // from 1; 0: no line
	Column   int    `json:"column"`   // from 1, in UTF-16 units; 0: no line
	Message  string `json:"message"`
	Fix      string `json:"fix"` // empty: the message says it

	source string // the line of code; empty: not shown
}

// String is the complaint on one line: file:line:column: message (fix).
func (c complaint) String() string {
	var b strings.Builder
	if c.File != "" {
		b.WriteString(c.File)
		if c.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", c.Line, c.Column)
		}
		b.WriteString(": ")
	}
	if c.Severity != string(workflow.Error) {
		b.WriteString(c.Severity + ": ")
	}
	b.WriteString(withFix(c.Message, c.Fix))
	return b.String()
}

// complaints takes an error apart that rejects a script or the configuration. It
// returns nothing for any other. Files of scripts are below root.
func (a *app) complaints(root string, err error) []complaint {
	if err == nil {
		return nil
	}
	if all := leaves(err); len(all) > 1 {
		var out []complaint
		for _, e := range all {
			out = append(out, a.complaints(root, e)...)
		}
		return out
	}
	if e, ok := errors.AsType[*config.Error](err); ok {
		return ofConfig(e.Problems, workflow.Error)
	}
	if e, ok := errors.AsType[*sandbox.BuildError](err); ok {
		return ofBuild(root, e)
	}
	if e, ok := errors.AsType[*workflow.DeclarationError](err); ok {
		var out []complaint
		for _, p := range e.Problems {
			out = append(out, at(root, p.Position, orPath(p.Path, p.Message), p.Fix))
		}
		return out
	}
	if e, ok := errors.AsType[*api.ScriptError](err); ok {
		var out []complaint
		for _, m := range e.Mistakes {
			out = append(out, at(root, workflow.Position{File: m.File, Line: m.Line, Column: m.Column}, m.Message, ""))
		}
		return out
	}
	if e, ok := errors.AsType[*sandbox.ScriptError](err); ok {
		return []complaint{at(root, workflow.Position(e.At), e.Name+": "+e.Message, "")}
	}
	if e, ok := errors.AsType[*sandbox.LimitError](err); ok {
		bare := *e
		bare.At = sandbox.Position{}
		return []complaint{at(root, workflow.Position(e.At), bare.Error(), "")}
	}
	return nil
}

// orPath puts a path before a message, if there is one.
func orPath(path, message string) string {
	if path == "" {
		return message
	}
	return path + ": " + message
}

// ofConfig returns the complaints of problems with keep.toml.
func ofConfig(ps []config.Problem, s workflow.Severity) []complaint {
	out := make([]complaint, 0, len(ps))
	for _, p := range ps {
		out = append(out, complaint{Severity: string(s), File: p.File, Line: p.Line, Column: p.Column,
			Message: orPath(p.Path, p.Message), Fix: p.Fix})
	}
	return out
}

// ofBuild returns the complaints of a script that could not be bundled.
func ofBuild(root string, e *sandbox.BuildError) []complaint {
	out := make([]complaint, 0, len(e.Problems))
	for _, p := range e.Problems {
		c := at(root, workflow.Position{File: p.File, Line: p.Line, Column: p.Column}, p.Text, "")
		if c.source == "" {
			c.source = p.Source
		}
		out = append(out, c)
	}
	return out
}

// at returns a complaint about a place in a script, with its line of code.
func at(root string, p workflow.Position, message, fix string) complaint {
	c := complaint{Severity: string(workflow.Error), File: p.File, Line: p.Line, Column: p.Column, Message: message, Fix: fix}
	if root == "" || p.File == "" {
		return c
	}
	file := filepath.Join(root, filepath.FromSlash(p.File))
	c.File = short(file)
	if data, err := os.ReadFile(file); err == nil && p.Line > 0 {
		if lines := strings.Split(string(data), "\n"); p.Line <= len(lines) {
			c.source = strings.TrimRight(lines[p.Line-1], "\r")
		}
	}
	return c
}

// short returns a path relative to the working directory if that is shorter.
func short(file string) string {
	wd, err := os.Getwd()
	if err != nil {
		return file
	}
	if rel, err := filepath.Rel(wd, file); err == nil && len(rel) < len(file) {
		return rel
	}
	return file
}

// complain tells of problems on stderr, each with its line of code.
func (a *app) complain(found []complaint) {
	for _, c := range found {
		fmt.Fprint(a.err, a.ink.complaint(c))
	}
}

// sortComplaints puts problems in the order of their places; files stay in the
// order in which they were read.
func sortComplaints(found []complaint) {
	order := make(map[string]int)
	for _, c := range found {
		if _, known := order[c.File]; !known {
			order[c.File] = len(order)
		}
	}
	slices.SortStableFunc(found, func(a, b complaint) int {
		return cmp.Or(order[a.File]-order[b.File], a.Line-b.Line, a.Column-b.Column)
	})
}

// hasErrors reports whether one of the problems is an error.
func hasErrors(found []complaint) bool {
	return slices.ContainsFunc(found, func(c complaint) bool { return c.Severity == string(workflow.Error) })
}

// complaint returns c with its line of code and a mark below the place.
func (i ink) complaint(c complaint) string {
	paint := i.red
	if c.Severity != string(workflow.Error) {
		paint = i.yellow
	}
	s := paint(cleanText(c.String())) + "\n"
	if strings.TrimSpace(c.source) == "" {
		return s
	}
	source, caret := excerpt(c.source, c.Column)
	number := fmt.Sprintf("%5d", c.Line)
	return s + i.dim(number+" | ") + source + "\n" + i.dim(strings.Repeat(" ", len(number))+" | ") +
		strings.Repeat(" ", caret) + paint("^") + "\n"
}

// maxExcerpt is how wide a line of code is shown.
const maxExcerpt = 100

// excerpt returns the part of a line around a column, safe to show, and how many
// columns of the terminal come before the place.
func excerpt(line string, column int) (text string, caret int) {
	units := utf16.Encode([]rune(line))
	from := min(max(column-1, 0), len(units))
	before, after := string(utf16.Decode(units[:from])), string(utf16.Decode(units[from:]))
	before = clean(strings.ReplaceAll(before, "\t", "    "))
	for columns(before) > maxExcerpt/2 {
		cut := []rune(before)
		before = "…" + string(cut[min(len(cut), columns(before)-maxExcerpt/2+2):])
	}
	after = cutTo(clean(strings.ReplaceAll(after, "\t", "    ")), maxExcerpt-columns(before))
	return before + after, columns(before)
}
