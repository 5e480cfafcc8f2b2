package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// finish tells the person what went wrong and returns the status.
func (a *app) finish(cmd *cobra.Command, err error) int {
	if err == nil {
		return exit.Done
	}
	if _, ours := errors.AsType[*exit.Error](err); !a.started && !ours {
		fmt.Fprintf(a.Err, "%s %s\n", a.Ink.Red("keep:"), terminal.CleanText(strings.TrimSpace(err.Error())))
		fmt.Fprintf(a.Err, "Try: %s --help\n", cmd.CommandPath())
		return exit.Misused
	}
	var found []terminal.Problem
	var rest []error
	for _, e := range exit.Flatten(err) {
		if cs := project.Problems("", e); len(cs) > 0 {
			found = append(found, cs...)
		} else {
			rest = append(rest, e)
		}
	}
	terminal.SortProblems(found)
	a.PrintProblems(found)
	for _, e := range rest {
		fmt.Fprintf(a.Err, "%s %s\n", a.Ink.Red("keep:"), terminal.CleanText(e.Error()))
		if hint := hintFor(e); hint != "" {
			fmt.Fprintln(a.Err, hint)
		}
	}
	return exit.Of(err)
}

// hintFor says what to do next, where the error does not.
func hintFor(err error) string {
	switch {
	case errors.Is(err, keep.ErrRunOpen):
		return "See what it waits for: keep runs --open"
	case errors.Is(err, keep.ErrDecided):
		return "Already answered. See what is still open: keep inbox"
	case errors.Is(err, context.Canceled):
		return "It was interrupted. What ran is recorded, and continues at the next start."
	case errors.Is(err, fs.ErrPermission):
		return "Check who owns the file and its directory."
	}
	return ""
}
