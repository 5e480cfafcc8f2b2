package rehearsal

import (
	"sync"
	"time"
)

// A clock stands until it is set forward, so that what is done does not depend on how busy the machine is.
type clock struct {
	mu    sync.Mutex // protects shows
	shows time.Time
}

func newClock(start time.Time) *clock {
	if start.IsZero() {
		start = time.Now()
	}
	return &clock{shows: start}
}

// now returns what the clock shows.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shows
}

// reach sets the clock to the first whole millisecond that is not before t, unless it shows a later time. The engine
// knows no smaller time.
func (c *clock) reach(t time.Time) {
	if up := t.Truncate(time.Millisecond); up.Before(t) {
		t = up.Add(time.Millisecond)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shows.Before(t) {
		c.shows = t
	}
}
