package rehearsal

import (
	"sync"
	"time"
)

// A clock starts at a time of its own, stands until it is run, moves on with real time then,
// and can be set forward.
type clock struct {
	mu    sync.Mutex // protects all below
	began time.Time  // of the real clock; zero: it stands
	start time.Time  // what the clock showed when it began
}

func newClock(start time.Time) *clock {
	if start.IsZero() {
		start = time.Now()
	}
	return &clock{start: start}
}

// run makes the clock move. What was done before was done at one time, so that it does not
// depend on how busy the machine was.
func (c *clock) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began = time.Now()
}

// now returns what the clock shows.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shows()
}

// shows is now for who holds mu.
func (c *clock) shows() time.Time {
	if c.began.IsZero() {
		return c.start
	}
	return c.start.Add(time.Since(c.began))
}

// reach sets the clock to t, unless it shows a later time.
func (c *clock) reach(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.shows(); now.Before(t) {
		c.start = c.start.Add(t.Sub(now))
	}
}
