package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// A Shared is a store on which several hosts work at once. Make one with
// Store.Share.
type Shared struct {
	*Store
	clock func() time.Time
}

// A lease is that of one workflow, and whether its host must be notified of a commit.
type lease struct {
	keep.Lease
	touched bool
}

// Share returns s with leases. The clock is the database's, by which they are
// judged; what the clocks of hosts say doesn't matter.
func (s *Store) Share(clock func() time.Time) *Shared { return &Shared{Store: s, clock: clock} }

// fence refuses a commit under a lease that has ended, and notes for the host
// that another caller committed.
func (t *tx) fence(epoch int64) error {
	l, ok := t.s.leases[t.workflow]
	switch {
	case epoch != 0 && (!ok || l.Host == "" || l.Epoch != epoch):
		return fmt.Errorf("epoch %d: %w", epoch, keep.ErrFenced)
	case epoch == 0 && ok && l.Host != "":
		l.touched = true
		put(t, t.s.leases, t.workflow, l)
	}
	return nil
}

// enter locks the store for a call at the database's time, which it returns.
func (s *Shared) enter(ctx context.Context) (now time.Time, leave func(), err error) {
	if err := context.Cause(ctx); err != nil {
		return time.Time{}, nil, err
	}
	s.mu.Lock()
	return clean(s.clock()), s.mu.Unlock, nil
}

// Heartbeat makes or renews the row of a host; see store.Hosts.
func (s *Shared) Heartbeat(ctx context.Context, h keep.Host, ttl time.Duration) (keep.LeaseStatus, error) {
	now, leave, err := s.enter(ctx)
	if err != nil {
		return keep.LeaseStatus{}, err
	}
	defer leave()
	if h.ID == "" || ttl <= 0 {
		return keep.LeaseStatus{}, fmt.Errorf("host %q: id and a positive ttl required: %s", h.ID, ttl)
	}
	h.StartedAt, h.Draining = now, false
	if old, known := s.hosts[h.ID]; known {
		h.StartedAt, h.Draining = old.StartedAt, old.Draining
	}
	h.Until, h.Connections, h.InGo = now.Add(ttl), maps.Clone(h.Connections), slices.Clone(h.InGo)
	s.hosts[h.ID] = h
	s.forgetGone(now)
	return s.status(h.ID, now), nil
}

// forgetGone removes hosts that are gone and have nothing.
func (s *Shared) forgetGone(now time.Time) {
	for id, h := range s.hosts {
		if !h.Until.After(now) && s.held(id) == 0 {
			delete(s.hosts, id)
		}
	}
}

// Poll returns what Heartbeat would; see store.Hosts.
func (s *Shared) Poll(ctx context.Context, id keep.HostID) (keep.LeaseStatus, error) {
	now, leave, err := s.enter(ctx)
	if err != nil {
		return keep.LeaseStatus{}, err
	}
	defer leave()
	return s.status(id, now), nil
}

// status counts what there is, and takes the marks off what it names.
func (s *Shared) status(id keep.HostID, now time.Time) keep.LeaseStatus {
	me := s.hosts[id]
	p := keep.LeaseStatus{Now: now, Until: me.Until, Draining: me.Draining, News: s.news}
	for _, g := range s.gates {
		p.Gates += int64(g.Rev)
	}
	var one map[string]string // what the hosts say of their connections
	for _, h := range s.hosts {
		if h.Until.After(now) && !h.Partial && !h.Draining {
			p.Hosts++
		}
		if h.Until.After(now) && h.Connections != nil {
			p.Mixed = p.Mixed || one != nil && !maps.Equal(one, h.Connections)
			one = h.Connections
		}
	}
	for _, name := range sortedKeys(s.leases) {
		l := s.leases[name]
		h, there := s.host(l.Host, now)
		if !there {
			p.Free++
			if l.Host != "" {
				p.Gone++
			}
		}
		if !there || !h.Partial {
			p.Total++
		}
		if l.Host != id || id == "" {
			continue
		}
		p.Held++
		if l.touched {
			p.Touched = append(p.Touched, name)
			l.touched = false
			s.leases[name] = l
		}
	}
	return p
}

// Tell counts what hosts tell; see store.Broadcaster.
func (s *Shared) Tell(ctx context.Context, _ string) (uint64, error) {
	_, leave, err := s.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	s.news++
	return s.news, nil
}

// News returns nil: hosts learn from their lease status that there are news.
func (s *Shared) News() <-chan keep.News { return nil }

// host returns a host, and whether it is there.
func (s *Shared) host(id keep.HostID, now time.Time) (keep.Host, bool) {
	h, known := s.hosts[id]
	return h, known && h.Until.After(now)
}

// held counts the workflows of a host.
func (s *Shared) held(id keep.HostID) int {
	n := 0
	for _, l := range s.leases {
		if l.Host == id {
			n++
		}
	}
	return n
}

// Deregister forgets a host; see store.Hosts.
func (s *Shared) Deregister(ctx context.Context, id keep.HostID) error {
	now, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for name, l := range s.leases {
		if l.Host == id {
			s.leases[name] = lease{Lease: keep.Lease{Workflow: name, Epoch: l.Epoch, Since: now}}
		}
	}
	delete(s.hosts, id)
	return nil
}

// Claim takes workflows that are free; see store.Leases.
func (s *Shared) Claim(ctx context.Context, id keep.HostID, n int, only []keep.WorkflowName) ([]keep.Lease, error) {
	now, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	me, there := s.host(id, now)
	if !there {
		return nil, fmt.Errorf("claim for host %s: %w", id, keep.ErrFenced)
	}
	if me.Draining {
		return nil, nil
	}
	var got []keep.Lease
	for _, name := range sortedKeys(s.leases) {
		if len(got) >= n || only != nil && !slices.Contains(only, name) {
			continue
		}
		l := s.leases[name]
		if _, taken := s.host(l.Host, now); taken || s.elsewhere(me, name, now) {
			continue
		}
		l.Lease = keep.Lease{Workflow: name, Host: id, Epoch: l.Epoch + 1, Since: now}
		l.touched = false
		s.leases[name] = l
		got = append(got, l.Lease)
	}
	return got, nil
}

// elsewhere reports whether another host can execute the version of a workflow that is in
// force, and me cannot.
func (s *Shared) elsewhere(me keep.Host, w keep.WorkflowName, now time.Time) bool {
	hash, version := "", s.workflows[w].Version
	for _, d := range s.deployments[w] {
		if d.v.Version == version {
			hash = d.v.Hash
		}
	}
	for id, h := range s.hosts {
		if id != me.ID && h.Executes(hash, now) && !slices.Contains(me.InGo, hash) {
			return true
		}
	}
	return false
}

// Release gives workflows back; see store.Leases.
func (s *Shared) Release(ctx context.Context, id keep.HostID, ws []keep.WorkflowName) error {
	now, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for _, name := range ws {
		if l := s.leases[name]; l.Host == id && id != "" {
			s.leases[name] = lease{Lease: keep.Lease{Workflow: name, Epoch: l.Epoch, Since: now}}
		}
	}
	return nil
}

// Leases returns the leases of a host, or all; see store.Leases.
func (s *Shared) Leases(ctx context.Context, id keep.HostID) ([]keep.Lease, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Lease
	for _, name := range sortedKeys(s.leases) {
		if l := s.leases[name]; id == "" || l.Host == id {
			list = append(list, l.Lease)
		}
	}
	return list, context.Cause(ctx)
}

// Hosts returns every host that the store knows, the newest last. One that is
// gone stays until its workflows are taken over.
func (s *Shared) Hosts(ctx context.Context) ([]keep.Host, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Host
	for _, id := range sortedKeys(s.hosts) {
		h := s.hosts[id]
		h.Held = s.held(id)
		list = append(list, h)
	}
	slices.SortStableFunc(list, func(a, b keep.Host) int { return a.StartedAt.Compare(b.StartedAt) })
	return list, context.Cause(ctx)
}

// Drain says whether a host should drain. A host that is not known is a
// *keep.NotFoundError.
func (s *Shared) Drain(ctx context.Context, id keep.HostID, drain bool, acts ...keep.Decided) error {
	_, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	h, known := s.hosts[id]
	if !known {
		return &keep.NotFoundError{What: "host", ID: string(id)}
	}
	if err := validActs(acts); err != nil {
		return err
	}
	s.record(acts)
	h.Draining = drain
	s.hosts[id] = h
	return nil
}
