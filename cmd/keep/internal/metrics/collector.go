package metrics

import (
	"sync/atomic"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
)

// A Collector passes what a host does on to its metrics, which are made after the host. What comes
// before that is not counted. The zero value, and nil, count nothing until Use.
type Collector struct{ host atomic.Pointer[Host] }

// Use makes h count from now on.
func (c *Collector) Use(h *Host) { c.host.Store(h) }

// Observe counts a commit.
func (c *Collector) Observe(commit keep.Commit) {
	if h := c.current(); h != nil {
		h.Observe(commit)
	}
}

// Measure counts how long something took.
func (c *Collector) Measure(m engine.Measure) {
	if h := c.current(); h != nil {
		h.took.observe(m)
	}
}

func (c *Collector) current() *Host {
	if c == nil {
		return nil
	}
	return c.host.Load()
}
