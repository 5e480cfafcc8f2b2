package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/shell"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/rehearsal/scripttest"
)

// noTests says that a path has no tests, which scripts it has, and how one of them gets a first test.
// To make one of a recorded run is less work than to write it, so that is offered first. That
// the database cannot be read is no reason to say less.
func (t *tester) noTests(ctx context.Context) error {
	of, err := t.OpenProject(t.path)
	if err != nil {
		return project.WithConnectionErrors(of, err)
	}
	next, err := t.recordable(ctx, of)
	// No database, or no run that makes a good test: a text to begin with.
	if err != nil || next == "" {
		next = t.written(ctx, of)
	}
	return project.NoTests(t.path, of, next)
}

// maxTried is how many of the newest runs are looked at for one that makes a good test.
const maxTried = 50

// recordable returns the command that makes a test of the newest run of one of the scripts that ended
// well; empty if there is none.
func (t *tester) recordable(ctx context.Context, of *project.Project) (_ string, err error) {
	db, err := database.Open(ctx, of.Cfg, database.ToRead)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	versions, err := db.Deployments(ctx, "")
	if err != nil {
		return "", err
	}
	for _, file := range of.Files() {
		for _, d := range versions {
			if d.Entry != file {
				continue
			}
			runs, _, err := db.Runs(ctx, keep.RunFilter{Workflow: d.Workflow, Status: keep.StatusCommitted}, keep.Page{Limit: maxTried, Bare: true})
			if err != nil {
				return "", err
			}
			if run, some := tellsMost(runs); some {
				return fmt.Sprintf("To make one of %s (%s of %s): %s", run.ID, run.Handler, d.Workflow, t.recordCommand(of, run.ID, testOf(file))), nil
			}
			break // older versions have the same runs
		}
	}
	return "", nil
}

// tellsMost returns the newest run of a consumer, or else the newest, of those that went well at the
// first attempt: in others a person may have decided, and a test has no persons.
func tellsMost(runs []keep.Run) (keep.Run, bool) {
	runs = slices.DeleteFunc(runs, func(r keep.Run) bool { return r.ID != r.Chain })
	for _, r := range runs {
		if r.Kind == keep.Consumer && !r.Trigger.IsZero() {
			return r, true
		}
	}
	if len(runs) == 0 {
		return keep.Run{}, false
	}
	return runs[0], true
}

// testOf returns the name of the file of tests of a script.
func testOf(script string) string {
	return strings.TrimSuffix(script, path.Ext(script)) + scripttest.Suffix
}

// recordCommand returns what makes a test of a run, as it is typed here: with the directory of the
// project if this one is another, since keep.toml is looked for upwards.
func (t *tester) recordCommand(of *project.Project, run keep.RunID, file string) string {
	file = filepath.FromSlash(file)
	cmd, db := "", ""
	if here, err := t.LoadConfig("."); err != nil || here.Dir != of.Cfg.Dir || of.Root != here.Dir {
		cmd = "cd " + terminal.Clean(shell.Word(terminal.Short(of.Root))) + " && "
	} else {
		file = terminal.Short(filepath.Join(of.Root, file))
	}
	if t.DB != "" && !database.IsPostgres(of.Cfg.DB) { // of which the address may have a secret
		db = " --db " + terminal.Clean(shell.Word(of.Cfg.DB))
	}
	return fmt.Sprintf("%skeep test --record %s --out %s%s", cmd, run, terminal.Clean(shell.Word(file)), db)
}

// written returns the text of a first test of one of the scripts; empty if none can be read. It
// expects that nothing comes of the script, and so fails with what does, which can be copied
// into it.
func (t *tester) written(ctx context.Context, of *project.Project) string {
	rt, err := project.OpenSandbox(ctx, of.Cfg, t.log)
	if err != nil {
		return ""
	}
	defer rt.Close()
	scripts, _, err := project.Load(ctx, rt, of)
	if err != nil || len(scripts) == 0 {
		return ""
	}
	s := scripts[0]
	name := terminal.Short(filepath.Join(of.Root, filepath.FromSlash(testOf(s.File))))
	return fmt.Sprintf("A first test of %s, to be written in %s; keep test says then what comes of it:\n\n%s", path.Base(s.File), terminal.Clean(name), firstTest(s.Definition))
}

// firstTest returns a test of one handler, a consumer if there is one, that says all of what is to be said.
func firstTest(d keep.Definition) string {
	var h keep.Handler
	for _, h = range d.Handlers {
		if h.Kind == keep.Consumer && len(h.Subscribe) > 0 {
			return fmt.Sprintf(`[[test]]
name    = "what comes of one event"
handler = %q
events  = [{ topic = %q, messageId = "m1", payload = {} }]
[test.expect]
calls = []`, h.Name, h.Subscribe[0])
		}
	}
	return fmt.Sprintf(`[[test]]
name    = "what comes of one execution"
handler = %q
[test.expect]
publishes = []
calls     = []`, h.Name)
}
