package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/client"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// finish tells the person what went wrong and returns the status. What verbs return is printed here and
// nowhere else. Before a verb has started, an error without a status is one of the command line; what
// rejects a script or keep.toml is printed as problems with their places, all of them sorted.
// Of joined errors the first that has a status of its own decides (exit.Of).
func (a *app) finish(cmd *cobra.Command, err error) int {
	if err == nil {
		return exit.Done
	}
	if _, ours := errors.AsType[*exit.Error](err); !a.started && !ours {
		a.complain(exit.Misused, nil, complaint{exit.Name(exit.Misusef("%w", err)), strings.TrimSpace(err.Error()), terminal.OrNull(misusedHint(cmd, err))})
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
	said := make([]complaint, 0, len(rest))
	for _, e := range rest {
		said = append(said, complaint{exit.Name(e), e.Error(), terminal.OrNull(hintFor(e))})
	}
	a.complain(exit.Of(err), found, said...)
	return exit.Of(err)
}

// withLost adds to the error of a verb that not all which it printed could be written, if it does not say so itself.
func (a *app) withLost(err error) error {
	switch lost := a.Lost(); {
	case lost == nil || errors.Is(err, lost):
		return err
	case err == nil:
		return client.Done(lost)
	default:
		return errors.Join(err, fmt.Errorf("not all of the output can be written: %w", lost))
	}
}

// A complaint is one error, as programs read it.
type complaint struct {
	Code    string  `json:"code"` // see exit.Name
	Message string  `json:"message"`
	Hint    *string `json:"hint"` // what to do next; null: the message says it
}

// complain prints errors: with --json as one object on stderr, so that stdout has data alone.
func (a *app) complain(status int, found []terminal.Problem, said ...complaint) {
	if len(found)+len(said) == 0 {
		return // they were printed before
	}
	if a.JSON {
		text, err := terminal.SafeJSON(struct {
			Exit     int                `json:"exit_code"`
			Errors   []complaint        `json:"errors"`
			Problems []terminal.Problem `json:"problems"` // of scripts and keep.toml, with their places
		}{status, append([]complaint{}, said...), append([]terminal.Problem{}, found...)}, "")
		if err == nil {
			fmt.Fprintln(a.Err, text)
			return
		}
	}
	// Also where the JSON could not be made: an error is said in some form.
	a.PrintProblems(found)
	for _, c := range said {
		fmt.Fprintf(a.Err, "%s %s\n", a.Ink.Red("keep:"), terminal.CleanText(c.Message))
		if c.Hint != nil {
			fmt.Fprintln(a.Err, terminal.CleanText(*c.Hint)) // it may have names of files
		}
	}
}

// misusedHint says where to look after a wrong command line: at the command whose name is like
// what was written, or at the help.
func misusedHint(cmd *cobra.Command, err error) string {
	help := "Try: " + cmd.CommandPath() + " --help"
	_, rest, unknown := strings.Cut(err.Error(), "unknown command \"")
	word, _, quoted := strings.Cut(rest, "\"")
	if !unknown || !quoted {
		return help
	}
	like := likeCommand(cmd, word)
	if root := cmd.Root(); len(like) == 0 && cmd != root {
		like = likeCommand(root, word) // keep pause, of keep workflows pause
	}
	if len(like) == 0 {
		return help
	}
	return "Did you mean: " + strings.Join(like, ", ") + "?\n" + help
}

// likeCommand returns the commands below cmd whose names are like a word.
func likeCommand(cmd *cobra.Command, word string) (like []string) {
	cmd.SuggestionsMinimumDistance = 2 // cobra suggests by itself only where it prints the error
	for _, name := range cmd.SuggestionsFor(word) {
		like = append(like, cmd.CommandPath()+" "+name)
	}
	return like
}

// wrongFlag is the error of a flag that cmd has not. Where a word before it names no command below cmd, that is what is
// wrong: the flag may be one of the command that was meant.
func wrongFlag(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 {
		return fmt.Errorf("unknown command %q for %q", cmd.Flags().Arg(0), cmd.CommandPath())
	}
	return err
}

// hintFor says what to do next, where the error does not. It looks at kinds of errors that come from
// a daemon as well as from this process.
func hintFor(err error) string {
	if e, ok := errors.AsType[*project.PathError](err); ok {
		return e.Next
	}
	if _, ok := errors.AsType[*unwrittenError](err); ok {
		return "It was interrupted. Nothing was written to the project, and nothing ran."
	}
	if _, ok := errors.AsType[*stoppedError](err); ok {
		return "It was interrupted: give the same command again."
	}
	if _, ok := errors.AsType[*client.UnsureError](err); ok {
		return "" // the error says what to do
	}
	switch {
	case errors.Is(err, keep.ErrRunOpen):
		return "See what it waits for: keep runs --open"
	case errors.Is(err, keep.ErrDecided):
		return "Already answered. See what is still open: keep inbox"
	case errors.Is(err, context.Canceled):
		return "It was interrupted. What ran is recorded, and continues at the next start."
	case errors.Is(err, fs.ErrPermission):
		return "Check who owns the file and its directory."
	case errors.Is(err, keep.ErrNotFound):
		return listedHint(err.Error())
	}
	return ""
}
