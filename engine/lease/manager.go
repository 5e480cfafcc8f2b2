package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/store"
)

const (
	// pollEvery is how often an idle host asks for news.
	pollEvery = time.Second

	// settleTime is how long a host waits after it was kicked, so that one poll finds
	// what happens together.
	settleTime = 5 * time.Millisecond

	// maxClaim is how many workflows one claim takes at most.
	maxClaim = 1000
)

// ErrLost is the cause of what is stopped because another host may have the workflow,
// or soon will.
var ErrLost = errors.New("its lease has ended")

// Config configures a Manager. All fields but Only and Presence are required.
type Config struct {
	Store  store.Leaser
	Host   keep.Host           // its ID, Name and Version are read
	Only   []keep.WorkflowName // the workflows to claim, whatever the share; nil: a share of all
	Rules  policy.Lease
	Clock  *Clock
	Logger *slog.Logger

	// Presence knows which processes of this machine have ended. If nil, their leases
	// are waited for.
	Presence Presence

	// Again says that the host had another Manager before, which may have left a row that drains.
	Again bool

	// Gates is called when another gate may be stored, and again by the next poll if it
	// fails. It may take as long as a read.
	Gates func(context.Context) error

	// Changed is called when Held may return something else. It must not block.
	Changed func()
}

// A Presence tells the hosts of one machine which of them have ended. Its methods do not
// wait.
type Presence interface {
	// Announce proves from now on that this process lives.
	Announce(id keep.HostID) error

	// Ended returns hosts whose processes have provably ended, of whatever database.
	Ended() []keep.HostID

	// Forget says that nothing is left of a host.
	Forget(id keep.HostID)
}

// A Worker executes the workflow of one lease. Its methods do not block.
type Worker interface {
	Stop()      // the lease is lost: cancel everything at once
	Yield()     // end after the current step
	Reload()    // somebody else committed to the workflow
	Idle() bool // nothing is under way

	// InGo returns the hash of the version that it executes, if that is written in Go: empty,
	// it is not, or was not read yet. Here says that this host can execute it.
	InGo() (hash string, here bool)
}

// A Manager keeps the leases of one host. Create one with New and drive it with Run.
type Manager struct {
	cfg   Config
	store store.Leaser
	host  keep.Host
	rules policy.Lease
	clock *Clock
	log   *slog.Logger

	kicked chan struct{} // holds a token when a poll is wanted at once

	// Only the goroutine of Run touches these.
	standing    policy.Standing
	heartbeatAt time.Time            // when the last heartbeat was sent
	failing     bool                 // the last poll failed, and that was logged
	strangers   map[keep.HostID]bool // have ended, and are of another database
	gates       int64                // see keep.LeaseStatus
	drained     bool                 // the row may say that the host drains since it stops

	mu             sync.Mutex // protects the fields below
	held           map[keep.WorkflowName]keep.Lease
	releasing      map[keep.WorkflowName]bool // held, with no worker, and to be released
	workers        map[keep.WorkflowName]*binding
	expired        bool          // the leases ended, or may have: nothing begins
	unsure         bool          // held may be wrong
	settled        bool          // there is nothing that this host could still claim
	wantsHeartbeat bool          // a call waits for one
	stopping       bool          // see Drain
	renewed        chan struct{} // closed at the next heartbeat that succeeds
	guard          *time.Timer   // stops all workers before the leases end
}

// A binding is a worker and the epoch of its lease.
type binding struct {
	Worker
	epoch   int64
	yielded bool
}

// New returns a manager that has no lease yet.
func New(cfg Config) *Manager {
	m := &Manager{
		cfg: cfg, store: cfg.Store, host: cfg.Host, rules: cfg.Rules, clock: cfg.Clock, log: cfg.Logger,
		kicked: make(chan struct{}, 1), expired: true, renewed: make(chan struct{}),
		held: make(map[keep.WorkflowName]keep.Lease), releasing: make(map[keep.WorkflowName]bool),
		workers: make(map[keep.WorkflowName]*binding),
	}
	m.host.Partial = cfg.Only != nil
	m.drained = cfg.Again
	m.strangers = make(map[keep.HostID]bool)
	return m
}

// LongestCall returns the longest time that a call can have under rules, whatever its
// tool allows.
func LongestCall(rules policy.Lease) time.Duration { return rules.TTL - rules.Margin() - pollEvery }

// Run renews the leases, claims and releases until ctx is done; then it resigns. It
// calls quit with an error that [Ends].
func (m *Manager) Run(ctx context.Context, quit func(error)) {
	if p := m.cfg.Presence; p != nil {
		if err := p.Announce(m.host.ID); err != nil {
			m.log.WarnContext(ctx, "a successor on this machine will wait until the leases end", "host", m.host.ID, "err", err)
		}
	}
	for ctx.Err() == nil {
		wait := min(m.rules.HeartbeatEvery(), pollEvery)
		// A heartbeat that is cut off may still arrive, and after the host has resigned:
		// then the others would count with it for one more lease.
		if err := m.turn(context.WithoutCancel(ctx)); err != nil && ctx.Err() == nil {
			m.failed(ctx, err)
			if Ends(err) {
				m.log.ErrorContext(ctx, "this host must not touch the database any more, or cannot, and ends", "host", m.host.ID, "err", err)
				m.stopAll()
				quit(err)
			}
			wait /= 2
		}
		m.pause(ctx, wait)
	}
	m.resign(context.WithoutCancel(ctx))
}

// Ends reports whether err says that this process must not touch the database any more, or cannot: keep.ErrNewerDatabase,
// keep.ErrReplaced and keep.ErrClosed.
func Ends(err error) bool {
	return errors.Is(err, keep.ErrNewerDatabase) || errors.Is(err, keep.ErrReplaced) || errors.Is(err, keep.ErrClosed)
}

// resign gives everything back.
func (m *Manager) resign(ctx context.Context) {
	m.mu.Lock()
	if m.guard != nil {
		m.guard.Stop()
	}
	m.expired = true
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, m.rules.TTL/4)
	defer cancel()
	if err := m.store.Deregister(ctx, m.host.ID); err != nil {
		m.log.WarnContext(ctx, "leases were not released; others wait until they end", "host", m.host.ID, "err", err)
	} else if m.cfg.Presence != nil {
		m.cfg.Presence.Forget(m.host.ID)
	}
}

// bury gives back the leases of hosts whose processes have ended, as these would have
// done themselves. Every epoch that they had is refused from then on.
func (m *Manager) bury(ctx context.Context) error {
	if m.cfg.Presence == nil {
		return nil
	}
	ended := slices.DeleteFunc(m.cfg.Presence.Ended(), func(id keep.HostID) bool { return m.strangers[id] })
	if len(ended) == 0 {
		return nil
	}
	hosts, err := m.store.Hosts(ctx)
	if err != nil {
		return err
	}
	for _, id := range ended {
		if !slices.ContainsFunc(hosts, func(h keep.Host) bool { return h.ID == id }) {
			m.strangers[id] = true
			continue
		}
		if err := m.store.Deregister(ctx, id); err != nil {
			return err
		}
		m.cfg.Presence.Forget(id)
		m.log.InfoContext(ctx, "the process of a host on this machine has ended; its leases were released", "host", m.host.ID, "ended", id)
	}
	return nil
}

// pause waits for d, or until a poll is worth its cost.
func (m *Manager) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var alerts <-chan struct{}
	if a, ok := m.store.(store.Alerter); ok {
		alerts = a.Alerts()
	}
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
		return
	case <-m.kicked:
	case <-alerts:
	}
	timer.Reset(settleTime)
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Kick makes the next poll come at once.
func (m *Manager) Kick() {
	select {
	case m.kicked <- struct{}{}:
	default:
	}
}

// turn does one round: release, heartbeat or poll, and what follows from the answer. It
// takes so little time, whatever the database does, that the next one can still renew
// the leases.
func (m *Manager) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.rules.TTL/4, &keep.TimeoutError{Op: "renewing leases", After: m.rules.TTL / 4})
	defer cancel()
	if err := errors.Join(m.release(ctx), m.bury(ctx)); err != nil {
		return err
	}
	status, err := m.ask(ctx)
	if err != nil {
		return err
	}
	m.standing.Polls++
	if m.standing.Waiting++; status.Free == 0 {
		m.standing.Waiting = 0
	}
	m.apply(status)
	if status.Gates != m.gates && m.cfg.Gates != nil && m.cfg.Gates(ctx) == nil {
		m.gates = status.Gates
	}
	if err := m.reconcile(ctx, status); err != nil {
		return err
	}
	if err := m.drain(ctx, &status); err != nil {
		return err
	}
	m.standing.Partial = m.host.Partial
	claim, give := m.rules.Balance(status, m.standing)
	if err := m.yield(ctx, give, status); err != nil {
		return err
	}
	return m.claim(ctx, claim, status)
}

// Drain says that the host stops: no worker begins any more, and those that there are end by themselves. Until Run
// ends, each workflow is released as soon as it has no worker, so that it does not wait for the calls of others.
func (m *Manager) Drain() {
	m.mu.Lock()
	m.stopping = true
	m.mu.Unlock()
	m.Kick()
}

// drain makes a host that stops one that drains, and plans to release what has no worker.
//
// It comes after the heartbeat: a row that is not written does not keep the leases of calls that are out from being
// renewed. Whatever the row says, this host claims nothing more.
func (m *Manager) drain(ctx context.Context, status *keep.LeaseStatus) error {
	m.mu.Lock()
	stopping := m.stopping
	for name := range m.held {
		if stopping && m.workers[name] == nil {
			m.releasing[name] = true
		}
	}
	if stopping && len(m.releasing) > 0 {
		m.Kick()
	}
	m.mu.Unlock()
	if m.drained != stopping {
		if err := m.store.Drain(ctx, m.host.ID, stopping); err != nil {
			return err
		}
		m.drained, status.Draining = stopping, stopping
	}
	status.Draining = status.Draining || stopping
	return nil
}

// ask sends a heartbeat if that is due, and polls otherwise.
func (m *Manager) ask(ctx context.Context) (keep.LeaseStatus, error) {
	m.mu.Lock()
	renew := m.expired || m.wantsHeartbeat
	m.mu.Unlock()
	sent, every := m.clock.Local(), m.rules.HeartbeatEvery()
	renew = renew || sent.Sub(m.heartbeatAt) >= every-every/16
	var status keep.LeaseStatus
	var err error
	if renew {
		status, err = m.store.Heartbeat(ctx, m.host, m.rules.TTL)
	} else {
		status, err = m.store.Poll(ctx, m.host.ID)
	}
	if err != nil {
		return status, err
	}
	if renew {
		m.heartbeatAt = sent
	}
	return status, m.accept(ctx, status, sent, renew)
}

// accept takes an answer for true, and sets the guard by it.
func (m *Manager) accept(ctx context.Context, status keep.LeaseStatus, sent time.Time, renewed bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock.Set(status, sent)
	left := m.left()
	if left <= 0 {
		m.end()
		return fmt.Errorf("renew the leases of host %s: %w", m.host.ID, keep.ErrFenced)
	}
	if m.guard == nil {
		m.guard = time.AfterFunc(left, func() { m.expire(ctx) })
	}
	m.guard.Reset(left)
	if m.expired {
		m.expired, m.unsure, m.standing.Polls = false, true, 1
	}
	if renewed {
		m.wantsHeartbeat = false
		close(m.renewed)
		m.renewed = make(chan struct{})
	}
	if m.failing {
		m.failing, m.unsure = false, true
		m.log.InfoContext(ctx, "the database answers again", "host", m.host.ID, "workflows", len(m.held))
	}
	return nil
}

// left returns for how long this host may work, with a margin off.
func (m *Manager) left() time.Duration { return m.clock.Left() - m.rules.Margin() }

// failed notes that a turn failed: neither what this host has is known for sure, nor
// what others committed to it.
func (m *Manager) failed(ctx context.Context, err error) {
	m.mu.Lock()
	m.unsure = true
	m.mu.Unlock()
	if !m.failing {
		m.failing = true
		m.log.WarnContext(ctx, "leases were not renewed; trying again", "host", m.host.ID, "left", m.left(), "err", err)
	}
}

// expire stops all workers if the leases could not be renewed.
func (m *Manager) expire(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if left := m.left(); left > 0 {
		m.guard.Reset(left)
		return
	}
	if !m.expired && len(m.workers) > 0 {
		m.log.ErrorContext(ctx, "leases could not be renewed in time; their workflows are stopped", "host", m.host.ID, "workflows", len(m.workers))
	}
	m.end()
}

// stopAll stops all workers of a host whose leases are not its own any more.
func (m *Manager) stopAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end()
}

// end stops all workers. The caller holds mu.
func (m *Manager) end() {
	m.expired, m.settled = true, false
	for _, w := range m.workers {
		w.Stop()
	}
}

// apply passes on what others committed, and whether there is more to claim.
func (m *Manager) apply(status keep.LeaseStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range status.Touched {
		if w := m.workers[name]; w != nil {
			w.Reload()
		}
	}
	before := m.settled
	m.settled = status.Free == 0
	if m.host.Partial {
		m.settled = len(m.held) == len(m.cfg.Only)
	}
	if m.settled != before {
		m.cfg.Changed()
	}
}

// reconcile reads which leases this host has, if that is not sure.
func (m *Manager) reconcile(ctx context.Context, status keep.LeaseStatus) error {
	m.mu.Lock()
	sure := !m.unsure && status.Held == len(m.held)
	m.mu.Unlock()
	if sure {
		return nil
	}
	leases, err := m.store.Leases(ctx, m.host.ID)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.held)
	for _, l := range leases {
		m.held[l.Workflow] = l
	}
	for name, w := range m.workers {
		if m.held[name].Epoch != w.epoch {
			w.Stop()
		} else {
			w.Reload() // a status that named it may be lost
		}
	}
	m.unsure = false
	m.cfg.Changed()
	return nil
}

// A candidate is a worker that could yield.
type candidate struct {
	*binding
	name keep.WorkflowName
	idle bool
	hash string // see Worker.InGo
	here bool
}

// candidates returns the workers of which n could yield, the idle ones first, and those whose
// versions this host does not have; and how many more than are about to be released.
func (m *Manager) candidates(n int) (rest []candidate, more int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n -= len(m.releasing)
	for _, w := range m.workers {
		if w.yielded {
			n--
		}
	}
	for name, w := range m.workers {
		c := candidate{binding: w, name: name}
		if c.hash, c.here = w.InGo(); !w.yielded && (n > 0 || !c.here) {
			c.idle = w.Idle()
			rest = append(rest, c)
		}
	}
	slices.SortFunc(rest, func(a, b candidate) int {
		if a.idle != b.idle {
			if a.idle {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.name, b.name)
	})
	return rest, n
}

// yield makes workers yield until n workflows are about to be released, and all of those
// that another host can execute and this one cannot. What only this host can execute stays, unless
// it drains.
func (m *Manager) yield(ctx context.Context, n int, status keep.LeaseStatus) error {
	rest, n := m.candidates(n)
	var others []keep.Host
	if slices.ContainsFunc(rest, func(c candidate) bool { return c.hash != "" }) {
		hosts, err := m.store.Hosts(ctx)
		if err != nil {
			return err
		}
		others = slices.DeleteFunc(hosts, func(h keep.Host) bool { return h.ID == m.host.ID })
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range rest {
		able := slices.ContainsFunc(others, func(h keep.Host) bool { return h.Executes(c.hash, status.Now) })
		if anyone := c.hash == "" || status.Draining; anyone && n > 0 || able && (n > 0 || !c.here) {
			c.yielded = true
			c.Yield()
			n--
		}
	}
	return nil
}

// release gives back the workflows whose workers have yielded.
func (m *Manager) release(ctx context.Context) error {
	m.mu.Lock()
	names := slices.Sorted(maps.Keys(m.releasing))
	m.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	if err := m.store.Release(ctx, m.host.ID, names); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		delete(m.held, name)
		delete(m.releasing, name)
	}
	return nil
}

// claim takes up to n workflows more.
func (m *Manager) claim(ctx context.Context, n int, status keep.LeaseStatus) error {
	if m.host.Partial && status.Held == len(m.cfg.Only) {
		return nil
	}
	for n > 0 && ctx.Err() == nil {
		leases, err := m.store.Claim(ctx, m.host.ID, min(n, maxClaim), m.cfg.Only)
		if err != nil || len(leases) == 0 {
			return err
		}
		m.mu.Lock()
		for _, l := range leases {
			m.held[l.Workflow] = l
		}
		m.cfg.Changed()
		m.mu.Unlock()
		if n -= len(leases); n > 0 {
			continue
		}
		m.Kick() // to learn whether this was all
	}
	return nil
}

// Held returns the leases that may be worked on, sorted by workflow, and whether this
// host can claim nothing else.
func (m *Manager) Held() (leases []keep.Lease, settled bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.expired {
		return nil, m.settled
	}
	for _, name := range slices.Sorted(maps.Keys(m.held)) {
		if !m.releasing[name] {
			leases = append(leases, m.held[name])
		}
	}
	return leases, m.settled
}

// Expect says that there may be one more workflow to claim.
func (m *Manager) Expect() {
	m.mu.Lock()
	m.settled = false
	m.mu.Unlock()
	m.Kick()
}

// Bind gives a lease of Held its worker. If the lease was lost since, the worker is
// stopped.
func (m *Manager) Bind(l keep.Lease, w Worker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.workers[l.Workflow] = &binding{Worker: w, epoch: l.Epoch}
	if m.expired || m.held[l.Workflow].Epoch != l.Epoch {
		w.Stop()
	}
}

// Ended says that the worker of a lease has ended with err. If it yielded, or the host
// stops, the workflow is released.
func (m *Manager) Ended(l keep.Lease, err error, stops bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.workers[l.Workflow]
	delete(m.workers, l.Workflow)
	if errors.Is(err, keep.ErrFenced) {
		if m.held[l.Workflow].Epoch == l.Epoch {
			delete(m.held, l.Workflow)
		}
		m.unsure = true
	} else if stops || w != nil && w.yielded {
		m.releasing[l.Workflow] = true
		m.Kick()
	}
}

// CallTime returns how much of timeout a call may take: it ends before the leases do.
// If they would cut it short they are renewed first. If too little is left the error is
// ErrLost.
func (m *Manager) CallTime(ctx context.Context, timeout time.Duration) (time.Duration, error) {
	if m.left()+pollEvery < min(timeout, m.rules.TTL-m.rules.Margin()) {
		m.renew(ctx)
	}
	left := m.left()
	if left < min(timeout, m.rules.Margin()) {
		return 0, ErrLost
	}
	return min(timeout, left), nil
}

// renew waits for a heartbeat, or for ctx.
func (m *Manager) renew(ctx context.Context) {
	m.mu.Lock()
	m.wantsHeartbeat = true
	renewed := m.renewed
	m.mu.Unlock()
	m.Kick()
	select {
	case <-renewed:
	case <-ctx.Done():
	}
}
