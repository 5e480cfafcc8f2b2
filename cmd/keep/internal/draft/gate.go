package draft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/mcp"
	"github.com/keep-run/keep/internal/framed"
	"github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/llm"
)

// propose tries what the model hands over, and ends the conversation if it is taken.
//
// What is refused is also remembered in tried: the next conversation begins with it.
func (d *work) propose(ctx context.Context, draft Draft) (_ llm.Result, done bool, err error) {
	draft.Tests = cmp.Or(draft.Tests, d.out.Last.Tests)
	draft.Note = strings.ToValidUTF8(draft.Note[:min(len(draft.Note), keep.MaxNote)], "")
	t := trial{Draft: draft}
	if err := d.try(ctx, &t); err != nil {
		return llm.Result{}, false, err
	}
	if t.said == "" {
		d.out.Draft = &t.Draft
		return llm.Result{}, true, nil
	}
	d.tried = append(d.tried, t.said)
	return wrong("It is not taken: "+t.said, t.found)
}

// A trial is a draft that is tried.
type trial struct {
	Draft
	said  string // why it is not taken, a sentence of the host; empty: it is
	found any    // details; nil: none
}

// refuse says why the draft is not taken: a sentence, and in found the details, which the model gets framed
// as data.
func (t *trial) refuse(found any, format string, args ...any) {
	t.said, t.found = fmt.Sprintf(format, args...), found
}

// try fills the trial in. Nothing is sent; the plan reads live.
func (d *work) try(ctx context.Context, t *trial) error {
	switch {
	case t.Source == "":
		t.refuse(nil, "propose needs source, the text of the whole script.")
		return nil
	case t.Tests == "":
		t.refuse(nil, "propose needs tests, the text of a NAME.test.toml.")
		return nil
	case len(t.Files) > 0 && !d.isLarge():
		t.refuse(nil, "the script is one file: propose takes no files.")
		return nil
	case len(t.Source)+sizeOf(t.Files) > MaxText || len(t.Tests) > MaxText:
		t.refuse(nil, "a script and its tests have at most %d bytes.", MaxText)
		return nil
	}
	if err := d.checked(ctx, t); err != nil || t.said != "" {
		return err
	}
	return d.planned(ctx, t)
}

// checked tries what needs no service.
//
// The cheap tests come first: names, the check, addresses that nobody gave, and only then the tests of the
// script. Each refusal ends the trial, so that the model fixes one thing at a time.
func (d *work) checked(ctx context.Context, t *trial) error {
	return d.with(ctx, false, func(b mcp.Bench) (err error) {
		given := t.Files
		t.Files = d.all(given)
		if why := d.odd(given); why != "" {
			t.refuse(nil, "%s", why)
			return nil
		}
		if t.Checked, err = b.Check(ctx, d.File, t.Source, t.Files); err != nil {
			return err
		}
		if !t.Checked.OK() {
			t.refuse(t.Checked.Problems, "check finds problems.")
			return nil
		}
		if err := d.named(ctx, b, t); err != nil || t.said != "" {
			return err
		}
		if t.imported(given); t.said != "" {
			return nil
		}
		if brought := repair.Brings(d.given(), t.text()); len(brought) > 0 {
			t.refuse(brought, "it has addresses, pages or numbers that the person did not give. Ask for them, or take them from the data.")
			return nil
		}
		verdicts, err := b.Test(ctx, t.Checked, t.Tests)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			t.refuse(err.Error(), "its tests cannot be read.")
			return nil
		}
		if failed := failures(verdicts); len(failed) > 0 {
			t.refuse(failed, "some of its tests fail.")
			return nil
		}
		if d.Base != nil && d.Base.Tests != "" {
			before, err := b.Test(ctx, t.Checked, d.Base.Tests)
			if err != nil {
				return fmt.Errorf("tests of version %s: %w", d.Base.Version, err)
			}
			t.Broken = failures(before)
		}
		return nil
	})
}

// named refuses another name than the one that it must have. A draft that says what it was has the name by which the database
// continues it, as when it is deployed.
func (d *work) named(ctx context.Context, b mcp.Bench, t *trial) error {
	doubt, err := b.Continue(ctx, t.Checked)
	if doubt != "" {
		t.refuse(doubt, "it is not certain which workflow it was.")
	}
	if doubt != "" || err != nil {
		return err
	}
	name := t.Checked.Workflow.Name
	switch {
	case d.Base != nil && name != d.Base.Workflow:
		t.refuse(nil, "it declares another workflow: the name must stay %q.", d.Base.Workflow)
		return nil
	case d.Base != nil:
		return nil
	}
	why, err := d.Refuse(ctx, name)
	if why != "" {
		t.refuse(nil, "%s", why)
	}
	return err
}

// given returns all that the person said, and what there was before.
func (d *work) given() string {
	var b strings.Builder
	b.WriteString(d.Intent + "\n")
	for _, q := range d.out.Questions {
		b.WriteString(q.Answer + "\n")
	}
	if d.Base != nil {
		b.WriteString(d.Base.Intent + "\n" + d.Base.Source)
		for _, text := range d.Base.Files {
			b.WriteString("\n" + text)
		}
	}
	return b.String()
}

// odd says which name of a file cannot be one of the script; empty: none. One that was not there
// before is a script.
func (d *work) odd(given map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		_, there := d.Base.Files[name]
		ext := path.Ext(name)
		switch {
		case name == d.File:
			return fmt.Sprintf("%s is the script itself: its text is source.", framed.Visible(name))
		case there:
		case !fs.ValidPath(name) || strings.HasPrefix(name, ".") || strings.Contains(name, "/.") || strings.ContainsAny(name, "\\:\x00") || ext != ".js" && ext != ".ts":
			return fmt.Sprintf("%q is no name that a file of the script can have.", framed.Visible(name[:min(len(name), 100)]))
		}
	}
	return ""
}

// imported leaves the files that the script is made of, and refuses one that the model gave for
// nothing.
func (t *trial) imported(given map[string]string) {
	parts := t.Checked.Workflow.Bundle.Files
	maps.DeleteFunc(t.Files, func(name, _ string) bool { _, part := parts[name]; return !part })
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, part := parts[name]; !part {
			t.refuse(name, "the script does not import one of the files.")
			return
		}
	}
}

// text returns all that the script is made of.
func (t *trial) text() string {
	var b strings.Builder
	b.WriteString(t.Source)
	for _, name := range slices.Sorted(maps.Keys(t.Files)) {
		b.WriteString("\n" + t.Files[name])
	}
	return b.String()
}

// planned makes the plan. Without one the draft is taken, and says why.
func (d *work) planned(ctx context.Context, t *trial) error {
	err := d.with(ctx, true, func(b mcp.Bench) (err error) {
		t.Plan, err = b.Plan(ctx, t.Checked)
		return err
	})
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		t.Plan, t.NoPlan = nil, err.Error()
		return nil
	}
	// A service that cannot be read now is nothing that a script can mend: once is enough.
	if len(t.Plan.Errors) > 0 && !d.failed {
		d.failed = true
		t.refuse(t.Plan.Errors, "handlers fail in the plan. If that is not for the script to mend, propose it again.")
	}
	return nil
}

// with opens a bench for f.
func (d *work) with(ctx context.Context, live bool, f func(mcp.Bench) error) error {
	b, err := d.Open(ctx, live)
	if err != nil {
		return err
	}
	err = f(b)
	if b.Close != nil {
		err = errors.Join(err, b.Close())
	}
	return err
}

// failures returns the tests that did not pass.
func failures(all []mcp.Verdict) (out []mcp.Verdict) {
	for _, v := range all {
		if !v.Passed {
			out = append(out, v)
		}
	}
	return out
}

// Tools returns the tools that the script of a draft calls, as far as that can be read.
func (t Draft) Tools() (out []keep.ToolName) {
	for _, tool := range t.Checked.Effects.Tools {
		out = append(out, tool.Tool)
	}
	return out
}
