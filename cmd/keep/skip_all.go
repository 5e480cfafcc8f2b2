package main

import (
	"context"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

// skipAllFlags say which inputs are skipped together.
type skipAllFlags struct {
	all             bool
	workflow, match string
	yes             bool
}

// check refuses what means nothing.
func (f skipAllFlags) check(ids []string) error {
	switch {
	case f.all == (len(ids) > 0):
		return misusef("name the inputs, or say --all")
	case !f.all && (f.workflow != "" || f.match != "" || f.yes):
		return misusef("--workflow, --match and --yes go with --all")
	case len(f.match) > maxMatch:
		return misusef("--match has %d bytes, want at most %d", len(f.match), maxMatch)
	}
	return nil
}

// maxMatch bounds what is searched for, in bytes; the API does the same.
const maxMatch = 200

// skipAllInputs says how many inputs match, or skips them, part by part.
func (a *app) skipAllInputs(ctx context.Context, c *api.Client, f skipAllFlags) error {
	if f.workflow != "" {
		if _, err := c.Workflow(ctx, keep.WorkflowName(f.workflow)); err != nil {
			return err
		}
	}
	done, err := c.PlanSkipAll(ctx, keep.WorkflowName(f.workflow), f.match)
	if err != nil {
		return err
	}
	if !f.yes || done.Cursor == nil {
		if a.json {
			return a.printJSON(done)
		}
		if done.Total == 0 {
			fmt.Fprintln(a.err, "No pending input matches.")
			return nil
		}
		fmt.Fprintf(a.err, "Nothing was changed. To skip %s, say --yes.\n", plural(done.Total, "input"))
		return nil
	}
	for told := time.Now(); done.Cursor != nil; {
		if done, err = c.SkipAll(ctx, *done.Cursor); err != nil {
			return err
		}
		if a.tty && !a.json && time.Since(told) > quiet {
			told = time.Now()
			fmt.Fprintf(a.err, "%s of %s skipped.\n", number(done.Skipped), plural(done.Total, "input"))
		}
	}
	if a.json {
		return a.printJSON(done)
	}
	fmt.Fprintf(a.err, "%s skipped.\n", plural(done.Skipped, "input"))
	if done.Aborted > 0 {
		fmt.Fprintf(a.err, "Ended before their call: %s.\n", plural(done.Aborted, "run"))
	}
	if done.TooLate > 0 {
		fmt.Fprintf(a.err, "Too late for %s: the run is past its call, and completes.\n", plural(done.TooLate, "input"))
	}
	return nil
}
