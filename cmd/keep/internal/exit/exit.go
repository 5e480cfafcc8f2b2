// Package exit has the statuses that a command ends with, and errors that carry one.
// Scripts and supervisors depend on the numbers; keep help exit-codes explains them.
package exit

import "fmt"

// Exit statuses. A number keeps its meaning: cron jobs and CI compare them.
const (
	Done        = 0
	Failed      = 1 // what was asked for did not work
	Misused     = 2 // the command line, a script or keep.toml is wrong
	NotFound    = 3
	NeedsPerson = 4 // a question is open
	Unreachable = 5 // the database cannot be opened
)

// An Error ends the command with a status of its own.
type Error struct {
	Status int
	err    error // nil: it was reported already
}

// Error returns the message of what went wrong.
func (e *Error) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.Status)
	}
	return e.err.Error()
}

// Unwrap returns what went wrong.
func (e *Error) Unwrap() error { return e.err }

// Misusef returns an error about the command line or a file.
func Misusef(format string, args ...any) error {
	return &Error{Misused, fmt.Errorf(format, args...)}
}

// Failedf returns an error with the status Failed.
func Failedf(format string, args ...any) error {
	return &Error{Failed, fmt.Errorf(format, args...)}
}

// With ends the command with a status and no message: it was printed before.
func With(status int) error { return &Error{Status: status} }

// NoDatabase wraps err, with the status Unreachable.
func NoDatabase(err error) error { return &Error{Unreachable, err} }

// Flatten returns the errors that err joins, or err alone. Those that were
// reported already are left out.
func Flatten(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range many.Unwrap() {
			out = append(out, Flatten(e)...)
		}
		return out
	}
	if e, ok := err.(*Error); ok && e.err == nil {
		return nil
	}
	return []error{err}
}

// Reported reports whether the message was printed before.
func (e *Error) Reported() bool { return e.err == nil }
