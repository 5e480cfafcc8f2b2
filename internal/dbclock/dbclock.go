// Package dbclock follows the clock of a database that several processes share: what they
// tell each other by times counts by it, and not by the clocks of their machines, which may
// differ. Between two answers of the database, what has passed is counted by the monotonic
// clock of this machine.
package dbclock

import (
	"math"
	"sync/atomic"
	"time"
)

// A Clock tells the time of a database: that of the last answer, and what has passed
// since. It may be behind by as long as that answer took, and is never ahead. Before the
// first answer, and for a database of one machine, the machine's own clock counts. It is
// safe for concurrent use.
type Clock struct {
	local func() time.Time
	last  atomic.Pointer[reading]
}

// New returns a clock over that of the machine, with its monotonic part.
func New(local func() time.Time) *Clock { return &Clock{local: local} }

// Rounding is what times lose because they are kept in milliseconds: once in the answer of the
// database, and once where Now is kept.
const Rounding = 2 * time.Millisecond

// A reading is what the database answered, and when by this machine's clock.
type reading struct {
	sent, got time.Time

	// When it was answered, the database's time was base, or up to slack more.
	base  time.Time
	slack time.Duration
}

// Local returns the time by the machine's clock.
func (c *Clock) Local() time.Time { return c.local() }

// Set takes the time that the database has just answered to a question sent at a time of
// the machine's clock. What was known before is kept if it is more exact, so that time
// does not go back; it does if the database's does.
func (c *Clock) Set(now, sent time.Time) {
	got := c.local()
	r := reading{sent: sent, got: got, base: now, slack: got.Sub(sent) + Rounding}
	if before := c.last.Load(); before != nil {
		known := before.now(got)
		if ahead := known.Sub(r.base); ahead > 0 && ahead <= r.slack {
			r.base, r.slack = known, r.slack-ahead
		}
	}
	c.last.Store(&r)
}

// Now returns the time of the database, or somewhat less.
func (c *Clock) Now() time.Time { return c.At(c.local()) }

// At returns what Now is, or was, at a time of the machine's clock.
func (c *Clock) At(local time.Time) time.Time {
	if r := c.last.Load(); r != nil {
		local = r.now(local)
	}
	return local
}

// Slack returns by how much the database may be ahead of Now.
func (c *Clock) Slack() time.Duration {
	if r := c.last.Load(); r != nil {
		return r.slack
	}
	return 0
}

// Age returns how long ago the database was asked last, as Passed counts.
func (c *Clock) Age() time.Duration {
	if r := c.last.Load(); r != nil {
		return Passed(r.sent, c.local())
	}
	return math.MaxInt64
}

// now returns the database's time, or somewhat less: what passed since it answered is
// counted by the monotonic clock.
func (r *reading) now(local time.Time) time.Time { return r.base.Add(local.Sub(r.got)) }

// Passed returns what passed between two times of a machine's clock, by the one of its
// clocks that says more: while a machine sleeps, the monotonic one does not move.
func Passed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
