package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/keep-run/keep"
)

// maxAbandoned is how many reads a host leaves to connectors that ignore the end of
// their context. Beside so many no other one begins (law: bounded).
const maxAbandoned = 100

// A readAnswer is what a read came to.
type readAnswer struct {
	result json.RawMessage
	fail   *keep.Failure
}

// readWithin performs a read as tool.read does. It returns without the connector when
// that ignores the end of its context: the read is abandoned, its result is discarded, and nobody
// waits for it, Run included. stood returns for how long the clock of the read was stopped; nil: it is not stopped.
func (a *actor) readWithin(ctx context.Context, t *tool, stood func() time.Duration, c HostCall, params json.RawMessage) (json.RawMessage, *keep.Failure) {
	if a.e.tooManyAbandoned() {
		return nil, &keep.Failure{Class: keep.ClassTransient, Code: "read-failed", Tool: t.name, At: c.At, Message: fmt.Sprintf(
			"%s is not read: %d reads whose connectors ignore that their time is over are still out in this process; have the connectors return when their context ends", t.name, maxAbandoned)}
	}
	done := make(chan readAnswer, 1)
	go func() { // ends before readWithin returns, or is abandoned
		result, fail := t.read(ctx, c, params)
		done <- readAnswer{result, fail}
	}()
	ans, ok := await(ctx, done, t.spec.Timeout)
	for before := time.Duration(0); !ok && stood != nil && stood() > before; { // its time did not run meanwhile
		more := stood() - before
		before += more
		ans, ok = await(ctx, done, more)
	}
	if ok {
		return ans.result, ans.fail
	}
	a.abandon(t, done)
	return nil, &keep.Failure{Class: keep.ClassTransient, Code: "read-failed", Tool: t.name, At: c.At, Message: fmt.Sprintf(
		"%s took longer than %s, and its connector ignores that its time is over", t.name, t.spec.Timeout.Round(time.Millisecond))}
}

// tooManyAbandoned reports whether no read may begin beside those that are abandoned.
func (e *Engine) tooManyAbandoned() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.abandoned >= maxAbandoned
}

// abandon leaves a read to itself.
func (a *actor) abandon(t *tool, done <-chan readAnswer) {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	a.e.abandoned++
	a.log.Error("a connector ignores that the time of its read is over; the workflow continues without it", "tool", t.name, "left", a.e.abandoned)
	go func() { // ends with the read
		<-done
		a.e.mu.Lock()
		defer a.e.mu.Unlock()
		a.e.abandoned--
	}()
}
