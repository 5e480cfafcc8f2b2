package engine

import (
	"context"
	"sync"
	"time"
)

// A stopwatch ends a context when its time is over. It can be stopped.
type stopwatch struct {
	mu     sync.Mutex // protects the fields below
	timer  *time.Timer
	until  time.Time
	from   time.Time     // since when it is stopped; zero: it runs
	paused time.Duration // before that
}

// newStopwatch returns a context that ends with cause after d.
func newStopwatch(ctx context.Context, d time.Duration, cause error) (context.Context, *stopwatch, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &stopwatch{until: time.Now().Add(d)}
	s.timer = time.AfterFunc(d, func() { cancel(cause) })
	return ctx, s, func() {
		s.timer.Stop()
		cancel(context.Canceled)
	}
}

// pause stops it until resume is called.
func (s *stopwatch) pause() (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.timer.Stop() {
		return func() {}
	}
	s.from = time.Now()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		d := time.Since(s.from)
		s.until, s.paused, s.from = s.until.Add(d), s.paused+d, time.Time{}
		s.timer.Reset(time.Until(s.until))
	}
}

// stood returns for how long it was stopped.
func (s *stopwatch) stood() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.from.IsZero() {
		return s.paused + time.Since(s.from)
	}
	return s.paused
}
