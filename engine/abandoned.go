package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/keep-run/keep"
)

// maxAbandoned is how many reads of a connection a host leaves to its connector if that ignores the end of
// their context. Beside so many no other one of that connection begins (law: bounded).
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
	if f := a.e.mayBegin(t, c.At); f != nil {
		return nil, f
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

// mayBegin returns why no read by t may begin beside those of its connection that are abandoned; nil: it may.
func (e *Engine) mayBegin(t *tool, at string) *keep.Failure {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.abandoned[t.name.Connection()] < maxAbandoned {
		return nil
	}
	return &keep.Failure{Class: keep.ClassTransient, Code: "read-failed", Tool: t.name, At: at, Message: fmt.Sprintf(
		"%s is not read: %d reads of its connection, whose connector ignores that their time is over, are still out in this process; have the connector return when their context ends", t.name, maxAbandoned)}
}

// abandon leaves a read to itself.
func (a *actor) abandon(t *tool, done <-chan readAnswer) {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	of := t.name.Connection()
	a.e.abandoned[of]++
	a.log.Error("a connector ignores that the time of its read is over; the workflow continues without it", "tool", t.name, "left", a.e.abandoned[of])
	go func() { // ends with the read
		<-done
		a.e.mu.Lock()
		defer a.e.mu.Unlock()
		if a.e.abandoned[of]--; a.e.abandoned[of] == 0 {
			delete(a.e.abandoned, of)
		}
	}()
}
