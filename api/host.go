package api

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// A Host is a process that works on workflows together with others. Whether it
// is there, and all times, are by the database's clock.
type Host struct {
	ID        keep.HostID `json:"id"`
	Name      string      `json:"name"`
	Version   string      `json:"version"`
	StartedAt Time        `json:"started_at"`
	Until     Time        `json:"until"` // when its leases end, unless it renews them
	Alive     bool        `json:"alive"` // false: others take over what it has
	Draining  bool        `json:"draining"`
	Partial   bool        `json:"partial"` // it works on certain workflows only
	Workflows []Lease     `json:"workflows"`
}

// A Lease is a workflow of a host.
type Lease struct {
	Workflow keep.WorkflowName `json:"workflow"`
	Epoch    int64             `json:"epoch"` // how many hosts it has had
	Since    Time              `json:"since"`
}

// HostOf returns the object of h, which has some of leases.
func HostOf(h keep.Host, leases []keep.Lease, now time.Time) Host {
	out := Host{
		ID: h.ID, Name: h.Name, Version: h.Version, StartedAt: Time(h.StartedAt), Until: Time(h.Until),
		Alive: h.Until.After(now), Draining: h.Draining, Partial: h.Partial, Workflows: []Lease{},
	}
	for _, l := range leases {
		if l.Host == h.ID {
			out.Workflows = append(out.Workflows, Lease{l.Workflow, l.Epoch, Time(l.Since)})
		}
	}
	slices.SortFunc(out.Workflows, func(a, b Lease) int { return cmp.Compare(a.Workflow, b.Workflow) })
	return out
}

// Leases is what a store with leases tells about hosts.
type Leases interface {
	Hosts(ctx context.Context) ([]keep.Host, error)
	Leases(ctx context.Context, id keep.HostID) ([]keep.Lease, error)
	Look(ctx context.Context, id keep.HostID) (keep.Pulse, error)
}

// ListHosts returns every host that the store knows, the newest first.
func ListHosts(ctx context.Context, s Leases) ([]Host, error) {
	now, err := s.Look(ctx, "") // no host's: it only tells the time
	if err != nil {
		return nil, err
	}
	hosts, err := s.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	leases, err := s.Leases(ctx, "")
	if err != nil {
		return nil, err
	}
	out := make([]Host, 0, len(hosts))
	for _, h := range slices.Backward(hosts) {
		out = append(out, HostOf(h, leases, now.Now))
	}
	return out, nil
}
