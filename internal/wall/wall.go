// Package wall bounds how long a phase of a workflow takes, the calls that it makes included.
package wall

import (
	"context"
	"sync"
	"time"
)

// A Wall ends its context at the limit of a phase. It is stopped while a call waits for
// what is no fault of the handler.
type Wall struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu    sync.Mutex // protects all below
	timer *time.Timer
	until time.Time
	added time.Duration // since Stood was called last
}

// New returns a Wall whose context, derived from ctx, ends at until because of cause.
func New(ctx context.Context, until time.Time, cause error) *Wall {
	w := &Wall{until: until}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(time.Until(until), func() { w.cancel(cause) })
	return w
}

// Context returns the context that ends at the limit.
func (w *Wall) Context() context.Context { return w.ctx }

// Stop ends the context now, and releases what it holds.
func (w *Wall) Stop() { w.End(context.Canceled) }

// End ends the context now because of cause.
func (w *Wall) End(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.cancel(cause)
}

// Renew moves the limit to until, unless the context has ended.
func (w *Wall) Renew(until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer.Stop() {
		w.until = until
		w.timer.Reset(time.Until(until))
	}
}

// Pause stops the clock until resume is called.
func (w *Wall) Pause() (resume func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.timer.Stop() {
		return func() {}
	}
	from := time.Now()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		d := time.Since(from)
		w.until, w.added = w.until.Add(d), w.added+d
		if w.ctx.Err() == nil {
			w.timer.Reset(time.Until(w.until))
		}
	}
}

// Stood returns for how long the clock was stopped since it was asked last.
func (w *Wall) Stood() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.added
	w.added = 0
	return d
}

// Until returns when the context ends.
func (w *Wall) Until() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.until
}
