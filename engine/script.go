package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine/lease"
)

// Scripts gives the engine the script of a version. The host keeps them loaded.
type Scripts interface {
	// Script returns the loaded script of d. It may be called again and again
	// for the same version. The error wraps ErrNotHere if d is written in Go, and this program
	// does not have it.
	Script(ctx context.Context, d keep.Deployment) (Script, error)
}

// A Script runs the handlers of one version, each call in fresh global state.
type Script interface {
	// Call runs one function of the script and returns its JSON result; nil is
	// undefined.
	//
	// When a host call returns an error, nothing of the script runs after it
	// (law: not-catchable), and Call returns an error that wraps that one.
	// When the script itself fails, or breaks a limit, the error wraps a
	// *keep.Failure of class logic. When ctx ends first, it wraps ctx's cause.
	Call(ctx context.Context, c ScriptCall) (json.RawMessage, error)

	// Locate returns where the function at path is declared, as file:line:column; empty: it is
	// not known.
	Locate(ctx context.Context, path []string) string
}

// Wording is what a Script has whose author knows the calls by other names than scripts do.
type Wording interface {
	// InWords returns what the engine says of a handler in the words of its author.
	InWords(message string) string
}

// A ScriptCall is one call into a script.
type ScriptCall struct {
	Path []string          // such as consumers, addRow, prepare
	Args []json.RawMessage // after ctx; a nil element is undefined
	Now  time.Time         // the script's clock does not move from it
	Seed []byte            // what chance comes from: the same seed gives the same numbers
	Pure bool              // a function of Args alone: it gets no ctx and no chance
	Host ScriptHost
	Log  func(level, text, where string)
}

// A ScriptHost answers the calls that a script makes, one after another.
type ScriptHost interface {
	HostCall(ctx context.Context, c HostCall) (json.RawMessage, error)
}

// A HostCall is one call that a script made on its ctx.
type HostCall struct {
	Name    string            // such as "crm.create" or "publish"
	Args    []json.RawMessage // a nil element is undefined
	At      string            // file:line:column in the script
	Scope   int               // 0: the handler's own ctx; else the item scope that made it
	Waiting []string          // names of the calls issued behind this one

	// ReadOnly says that the call was made by a function that only reads: a tool that changes
	// something is refused, wherever it is made.
	ReadOnly bool

	// Changes says that the call was made by a function that changes something: a tool that reads is refused.
	Changes bool

	// Pause stops the clock of the phase until the function that it returns is called.
	// Nil: the phase has none.
	Pause func() (resume func())
}

// ErrNotHere says that a version is not among those that this program has.
var ErrNotHere = errors.New("this program does not have the version")

// arg returns the i-th argument, nil if there is none.
func (c HostCall) arg(i int) json.RawMessage {
	if i >= len(c.Args) {
		return nil
	}
	return c.Args[i]
}

// errTaken ends the mutate phase when the host takes the call over.
var errTaken = errors.New("the host took the call over")

// errStopping is returned by a run that was left because the host stops.
var errStopping = errors.New("the host is stopping")

// errEnded is returned by what gave up because its context ended: the host stops, unless it is the
// context of one host call alone; see scriptHost.cutOff.
var errEnded = fmt.Errorf("%w: the context of a call ended", errStopping)

// errYields ends an actor whose workflow another host should have.
var errYields = fmt.Errorf("%w: another host should have the workflow", errStopping)

// errLeaseLost is returned by a run that was left because another host may have the
// workflow, or soon will.
var errLeaseLost = fmt.Errorf("%w: %w", errStopping, lease.ErrLost)

// errPaused ends a job at its next call because a person paused the workflow.
var errPaused = fmt.Errorf("%w: a person paused the workflow", errStopping)

// errItemChanged ends a job at its next call because a person skipped the item, or wants
// it done again.
var errItemChanged = fmt.Errorf("%w: a person changed the item", errStopping)

// errGone is returned by a phase whose goroutine ended without an answer. Nothing
// is written then: it is as if the process had died.
var errGone = fmt.Errorf("%w: a phase ended without an answer", errStopping)

// endedOr returns errEnded if ctx has ended, and err if not.
func endedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errEnded
	}
	return err
}

// asFailure returns err as the failure that stops a run. What carries none is
// ours to explain.
func asFailure(err error) *keep.Failure {
	if f, ok := errors.AsType[*keep.Failure](err); ok {
		return f
	}
	return keep.Failf(keep.ClassInternal, "internal", "%v", err)
}

// logicf returns a logic failure at the call.
func (c HostCall) logicf(code, format string, args ...any) *keep.Failure {
	return &keep.Failure{Class: keep.ClassLogic, Code: code, Message: fmt.Sprintf(format, args...), At: c.At}
}
