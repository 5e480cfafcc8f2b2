package keep

import (
	"slices"
	"time"
)

// A HostID names one process that works on the workflows of a database. It is
// made when the process starts and never used again.
type HostID string

// A Host is a process that works on workflows together with others, on a store
// that has leases. All times are those of the database's clock.
type Host struct {
	ID        HostID
	Name      string // for people: machine and process
	Version   string // of Keep
	StartedAt time.Time

	// Until is when its leases end, unless it renews them before.
	Until time.Time

	// Draining: it takes no workflow, and gives back those that it has.
	Draining bool

	// Partial: it works on certain workflows only, so it is not counted when
	// workflows are shared out.
	Partial bool

	Held int // how many workflows it has

	// Connections says of each of its connections where and how it sends, as a hash.
	// Nil: the host does not say.
	Connections map[string]string

	// InGo has the hashes of the versions written in Go whose handlers it has, sorted. A
	// partial host names those of the workflows that it works on.
	InGo []string
}

// Executes reports whether h, as of now, can execute a version written in Go: it is there,
// does not drain, and has the handlers.
func (h Host) Executes(hash string, now time.Time) bool {
	return h.Until.After(now) && !h.Draining && slices.Contains(h.InGo, hash)
}

// A Lease says which host works on a workflow. It holds while the database's
// clock is before Host.Until of its host: a host renews one row, whatever the
// number of its workflows.
type Lease struct {
	Workflow WorkflowName
	Host     HostID // empty: nobody

	// Epoch counts the hosts that the workflow has had. Every commit of a host
	// carries it, and one that carries an old epoch is refused with ErrFenced.
	Epoch int64

	Since time.Time // when Host took it, or the one before gave it back
}

// A LeaseStatus is what a host learns about itself and the others, from the database
// and as of one moment of its clock.
type LeaseStatus struct {
	Now time.Time // that moment

	// Until is when this host's leases end. It is zero if the store does not
	// know the host (any more); then it has no leases.
	Until time.Time

	Draining bool // a person wants the host to drain
	Held     int  // workflows that the host has
	Free     int  // workflows that could be claimed: nobody's, or of a host that is gone
	Gone     int  // those of Free that are of a host that is gone
	Total    int  // workflows, without those of hosts that are there and partial
	Hosts    int  // hosts that share them: there, not draining, not partial

	// Touched are workflows of this host to which somebody else committed (with
	// Epoch 0) since they were named last, sorted. A name may come twice; it is
	// not lost but with the whole answer.
	Touched []WorkflowName

	// Mixed: hosts that are there say different things of their connections.
	Mixed bool

	Gates int64 // how often gates were written so far

	News uint64 // how often hosts told one another of changes so far
}

// News is what one host told the others of what it changed.
type News struct {
	N    uint64 // counts them, over all hosts and without a gap
	Text string // as it was told
}
