package idempotency

import (
	"context"
	"fmt"
	"time"

	"github.com/keep-run/keep/internal/dbclock"
)

// A Clock is a store that tells the time. A store that several machines share should be one: their
// clocks may differ, and if they differ by more than a lease, an owner that is alive is taken for
// dead. With a Clock, leases, settle times and expiry are measured by the store's clock; with any
// other store, by the clock of the process. A guard reads it three times per lease while there are
// requests, and adds what its monotonic clock says in between. It has the methods of Store because it is one.
type Clock interface {
	Store

	// Now returns the store's time, which is one for all who use it.
	Now(ctx context.Context) (time.Time, error)
}

// A clock tells the time by which a store's records are kept.
type clock struct {
	store  Clock // nil: the clock of the process counts
	time   *dbclock.Clock
	asking chan struct{} // holds a value while the store is asked
}

func newClock(s Store, local func() time.Time) *clock {
	shared, _ := s.(Clock)
	return &clock{store: shared, time: dbclock.New(local), asking: make(chan struct{}, 1)}
}

// follows reports whether the store was asked for its time less than a duration ago, or has none.
func (c *clock) follows(every time.Duration) bool { return c.store == nil || c.time.Age() < every }

// follow asks the store for its time, unless it was asked less than a duration ago. Without an error now is known.
func (c *clock) follow(ctx context.Context, every time.Duration) error {
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.follows(every) {
		return nil
	}
	sent := c.time.Local()
	now, err := c.store.Now(ctx)
	if err != nil {
		return fmt.Errorf("read the store's clock: %w", err)
	}
	c.time.Set(now, sent)
	return nil
}

// now returns the time as records have it.
func (c *clock) now() time.Time { return c.time.Now() }

// at returns what now is at a time of the process's clock.
func (c *clock) at(local time.Time) time.Time { return c.time.At(local) }

// decided returns the time of a decision that its caller made at a time: a store that has one of its own dates it.
func (c *clock) decided(ctx context.Context, at time.Time) (time.Time, error) {
	if c.store == nil {
		return at, nil
	}
	err := c.follow(ctx, 0)
	return c.now(), err
}
