package main

import (
	"fmt"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
)

// TestPartition runs two real hosts, each in a network namespace, and takes from one
// of them its way to the database, to the service, or to both; there, back, or both
// ways; in silence, or with the link. Each time the other one has every workflow that
// the first may have lost within a lease, and works on it; a host that has lost the
// service holds up its own workflows and no others. Every effect happens once.
func TestPartition(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	f := newArchipelago(t)
	for _, h := range f.hosts {
		h.start()
	}
	stop := f.feed()
	f.settled("at first")
	deadline := time.Now().Add(*failoverFor)
	cuts := cutsOfIslands()
	for i := 0; i < len(cuts) || time.Now().Before(deadline); i++ {
		h, c := f.hosts[i%2], cuts[i%len(cuts)]
		f.until("both hosts have workflows", time.Minute, func() string {
			if x, y := f.hosts[0].holds(), f.hosts[1].holds(); x == 0 || y == 0 {
				return fmt.Sprintf("they have %d and %d", x, y)
			}
			return ""
		})
		c.cut(h.at)
		if c.loses {
			f.takenOver(c.name, h)
			f.works(c.name)
		} else {
			f.othersWork(c.name, h)
		}
		c.heal(h.at)
		f.settled(c.name + ", healed")
		f.works(c.name + ", healed")
	}
	stop()
	f.finish()
}

// A cut is one way to part an island from the rest.
type cut struct {
	name      string
	loses     bool // the host cannot renew its leases
	cut, heal func(*island)
}

func cutsOfIslands() []cut {
	whole := func(i *island) {
		i.pass(toDatabase, true, true)
		i.pass(toService, true, true)
	}
	silent := func(w wire, leaving, coming bool) func(*island) {
		return func(i *island) { i.pass(w, leaving, coming) }
	}
	return []cut{
		{"no way to the database", true, silent(toDatabase, false, false), whole},
		{"nothing comes from the service", false, silent(toService, true, false), whole},
		{"nothing reaches the database", true, silent(toDatabase, false, true), whole},
		{"no way to the service", false, silent(toService, false, false), whole},
		{"nothing comes from the database", true, silent(toDatabase, true, false), whole},
		{"nothing reaches the service", false, silent(toService, false, true), whole},
		{"no way to anywhere", true, func(i *island) {
			i.pass(toDatabase, false, false)
			i.pass(toService, false, false)
		}, whole},
		{"the link to the database is down", true, func(i *island) { i.unplug(toDatabase, true) }, func(i *island) { i.unplug(toDatabase, false) }},
	}
}

// newArchipelago is newFailover with two hosts on islands.
func newArchipelago(t *testing.T) *failover {
	t.Helper()
	pg := pgtest.StartDurable(t, "listen_addresses=*")
	if err := pg.Admit(t.Context(), "10.0.0.0/8"); err != nil {
		t.Fatal(err)
	}
	f := newFailoverOn(t, pg, "")
	f.hosts = f.hosts[:2]
	front := httptest.NewUnstartedServer(f.front.Config.Handler)
	front.Listener.Close()
	front.Listener = listenForAll(t)
	front.Start()
	t.Cleanup(front.Close)
	for n, h := range f.hosts {
		h.at = newIsland(t, n)
		h.at.url = front.URL
		_, h.at.ports[toDatabase], _ = net.SplitHostPort(pg.Addr)
	}
	return f
}

// othersWork waits until contacts that come from now on have been made by every
// workflow that is not h's.
func (f *failover) othersWork(what string, h *failHost) {
	f.Helper()
	f.crm.mu.Lock()
	want := len(f.crm.feed) + 2
	f.crm.mu.Unlock()
	f.until(what+": the others work", 2*time.Minute, func() string {
		mine, err := f.leasesOf(h)
		if err != nil {
			return err.Error()
		}
		counts, err := f.db.TopicCounts(f.Context(), "")
		if err != nil {
			return err.Error()
		}
		for _, c := range counts {
			if c.Topic == "found" && !mine[c.Workflow] && c.Consumed < want {
				return fmt.Sprintf("%s has made %d of %d", c.Workflow, c.Consumed, want)
			}
		}
		return ""
	})
}

// leasesOf returns which workflows a host has.
func (f *failover) leasesOf(h *failHost) (map[keep.WorkflowName]bool, error) {
	hosts, err := f.db.Hosts(f.Context())
	if err != nil {
		return nil, err
	}
	mine := make(map[keep.WorkflowName]bool)
	for _, k := range hosts {
		if !h.is(k) {
			continue
		}
		leases, err := f.db.Leases(f.Context(), k.ID)
		if err != nil {
			return nil, err
		}
		for _, l := range leases {
			mine[l.Workflow] = true
		}
	}
	return mine, nil
}
