package lease

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
)

// A Clock tells the time of a database that several hosts share: leases and all
// decisions count by it, not by the clocks of the machines. Between two answers of the
// database, what has passed is counted by the monotonic clock of this machine. Before
// the first, and on a database of one host, the machine's own clock counts.
type Clock struct {
	local func() time.Time
	last  atomic.Pointer[reading]
}

// NewClock returns a clock over that of the machine, with its monotonic part.
func NewClock(local func() time.Time) *Clock { return &Clock{local: local} }

// rounding is what times lose because they are kept in milliseconds, once by the
// database and once by Now.
const rounding = 2 * time.Millisecond

// A reading is what the database answered, and when by this machine's clock.
type reading struct {
	keep.LeaseStatus
	sent, got time.Time

	// When it was answered, the database's time was base, or up to slack more.
	base  time.Time
	slack time.Duration
}

// A Poller tells the database's time, among other things; a Leaser is one.
type Poller interface {
	Poll(ctx context.Context, id keep.HostID) (keep.LeaseStatus, error)
}

// Read asks the database for its time once.
func (c *Clock) Read(ctx context.Context, p Poller, id keep.HostID) error {
	sent := c.local()
	status, err := p.Poll(ctx, id)
	if err != nil {
		return fmt.Errorf("read the database's clock: %w", err)
	}
	c.Set(status, sent)
	return nil
}

// Local returns the time by the machine's clock.
func (c *Clock) Local() time.Time { return c.local() }

// Set takes what the database has just answered to a question sent at a time of the
// machine's clock. What was known before is kept if it is more exact, so that time
// does not go back; it does if the database's does.
func (c *Clock) Set(p keep.LeaseStatus, sent time.Time) {
	got := c.local()
	r := reading{LeaseStatus: p, sent: sent, got: got, base: p.Now, slack: got.Sub(sent) + rounding}
	if before := c.last.Load(); before != nil {
		known := before.now(got)
		if ahead := known.Sub(r.base); ahead > 0 && ahead <= r.slack {
			r.base, r.slack = known, r.slack-ahead
		}
	}
	c.last.Store(&r)
}

// Now returns the time as stores keep it: that of the database, or somewhat less.
func (c *Clock) Now() time.Time {
	now := c.local()
	if r := c.last.Load(); r != nil {
		now = r.now(now)
	}
	return now.UTC().Truncate(time.Millisecond)
}

// Remaining returns how long what must be finished at a time may still take, by the
// database's clock and whatever is not known of that.
func (c *Clock) Remaining(until time.Time) time.Duration {
	d := until.Sub(c.Now())
	if r := c.last.Load(); r != nil {
		d -= r.slack
	}
	return d
}

// Deadline returns when what begins at now, and may take d, is over by the database's clock,
// whatever is not known of that: as of now, d remains until then, but for rounding.
func (c *Clock) Deadline(now time.Time, d time.Duration) time.Time {
	if r := c.last.Load(); r != nil {
		d += r.slack - rounding
	}
	return now.Add(d)
}

// Left returns for how long the leases of this host hold for sure.
func (c *Clock) Left() time.Duration {
	r := c.last.Load()
	if r == nil {
		return 0
	}
	return r.left(c.local())
}

// now returns the database's time, or somewhat less: what passed since it answered is
// counted by the monotonic clock.
func (r *reading) now(local time.Time) time.Time { return r.base.Add(local.Sub(r.got)) }

// left returns for how long the leases hold, by either clock of the machine: while it
// sleeps, the monotonic one does not move.
func (r *reading) left(local time.Time) time.Duration {
	passed := max(local.Sub(r.sent), local.Round(0).Sub(r.sent.Round(0)))
	return r.Until.Sub(r.Now) - passed
}
