package main

import (
	"context"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// skipAllFlags say which inputs are skipped together. --all alone means every workflow, and so is
// never implied.
type skipAllFlags struct {
	all             bool
	workflow, match string
	yes             bool
}

// check refuses what means nothing.
func (f skipAllFlags) check(ids []string) error {
	switch {
	case f.all == (len(ids) > 0):
		return exit.Misusef("name the inputs, or say --all")
	case !f.all && (f.workflow != "" || f.match != "" || f.yes):
		return exit.Misusef("--workflow, --match and --yes go with --all")
	case len(f.match) > maxMatch:
		return exit.Misusef("--match has %d bytes, want at most %d", len(f.match), maxMatch)
	}
	return nil
}

// maxMatch bounds what is searched for, in bytes. The API takes as many characters.
const maxMatch = 200

// skipAllInputs says how many inputs match, or skips them, part by part. The cursor has all that the
// next part needs, so the host keeps nothing in between, and no request takes longer than a few
// seconds. It also fixes the beginning: what comes in later is not skipped.
func (a *app) skipAllInputs(ctx context.Context, c *api.Client, f skipAllFlags, note string) error {
	// A workflow that is not there has no inputs, and would be taken for one with nothing to skip.
	if f.workflow != "" {
		if _, err := c.Workflow(ctx, keep.WorkflowName(f.workflow)); err != nil {
			return err
		}
	}
	done, err := c.PlanSkipAll(ctx, keep.WorkflowName(f.workflow), f.match)
	if err != nil {
		return err
	}
	// No cursor: nothing matches, with --yes or without.
	if !f.yes || done.Cursor == nil {
		if a.JSON {
			return a.PrintJSON(done)
		}
		if done.Total == 0 {
			fmt.Fprintln(a.Err, "No pending input matches.")
			return nil
		}
		fmt.Fprintf(a.Err, "Nothing was changed. To skip %s, say --yes.\n", terminal.Plural(done.Total, "input"))
		return nil
	}
	// If this process ends here, what is skipped stays so, and the same command does the rest.
	for told := time.Now(); done.Cursor != nil; {
		if done, err = c.SkipAll(ctx, *done.Cursor, note); err != nil {
			return err
		}
		// A script that reads stderr gets the result alone.
		if a.TTY && !a.JSON && time.Since(told) > terminal.ProgressDelay {
			told = time.Now()
			fmt.Fprintf(a.Err, "%s of %s skipped.\n", terminal.Number(done.Skipped), terminal.Plural(done.Total, "input"))
		}
	}
	if a.JSON {
		return a.PrintJSON(done)
	}
	fmt.Fprintf(a.Err, "%s skipped.\n", terminal.Plural(done.Skipped, "input"))
	if done.Aborted > 0 {
		fmt.Fprintf(a.Err, "Ended before their call: %s.\n", terminal.Plural(done.Aborted, "run"))
	}
	if done.TooLate > 0 {
		fmt.Fprintf(a.Err, "Too late for %s: the run is past its call, and completes.\n", terminal.Plural(done.TooLate, "input"))
	}
	return nil
}
