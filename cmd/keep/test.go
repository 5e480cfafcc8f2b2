package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/dev"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/rehearsal/scripttest"
)

// testCmd sends nothing, reads nothing and opens no database.
func (a *app) testCmd() *cobra.Command {
	t := tester{app: a}
	cmd := &cobra.Command{
		Use:   "test [PATH]",
		Short: "Run the tests of scripts: NAME.test.toml beside NAME.js",
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

Exit codes: 0 all passed, 1 one failed, 2 a file can't be read or there is no test.`,
		Example: "  keep test\n  keep test invoices.js --watch\n  keep test --junit report.xml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if t.path = "."; len(args) > 0 {
				t.path = args[0]
			}
			if t.watch {
				return t.again(cmd.Context())
			}
			return t.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&t.junit, "junit", "", "also write a JUnit report to this `FILE`")
	cmd.Flags().BoolVar(&t.watch, "watch", false, "run the tests again after each change of a file, until interrupted")
	return cmd
}

// A tester runs the tests of a path.
type tester struct {
	*app
	path  string
	junit string // file; empty: none
	watch bool
}

// A testReport is what keep test --json prints.
type testReport struct {
	Passed int          `json:"passed"`
	Failed int          `json:"failed"`
	Tests  []testResult `json:"tests"`
}

type testResult struct {
	File     string   `json:"file"`
	Name     string   `json:"name"`
	Passed   bool     `json:"passed"`
	Problems []string `json:"problems"`
	Millis   int64    `json:"ms"`
}

// run runs every test once.
func (t *tester) run(ctx context.Context) error {
	files, err := scripttest.Find(t.path)
	if err != nil {
		return exit.Misusef("%w", err)
	}
	var suites []scripttest.Suite
	for _, file := range files {
		s, err := t.suite(ctx, file)
		if err != nil {
			return err
		}
		suites = append(suites, s)
	}
	r := report(suites)
	if len(r.Tests) == 0 {
		return exit.Misusef("%s: no tests; write one in NAME%s beside NAME.js (see keep test --help)", t.path, scripttest.Suffix)
	}
	if t.junit != "" {
		if err := writeJUnit(t.junit, suites); err != nil {
			return err
		}
	}
	return t.print(r)
}

// suite runs the tests of one file.
func (t *tester) suite(ctx context.Context, file string) (_ scripttest.Suite, err error) {
	s := scripttest.Suite{File: terminal.Short(file)}
	f, err := scripttest.ReadFile(file)
	if err != nil {
		return s, exit.Misusef("%w", err)
	}
	p, err := t.OpenProject(f.Script)
	if err != nil {
		return s, project.WithConnectionErrors(p, err)
	}
	conns, err := p.Cfg.Describe()
	if err != nil {
		return s, project.WithConnectionErrors(p, err)
	}
	defer func() { err = errors.Join(err, project.CloseConnections(conns)) }()
	rt, err := project.OpenSandbox(ctx, p.Cfg, t.log)
	if err != nil {
		return s, err
	}
	defer rt.Close()
	scripts, found, err := project.Load(ctx, rt, p)
	if err != nil {
		return s, err
	}
	if t.PrintProblems(found); terminal.HasErrors(found) {
		return s, exit.With(exit.Misused)
	}
	s.Verdicts, err = t.verdicts(ctx, scripttest.Config{Script: scripts[0].Workflow, Connections: conns, Policy: &p.Cfg.Policy, Runtime: rt}, f.Tests)
	return s, err
}

// verdicts runs tests, several at once, and returns their outcomes in order.
func (t *tester) verdicts(ctx context.Context, cfg scripttest.Config, tests []scripttest.Test) ([]scripttest.Verdict, error) {
	out, errs := make([]scripttest.Verdict, len(tests)), make([]error, len(tests))
	slots := make(chan struct{}, 2*runtime.GOMAXPROCS(0))
	var running sync.WaitGroup
	for i, test := range tests {
		slots <- struct{}{}
		running.Go(func() {
			out[i], errs[i] = scripttest.Run(ctx, cfg, test)
			<-slots
		})
	}
	running.Wait()
	return out, errors.Join(errs...)
}

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

func writeJUnit(name string, suites []scripttest.Suite) error {
	f, err := os.Create(filepath.Clean(name))
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := errors.Join(scripttest.WriteJUnit(f, suites), f.Close()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// print prints the report and returns the error that ends the command.
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

// again runs the tests after each change of a file, until ctx is done.
func (t *tester) again(ctx context.Context) error {
	abs, err := filepath.Abs(t.path)
	if err != nil {
		return err
	}
	if info, err := os.Stat(abs); err != nil {
		return exit.Misusef("%w", err)
	} else if !info.IsDir() {
		abs = filepath.Dir(abs)
	}
	changed := make(chan struct{}, 1)
	var watching sync.WaitGroup
	watching.Go(func() { (&dev.Watcher{Root: abs, Log: t.log}).Run(ctx, changed) })
	for {
		if err := t.run(ctx); err != nil && ctx.Err() == nil {
			if e, ok := errors.AsType[*exit.Error](err); !ok || !e.Reported() {
				fmt.Fprintf(t.Err, "%s %v\n", t.Ink.Red("keep:"), err)
			}
		}
		select {
		case <-ctx.Done():
			watching.Wait()
			return nil
		case <-changed:
		}
	}
}
