package engine

import (
	"context"
	"time"

	"github.com/keep-run/keep"
)

// A Leaser is a store on which several hosts work at once. Each workflow has a
// lease, which is nobody's after its first deploy; see keep.Lease. Leases are
// judged by the database's clock alone. A store that is no Leaser belongs to one
// host, which has every workflow for good.
//
// Every method may fail like a read: after an error nobody knows whether it was
// done, unless the error is keep.ErrFenced.
type Leaser interface {
	Pulser
	Claimer
}

// A Pulser keeps the row of a host.
type Pulser interface {
	// Beat renews the row of h, and makes it if there is none: its leases end
	// ttl after Pulse.Now. A row that had expired is renewed like any other, and
	// the leases that nobody took meanwhile hold again. StartedAt, Until, Held
	// and Draining of h are not read.
	Beat(ctx context.Context, h keep.Host, ttl time.Duration) (keep.Pulse, error)

	// Look returns what Beat would, and renews nothing. It is cheap: an idle
	// host calls it once a second.
	Look(ctx context.Context, id keep.HostID) (keep.Pulse, error)

	// Leave gives back every workflow of the host and forgets it. A host that is
	// not known is no error.
	Leave(ctx context.Context, id keep.HostID) error
}

// A Claimer hands out leases.
type Claimer interface {
	// Claim gives the host up to n workflows that are nobody's or whose host is
	// gone (its row has expired), each with a new epoch. Only, if it is not nil,
	// names those that it wants. Workflows that another claim is at are passed
	// over; so few, or none, is no error. A host that is draining gets none. A
	// host whose own row has expired or is not known gets keep.ErrFenced.
	Claim(ctx context.Context, id keep.HostID, n int, only []keep.WorkflowName) ([]keep.Lease, error)

	// Release gives workflows back. Commits under their epochs are refused from
	// then on. What the host does not have is passed over.
	Release(ctx context.Context, id keep.HostID, ws []keep.WorkflowName) error

	// Leases returns the leases of a host, or of all workflows if id is empty,
	// sorted by workflow. Whether they still hold depends on the host's row.
	Leases(ctx context.Context, id keep.HostID) ([]keep.Lease, error)
}

// An Alerter is a Leaser that can tell at once when Look would show something
// new, so that nothing waits for the next second.
type Alerter interface {
	// Alerts returns a channel that receives when it is worth to look. It may
	// receive for nothing, and it may miss something: it replaces no look.
	Alerts() <-chan struct{}
}
