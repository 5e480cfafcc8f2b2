package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// A Leased is a store with leases, under test. It is wide because all of it is tested.
type Leased interface {
	store.Store
	store.Leaser
	store.Broadcaster
}

// Leases checks every promise about leases on a store of its own. Pass makes it
// look as if d of the database's time went by: it may move the clock, or move
// what the store has written into the past.
func Leases(t *testing.T, open func(testing.TB) (s Leased, pass func(d time.Duration))) {
	for _, p := range leasePromises {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s, pass := open(t)
			h := &hosts{world: newWorld(t, s), leased: s, pass: pass}
			p.test(h)
			h.check()
		})
	}
}

// ttl is how long leases hold in this group: longer than any test takes.
const ttl = 10 * time.Minute

// hosts are a store with leases, and short words for what hosts do.
type hosts struct {
	*world
	leased Leased
	pass   func(time.Duration)
}

type leasePromise struct {
	name string
	test func(*hosts)
}

// heartbeat renews the leases of a host.
func (h *hosts) heartbeat(id keep.HostID) keep.LeaseStatus {
	h.Helper()
	return get[keep.LeaseStatus](h.world)(h.leased.Heartbeat(h.ctx, keep.Host{ID: id, Name: "name of " + string(id), Version: "1.2.3"}, ttl))
}

func (h *hosts) poll(id keep.HostID) keep.LeaseStatus {
	h.Helper()
	return get[keep.LeaseStatus](h.world)(h.leased.Poll(h.ctx, id))
}

// claim returns what a host gets, sorted.
func (h *hosts) claim(id keep.HostID, n int, only ...keep.WorkflowName) []keep.Lease {
	h.Helper()
	got := get[[]keep.Lease](h.world)(h.leased.Claim(h.ctx, id, n, only))
	slices.SortFunc(got, func(a, b keep.Lease) int { return strings.Compare(string(a.Workflow), string(b.Workflow)) })
	return got
}

// epochs returns what leases say, without times.
func epochs(ls []keep.Lease) []string {
	var out []string
	for _, l := range ls {
		out = append(out, fmt.Sprintf("%s %s %d", l.Workflow, l.Host, l.Epoch))
	}
	return out
}

// are fails the test if leases are not those.
func (h *hosts) are(what string, ls []keep.Lease, want ...string) {
	h.Helper()
	h.same(what, epochs(ls), want)
}

// leases returns the leases of a host.
func (h *hosts) leases(id keep.HostID) []keep.Lease {
	h.Helper()
	return get[[]keep.Lease](h.world)(h.leased.Leases(h.ctx, id))
}

// under commits something under an epoch.
func (h *hosts) under(epoch int64, name keep.WorkflowName) error {
	return h.Commit(h.ctx, keep.Commit{Workflow: name, At: h.now(), Epoch: epoch, Changes: []keep.Change{
		keep.Publish{Event: event(name, "t", keep.MessageID(h.id("m")))},
	}})
}

// fenced fails the test if a commit under that epoch is accepted, or leaves
// anything.
func (h *hosts) fenced(epoch int64, name keep.WorkflowName) {
	h.Helper()
	before := Snapshot(h.TB, h.Store)
	h.fails(fmt.Sprintf("commit to %s under epoch %d", name, epoch), h.under(epoch, name), is(keep.ErrFenced))
	if diff := cmp.Diff(before, Snapshot(h.TB, h.Store)); diff != "" {
		h.Errorf("a fenced commit left something behind (-before +after):\n%s", diff)
	}
}

// accepted fails the test if a commit under that epoch is refused.
func (h *hosts) accepted(epoch int64, name keep.WorkflowName) {
	h.Helper()
	if err := h.under(epoch, name); err != nil {
		h.Errorf("commit to %s under epoch %d: %v", name, epoch, err)
	}
}

// counts are the numbers of a lease status.
func counts(p keep.LeaseStatus) string {
	gone := ""
	if p.Gone > 0 {
		gone = fmt.Sprintf(" (%d of a host that is gone)", p.Gone)
	}
	return fmt.Sprintf("held %d, free %d%s of %d, %d hosts", p.Held, p.Free, gone, p.Total, p.Hosts)
}

var leasePromises = []leasePromise{
	{"a workflow has no host after its first deploy, and a later version changes nothing about its lease", func(h *hosts) {
		h.deploy("w", "t")
		h.are("at first", h.leases(""), "w  0")
		h.heartbeat("a")
		h.claim("a", 1)
		h.commit("w", keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 2}, CreatedAt: h.at, Definition: keep.Definition{Name: "w", Topics: []keep.TopicName{"t"}}}})
		h.are("after a deploy", h.leases(""), "w a 1")
		h.accepted(1, "w")
	}},
	{"a heartbeat makes a host, whose leases end a ttl later by the database's clock", func(h *hosts) {
		p := h.heartbeat("a")
		h.same("Until - Now", p.Until.Sub(p.Now), ttl)
		h.same("lease status", counts(p), "held 0, free 0 of 0, 1 hosts")
		all := get[[]keep.Host](h.world)(h.leased.Hosts(h.ctx))
		want := []keep.Host{{ID: "a", Name: "name of a", Version: "1.2.3", StartedAt: p.Now, Until: p.Until}}
		h.same("hosts", all, want)
		h.pass(time.Minute)
		before := h.poll("a")
		if left := before.Until.Sub(before.Now); left > ttl-time.Minute {
			h.Errorf("after a minute %s are left of %s", left, ttl)
		}
		p = h.heartbeat("a")
		h.same("Until - Now after another heartbeat", p.Until.Sub(p.Now), ttl)
	}},
	{"hosts say what their connections are, and a status says whether those that are there agree", func(h *hosts) {
		say := func(id keep.HostID, connections map[string]string) keep.LeaseStatus {
			return get[keep.LeaseStatus](h.world)(h.leased.Heartbeat(h.ctx, keep.Host{ID: id, Connections: connections}, ttl))
		}
		one := map[string]string{"crm": "1", "odd\x00\u00fc": "2"}
		h.same("one host", say("a", one).Mixed, false)
		h.same("an older one beside it", say("b", nil).Mixed, false)
		h.same("two alike", say("c", map[string]string{"odd\x00\u00fc": "2", "crm": "1"}).Mixed, false)
		h.same("one that has none", say("d", map[string]string{}).Mixed, true)
		h.same("the same for all", h.poll("a").Mixed, true)
		for _, is := range get[[]keep.Host](h.world)(h.leased.Hosts(h.ctx)) {
			h.same("connections of "+string(is.ID), is.Connections, map[keep.HostID]map[string]string{"a": one, "b": nil, "c": one, "d": {}}[is.ID])
		}
		h.same("when it has them too", say("d", one).Mixed, false)
		h.same("when another changes", say("a", map[string]string{"crm": "2"}).Mixed, true)
		h.pass(ttl - time.Second)
		say("a", map[string]string{"crm": "2"})
		h.pass(2 * time.Second)
		h.same("when the others are gone", h.poll("a").Mixed, false)
	}},
	{"news of hosts are counted in the lease status, and arrive in order if they arrive", func(h *hosts) {
		h.heartbeat("a")
		h.same("News at first", h.poll("a").News, uint64(0))
		var told uint64
		tell := func(text string) {
			told++
			h.same("number", get[uint64](h.world)(h.leased.Tell(h.ctx, text)), told)
			h.same("News", h.poll("a").News, told)
		}
		news := h.leased.News()
		if news == nil {
			tell("one")
			tell("two")
			return
		}
		for listening := false; !listening; { // it may take a moment until somebody does
			tell("hello")
			select {
			case n := <-news:
				for n.N < told {
					n = <-news
				}
				h.same("news", n, keep.News{N: told, Text: "hello"})
				listening = true
			case <-time.After(time.Second):
			}
		}
		for _, text := range []string{"two ü", `["three"]`} {
			tell(text)
			h.same("news", <-news, keep.News{N: told, Text: text})
		}
	}},
	{"an unknown host has no leases and gets none", func(h *hosts) {
		h.deploy("w", "t")
		h.same("Until", h.poll("nobody").Until, time.Time{})
		_, err := h.leased.Claim(h.ctx, "nobody", 1, nil)
		h.fails("Claim", err, is(keep.ErrFenced))
		if err := h.leased.Deregister(h.ctx, "nobody"); err != nil {
			h.Errorf("Deregister: %v", err)
		}
		h.fails("Drain", h.leased.Drain(h.ctx, "nobody", true), notFound("host", "nobody"))
	}},
	{"a claim takes what is free, up to its number, and gives each a new epoch", func(h *hosts) {
		for _, name := range []keep.WorkflowName{"u", "v", "w"} {
			h.deploy(name, "t")
		}
		h.heartbeat("a")
		h.heartbeat("b")
		h.same("before", counts(h.poll("a")), "held 0, free 3 of 3, 2 hosts")
		first := h.claim("a", 2)
		h.same("number of leases of a", len(first), 2)
		for _, l := range first {
			h.same("lease", keep.Lease{Workflow: l.Workflow, Host: "a", Epoch: 1, Since: l.Since}, l)
			if l.Since.IsZero() {
				h.Errorf("%s has no time", l.Workflow)
			}
		}
		second := h.claim("b", 5)
		h.same("number of leases of b", len(second), 1)
		h.same("a third claim", len(h.claim("a", 5)), 0)
		h.same("after", counts(h.poll("a")), "held 2, free 0 of 3, 2 hosts")
		h.are("leases of a", h.leases("a"), epochs(first)...)
		h.are("leases of b", h.leases("b"), epochs(second)...)
	}},
	{"a claim for certain workflows takes no other", func(h *hosts) {
		for _, name := range []keep.WorkflowName{"u", "v", "w"} {
			h.deploy(name, "t")
		}
		h.heartbeat("a")
		h.are("claimed", h.claim("a", 5, "v", "unknown"), "v a 1")
		h.same("of none", len(get[[]keep.Lease](h.world)(h.leased.Claim(h.ctx, "a", 5, []keep.WorkflowName{}))), 0)
	}},
	{"a claim leaves what is in Go to a host that can execute it, while there is one", func(h *hosts) {
		say := func(host keep.Host) {
			host.Connections = map[string]string{}
			get[keep.LeaseStatus](h.world)(h.leased.Heartbeat(h.ctx, host, ttl))
		}
		deploy := func(name keep.WorkflowName, v keep.Version, hash string) {
			h.commit(name, keep.Deploy{Deployment: keep.Deployment{Workflow: name, Version: v, Hash: hash, CreatedAt: h.at, Definition: keep.Definition{Name: name, Go: true}}})
		}
		deploy("u", keep.Version{Major: 1}, "one")
		deploy("v", keep.Version{Major: 1}, "one")
		h.deploy("w", "t")
		say(keep.Host{ID: "a"})
		h.are("nobody has it", h.claim("a", 5), "u a 1", "v a 1", "w a 1")
		if err := h.leased.Release(h.ctx, "a", []keep.WorkflowName{"u", "v", "w"}); err != nil {
			h.Fatal(err)
		}
		say(keep.Host{ID: "b", InGo: []string{"one", "two"}, Partial: true})
		for _, is := range get[[]keep.Host](h.world)(h.leased.Hosts(h.ctx)) {
			h.same("in Go on "+string(is.ID), slices.Equal(is.InGo, map[keep.HostID][]string{"b": {"one", "two"}}[is.ID]), true)
		}
		h.are("b has it", h.claim("a", 5), "w a 2")
		h.are("named", h.claim("a", 5, "u", "v"))
		deploy("v", keep.Version{Major: 2}, "three")
		h.are("another version", h.claim("a", 5), "v a 2")
		h.are("by b itself", h.claim("b", 5), "u b 2")
		h.pass(ttl - time.Second)
		say(keep.Host{ID: "a"})
		h.pass(2 * time.Second)
		h.are("b is gone", h.claim("a", 5), "u a 3")
	}},
	{"a commit under the epoch of the lease is accepted, any other is refused and leaves nothing", func(h *hosts) {
		h.deploy("w", "t")
		h.fenced(1, "w")
		h.heartbeat("a")
		h.claim("a", 1)
		h.accepted(1, "w")
		h.fenced(2, "w")
		h.accepted(0, "w")
		h.fenced(1, "never deployed")
	}},
	{"a host that is gone loses its workflows to the next claim, and its epoch with them", func(h *hosts) {
		h.deploy("w", "t")
		h.heartbeat("a")
		h.heartbeat("b")
		h.claim("a", 1)
		h.same("while a is there", len(h.claim("b", 1)), 0)
		h.pass(ttl / 2)
		h.heartbeat("b")
		h.same("half the time later", len(h.claim("b", 1)), 0)
		h.pass(ttl/2 + time.Second)
		h.same("when a is gone", counts(h.poll("b")), "held 0, free 1 (1 of a host that is gone) of 1, 1 hosts")
		h.are("taken over", h.claim("b", 1), "w b 2")
		h.fenced(1, "w")
		h.accepted(2, "w")
		h.are("leases of a", h.leases("a"))
		h.heartbeat("a")
		h.same("when a is back", len(h.claim("a", 1)), 0)
		h.fenced(1, "w")
	}},
	{"a host that comes back late keeps what no other host took", func(h *hosts) {
		h.deploy("w", "t")
		h.heartbeat("a")
		h.claim("a", 1)
		h.pass(ttl + time.Second)
		_, err := h.leased.Claim(h.ctx, "a", 1, nil)
		h.fails("Claim by a host that is late", err, is(keep.ErrFenced))
		h.accepted(1, "w") // nobody else did anything since
		h.same("lease status", counts(h.heartbeat("a")), "held 1, free 0 of 1, 1 hosts")
		h.are("leases", h.leases("a"), "w a 1")
		h.heartbeat("b")
		h.same("what is left for others", len(h.claim("b", 1)), 0)
		h.accepted(1, "w")
	}},
	{"what is given back is free at once, and its epoch has ended", func(h *hosts) {
		h.deploy("u", "t")
		h.deploy("w", "t")
		h.heartbeat("a")
		h.heartbeat("b")
		h.claim("a", 2)
		if err := h.leased.Release(h.ctx, "b", []keep.WorkflowName{"u"}); err != nil {
			h.Errorf("Release of what it does not have: %v", err)
		}
		h.accepted(1, "u")
		if err := h.leased.Release(h.ctx, "a", []keep.WorkflowName{"u", "unknown"}); err != nil {
			h.Errorf("Release: %v", err)
		}
		h.fenced(1, "u")
		h.accepted(1, "w")
		h.are("claimed", h.claim("b", 2), "u b 2")
	}},
	{"a host that leaves gives everything back and is forgotten", func(h *hosts) {
		h.deploy("u", "t")
		h.deploy("w", "t")
		h.heartbeat("a")
		h.claim("a", 2)
		if err := h.leased.Deregister(h.ctx, "a"); err != nil {
			h.Errorf("Deregister: %v", err)
		}
		h.fenced(1, "u")
		h.same("hosts", len(get[[]keep.Host](h.world)(h.leased.Hosts(h.ctx))), 0)
		p := h.heartbeat("b")
		h.same("lease status", counts(p), "held 0, free 2 of 2, 1 hosts")
		h.are("claimed", h.claim("b", 2), "u b 2", "w b 2")
	}},
	{"a host that is gone is shown while it has workflows, and no longer", func(h *hosts) {
		h.deploy("w", "t")
		h.heartbeat("a")
		h.claim("a", 1)
		h.pass(ttl + time.Second)
		h.heartbeat("b")
		all := get[[]keep.Host](h.world)(h.leased.Hosts(h.ctx))
		if len(all) != 2 || all[0].ID != "a" || all[0].Held != 1 || all[0].Until.After(h.poll("b").Now) {
			h.Errorf("hosts = %+v, want a, which is gone and has 1 workflow, and b", all)
		}
		h.claim("b", 1)
		h.heartbeat("b")
		all = get[[]keep.Host](h.world)(h.leased.Hosts(h.ctx))
		if len(all) != 1 || all[0].ID != "b" || all[0].Held != 1 {
			h.Errorf("hosts = %+v, want b alone, which has 1 workflow", all)
		}
	}},
	{"a host is notified of what others committed to its workflows, and of nothing else", func(h *hosts) {
		h.deploy("u", "t")
		h.deploy("w", "t")
		h.heartbeat("a")
		h.heartbeat("b")
		h.claim("a", 1, "w")
		h.claim("b", 1, "u")
		h.accepted(1, "w")
		h.accepted(0, "u")
		h.same("by the host itself", h.poll("a").Touched, []keep.WorkflowName(nil))
		h.accepted(0, "w")
		h.accepted(0, "w")
		h.same("by others", h.poll("a").Touched, []keep.WorkflowName{"w"})
		h.same("once more", h.heartbeat("a").Touched, []keep.WorkflowName(nil))
		h.accepted(0, "w")
		h.same("at a heartbeat", h.heartbeat("a").Touched, []keep.WorkflowName{"w"})
		h.same("the other host", h.poll("b").Touched, []keep.WorkflowName{"u"})
	}},
	{"a refused commit of others notifies no host", func(h *hosts) {
		h.deploy("w", "t")
		h.heartbeat("a")
		h.claim("a", 1)
		err := h.Commit(h.ctx, keep.Commit{Workflow: "w", At: h.now(), Changes: []keep.Change{keep.RequestRun{Handler: "none"}}})
		h.fails("Commit", err, notFound("handler", "none"))
		h.same("touched", h.poll("a").Touched, []keep.WorkflowName(nil))
	}},
	{"a host that should drain learns it, gets no lease, and does not count", func(h *hosts) {
		h.deploy("u", "t")
		h.deploy("w", "t")
		h.heartbeat("a")
		h.heartbeat("b")
		h.claim("a", 1, "w")
		act := keep.Decided{About: keep.Subject{Kind: keep.AboutHost, ID: "a"}, Decision: keep.Decision{Action: keep.Drain, By: "ada", From: "cli", At: kept(oddTime)}}
		if err := h.leased.Drain(h.ctx, "a", true, act); err != nil {
			h.Fatalf("Drain: %v", err)
		}
		h.fails("Drain", h.leased.Drain(h.ctx, "nobody", true, act), notFound("host", "nobody"))
		list, _ := beside(h.world, keep.Page{})
		h.same("decisions", list, []keep.Decided{act})
		p := h.heartbeat("a")
		h.same("draining", p.Draining, true)
		h.same("lease status", counts(p), "held 1, free 1 of 2, 1 hosts")
		h.same("claimed", len(h.claim("a", 5)), 0)
		h.accepted(1, "w")
		if err := h.leased.Drain(h.ctx, "a", false); err != nil {
			h.Fatalf("Drain: %v", err)
		}
		h.same("draining", h.poll("a").Draining, false)
		h.are("claimed", h.claim("a", 5), "u a 1")
	}},
	{"what a partial host has is not shared out", func(h *hosts) {
		for _, name := range []keep.WorkflowName{"u", "v", "w"} {
			h.deploy(name, "t")
		}
		get[keep.LeaseStatus](h.world)(h.leased.Heartbeat(h.ctx, keep.Host{ID: "a", Partial: true}, ttl))
		h.claim("a", 1, "u")
		h.same("lease status", counts(h.heartbeat("b")), "held 0, free 2 of 2, 1 hosts")
		h.pass(ttl - time.Second)
		h.heartbeat("b")
		h.pass(2 * time.Second)
		h.same("when it is gone", counts(h.poll("b")), "held 0, free 3 (1 of a host that is gone) of 3, 1 hosts")
	}},
	{"of many who claim at once each workflow has one", claimsAtOnce},
	{"a commit and the claim of its workflow do not pass each other", commitsBesideClaims},
	{"claims, moves and decisions at once have an order that explains them", linearizable},
}

// claimsAtOnce has hosts claim all workflows, a few at a time.
func claimsAtOnce(h *hosts) {
	const workflows, many = 40, 8
	for i := range workflows {
		h.deploy(keep.WorkflowName(fmt.Sprintf("w%02d", i)), "t")
	}
	var mu sync.Mutex
	owner := make(map[keep.WorkflowName]keep.HostID)
	var wg sync.WaitGroup
	for i := range many {
		id := keep.HostID(fmt.Sprint("host", i))
		h.heartbeat(id)
		wg.Go(func() {
			for misses := 0; misses < 3; {
				got, err := h.leased.Claim(h.ctx, id, 3, nil)
				if err != nil {
					h.Errorf("Claim by %s: %v", id, err)
					return
				}
				if len(got) == 0 {
					misses++
				}
				mu.Lock()
				for _, l := range got {
					if other, taken := owner[l.Workflow]; taken || l.Host != id || l.Epoch != 1 {
						h.Errorf("%s got %+v, which %q had", id, l, other)
					}
					owner[l.Workflow] = id
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	h.claim("host0", workflows) // what all passed over
	h.same("free", h.poll("host0").Free, 0)
	for _, l := range h.leases("") {
		if l.Epoch != 1 || owner[l.Workflow] != l.Host && l.Host != "host0" {
			h.Errorf("lease %+v, want that of %s", l, owner[l.Workflow])
		}
	}
}

// commitsBesideClaims lets one host commit while others take its workflow: once
// a claim has returned, no commit under an older epoch is accepted.
func commitsBesideClaims(h *hosts) {
	h.deploy("w", "t")
	var mu sync.Mutex // protects newest, and the order of ids
	var newest int64
	at, ids := h.now(), 0
	commit := func(epoch int64) error {
		mu.Lock()
		ids++
		id := keep.MessageID(fmt.Sprint("m", ids))
		mu.Unlock()
		return h.Commit(h.ctx, keep.Commit{Workflow: "w", At: at, Epoch: epoch, Changes: []keep.Change{keep.Publish{Event: event("w", "t", id)}}})
	}
	var wg sync.WaitGroup
	for i := range 4 {
		id := keep.HostID(fmt.Sprint("host", i))
		h.heartbeat(id)
		wg.Go(func() {
			for range 20 {
				got, err := h.leased.Claim(h.ctx, id, 1, nil)
				if err != nil {
					h.Errorf("Claim: %v", err)
					return
				}
				for _, l := range got {
					mu.Lock()
					newest = max(newest, l.Epoch)
					mu.Unlock()
					if err := commit(l.Epoch); err != nil {
						h.Errorf("commit under the newest epoch %d: %v", l.Epoch, err)
					}
					if err := h.leased.Release(h.ctx, id, []keep.WorkflowName{"w"}); err != nil {
						h.Errorf("Release: %v", err)
					}
				}
				mu.Lock()
				old := newest - 1
				mu.Unlock()
				if old > 0 && commit(old) == nil {
					h.Errorf("a commit under epoch %d was accepted after epoch %d had been given", old, old+1)
				}
			}
		})
	}
	wg.Wait()
}
