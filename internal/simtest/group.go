package simtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/limit"
	"github.com/keep-run/keep/store/memory"
)

// A group is several hosts on one store with leases. They die, are frozen for
// longer than their leases and continue in the middle of whatever they did, lose
// the connection to the database, and have wrong clocks. The database's clock is that
// of the bubble.
type group struct {
	shared *memory.Shared
	size   int
	well   map[string]*process // hosts that run, by name

	newest map[keep.WorkflowName]int64 // epoch that was accepted last
}

// errCut is the error of a process that cannot reach the database.
var errCut = fmt.Errorf("%w: no route to the database", errDisk)

// RunGroup is Run with several hosts at once.
func RunGroup(t *testing.T, seed uint64, trace io.Writer) Result {
	w := newWorld(seed, trace)
	w.gather()
	return w.run(t)
}

// unlimited takes limits, outages, grants, budgets and breakers out of a world of several hosts. Whether a host
// learns of what another has changed before or after what it does at the same instant is not
// decided by the seed: such a world keeps the laws in each order, and may have two traces.
func (w *world) unlimited() {
	w.limits, w.downs = limit.Rule{}, 0
	w.granted, w.budgets, w.policy.Breaker.Failures = false, nil, 0
}

// gather makes a world of one host one of several.
func (w *world) gather() {
	store := memory.New()
	w.open = func() (Store, func() error) { return store, func() error { return nil } }
	w.group = &group{
		shared: store.Share(time.Now), size: 2 + w.below(2), well: make(map[string]*process),
		newest: make(map[keep.WorkflowName]int64),
	}
	w.policy.Lease.TTL = []time.Duration{5 * time.Second, 40 * time.Second}[w.below(2)]
	w.result.Group = true
	w.rates.stretch = 1 // the database's clock is not set back
	w.rates.crash /= 4
	w.rates.points = 6000 // of which polls are many
	w.rates.life = min(w.rates.life, time.Hour)
	w.rates.bustle /= hurry
	for _, f := range w.flows {
		for _, s := range f.sources {
			for i := range s.arrivals {
				s.arrivals[i] /= hurry
			}
			s.schedule = w.hurried(s.schedule)
		}
		if f.job != nil {
			f.job.schedule = w.hurried(f.job.schedule)
		}
	}
}

// hurry is how much faster things come than to one host: hosts that look every
// second leave no time to wait for hours.
const hurry = 60

func (w *world) hurried(s keep.Schedule) keep.Schedule {
	if s.IsZero() {
		return s
	}
	return keep.Schedule{Interval: time.Minute + w.span(8*time.Minute).Truncate(time.Second)}
}

// newClock returns the clock of another machine.
func (w *world) newClock() func() time.Time {
	off := []time.Duration{0, time.Hour, -time.Hour}[w.below(3)] + w.span(time.Second)
	return func() time.Time { return time.Now().Add(off) }
}

// chaos starts and ends hosts, several at once, until the world had its share.
func (g *group) chaos(w *world, share int) {
	over := make(chan struct{})
	var hosts, watch sync.WaitGroup
	for n := range g.size {
		hosts.Go(func() {
			for life := 0; g.live(w, fmt.Sprintf("h%d.%d ", n, life), share); life++ {
			}
		})
	}
	watch.Go(func() { g.watch(w, over) })
	hosts.Wait()
	close(over)
	watch.Wait()
	w.inspect()
}

// live is one life of one host. It reports false if the world had its share.
func (g *group) live(w *world, name string, share int) bool {
	w.turns.wait(nil, name+"init")
	if w.result.Points >= share {
		return false
	}
	p := w.bootAs(name)
	p.wellAt = time.Now()
	g.well[name] = p
	t := time.NewTimer(w.span(2*w.rates.life) + time.Second)
	defer t.Stop()
	for stopped := false; !stopped; {
		d := time.NewTimer(w.span(20 * w.policy.Lease.TTL))
		select {
		case <-d.C:
			g.strike(w, p)
		case <-t.C:
			w.turns.wait(nil, name+"init")
			w.result.Stops++
			clear(w.resting)
			p.cancel() // SIGTERM
			stopped = true
		case <-p.ctx.Done(): // it died, or was stopped in a call
			stopped = true
		}
		d.Stop()
	}
	p.wait.Wait()
	w.turns.wait(nil, name+"init")
	delete(g.well, name)
	p.cancel()
	if d := w.span(4 * w.policy.Lease.TTL); w.chance(0.5) {
		time.Sleep(d)
	}
	return true
}

// strike freezes a host, or takes its way to the database, for a time.
func (g *group) strike(w *world, p *process) {
	w.turns.wait(nil, p.name+"fate")
	d := w.span([]time.Duration{time.Second, w.policy.Lease.TTL, 4 * w.policy.Lease.TTL}[w.below(3)])
	freeze, both := w.chance(0.5), w.chance(0.2)
	w.forget()
	if freeze || both {
		w.fault("a host is frozen")
		p.frozen = true
		p.stops++
	}
	if !freeze || both {
		w.fault("a host is cut off")
		p.cut = true
	}
	time.Sleep(d)
	w.turns.wait(nil, p.name+"fate")
	w.note(p.name + "is well again")
	w.forget()
	p.frozen, p.cut, p.wellAt = false, false, time.Now()
	w.turns.look()
}

// isWell reports whether a host can do what it should, and could for a while.
func (p *process) isWell(after time.Duration) bool {
	return p != nil && !p.frozen && !p.cut && !p.dead.Load() && p.ctx.Err() == nil && time.Since(p.wellAt) >= after
}

// watch looks every second whether a workflow has no host although one has
// been well for long that could have it.
func (g *group) watch(w *world, over chan struct{}) {
	tick := time.NewTicker(time.Second - 7*time.Microsecond)
	defer tick.Stop()
	limit := 10*time.Second + w.policy.Lease.TTL/2 // in which an answer may be slow
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		w.turns.wait(nil, "watch")
		steady := false
		for _, p := range g.well {
			steady = steady || p.isWell(w.policy.Lease.TTL+limit)
		}
		if !steady {
			continue
		}
		leases, err := g.shared.Leases(person, "")
		w.must("read leases", err)
		hosts, err := g.shared.Hosts(person)
		w.must("read hosts", err)
		for _, l := range leases {
			free := l.Since
			for _, h := range hosts {
				if h.ID == l.Host {
					free = h.Until
				}
			}
			if idle := time.Since(free); idle > limit && (l.Host == "" || free != l.Since) {
				w.broken("explained", "%s has had no host for %s, and one could take it", l.Workflow, idle)
			}
		}
	}
}

// watchCommit looks at the epoch of a commit.
func (g *group) watchCommit(w *world, c keep.Commit, err error) {
	switch {
	case g == nil || c.Epoch == 0:
	case err != nil:
		if errors.Is(err, keep.ErrFenced) {
			w.saw("lease: a late host is fenced")
		}
		w.forget()
	case c.Epoch < g.newest[c.Workflow]:
		w.broken("one-at-a-time", "a commit to %s under epoch %d is accepted after one under %d", c.Workflow, c.Epoch, g.newest[c.Workflow])
	default:
		if c.Epoch > g.newest[c.Workflow] && g.newest[c.Workflow] != 0 {
			w.saw("lease: a workflow changes hands")
		}
		g.newest[c.Workflow] = c.Epoch
	}
}

// noRoute is what becomes of a commit that cannot reach the database.
func (p *process) noRoute(ctx context.Context, who string) error {
	if p.w.chance(0.5) {
		p.sleep(ctx, time.Hour, who) // nothing comes back at all
	}
	return errCut
}

// A lessor stands between one process and the leases of the world.
type lessor struct {
	*memory.Shared
	p *process
}

// pass asks the database, unless the seed has another fate for the question.
func (l *lessor) pass(ctx context.Context, what string, ask func() error) error {
	w, p := l.p.w, l.p
	p.turn(what)
	if p.cut {
		return p.noRoute(ctx, what)
	}
	fate := ""
	if p.mortal && w.maybe(w.rates.commit/4) {
		fate = []string{"lost", "unknown", "slow"}[w.below(3)]
		w.fault("answer to a poll or claim is " + fate)
	}
	if fate == "lost" {
		return errDisk
	}
	err := ask()
	switch fate {
	case "unknown":
		return errDisk
	case "slow":
		if !p.sleep(ctx, w.span(w.policy.Lease.TTL/3), "slow "+what) {
			return context.Cause(ctx)
		}
	}
	return err
}

// Heartbeat implements store.Hosts.
func (l *lessor) Heartbeat(ctx context.Context, h keep.Host, ttl time.Duration) (p keep.LeaseStatus, err error) {
	err = l.pass(ctx, "heartbeat", func() error {
		p, err = l.Shared.Heartbeat(ctx, h, ttl)
		return err
	})
	return p, err
}

// Poll implements store.Hosts.
func (l *lessor) Poll(ctx context.Context, id keep.HostID) (p keep.LeaseStatus, err error) {
	err = l.pass(ctx, "poll", func() error {
		p, err = l.Shared.Poll(ctx, id)
		return err
	})
	return p, err
}

// Deregister implements store.Hosts.
func (l *lessor) Deregister(ctx context.Context, id keep.HostID) error {
	return l.pass(ctx, "deregister", func() error { return l.Shared.Deregister(ctx, id) })
}

// Claim implements store.Leases.
func (l *lessor) Claim(ctx context.Context, id keep.HostID, n int, only []keep.WorkflowName) (got []keep.Lease, err error) {
	err = l.pass(ctx, "claim", func() error {
		got, err = l.Shared.Claim(ctx, id, n, only)
		return err
	})
	return got, err
}

// Release implements store.Leases.
func (l *lessor) Release(ctx context.Context, id keep.HostID, ws []keep.WorkflowName) error {
	return l.pass(ctx, "release", func() error { return l.Shared.Release(ctx, id, ws) })
}

// Leases implements store.Leases.
func (l *lessor) Leases(ctx context.Context, id keep.HostID) (ls []keep.Lease, err error) {
	err = l.pass(ctx, "leases", func() error {
		ls, err = l.Shared.Leases(ctx, id)
		return err
	})
	return ls, err
}
