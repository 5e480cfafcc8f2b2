//go:build unix

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestFailoverBehind kills the Postgres of two real hosts at work, and promotes a standby that did
// not get the last commits. The hosts know what they had done and do nothing again: they pause
// every workflow and end.
func TestFailoverBehind(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	f.hosts = f.hosts[:2]
	for _, h := range f.hosts {
		h.start()
	}
	f.settled("at first")
	f.until("the first contacts are made", failoverPatience, f.undone)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	standby, err := f.pg.Follower(ctx)
	if standby != nil {
		t.Cleanup(standby.Stop)
	}
	if err == nil {
		err = standby.Lag(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.crm.more(2)
	f.until("others are made, which the standby does not know", failoverPatience, f.undone)
	f.moveTo(ctx, standby)
	for _, h := range f.hosts {
		f.ended(h)
	}
	f.pausedAll()
	f.madeOnce()
	// A host that is started now remembers nothing, but every workflow is paused.
	h := f.hosts[0]
	h.start()
	f.settled("with the new host")
	if out, err := h.command("status").CombinedOutput(); err != nil || strings.Count(string(out), "keep db restored") != 1 {
		t.Errorf("status: %v\n%s", err, out)
	}
	f.madeOnce()
}

// ended fails the test unless a host ends by itself, with the code for a database that cannot be
// used, and says what to do.
func (f *failover) ended(h *failHost) {
	f.Helper()
	f.until(fmt.Sprintf("host %d ends", h.n), failoverPatience, func() string {
		select {
		case err := <-h.exited:
			h.exited <- err
			if err == nil || err.Error() != "exit status 5" || !strings.Contains(h.out.String(), "keep db restored") {
				f.Errorf("host %d ended with %v, want 5:\n%s", h.n, err, h.out)
			}
			return ""
		default:
			return "it runs"
		}
	})
	h.wait()
}

// pausedAll fails the test unless every workflow is paused, and says what to do.
func (f *failover) pausedAll() {
	f.Helper()
	all, err := f.db.Workflows(f.Context())
	if err != nil || len(all) != failoverWorkflows {
		f.Fatalf("%d workflows, %v", len(all), err)
	}
	for _, w := range all {
		if !w.Paused || !strings.Contains(w.PauseNote, "keep db restored") {
			f.Errorf("workflow %s: paused %v, %q", w.Name, w.Paused, w.PauseNote)
		}
	}
}

// madeOnce fails the test if a contact was made more than once.
func (f *failover) madeOnce() {
	f.Helper()
	f.crm.mu.Lock()
	defer f.crm.mu.Unlock()
	for id, n := range f.crm.created {
		if n != 1 {
			f.Errorf("%s was created %d times, want once", id, n)
		}
	}
}
