package policy

import (
	"fmt"
	"time"

	"github.com/keep-run/keep"
)

// A Lease says for how long a host has its workflows unless it renews that, where
// several hosts work on one database (docs/design/0005-leases.md).
type Lease struct {
	// TTL is the longest time for which the workflows of a host that died are
	// left alone. It bounds the deadline of every call.
	TTL time.Duration
}

// patience is how many polls a host lets others have what is free.
const patience = 3

// Validate reports a time that is too short to renew anything in it.
func (l Lease) Validate() error {
	if l.TTL < time.Second {
		return fmt.Errorf("policy.lease: ttl must be a second at least: %s", l.TTL)
	}
	return nil
}

// HeartbeatEvery returns how often a host renews its leases.
func (l Lease) HeartbeatEvery() time.Duration { return l.TTL / 8 }

// Margin returns how long before the end of its leases a host stops to work, if
// it could not renew them.
func (l Lease) Margin() time.Duration { return l.TTL / 10 }

// A Standing is what a host knows about itself when it balances.
type Standing struct {
	Partial bool // it works on certain workflows only
	Polls   int  // polls in a row, so far
	Waiting int  // polls in a row at which something was free
}

// Balance returns how many workflows a host should claim, or give back, after a
// poll; one of them is zero. Each host has a share, and leaves the rest to the
// others, unless they leave it to lie.
func (l Lease) Balance(p keep.LeaseStatus, s Standing) (claim, giveBack int) {
	share := 0
	if p.Hosts > 0 {
		share = (p.Total + p.Hosts - 1) / p.Hosts
	}
	switch {
	case p.Draining:
		return 0, p.Held
	case p.Gone > 0 && s.Polls <= patience:
		return 0, 0 // those that have it may be about to come back
	case s.Partial, p.Free > 0 && s.Waiting > patience:
		return p.Free, 0
	case p.Free > 0:
		return min(p.Free, max(share-p.Held, 0)), 0
	}
	return 0, max(p.Held-share, 0)
}
