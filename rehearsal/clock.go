package rehearsal

import (
	"sync"
	"time"
)

// A clock starts at a time of its own, moves on with real time and can be set forward.
type clock struct {
	began time.Time // of the real clock

	mu    sync.Mutex
	start time.Time // what the clock showed when it began
}

func newClock(start time.Time) *clock {
	now := time.Now()
	if start.IsZero() {
		start = now
	}
	return &clock{began: now, start: start}
}

// now returns what the clock shows.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start.Add(time.Since(c.began))
}

// reach sets the clock to t, unless it shows a later time.
func (c *clock) reach(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.start.Add(time.Since(c.began)); now.Before(t) {
		c.start = c.start.Add(t.Sub(now))
	}
}
