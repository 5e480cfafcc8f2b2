package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/config"
	"github.com/keep-run/keep/sandbox"
	"github.com/keep-run/keep/workflow"
	"github.com/spf13/cobra"
)

// Exit statuses; keep help exit-codes explains them.
const (
	exitDone        = 0
	exitFailed      = 1
	exitMisused     = 2
	exitNotFound    = 3
	exitNeedsPerson = 4
	exitUnreachable = 5
)

// A statusError ends the command with a status of its own.
type statusError struct {
	status int
	err    error // nil: everything was said already
}

// Error returns the message of what went wrong.
func (e *statusError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

// Unwrap returns what went wrong.
func (e *statusError) Unwrap() error { return e.err }

// misusef says that the command line is wrong.
func misusef(format string, args ...any) error {
	return &statusError{exitMisused, fmt.Errorf(format, args...)}
}

// failedf says that what was asked for did not work.
func failedf(format string, args ...any) error {
	return &statusError{exitFailed, fmt.Errorf(format, args...)}
}

// said ends the command with a status after everything was said.
func said(status int) error { return &statusError{status: status} }

// statusOf maps an error to the status of the process. This is the one place
// that does.
func statusOf(err error) int {
	if err == nil {
		return exitDone
	}
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.status
	}
	for _, bad := range []error{keep.ErrLocked, keep.ErrForeignDatabase, keep.ErrNewerDatabase, keep.ErrOlderHosts, keep.ErrSealed} {
		if errors.Is(err, bad) {
			return exitUnreachable
		}
	}
	if p, ok := errors.AsType[*api.Problem](err); ok && (p.Kind == api.KindAmbiguous || p.Kind == api.KindNotOffered) {
		return exitMisused
	}
	switch {
	case isRejected(err):
		return exitMisused
	case errors.Is(err, keep.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return exitNotFound
	case errors.Is(err, keep.ErrBadCursor):
		return exitMisused
	}
	return exitFailed
}

// isRejected reports whether a script or the configuration is wrong.
func isRejected(err error) bool {
	if _, ok := errors.AsType[*config.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*sandbox.BuildError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*sandbox.ScriptError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*sandbox.LimitError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*api.ScriptError](err); ok {
		return true
	}
	_, ok := errors.AsType[*workflow.DeclarationError](err)
	return ok
}

// finish tells the person what went wrong and returns the status.
func (a *app) finish(cmd *cobra.Command, err error) int {
	if err == nil {
		return exitDone
	}
	if _, ours := errors.AsType[*statusError](err); !a.started && !ours {
		fmt.Fprintf(a.err, "%s %s\n", a.ink.red("keep:"), cleanText(strings.TrimSpace(err.Error())))
		fmt.Fprintf(a.err, "Try: %s --help\n", cmd.CommandPath())
		return exitMisused
	}
	var found []complaint
	var rest []error
	for _, e := range leaves(err) {
		if cs := a.complaints("", e); len(cs) > 0 {
			found = append(found, cs...)
		} else {
			rest = append(rest, e)
		}
	}
	sortComplaints(found)
	a.complain(found)
	for _, e := range rest {
		fmt.Fprintf(a.err, "%s %s\n", a.ink.red("keep:"), cleanText(e.Error()))
		if hint := hintFor(e); hint != "" {
			fmt.Fprintln(a.err, hint)
		}
	}
	return statusOf(err)
}

// leaves returns the errors that err joins, or err alone. What was said already
// is not among them.
func leaves(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range many.Unwrap() {
			out = append(out, leaves(e)...)
		}
		return out
	}
	if e, ok := err.(*statusError); ok && e.err == nil {
		return nil
	}
	return []error{err}
}

// hintFor says what to do next, where the error does not.
func hintFor(err error) string {
	switch {
	case errors.Is(err, keep.ErrRunOpen):
		return "See what it waits for: keep runs --open"
	case errors.Is(err, keep.ErrDecided):
		return "Somebody was faster. See what is still open: keep inbox"
	case errors.Is(err, context.Canceled):
		return "It was interrupted. What ran is recorded, and goes on at the next start."
	case errors.Is(err, fs.ErrPermission):
		return "Check who owns the file and its directory."
	}
	return ""
}
