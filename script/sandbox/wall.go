package sandbox

import (
	"context"
	"sync"
	"time"
)

// A wall ends the context of the host calls of a phase at its wall limit. It is stopped
// while a call waits for what is no fault of the script.
type wall struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu    sync.Mutex // protects all below
	timer *time.Timer
	until time.Time
	added time.Duration // since stood was called last
}

func newWall(ctx context.Context, until time.Time, cause error) *wall {
	w := &wall{until: until}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(time.Until(until), func() { w.cancel(cause) })
	return w
}

// stop releases what it holds.
func (w *wall) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.cancel(context.Canceled)
}

// pause stops the clock until resume is called.
func (w *wall) pause() (resume func()) {
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

// stood returns for how long it was stopped since it was asked last.
func (w *wall) stood() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.added
	w.added = 0
	return d
}

// end returns when the context ends.
func (w *wall) end() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.until
}
