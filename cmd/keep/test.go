package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/dev"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/rehearsal"
	"github.com/keep-run/keep/rehearsal/scripttest"
	"github.com/keep-run/keep/script/sandbox"
)

// testCmd sends nothing, reads nothing and opens no database, but with --record, and to say how to
// make a first test where there is none.
func (a *app) testCmd() *cobra.Command {
	t := tester{app: a}
	cmd := &cobra.Command{
		Use:   "test [PATH]",
		Short: "Run the tests of scripts: NAME.test.toml or NAME.test.js beside NAME.js",
		Long: `Test runs scripts against services that a file plays: what reads return, what
becomes of calls, and which reservations, calls, publishes, items and questions
must come of it. It sends nothing, reads nothing from a service and opens no
database. PATH is a file of tests, a script or a directory (all below it).

  [[test]]
  name    = "adds a row for each mail"
  handler = "addRow"
  events  = [{ topic = "email.received", messageId = "m1", payload = { from = "a" } }]
  [test.expect]
  calls   = [{ tool = "db.insert", params = { table = "invoices" } }]

NAME.test.js exports the same as a list: export default [{ name: "…", handler: "…" }].

With --record it makes a test of a run that was: its events, its recorded reads, what the
services answered, and what came of it. Addresses and what looks like a secret are
replaced. The test passes on the version of the run: that is tried first. A run
whose reads are not kept, or in which a person decided, is refused.

Exit codes: 0 all passed, 1 one failed, 2 a file can't be read or there is no test.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				t.path = args[0]
			}
			if t.recorded != "" {
				return t.record(cmd.Context())
			}
			// Without --record they would be ignored, and the person take the run for a recording.
			if t.out != "" || t.plain {
				return exit.Misusef("--out and --plain belong to --record")
			}
			t.path = cmp.Or(t.path, ".")
			if t.watch {
				return t.again(cmd.Context())
			}
			return t.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&t.junit, "junit", "", "also write a JUnit report to this `FILE`")
	cmd.Flags().BoolVar(&t.watch, "watch", false, "run the tests again after each change of a file, until interrupted")
	cmd.Flags().StringVar(&t.recorded, "record", "", "make a test of this `RUN`: its events, its reads and what came of it")
	cmd.Flags().StringVar(&t.out, "out", "", "with --record: write the test to this `FILE`, which must not exist; default: print it")
	cmd.Flags().BoolVar(&t.plain, "plain", false, "with --record: leave addresses and what looks like a secret as they are")
	return cmd
}

// A tester runs the tests of a path, or makes one of a run.
type tester struct {
	*app
	path  string
	junit string // file; empty: none
	watch bool

	recorded, out string // run and file of --record
	plain         bool
}

// A testReport is what keep test --json prints.
type testReport struct {
	Passed int          `json:"passed"`
	Failed int          `json:"failed"`
	Tests  []testResult `json:"tests"`
}

// A testResult is one test of a report. Problems are empty if it passed.
type testResult struct {
	File     string   `json:"file"`
	Name     string   `json:"name"`
	Passed   bool     `json:"passed"`
	Problems []string `json:"problems"`
	Millis   int64    `json:"ms"`
}

// run runs every test once. No test at all is a mistake (2) and no success: a path that is wrong by
// a letter would otherwise be green in CI forever. Reports are written before the status is
// decided, since they are wanted most for tests that failed.
func (t *tester) run(ctx context.Context) error {
	at, info, err := project.Look(t.path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		at = filepath.Dir(at)
	}
	if err := t.FinishWritesOf(at); err != nil { // tests and scripts of one edit belong together
		return err
	}
	if t.junit != "" {
		if err := mayReplace(t.junit, beginsJUnit); err != nil {
			return err
		}
	}
	files, err := scripttest.Find(t.path)
	if err != nil {
		return exit.Misusef("%w", err)
	}
	if len(files) == 0 {
		return t.noTests(ctx)
	}
	s := suiteRunner{tester: t, open: make(map[string]*sandbox.Runtime), began: time.Now()}
	suites, err := s.all(ctx, files)
	if err := errors.Join(err, s.close()); err != nil {
		return err
	}
	r := report(suites)
	if len(r.Tests) == 0 {
		return exit.Misusef("%s: no tests in it (see keep test --help)", t.path)
	}
	if t.junit != "" {
		if err := writeJUnit(t.junit, suites); err != nil {
			return err
		}
	}
	return t.print(r)
}

// A suiteRunner runs files of tests. Files of one project share a sandbox: a call finds nothing
// in it that an earlier one left.
type suiteRunner struct {
	*tester
	open  map[string]*sandbox.Runtime // by the directory of the project
	began time.Time
}

// all runs the tests of files, several at once, and returns their suites in order. If a file cannot
// be read no test runs, and what is wrong with all files is reported together. A failing test is
// no error here; an error is one that could not be run.
func (s *suiteRunner) all(ctx context.Context, files []string) ([]scripttest.Suite, error) {
	prepared := make([]preparedSuite, len(files))
	var errs []error
	for i, file := range files {
		var err error
		if prepared[i], err = s.prepare(ctx, file); err != nil {
			errs = append(errs, err)
		}
	}
	var suites []scripttest.Suite
	slots := make(chan struct{}, 2*runtime.GOMAXPROCS(0))
	var running sync.WaitGroup
	for i := range prepared {
		p := &prepared[i]
		p.suite.Verdicts, p.errs = make([]scripttest.Verdict, len(p.tests)), make([]error, len(p.tests))
		for j, test := range p.tests {
			if len(errs) > 0 {
				break
			}
			// Taken here and not in the goroutine: there are never more goroutines than slots.
			slots <- struct{}{}
			running.Go(func() {
				p.suite.Verdicts[j], p.errs[j] = scripttest.Run(ctx, p.cfg, test)
				<-slots
			})
		}
	}
	running.Wait()
	for _, p := range prepared {
		suites = append(suites, p.suite)
		errs = append(errs, p.errs...)
		errs = append(errs, project.CloseConnections(p.cfg.Connections))
	}
	return suites, errors.Join(errs...)
}

// A preparedSuite is a file of tests that is read, with its script. Each test writes its verdict and
// its error in its own place, so that no lock is needed.
type preparedSuite struct {
	suite scripttest.Suite
	cfg   scripttest.Config
	tests []scripttest.Test
	errs  []error // of tests
}

// prepare reads a file of tests and its script, once for all its tests. Connections are described
// and not opened: what they answer comes from the test, and secrets may be missing.
func (s *suiteRunner) prepare(ctx context.Context, file string) (p preparedSuite, err error) {
	p.suite.File = terminal.Short(file)
	f, err := s.read(ctx, file)
	if err != nil {
		return p, err
	}
	of, err := s.OpenProject(f.Script)
	if err != nil {
		return p, project.WithConnectionErrors(of, err)
	}
	if p.cfg.Connections, err = of.Cfg.Describe(); err != nil {
		return p, project.WithConnectionErrors(of, err)
	}
	if p.cfg.Runtime, err = s.sandbox(ctx, of.Cfg); err != nil {
		return p, err
	}
	scripts, found, err := project.Load(ctx, p.cfg.Runtime, of)
	if err != nil {
		return p, err
	}
	if len(found) > 0 {
		return p, &project.FoundError{Found: found}
	}
	// A file of tests is about one script, so the project of that file has one.
	p.cfg.Script, p.cfg.Policy, p.tests = scripts[0].Workflow, &of.Cfg.Policy, f.Tests
	p.cfg.Shared, p.cfg.Now = rehearsal.NewShared(p.cfg.Runtime), s.began
	return p, nil
}

// read reads a file of tests. One in JavaScript is a program, and is evaluated in the sandbox of its
// project.
func (s *suiteRunner) read(ctx context.Context, file string) (*scripttest.File, error) {
	if !scripttest.IsScript(file) {
		f, err := scripttest.ReadFile(file)
		if err != nil {
			return nil, exit.Misusef("%w", err)
		}
		return f, nil
	}
	of, err := s.OpenProject(file)
	if err != nil {
		return nil, project.WithConnectionErrors(of, err)
	}
	rt, err := s.sandbox(ctx, of.Cfg)
	if err != nil {
		return nil, err
	}
	f, err := scripttest.ReadScript(ctx, rt, of.Root, file)
	if found := project.Problems(of.Root, err); len(found) > 0 {
		return nil, &project.FoundError{Found: found}
	}
	if err != nil {
		return nil, exit.Misusef("%w", err)
	}
	return f, nil
}

// sandbox returns the sandbox of a project, which is started for its first file: to start one takes
// longer than a test.
func (s *suiteRunner) sandbox(ctx context.Context, cfg *config.Config) (*sandbox.Runtime, error) {
	if rt, have := s.open[cfg.Dir]; have {
		return rt, nil
	}
	rt, err := project.OpenSandbox(ctx, cfg, s.log)
	if err == nil {
		s.open[cfg.Dir] = rt
	}
	return rt, err
}

// close closes the sandboxes of all projects.
func (s *suiteRunner) close() error {
	var errs []error
	for _, rt := range s.open {
		errs = append(errs, rt.Close())
	}
	return errors.Join(errs...)
}

// report counts what passed and failed, in the order of files and tests.
func report(suites []scripttest.Suite) testReport {
	r := testReport{Tests: []testResult{}}
	for _, s := range suites {
		for _, v := range s.Verdicts {
			passed := len(v.Problems) == 0
			if passed {
				r.Passed++
			} else {
				r.Failed++
			}
			r.Tests = append(r.Tests, testResult{s.File, v.Name, passed, append([]string{}, v.Problems...), v.Took.Milliseconds()})
		}
	}
	return r
}

// writeJUnit writes the report that CI systems read, over one of before.
func writeJUnit(name string, suites []scripttest.Suite) error {
	f, err := openReport(name, beginsJUnit, 0o666)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := errors.Join(scripttest.WriteJUnit(f, suites), f.Close()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// print prints the report and returns the error that ends the command. Tests that passed are only
// counted.
func (t *tester) print(r testReport) error {
	if t.JSON {
		if err := t.PrintJSON(r); err != nil {
			return err
		}
	} else {
		for _, test := range r.Tests {
			if test.Passed {
				continue
			}
			fmt.Fprintf(t.Out, "%s %s: %s\n", t.OutInk.Red("FAIL"), terminal.Clean(test.File), terminal.Clean(test.Name))
			for _, p := range test.Problems {
				fmt.Fprintf(t.Out, "    %s\n", terminal.Clean(p))
			}
		}
		fmt.Fprintf(t.Out, "%d passed, %d failed\n", r.Passed, r.Failed)
	}
	if r.Failed > 0 {
		return exit.With(exit.Failed)
	}
	return nil
}

// again runs the tests after each change of a file, until ctx is done. A mistake is printed and waited
// out: the next change may repair it. All files are read anew each time; changes during a run
// make one more.
func (t *tester) again(ctx context.Context) error {
	abs, info, err := project.Look(t.path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		// The script of a file of tests is beside it.
		abs = filepath.Dir(abs)
	}
	changed := make(chan struct{}, 1)
	var watching sync.WaitGroup
	watching.Go(func() { (&dev.Watcher{Root: abs, Log: t.log}).Run(ctx, changed) })
	for {
		if err := t.run(ctx); err != nil && ctx.Err() == nil {
			t.finish(nil, err) // there is no status before the end
		}
		select {
		case <-ctx.Done():
			watching.Wait()
			return nil
		case <-changed:
		}
	}
}
