package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/draft"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/mcp"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/internal/regular"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/view"
)

// An editing is a change of a workflow: the version that it begins with, and what the draft makes
// of it.
type editing struct {
	draft.Base
	older      string // the earlier version whose text the file has; empty: none
	comparison api.Comparison
	diff       []string
}

// An edited is what keep edit --json prints besides.
type edited struct {
	BaseVersion string         `json:"base_version"`
	Diff        string         `json:"diff"`
	Comparison  api.Comparison `json:"comparison"`
	Broken      []mcp.Verdict  `json:"broken_tests"` // tests of before that would not pass
}

// edit changes a workflow. It begins with the version that is current and not with the file: the
// file may have changes that nobody deployed, and a draft would take them along unseen. So the
// file has to be as that version, or the draft goes to another one.
func (w *author) edit(ctx context.Context, in io.Reader, name keep.WorkflowName, change string) (err error) {
	if err := w.begin(in, change); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.agent.close()) }()
	e, entry, err := w.base(ctx, name)
	if err != nil {
		return err
	}
	file := w.out
	switch {
	case file == "":
		file, err = w.place(e, entry)
	case len(e.Files) > 0:
		err = exit.Misusef("workflow %s is made of several files, which are changed where they are: leave --out away", name)
	default:
		err = w.free(file)
	}
	if err != nil {
		return err
	}
	task := draft.Task{Intent: strings.TrimSpace(change), File: entry, Base: &e.Base}
	if len(e.Files) == 0 {
		task.File = filepath.Base(entry)
	}
	return w.author(ctx, task, func(keep.WorkflowName) string { return file }, e)
}

// base reads the version that is current, with its sources as they were deployed. The entry is the
// file of its script, relative to the project.
func (w *author) base(ctx context.Context, name keep.WorkflowName) (e *editing, entry string, err error) {
	b, err := w.agent.open(ctx, false)
	if err != nil {
		return nil, "", err
	}
	defer func() {
		if b.Close != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	// Without a database nothing was deployed, so there is no such workflow.
	if b.Base == nil {
		return nil, "", &keep.NotFoundError{What: "workflow", ID: string(name)}
	}
	wf, err := b.Base.Workflow(ctx, name)
	if err != nil {
		return nil, "", err
	}
	d, err := b.Base.Deployment(ctx, name, wf.Version)
	if err != nil {
		return nil, "", err
	}
	// The bundle has the sources in its map, so that nothing is needed from the disk.
	loaded, err := host.LoadBundle(ctx, b.Runtime, &sandbox.Bundle{Entry: d.Entry, Code: d.Code, Map: d.Map})
	if err != nil {
		return nil, "", fmt.Errorf("load version %s of %s: %w", d.Version, name, err)
	}
	source, ok := loaded.Sources[d.Entry]
	if !ok {
		return nil, "", exit.Misusef("the source of version %s of %s is not kept", d.Version, name)
	}
	e = &editing{Base: draft.Base{Workflow: name, Version: d.Version.String(), Intent: d.Definition.Intent, Source: source, Files: loaded.Sources}}
	delete(e.Files, d.Entry)
	return e, d.Entry, e.besideDisk(ctx, b, w.cfg.Dir, d)
}

// besideDisk compares the version with what is on the disk.
func (e *editing) besideDisk(ctx context.Context, b mcp.Bench, dir string, d keep.Deployment) error {
	now, err := host.Load(ctx, b.Runtime, dir, d.Entry)
	if err != nil {
		return nil // there is none, or it is no script
	}
	if now.Bundle.Hash() != d.Hash {
		all, err := b.Base.Deployments(ctx, e.Workflow)
		if i := slices.IndexFunc(all, func(o keep.Deployment) bool { return o.Hash == now.Bundle.Hash() && o.Entry == d.Entry }); i >= 0 {
			e.older = all[i].Version.String()
		}
		return err
	}
	// What only the compiler sees, such as types, is in no source map.
	// They are taken from the disk if what is there compiles to this very version.
	for file, text := range now.Bundle.Files {
		if file != d.Entry {
			e.Files[file] = string(text)
		}
	}
	return nil
}

// place returns the file of the workflow, and reads its tests. A file that is not as the version
// has it holds somebody's work. Of a script that is not on this disk, no other file need be.
func (w *author) place(e *editing, entry string) (string, error) {
	file := terminal.Short(filepath.Join(w.cfg.Dir, filepath.FromSlash(entry)))
	if _, _, err := w.where(file); err != nil {
		return "", err
	}
	tests, grants := besides(entry)
	texts := maps.Clone(e.Files)
	texts[entry] = e.Source
	names := slices.Sorted(maps.Keys(texts))
	if err := w.remember(w.cfg.Dir, append(names, tests, grants)...); err != nil {
		return "", err
	}
	if w.was[entry] == "" {
		if err := w.free(file); err != nil {
			return "", err
		}
	}
	for _, name := range names {
		// Somebody is at work on the file, or it was changed and not deployed.
		if missing := w.was[entry]+w.was[name] == ""; !missing && !w.force && w.was[name] != project.Hash(texts[name]) {
			return "", e.unlike(terminal.Short(filepath.Join(w.cfg.Dir, filepath.FromSlash(name))))
		}
	}
	// The model gets the tests of before, and the person sees which of them would not pass any more.
	old, err := regular.Read(filepath.Join(w.cfg.Dir, filepath.FromSlash(tests)), config.MaxFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	e.Tests = string(old)
	return file, nil
}

// unlike refuses a file that is not as the version has it. A deploy of an earlier version would take the later
// ones back.
func (e *editing) unlike(file string) error {
	first := "deploy it first"
	if e.older != "" {
		first = fmt.Sprintf("its script is still that of version %s; put the current text there, which keep workflows show %s --source prints", e.older, e.Workflow)
	}
	return exit.Misusef("%s is not as version %s of %s has it: %s, name another file with --out if the script is one file, or say --force", file, e.Version, e.Workflow, first)
}

// intent returns what the workflow is for after the change.
func (e *editing) intent(change string) string { return intentAfter(e.Intent, change) }

// intentAfter returns an intent with a change behind it. The first line says what the workflow is for, and the newest what is wanted
// now: if all is too long, the oldest lines between them are left out, then all but the first sentence of the first line, and then that.
// The change alone always fits, which begin checks.
func intentAfter(before, change string) string {
	first, later, _ := strings.Cut(strings.TrimSpace(before), "\n")
	join := func() string {
		return strings.Join(slices.DeleteFunc([]string{first, later, change}, func(s string) bool { return s == "" }), "\n")
	}
	for later != "" && len(join()) > keep.MaxIntent {
		_, later, _ = strings.Cut(later, "\n")
	}
	if len(join()) > keep.MaxIntent {
		sentence, more, cut := strings.Cut(first, ". ")
		if first = sentence; cut && more != "" {
			first += "."
		}
	}
	if len(join()) > keep.MaxIntent {
		first = ""
	}
	return join()
}

// compare goes through the recorded runs of the version before with the draft, and fills what the
// person and --json see of the change. Nothing is sent.
func (e *editing) compare(ctx context.Context, d *authoredDraft) error {
	s, err := d.script()
	if err != nil {
		return err
	}
	before, after := maps.Clone(e.Files), maps.Clone(d.Files)
	if after == nil {
		after = make(map[string]string)
	}
	before[s.File], after[s.File] = e.Source, d.Source
	e.diff = append(view.DiffText(view.Files{Entry: s.File, Texts: before}, view.Files{Entry: s.File, Texts: after}), e.diffOfTests(s.File, d.Tests)...)
	err = d.client().Call(ctx, d.cfg, d.opening(database.ToRead), func(c *api.Client) (err error) {
		e.comparison, err = c.Compare(ctx, e.Workflow, api.CompareRequest{Script: &s})
		return err
	})
	d.report.edited = &edited{BaseVersion: e.Version, Diff: strings.Join(e.diff, "\n"), Comparison: e.comparison, Broken: append([]mcp.Verdict{}, d.Broken...)}
	return err
}

// diffOfTests returns what changes in the tests of before, which are replaced, too.
func (e *editing) diffOfTests(script, after string) []string {
	tests, _ := besides(script)
	lines := view.DiffText(view.Files{Texts: map[string]string{tests: e.Tests}}, view.Files{Texts: map[string]string{tests: after}})
	if e.Tests == "" || len(lines) == 0 {
		return nil
	}
	return append([]string{"=== " + tests}, lines...)
}

// show shows what changes, in what the person has to weigh: the text, tests that no longer hold,
// and runs that would have done otherwise.
func (e *editing) show(d *authoredDraft) error {
	fmt.Fprintf(d.Out, "\nIt changes version %s:\n", e.Version)
	for _, line := range e.diff {
		ink := func(s string) string { return s }
		switch {
		case strings.HasPrefix(line, "+ "):
			ink = d.OutInk.Green
		case strings.HasPrefix(line, "- "):
			ink = d.OutInk.Red
		}
		fmt.Fprintln(d.Out, ink(terminal.Clean(line)))
	}
	for _, v := range d.Broken {
		fmt.Fprintf(d.Out, "%s the test %q of before does not pass any more: %s\n", d.OutInk.Yellow("changed:"), terminal.Clean(v.Name), terminal.Clean(strings.Join(v.Problems, "; ")))
	}
	fmt.Fprintln(d.Out, "\nWhat the recorded runs would have done otherwise:")
	return d.printComparison(d.Out, e.comparison)
}
