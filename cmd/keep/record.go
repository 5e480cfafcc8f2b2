package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/shell"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/rehearsal/scripttest"
)

// record makes a test of a run. Unlike other tests it asks the database, or its daemon, which tries
// the test before it gives it. A file that is there is refused before the run is read.
func (t *tester) record(ctx context.Context) error {
	if t.watch || t.junit != "" || t.path != "" {
		return exit.Misusef("--record makes a test and runs none: leave PATH, --watch and --junit out")
	}
	if t.out != "" {
		if !strings.HasSuffix(t.out, scripttest.Suffix) {
			return exit.Misusef("--out %s: the name of a file of tests ends with %s", t.out, scripttest.Suffix)
		}
		if _, err := os.Lstat(t.out); err == nil {
			return exists(t.out)
		}
	}
	return t.look(ctx, func(c *api.Client) error {
		id, err := fullID[keep.RunID](ctx, c, keep.NounRun, t.recorded)
		if err != nil {
			return err
		}
		run, err := c.Run(ctx, id)
		if err != nil {
			return err
		}
		// The host writes the test, and does not know where this command will put it.
		v, err := t.scriptFor(ctx, c, run.Workflow)
		if err != nil {
			return err
		}
		// It also runs the test once, so that a test which does not pass on its own version is never written.
		made, err := c.RecordTest(ctx, id, api.RecordRequest{Script: v, Plain: t.plain})
		if err != nil {
			return err
		}
		return t.keepTest(made)
	})
}

// scriptFor returns what a test of a workflow names as its script: nothing if that lies beside
// it under its name, and else the way to it.
func (t *tester) scriptFor(ctx context.Context, c *api.Client, w keep.WorkflowName) (string, error) {
	versions, err := c.Versions(ctx, w)
	if err != nil || len(versions) == 0 {
		return "", err
	}
	script := filepath.FromSlash(versions[0].Entry)
	if cfg, _ := t.LoadConfig("."); cfg != nil {
		script = filepath.Join(cfg.Dir, script)
	}
	beside, err := filepath.Abs(filepath.Dir(t.out))
	if err != nil {
		return "", err
	}
	if abs, err := filepath.Abs(script); err == nil {
		script = abs
	}
	// On Windows there is no such path between two drives; then the whole one is written.
	rel, err := filepath.Rel(beside, script)
	if err != nil {
		return filepath.ToSlash(script), nil
	}
	if t.out != "" && rel == strings.TrimSuffix(filepath.Base(t.out), scripttest.Suffix)+filepath.Ext(rel) {
		return "", nil
	}
	return filepath.ToSlash(rel), nil
}

// keepTest writes a test that was made of a run, never over another file, and for the user alone:
// what is private in it is not known. What was replaced or left out is said on stderr.
func (t *tester) keepTest(made api.RecordedTest) error {
	if t.out != "" {
		f, err := os.OpenFile(filepath.Clean(t.out), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return exists(t.out)
		}
		if err == nil {
			_, err = f.WriteString(made.Text)
			if err = errors.Join(err, f.Close()); err != nil { // a part would be in the way, and is no test
				err = errors.Join(err, gone(os.Remove(f.Name())))
			}
		}
		if err != nil {
			return fmt.Errorf("write the test: %w", err)
		}
	}
	for _, s := range made.Scrubbed {
		fmt.Fprintf(t.Err, "replaced: %s; names, and what else is private, are for you to find\n", terminal.Clean(s))
	}
	for _, l := range made.Loose {
		fmt.Fprintf(t.Err, "not compared: %s, which is another in each run\n", terminal.Clean(l))
	}
	switch {
	case t.JSON:
		return t.PrintJSON(made)
	case t.out == "":
		_, err := t.Out.Write([]byte(made.Text))
		return err
	}
	fmt.Fprintf(t.Out, "%s has a test that passes on version %s of %s. Run it: keep test %s\n", terminal.Clean(t.out), made.Version, made.Workflow, terminal.Clean(shell.Word(t.out)))
	return nil
}

// exists is the error for a file that is there.
func exists(file string) error {
	return exit.Misusef("%s is there already, and is not overwritten: give --out another name, or leave it out and add what is printed", file)
}
