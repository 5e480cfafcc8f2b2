package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/spf13/cobra"
)

// runCmd is for cron, CI and tests: it ends, and its status says how it went.
func (a *app) runCmd() *cobra.Command {
	var timeout time.Duration
	var tethered bool
	cmd := &cobra.Command{
		Use:   "run PATH",
		Short: "Run until idle, then exit (cron, CI, tests)",
		Long: `Run deploys the workflows of a file or a directory and runs them until nothing
is active, nothing is due and nothing waits to be tried again. Other workflows
in the database stay at rest. A workflow that another host has is waited for; who
has it is said after a second.

It ends with 0 when all is done, with 4 when a person must decide something (see
keep inbox), and with 1 when --timeout comes first. Calls that are out then are
waited for, up to policy.shutdown.`,
		Example: "  keep run .\n  keep run invoices.js --timeout 10m --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout < 0 {
				return misusef("--timeout must not be negative")
			}
			ctx := cmd.Context()
			if tethered {
				ctx = untilEOF(ctx, cmd.InOrStdin())
			}
			return a.runUntilIdle(ctx, args[0], timeout)
		},
	}
	cmd.Flags().BoolVar(&tethered, "tethered", false, "stop when standard input ends: when the process that holds it is gone")
	_ = cmd.Flags().MarkHidden("tethered") // the flag is there
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after this `duration`; 0: wait as long as it takes")
	return cmd
}

// errTimeout is the cause of a context that --timeout ended.
var errTimeout = errors.New("--timeout came first")

// runUntilIdle opens the project, runs it until it is idle or the time is over,
// and says what was done either way.
func (a *app) runUntilIdle(ctx context.Context, path string, timeout time.Duration) (err error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errTimeout)
		defer cancel()
	}
	p, err := a.openProject(path)
	if err != nil {
		return a.rejected(p, err)
	}
	watch := newProgress(a)
	s, err := a.openSession(ctx, p, watch.commit)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	stopTelling := a.tellElsewhere(ctx, s)
	idle, err := s.untilIdle(ctx, watch)
	stopTelling()
	if err != nil {
		return err
	}
	// The caller's context may be over; what is left is only to read.
	return a.summarize(context.WithoutCancel(ctx), s, watch, idle, context.Cause(ctx))
}

// rejected adds what else is wrong with a project to an error about it, so that
// a person can mend everything at once.
func (a *app) rejected(p *project, err error) error {
	if p == nil || p.cfg == nil {
		return err
	}
	conns, connErr := p.cfg.Connect()
	return errors.Join(err, connErr, closeAll(conns))
}

// A runSummary is what keep run --json prints.
type runSummary struct {
	Idle        bool             `json:"idle"`
	Workflows   []runCount       `json:"workflows"`
	Escalations []api.Escalation `json:"escalations"`
	Elsewhere   []elsewhere      `json:"elsewhere,omitempty"` // what other hosts have, if it is not idle
}

// A runCount says what one workflow did.
type runCount struct {
	Name      keep.WorkflowName `json:"name"`
	Version   string            `json:"version"`
	Runs      int               `json:"runs"`      // attempts, but for those that an earlier process died in
	Committed int               `json:"committed"` // of them
	Failed    int               `json:"failed"`    // of them
}

// summarize prints what was done and returns the error that ends the command.
func (a *app) summarize(ctx context.Context, s *session, watch *progress, idle bool, cause error) error {
	sum := runSummary{Idle: idle, Workflows: []runCount{}, Escalations: []api.Escalation{}}
	var open []api.Run
	versions, err := versionsOf(ctx, s.db)
	if err != nil {
		return err
	}
	for _, name := range s.names() {
		c := watch.count(name)
		c.Version = versions[name]
		sum.Workflows = append(sum.Workflows, c)
		qs, err := api.OpenQuestions(ctx, s.db, name)
		if err != nil {
			return err
		}
		sum.Escalations = append(sum.Escalations, qs...)
		runs, _, err := api.ListRuns(ctx, s.db, keep.RunFilter{Workflow: name, Open: true}, keep.Page{})
		if err != nil {
			return err
		}
		open = append(open, runs...)
	}
	if !idle {
		if sum.Elsewhere, err = s.elsewhere(ctx); err != nil {
			return err
		}
	}
	if a.json {
		err = a.printJSON(sum)
	} else {
		err = a.printSummary(sum)
	}
	if err != nil {
		return err
	}
	return a.verdict(sum, open, cause)
}

// verdict says on stderr what is not done, and returns the status.
func (a *app) verdict(sum runSummary, open []api.Run, cause error) error {
	internal := slices.ContainsFunc(open, func(r api.Run) bool { return r.Status == keep.StatusInternal })
	switch {
	case !sum.Idle:
		why := "It was stopped before it was idle."
		if errors.Is(cause, errTimeout) {
			why = "--timeout came before it was idle."
		}
		fmt.Fprintln(a.err, a.ink.red("keep: ")+why+" What ran is recorded, and goes on at the next start.")
		for _, r := range open {
			fmt.Fprintf(a.err, "%s: run %s of %s: %s\n", r.Workflow, r.ID, r.Handler, clean(*r.WaitsFor))
		}
		for _, e := range sum.Elsewhere {
			fmt.Fprintf(a.err, "%s: host %s has it since %s\n", e.Workflow, clean(e.Name), a.when(time.Time(e.Since)))
		}
		return said(exitFailed)
	case internal:
		fmt.Fprintln(a.err, a.ink.red("keep: ")+"a run stopped by an internal failure; see keep inbox")
		return said(exitFailed)
	case len(sum.Escalations) > 0:
		fmt.Fprintf(a.err, "%s %s for you. Decide with: keep inbox do ID ACTION\n", a.ink.yellow("keep:"), plural(len(sum.Escalations), "question"))
		return said(exitNeedsPerson)
	}
	return nil
}

// printSummary prints the counts, and every question in full: who reads the
// output of cron has no other view.
func (a *app) printSummary(sum runSummary) error {
	t := table{header: []string{"WORKFLOW", "VERSION", "RUNS", "COMMITTED", "FAILED"}}
	for _, w := range sum.Workflows {
		t.add(string(w.Name), w.Version, fmt.Sprint(w.Runs), fmt.Sprint(w.Committed), fmt.Sprint(w.Failed))
	}
	if err := t.print(a.out, a.outInk); err != nil {
		return err
	}
	for _, q := range sum.Escalations {
		fmt.Fprintf(a.out, "\n%s\n", a.outInk.questionText(q))
	}
	return nil
}

// versionsOf returns the current version of each workflow.
func versionsOf(ctx context.Context, db database) (map[keep.WorkflowName]string, error) {
	all, err := db.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[keep.WorkflowName]string, len(all))
	for _, w := range all {
		out[w.Name] = w.Version.String()
	}
	return out, nil
}
