package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/keep-run/keep"
)

// maxAbandoned is how many reads a host leaves to connectors that ignore the end of
// their context. Beside so many it waits for the next one (law: bounded).
const maxAbandoned = 100

// A readAnswer is what a read came to.
type readAnswer struct {
	result json.RawMessage
	fail   *keep.Failure
}

// readWithin performs a read as tool.read does. It returns without the connector when
// that ignores the end of its context: its result is discarded. The actor of its workflow, and with it Run, ends after it.
func (a *actor) readWithin(ctx context.Context, t *tool, p *pass, c HostCall, params json.RawMessage) (json.RawMessage, *keep.Failure) {
	done := make(chan readAnswer, 1)
	a.calls.Go(func() {
		result, fail := t.read(p.within(ctx), c, params)
		done <- readAnswer{result, fail}
	})
	ans, ok := await(ctx, done, t.spec.Timeout)
	for stood := time.Duration(0); !ok && p.stood() > stood; { // its time did not run meanwhile
		before := stood
		stood = p.stood()
		ans, ok = await(ctx, done, stood-before)
	}
	if !ok && a.abandon(t, done) {
		return nil, &keep.Failure{Class: keep.ClassTransient, Code: "read-failed", Tool: t.name, At: c.At, Message: fmt.Sprintf(
			"%s took longer than %s, and its connector ignores that its time is over", t.name, t.spec.Timeout.Round(time.Millisecond))}
	}
	if !ok {
		ans = <-done
	}
	return ans.result, ans.fail
}

// abandon leaves a read to itself, unless too many are.
func (a *actor) abandon(t *tool, done <-chan readAnswer) bool {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	if a.e.abandoned >= maxAbandoned {
		return false
	}
	a.e.abandoned++
	a.log.Error("a connector ignores that the time of its read is over; the workflow continues without it", "tool", t.name, "left", a.e.abandoned)
	a.calls.Go(func() {
		<-done
		a.e.mu.Lock()
		a.e.abandoned--
		a.e.mu.Unlock()
	})
	return true
}
