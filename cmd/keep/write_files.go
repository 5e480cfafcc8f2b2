package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// besides returns the files of a script: its tests and its grants. Keep test finds
// the tests by that name; nothing reads the grants, which are for keep.toml.
func besides(script string) (tests, grants string) {
	bare := strings.TrimSuffix(script, filepath.Ext(script))
	return bare + ".test.toml", bare + ".grants.toml"
}

// where returns the directory below which the files of a script are written, and the name of its
// file there: the project, or else the file's own directory.
func (w *author) where(script string) (root, name string, err error) {
	abs, err := filepath.Abs(script)
	if err != nil {
		return "", "", err
	}
	root, name = filepath.Dir(abs), filepath.Base(abs)
	if rel, err := filepath.Rel(w.cfg.Dir, abs); err == nil && filepath.IsLocal(rel) {
		root, name = w.cfg.Dir, filepath.ToSlash(rel)
	}
	if err := project.MayBeWritten(name); err != nil {
		return "", "", exit.Misusef("%w", err)
	}
	return root, name, nil
}

// remember notes how files are, once each: what somebody saves afterwards is not replaced.
func (w *author) remember(root string, names ...string) error {
	now, err := project.Hashes(root, names...)
	if err != nil {
		return err
	}
	maps.Copy(now, w.was)
	w.was = now
	return nil
}

// free refuses the file of a script if it, or one beside it, is there. A link that leads nowhere is
// there, too.
func (w *author) free(script string) error {
	if ext := filepath.Ext(script); ext != ".js" && ext != ".ts" {
		return exit.Misusef("%s: a script ends with .js or .ts", script)
	}
	root, name, err := w.where(script)
	if err != nil {
		return err
	}
	tests, grants := besides(name)
	if err = w.remember(root, name, tests, grants); err != nil {
		return err
	}
	tests, grants = besides(script)
	for _, file := range []string{script, tests, grants} {
		switch _, err := os.Lstat(file); {
		case err == nil && !w.force:
			return exit.Misusef("%s is there already, and nothing is overwritten: name another file with --out, or say --force", terminal.Short(file))
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
}

// grantTable returns what a script may call as a table of keep.toml.
func grantTable(w keep.WorkflowName, version string, tools []keep.ToolName) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# What version %s of %s calls. Put the table into keep.toml to hold the workflow to it,\n# whatever its script calls; docs/grants.md says how to add conditions.\n[grants.%q]\ntools = [", version, w, string(w))
	for i, t := range tools {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", string(t))
	}
	b.WriteString("]\n")
	return b.String()
}

// added refuses a file that the model added if it is there, and the file of a new script.
func (d *authoredDraft) added() error {
	if d.change == nil {
		return d.free(d.file)
	}
	root, _, err := d.where(d.file)
	for _, name := range slices.Sorted(maps.Keys(d.Files)) {
		if _, old := d.was[name]; old || err != nil {
			continue
		}
		if err = d.remember(root, name); err == nil && d.was[name] != "" && !d.force {
			err = exit.Misusef("%s is there already, and is no file of version %s: give it another name, or say --force", name, d.change.Version)
		}
	}
	return err
}

// files returns what is to be written, and the directory that it is below: the script last, since it
// is what counts, and those that it imports only if they change.
func (d *authoredDraft) files() (root string, out []project.File, err error) {
	root, script, err := d.where(d.file)
	tests, grants := besides(script)
	out = []project.File{{Name: tests, Text: d.Tests}, {Name: grants, Text: grantTable(d.Checked.Workflow.Name, *d.report.Version, d.Tools())}}
	for _, name := range slices.Sorted(maps.Keys(d.Files)) {
		if d.was[name] != project.Hash(d.Files[name]) {
			out = append(out, project.File{Name: name, Text: d.Files[name]})
		}
	}
	out = append(out, project.File{Name: script, Text: d.Source})
	for i := range out {
		out[i].Was = d.was[out[i].Name]
	}
	return root, out, err
}

// writeFile writes the text beside its name first, and gives it the name when it is on disk. So a
// process that dies leaves the old file or the new one, and at most one under a name of its own.
// A link refuses a name that is taken, which a rename would replace.
func writeFile(f project.File, over bool) (err error) {
	dir := filepath.Dir(f.Name)
	// In the same directory: a rename across file systems is not possible.
	temp, err := os.OpenFile(filepath.Join(dir, ".keep-write-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("write %s: %w", f.Name, err)
	}
	defer func() { err = errors.Join(err, gone(os.Remove(temp.Name()))) }()
	_, err = temp.WriteString(f.Text)
	if err := errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", f.Name, err)
	}
	if over {
		err = os.Rename(temp.Name(), f.Name)
	} else {
		err = os.Link(temp.Name(), f.Name)
	}
	if errors.Is(err, fs.ErrExist) {
		return &thereError{f.Name}
	}
	if err != nil && !over { // a file system without links
		if _, there := os.Lstat(f.Name); errors.Is(there, fs.ErrNotExist) {
			err = os.Rename(temp.Name(), f.Name)
		}
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", f.Name, err)
	}
	return nil
}

// A thereError says that a file is there which was not to be replaced.
type thereError struct{ file string }

// Error names the file.
func (e *thereError) Error() string {
	return fmt.Sprintf("%s is there by now, and is not overwritten without --force", terminal.Short(e.file))
}

// Unwrap returns the status.
func (e *thereError) Unwrap() error { return exit.With(exit.Misused) }

// gone is the error of a removal, nil if there was nothing to remove.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
