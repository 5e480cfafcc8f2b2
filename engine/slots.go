package engine

import (
	"context"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// Many workflows may have something to do at the same moment, above all when a
// host starts that another one left with calls in flight. What they do then is
// bounded, so that memory and connections do not grow with their number (law:
// bounded).
const (
	// maxStarting is how many workflows are read at once. It makes no call, so
	// none of them waits for a service.
	maxStarting = 64

	// maxAsking is how many lookups are out at once. Each is cut at
	// policy.Reconcile.Inline, so only this many that hang delay another one, and
	// by no more than that.
	maxAsking = 256
)

// slots are places for things that happen at once.
type slots chan struct{}

// take waits for a place, and returns the cause if ctx ends first.
func (s slots) take(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// give frees a place.
func (s slots) give() { <-s }

// reconcile asks a tool what became of m, as tool.reconcile does, when there is a
// place. The time of the lookup begins then: at. by is the tool that was asked: t, or what only looks for the call.
func (e *Engine) reconcile(ctx context.Context, t *tool, m keep.Mutation) (ans connector.Answer, at time.Time, by *tool) {
	if err := e.asking.take(ctx); err != nil {
		return connector.Answer{Verdict: connector.Retry, Detail: err.Error()}, at, t
	}
	defer e.asking.give()
	at = e.Now()
	by, refused := e.toAsk(ctx, t, m)
	if refused != nil {
		return *refused, at, t
	}
	ctx = connector.WithRecorded(ctx, m.CreatedAt)
	m, note := e.aged(by, m)
	return noted(by.reconcile(ctx, m, e.policy.Reconcile.Inline), note), at, by
}

// control asks, when there is a place, whether a lookup of the tool finds a known effect.
func (e *Engine) control(ctx context.Context, t *tool, known keep.Mutation) bool {
	if err := e.asking.take(ctx); err != nil {
		return false
	}
	defer e.asking.give()
	limit := e.policy.Reconcile.Inline
	ctx, cancel := withTime(ctx, limit, &keep.TimeoutError{Op: "asking " + string(t.name), After: limit})
	defer cancel()
	return t.control(ctx, known)
}
