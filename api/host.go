package api

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/view"
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
	Unlike    []string    `json:"unlike" doc:"its connections that are not the same on all hosts"`
}

// A Mismatch is a connection that is not the same on all hosts of a database.
type Mismatch struct {
	Connection string          `json:"connection"`
	Ways       [][]keep.HostID `json:"ways" doc:"hosts that have it alike, most hosts first"`
	Without    []keep.HostID   `json:"without" doc:"hosts that have no such connection"`
	Why        string          `json:"why" doc:"a sentence, with the names of the hosts"`
}

// ListMismatches returns the connections that are not the same on all hosts.
func ListMismatches(ctx context.Context, s store.Leaser) ([]Mismatch, error) {
	now, err := s.Poll(ctx, "")
	if err != nil || !now.Mixed {
		return []Mismatch{}, err
	}
	hosts, err := s.Hosts(ctx)
	return each(policy.Mismatches(hosts, now.Now), mismatchOf), err
}

func mismatchOf(m policy.Mismatch) Mismatch {
	ids := func(hosts []keep.Host) []keep.HostID {
		return each(hosts, func(h keep.Host) keep.HostID { return h.ID })
	}
	return Mismatch{m.Connection, each(m.Ways, ids), ids(m.Without), m.String()}
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
		Alive: h.Until.After(now), Draining: h.Draining, Partial: h.Partial, Workflows: []Lease{}, Unlike: []string{},
	}
	for _, l := range leases {
		if l.Host == h.ID {
			out.Workflows = append(out.Workflows, Lease{l.Workflow, l.Epoch, Time(l.Since)})
		}
	}
	slices.SortFunc(out.Workflows, func(a, b Lease) int { return cmp.Compare(a.Workflow, b.Workflow) })
	return out
}

// ShowHost returns the host of that id or name. Of a name that several have it is the one that is alive, such as a container
// that was started again; if several are alive, the error is a *view.AmbiguousError.
func ShowHost(ctx context.Context, s store.Leaser, name string) (Host, error) {
	all, err := ListHosts(ctx, s)
	if err != nil {
		return Host{}, err
	}
	var named, alive []Host
	for _, h := range all {
		switch {
		case string(h.ID) == name:
			return h, nil
		case h.Name == name && h.Alive:
			alive = append(alive, h)
		case h.Name == name:
			named = append(named, h)
		}
	}
	switch {
	case len(alive) == 1:
		return alive[0], nil
	case len(alive) > 1:
		return Host{}, &view.AmbiguousError{ID: name, Names: each(alive, func(h Host) string { return string(h.ID) })}
	case len(named) > 0:
		return named[0], nil
	}
	return Host{}, &keep.NotFoundError{What: "host", ID: name}
}

// A HostPath is the host of a path.
type HostPath struct {
	Host string `path:"host" doc:"its id or its name"`
}

// hosts registers what is about hosts.
func (s *Server) hosts() {
	get(s, "/hosts", "list-hosts", "Processes that share a database, newest first; a file has one, which is not listed",
		func(ctx context.Context, _ *struct{}) (Page[Host], error) {
			if s.cfg.Hosts == nil {
				return Page[Host]{Items: []Host{}}, nil
			}
			all, err := ListHosts(ctx, s.cfg.Hosts)
			return paged(all, "", err)
		})
	get(s, "/hosts/{host}", "show-host", "One host, with its workflows", func(ctx context.Context, in *HostPath) (Host, error) {
		return s.host(ctx, in.Host)
	})
	post(s, "/hosts/{host}/drain", "drain", "Let a host give its workflows to the others, and take no new ones", func(ctx context.Context, in *struct {
		HostPath
		Body struct {
			Undo bool `json:"undo,omitempty" doc:"let it take workflows again"`
		}
	}) (Host, error) {
		h, err := s.host(ctx, in.Host)
		if err != nil {
			return Host{}, err
		}
		action := keep.Drain
		if in.Body.Undo {
			action = keep.Undrain
		}
		act := access.Act(ctx, keep.Subject{Kind: keep.AboutHost, ID: string(h.ID)}, action, h.Name, s.cfg.Clock())
		if err := s.cfg.Hosts.Drain(ctx, h.ID, !in.Body.Undo, act); err != nil {
			return Host{}, err
		}
		return s.host(ctx, string(h.ID))
	})
}

// host returns the host of that id or name.
func (s *Server) host(ctx context.Context, name string) (Host, error) {
	if s.cfg.Hosts == nil {
		return Host{}, &keep.NotFoundError{What: "host", ID: name}
	}
	h, err := ShowHost(ctx, s.cfg.Hosts, name)
	return h, ambiguous(err)
}

// ListHosts returns every host that the store knows, the newest first.
func ListHosts(ctx context.Context, s store.Leaser) ([]Host, error) {
	now, err := s.Poll(ctx, "") // no host's: it only tells the time
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
	unlike := policy.Mismatches(hosts, now.Now)
	for _, h := range slices.Backward(hosts) {
		o := HostOf(h, leases, now.Now)
		for _, m := range unlike {
			if m.Of(h.ID) {
				o.Unlike = append(o.Unlike, m.Connection)
			}
		}
		out = append(out, o)
	}
	return out, nil
}
