package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/keep-run/keep"
)

// A host that is started on the machine where another one was killed takes its workflows
// over at once, each under the next epoch: the leases of the dead one have not ended yet by
// the database's clock.
func TestSuccessorOnTheSameMachine(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	f.write("keep.toml", strings.ReplaceAll(failoverConfig, `lease     = { ttl = "2s" }`, `lease     = { ttl = "10m" }`))
	a, b := f.hosts[0], f.hosts[1]
	a.start()
	f.until("the first has all workflows", failoverPatience, func() string { return f.unheld(nil) })
	epochs := make(map[keep.WorkflowName]int64)
	leases, err := f.db.Leases(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		epochs[l.Workflow] = l.Epoch
	}
	a.signal(syscall.SIGKILL)
	a.wait()
	hosts, err := f.db.Hosts(t.Context())
	if err != nil || len(hosts) != 1 || !a.is(hosts[0]) {
		t.Fatalf("the dead host left %+v, %v", hosts, err)
	}
	b.start()
	f.until("the second has all workflows", failoverPatience, func() string { return f.unheld(a) })
	p, err := f.db.Poll(t.Context(), "nobody")
	if err != nil || !p.Now.Before(hosts[0].Until) {
		t.Errorf("it is %s, and the leases of the dead one ended at %s; %v", p.Now, hosts[0].Until, err)
	}
	if leases, err = f.db.Leases(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		if l.Epoch != epochs[l.Workflow]+1 {
			t.Errorf("%s has the epoch %d after %d", l.Workflow, l.Epoch, epochs[l.Workflow])
		}
	}
}
