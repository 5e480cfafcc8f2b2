package sandbox

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors of a runtime and its programs, returned whatever the script does.
var (
	// ErrClosed is returned after Close, and by calls that Close interrupted.
	ErrClosed = errors.New("sandbox closed")

	// ErrUnsettled is wrapped by the *ScriptError of a handler that waits for
	// a promise which nothing will ever settle.
	ErrUnsettled = errors.New("awaits a promise that nothing will settle")
)

// Position is a place in the author's files. Line and Column count from 1; the
// zero Position is an unknown place.
type Position struct {
	File   string `json:"file"` // relative to the project, with slashes
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// IsZero reports whether the place is unknown.
func (p Position) IsZero() bool { return p == Position{} }

// String is "file:line:col", or "" for an unknown place.
func (p Position) String() string {
	if p.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Frame is one entry of a script's call stack.
type Frame struct {
	Func string // name of the function; empty for the top level and unnamed ones
	Position
}

// String is "func (file:line:col)".
func (f Frame) String() string {
	if f.Func == "" {
		return f.Position.String()
	}
	return f.Func + " (" + f.Position.String() + ")"
}

// ScriptError is what a script threw and did not catch, or something it did
// that cannot work, such as returning a value that is not JSON.
type ScriptError struct {
	Name    string   // "TypeError"; "Thrown" for a value that is not an Error
	Message string   // at most 4 KiB
	Stack   []Frame  // innermost first, at most 32, only the author's own code
	At      Position // where; the handler itself if nothing better is known

	cause error // a sentinel of this package, or nil
}

// Error is "name: message (at file:line:col)".
func (e *ScriptError) Error() string {
	s := e.Name + ": " + e.Message
	if e.Name == "" {
		s = e.Message
	}
	return s + place(e.At)
}

// Unwrap makes errors.Is(err, ErrUnsettled) work.
func (e *ScriptError) Unwrap() error { return e.cause }

// LimitError says that a script reached one of its [Limits], and was stopped.
type LimitError struct {
	// Limit is the setting's name: memory, heap, stack, cpu, wall, host_calls,
	// result, log_line or items; or waiting, which is no setting: calls that the
	// script has issued and not awaited.
	Limit string

	Value int64    // the setting: bytes, a number, or nanoseconds of cpu and wall
	At    Position // where the script was; zero if it cannot be known
	Call  string   // for result: the host call whose arguments were too large
}

// Error names the limit, its value, the place, and what to do.
func (e *LimitError) Error() string {
	var s string
	switch e.Limit {
	case "memory", "heap":
		s = fmt.Sprintf("script used more than its %s of %s: handle less data at a time", e.Limit, size(e.Value))
	case "stack":
		s = fmt.Sprintf("script recursed deeper than its stack of %s: look for a recursion without end", size(e.Value))
	case "cpu":
		s = fmt.Sprintf("script computed for more than %v: look for a loop without end, or do less in one run", time.Duration(e.Value))
	case "wall":
		s = fmt.Sprintf("script took more than %v, calls included: do less in one run", time.Duration(e.Value))
	case "host_calls":
		s = fmt.Sprintf("script made more than %d calls: do less in one run", e.Value)
	case "result":
		s = fmt.Sprintf("script returned more than %s of JSON: return less, and keep large data in a service", size(e.Value))
		if e.Call != "" {
			s = fmt.Sprintf("script passed more than %s of JSON to %s: send less in one call", size(e.Value), e.Call)
		}
	case "items":
		s = fmt.Sprintf("script began more than %d items: do less in one run", e.Value)
	case "waiting":
		s = fmt.Sprintf("script has issued calls with more than %s of JSON that wait: await each call", size(e.Value))
	default:
		s = fmt.Sprintf("script reached its limit %q of %d", e.Limit, e.Value)
	}
	return s + " (limit " + e.Limit + ")" + place(e.At)
}

// HostError ends a phase because the host refused or failed a call. The script
// never sees it.
type HostError struct {
	Call string   // as in HostCall.Name
	At   Position // where the script made the call
	Err  error    // exactly what Host.Call returned
}

// Error is "call: what the host said (at file:line:col)".
func (e *HostError) Error() string { return e.Call + ": " + e.Err.Error() + place(e.At) }

// Unwrap returns the host's own error.
func (e *HostError) Unwrap() error { return e.Err }

// Problem is one fault that was found while bundling.
type Problem struct {
	File         string
	Line, Column int    // from 1; zero if the fault has no place
	Text         string // what is wrong
	Source       string // the line of code; empty if there is no place
}

// String is "file:line:col: text".
func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// BuildError lists everything that is wrong with a script's source.
type BuildError struct {
	Problems []Problem // at least one; ordered as found
}

// Error has one line for each problem.
func (e *BuildError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func place(p Position) string {
	if p.IsZero() {
		return ""
	}
	return " (at " + p.String() + ")"
}

// size prints bytes in the unit in which limits are written.
func size(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
