package lifecycle

import (
	"fmt"

	"github.com/keep-run/keep"
)

// CanRedo returns why an event cannot be done again; empty: it can. calls are those of all
// runs that worked on it, and of those that worked on what they published. A call whose
// outcome is not known is answered first: nobody could tell its effect from that of the
// attempt after it.
func CanRedo(ev keep.Event, calls []keep.Mutation) string {
	switch {
	case ev.Free():
		return "it is pending, and will be done without that"
	case ev.Status == keep.EventPending:
		return fmt.Sprintf("run %s has it now", ev.ReservedBy)
	case ev.ReservedBy == keep.Swept:
		return "it is old, and its payload was deleted; publish it under another message id"
	case ev.Attempt() >= keep.MaxAttempts:
		return fmt.Sprintf("it is at attempt %d, and more are not kept", ev.Attempt())
	}
	for _, m := range calls {
		if Unknown(m.State) {
			return fmt.Sprintf("its call %s of %s is %s: nobody knows whether it happened; answer that first, see keep inbox", m.Key, m.Tool, m.State)
		}
	}
	return ""
}

// A Repeat is what a redo means for a call of an attempt before.
type Repeat string

const (
	SecondTime Repeat = "second-time" // it happened, and may happen once more
	PerhapsTwo Repeat = "unknown"     // nobody knows whether it happened: a person skipped the question
	NotBefore  Repeat = "not-before"  // it is known not to have happened
)

// RepeatOf returns what a redo means for a call of an attempt before.
func RepeatOf(m keep.Mutation) Repeat {
	switch m.State {
	case keep.Applied:
		return SecondTime
	case keep.Failed:
		return NotBefore
	}
	return PerhapsTwo
}
