package store

import (
	"context"
	"time"

	"github.com/keep-run/keep"
)

// A Leaser is a store on which several hosts work at once. Each workflow has a lease,
// which no host has after the first deploy; see keep.Lease. Only the database's clock
// says whether a lease holds. A store that is no Leaser belongs to one host, which has
// every workflow for good: see Hosting.
//
// Every method may fail like a read: after an error it is not known whether it was
// done, unless the error is keep.ErrFenced.
//
// It is wide because hosts and leases are one protocol: the leases of a host end with it.
type Leaser interface {
	Hosts
	Leases
}

// Hosts keeps one row for each host.
type Hosts interface {
	// Heartbeat renews the row of h, and makes it if there is none: its leases end
	// ttl after LeaseStatus.Now. A row that had expired is renewed like any other, and
	// the leases that no other host took meanwhile hold again. StartedAt, Until,
	// Held and Draining of h are not read.
	Heartbeat(ctx context.Context, h keep.Host, ttl time.Duration) (keep.LeaseStatus, error)

	// Poll returns what Heartbeat would, and renews nothing. It is cheap: an idle
	// host calls it once a second.
	Poll(ctx context.Context, id keep.HostID) (keep.LeaseStatus, error)

	// Deregister releases every workflow of the host and deletes its row. A host that
	// is not known is no error.
	Deregister(ctx context.Context, id keep.HostID) error

	// Hosts returns every host that the store knows, the newest last. One that
	// is gone stays until its workflows are taken over.
	Hosts(ctx context.Context) ([]keep.Host, error)

	// Drain says whether a host should drain: release its workflows and take
	// none. A host that is not known is a *keep.NotFoundError. As of Access, acts are
	// recorded with it.
	Drain(ctx context.Context, id keep.HostID, drain bool, acts ...keep.Decided) error
}

// Leases hands out workflows to hosts.
type Leases interface {
	// Claim gives the host up to n workflows that no host has, or whose host is
	// gone (its row has expired), each with a new epoch. Only, if it is not nil,
	// names those that it wants. Workflows that another claim is about to take
	// are left out; so few, or none, is no error. So are those whose version in force another
	// host can execute and this one cannot (keep.Host.Executes). A host that is draining gets
	// none. A host whose own row has expired or is not known gets keep.ErrFenced.
	Claim(ctx context.Context, id keep.HostID, n int, only []keep.WorkflowName) ([]keep.Lease, error)

	// Release ends leases of the host. Commits under their epochs are refused
	// from then on. A workflow that the host does not have is left as it is.
	Release(ctx context.Context, id keep.HostID, ws []keep.WorkflowName) error

	// Leases returns the leases of a host, or of all workflows if id is empty,
	// sorted by workflow. Whether they still hold depends on the host's row.
	Leases(ctx context.Context, id keep.HostID) ([]keep.Lease, error)
}

// An Alerter is a Leaser that can tell at once when Poll would return something
// new, so that nothing waits for the next second.
type Alerter interface {
	// Alerts returns a channel that receives when a poll is worth its cost. It
	// may receive for nothing, and it may miss something: it replaces no poll.
	Alerts() <-chan struct{}
}

// A Broadcaster is a Leaser over which hosts tell one another what they changed, so
// that pages are fresh. Nothing else depends on it.
type Broadcaster interface {
	// Tell sends a text to every host of the store, this one included, and
	// returns the number of the news. Hosts that start later do not get it.
	Tell(ctx context.Context, text string) (uint64, error)

	// News returns what was sent, in the order of the numbers. Some may be
	// missing. A nil channel means that texts do not arrive; LeaseStatus.News then
	// shows that there was one.
	News() <-chan keep.News
}
