package lease

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/dbclock"
)

// A Clock tells the time of a database that several hosts share: leases and all
// decisions count by it, not by the clocks of the machines. Before its first answer, and on a
// database of one host, the machine's own clock counts.
type Clock struct {
	time *dbclock.Clock
	last atomic.Pointer[reading]
}

// NewClock returns a clock over that of the machine, with its monotonic part.
func NewClock(local func() time.Time) *Clock { return &Clock{time: dbclock.New(local)} }

// A reading is what the database answered of the leases, and when it was asked by this machine's clock.
type reading struct {
	keep.LeaseStatus
	sent time.Time
}

// A Poller tells the database's time, among other things; a Leaser is one.
type Poller interface {
	Poll(ctx context.Context, id keep.HostID) (keep.LeaseStatus, error)
}

// Read asks the database for its time once.
func (c *Clock) Read(ctx context.Context, p Poller, id keep.HostID) error {
	sent := c.Local()
	status, err := p.Poll(ctx, id)
	if err != nil {
		return fmt.Errorf("read the database's clock: %w", err)
	}
	c.Set(status, sent)
	return nil
}

// Local returns the time by the machine's clock.
func (c *Clock) Local() time.Time { return c.time.Local() }

// Set takes what the database has just answered to a question sent at a time of the
// machine's clock.
func (c *Clock) Set(p keep.LeaseStatus, sent time.Time) {
	c.time.Set(p.Now, sent)
	c.last.Store(&reading{p, sent})
}

// Now returns the time as stores keep it: that of the database, or somewhat less.
func (c *Clock) Now() time.Time { return c.time.Now().UTC().Truncate(time.Millisecond) }

// Remaining returns how long what must be finished at a time may still take, by the
// database's clock and whatever is not known of that.
func (c *Clock) Remaining(until time.Time) time.Duration {
	return until.Sub(c.Now()) - c.time.Slack()
}

// Deadline returns when what begins at now, and may take d, is over by the database's clock,
// whatever is not known of that: as of now, d remains until then, but for rounding.
func (c *Clock) Deadline(now time.Time, d time.Duration) time.Time {
	return now.Add(d + max(c.time.Slack()-dbclock.Rounding, 0))
}

// Left returns for how long the leases of this host hold for sure, by either clock of the machine.
func (c *Clock) Left() time.Duration {
	r := c.last.Load()
	if r == nil {
		return 0
	}
	return r.Until.Sub(r.Now) - dbclock.Passed(r.sent, c.Local())
}
