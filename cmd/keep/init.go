package main

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/shell"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/internal/regular"
)

//go:embed sample
var sample embed.FS

// sampleFiles are the files of a new project, in the order of writing. Those
// with a source come from the sample; a name with a dot could not be embedded.
var sampleFiles = []struct{ name, source string }{
	{"keep.toml", "keep.toml"},
	{"journal.js", "journal.js"},
	{"journal.test.toml", "journal.test.toml"},
	{"inbox/hello.txt", "inbox/hello.txt"},
	{".gitignore", "gitignore"},
	{"README.md", "README.md"},
	{"keep.d.ts", ""}, // made of keep.toml
}

// initCmd makes a project that works at once: its sample reads files of its own directory, so that
// it needs no network and no account.
func (a *app) initCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "init [DIR]",
		Short: "Make a project: keep.toml, a sample workflow and its tests, types, a README",
		Long: `Init writes a project that works at once and without a network. It never
overwrites a file: what is there already stays as it is. A directory whose keep.toml is
of another project is refused.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.initProject(cmp.Or(append(args, ".")...)) },
	}
}

// An initReport is what keep init --json prints.
type initReport struct {
	Dir     string   `json:"dir"`
	Written []string `json:"written"`
	Kept    []string `json:"kept"` // were there already
}

// initProject writes what is not there yet, and says what it did. If it ends in the middle, the same
// command writes the rest.
func (a *app) initProject(dir string) error {
	if err := makeProjectDir(dir); err != nil {
		return err
	}
	r := initReport{Dir: dir, Written: []string{}, Kept: []string{}}
	for _, f := range sampleFiles {
		written, err := a.initFile(dir, f.name, f.source)
		switch {
		case err != nil:
			return fmt.Errorf("%w; when that is mended, the same command writes the rest", err)
		case written:
			r.Written = append(r.Written, f.name)
		default:
			r.Kept = append(r.Kept, f.name)
		}
	}
	if a.JSON {
		return a.PrintJSON(r)
	}
	for _, f := range r.Written {
		fmt.Fprintf(a.Err, "wrote  %s\n", f)
	}
	for _, f := range r.Kept {
		fmt.Fprintf(a.Err, "kept   %s (it was there)\n", f)
	}
	next := "keep dev ."
	if filepath.Clean(dir) != "." {
		next = "cd " + terminal.Clean(shell.Word(dir)) + " && " + next
	}
	fmt.Fprintf(a.Err, "Next: %s\n", next)
	return nil
}

// makeProjectDir makes the directory of a new project, and refuses one that is a project of another kind: its
// keep.toml would have no connections for the sample.
func makeProjectDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return exit.Misusef("%s is a file, and a project is a directory; name one that is new or empty: keep init DIR", terminal.Clean(dir))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of the project: %w; name another one: keep init DIR", err)
	}
	there, err := regular.Read(filepath.Join(dir, "keep.toml"), config.MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// The same keep.toml is that of an init which was interrupted, or is repeated for a file that is gone.
	ours, sampleErr := fs.ReadFile(sample, "sample/keep.toml")
	if err == nil && sampleErr == nil && !bytes.Equal(there, ours) {
		return exit.Misusef("%s is a project already: its keep.toml is not the one of a new project, and was not changed; for a new one name another directory: keep init DIR",
			terminal.Clean(dir))
	}
	return errors.Join(err, sampleErr)
}

// initFile writes one file, and reports whether it did: never over another, also one that comes
// between the look and the writing.
func (a *app) initFile(dir, name, source string) (bool, error) {
	file := filepath.Join(dir, filepath.FromSlash(name))
	if _, err := os.Lstat(file); err == nil {
		return false, nil
	}
	var text []byte
	var err error
	if source == "" {
		text, err = a.initTypes(dir)
	} else {
		text, err = fs.ReadFile(sample, "sample/"+source)
	}
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return false, err
	}
	// Whole or not at all: a part would be taken for a file of the person when init is repeated.
	err = writeFile(project.File{Name: file, Text: string(text)}, false)
	if _, there := errors.AsType[*thereError](err); there {
		return false, nil
	}
	return err == nil, err
}

// initTypes returns the types of the project in dir, whatever --config says.
func (a *app) initTypes(dir string) ([]byte, error) {
	here := *a
	here.Config = filepath.Join(dir, "keep.toml")
	text, err := here.types(dir)
	return []byte(text), err
}
