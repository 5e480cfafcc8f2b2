package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/policy"
)

// lookEvery is how often an idle host asks what is new.
const lookEvery = time.Second

// gather is how long a host waits after it was called to look, for what happens
// together to be found together.
const gather = 5 * time.Millisecond

// claimAtOnce is how many workflows one claim takes at most.
const claimAtOnce = 1000

// errLeaseEnded is the cause of what is cancelled because another host may have
// the workflow, or soon will.
var errLeaseEnded = fmt.Errorf("%w: its lease has ended", errStopping)

// A tenure is what this host may work on, and until when, on a store that has
// leases (docs/design/0005-leases.md).
type tenure struct {
	e     *Engine
	store Leaser
	me    keep.Host
	rules policy.Lease

	urge chan struct{} // holds a token when a pulse is wanted at once

	// Only the goroutine of run touches these.
	standing policy.Standing
	beatAt   time.Time // when the last beat was sent
	failing  bool      // the last pulse failed, and that was logged

	// Guarded by Engine.mu.
	held      map[keep.WorkflowName]keep.Lease
	resting   map[keep.WorkflowName]bool // held, and to be given back: nobody works on it here
	over      bool                       // the leases ended, or may have: nothing is begun
	unsure    bool                       // held may be wrong
	settled   bool                       // there is nothing that this host could still get
	wantsBeat bool                       // somebody waits for a beat, not for a look
	beaten    chan struct{}              // closed at the next beat that succeeds
	guard     *time.Timer                // ends everything before the leases do
}

// heard is a pulse, and when it was asked for and answered by this host's clock.
type heard struct {
	keep.Pulse
	sent, got time.Time

	// When it was answered, the database's time was base, or up to slack more.
	base  time.Time
	slack time.Duration
}

// rounding is what times lose because they are kept in milliseconds, once by the
// database and once by Engine.now.
const rounding = 2 * time.Millisecond

// hear returns a pulse as the host can use it. What it knew before is kept if it
// is more exact, so that time does not go back; it does if the database's does.
func hear(p keep.Pulse, sent, got time.Time, before *heard) *heard {
	h := heard{Pulse: p, sent: sent, got: got, base: p.Now, slack: got.Sub(sent) + rounding}
	if before != nil {
		known := before.now(got)
		if ahead := known.Sub(h.base); ahead > 0 && ahead <= h.slack {
			h.base, h.slack = known, h.slack-ahead
		}
	}
	return &h
}

// now returns the database's time, or somewhat less: what passed since it
// answered is counted by the monotonic clock.
func (h *heard) now(clock time.Time) time.Time { return h.base.Add(clock.Sub(h.got)) }

// left returns for how long the leases hold for sure, by either clock of the
// machine: while it sleeps, the monotonic one stands still.
func (h *heard) left(clock time.Time) time.Duration {
	passed := max(clock.Sub(h.sent), clock.Round(0).Sub(h.sent.Round(0)))
	return h.Until.Sub(h.Now) - passed
}

func newTenure(e *Engine) *tenure {
	me := e.cfg.Host
	me.Partial = e.cfg.Only != nil
	return &tenure{
		e: e, store: e.cfg.Leases, me: me, rules: e.policy.Lease,
		urge: make(chan struct{}, 1), over: true, beaten: make(chan struct{}),
		held: make(map[keep.WorkflowName]keep.Lease), resting: make(map[keep.WorkflowName]bool),
	}
}

// left returns for how long this host may work, with a margin off.
func (t *tenure) left() time.Duration {
	h := t.e.heard.Load()
	if h == nil {
		return 0
	}
	return h.left(t.e.cfg.Clock()) - t.rules.Margin()
}

// run renews the leases of this host, and changes what it holds, until ctx is
// done. Then it gives everything back. It calls quit when this version of Keep has
// no business on the database any more.
func (t *tenure) run(ctx context.Context, quit context.CancelCauseFunc) {
	t.warn(ctx)
	for ctx.Err() == nil {
		wait := min(t.rules.Beat(), lookEvery)
		// A beat that is cut off may still arrive, and after the host has left: then
		// the others would count with it for one more lease.
		if err := t.turn(context.WithoutCancel(ctx)); err != nil && ctx.Err() == nil {
			t.missed(ctx, err)
			if errors.Is(err, keep.ErrNewerDatabase) {
				t.outdated()
				quit(err)
			}
			wait /= 2
		}
		t.pause(ctx, wait)
	}
	t.e.mu.Lock()
	if t.guard != nil {
		t.guard.Stop()
	}
	t.over = true
	t.e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.rules.TTL/4)
	defer cancel()
	if err := t.store.Leave(ctx, t.me.ID); err != nil {
		t.e.log.WarnContext(ctx, "leases were not given back; others wait until they end", "host", t.me.ID, "err", err)
	}
}

func (t *tenure) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var alerts <-chan struct{}
	if a, ok := t.store.(Alerter); ok {
		alerts = a.Alerts()
	}
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
		return
	case <-t.urge:
	case <-alerts:
	}
	timer.Reset(gather)
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// warn names the tools whose calls the leases cut short.
func (t *tenure) warn(ctx context.Context) {
	most := t.rules.TTL - t.rules.Margin() - lookEvery
	for _, name := range t.e.tools.names {
		tool := t.e.tools.byName[keep.ToolName(name)]
		if tool.spec.Effect == connector.Mutate && tool.spec.Timeout > most {
			t.e.log.WarnContext(ctx, "calls of this tool are given up before its timeout, since they must end before the lease; raise the ttl of policy.lease",
				"tool", name, "timeout", tool.spec.Timeout, "after", most, "ttl", t.rules.TTL)
		}
	}
}

// look makes run ask now.
func (t *tenure) look() {
	select {
	case t.urge <- struct{}{}:
	default:
	}
}

// turn asks once how this host stands, and does about it what has to be done. It
// takes so little time, whatever the database does, that the next one can still
// renew the leases.
func (t *tenure) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, t.rules.TTL/4, &keep.TimeoutError{Op: "renewing leases", After: t.rules.TTL / 4})
	defer cancel()
	if err := t.giveBack(ctx); err != nil {
		return err
	}
	p, err := t.pulse(ctx)
	if err != nil {
		return err
	}
	t.standing.Looks++
	if t.standing.Waiting++; p.Free == 0 {
		t.standing.Waiting = 0
	}
	t.tell(p)
	if err := t.mend(ctx, p); err != nil {
		return err
	}
	t.standing.Partial = t.me.Partial
	claim, give := t.rules.Balance(p, t.standing)
	t.yield(give)
	return t.claim(ctx, claim, p)
}

// pulse renews the leases if that is due, and looks otherwise.
func (t *tenure) pulse(ctx context.Context) (keep.Pulse, error) {
	t.e.mu.Lock()
	beat := t.over || t.wantsBeat
	t.e.mu.Unlock()
	sent := t.e.cfg.Clock()
	beat = beat || sent.Sub(t.beatAt) >= t.rules.Beat()-t.rules.Beat()/16
	var p keep.Pulse
	var err error
	if beat {
		p, err = t.store.Beat(ctx, t.me, t.rules.TTL)
	} else {
		p, err = t.store.Look(ctx, t.me.ID)
	}
	if err != nil {
		return p, err
	}
	if beat {
		t.beatAt = sent
	}
	return p, t.take(ctx, hear(p, sent, t.e.cfg.Clock(), t.e.heard.Load()), beat)
}

// take believes an answer, and sets the guard by it.
func (t *tenure) take(ctx context.Context, h *heard, beat bool) error {
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	t.e.heard.Store(h)
	left := t.left()
	if left <= 0 {
		t.end()
		return fmt.Errorf("renew the leases of host %s: %w", t.me.ID, keep.ErrFenced)
	}
	if t.guard == nil {
		t.guard = time.AfterFunc(left, func() { t.expire(ctx) })
	}
	t.guard.Reset(left)
	if t.over {
		t.over, t.unsure, t.standing.Looks = false, true, 1
	}
	if beat {
		t.wantsBeat = false
		close(t.beaten)
		t.beaten = make(chan struct{})
	}
	if t.failing {
		t.failing, t.unsure = false, true
		t.e.log.InfoContext(ctx, "the database answers again", "host", t.me.ID, "workflows", len(t.held))
	}
	return nil
}

// missed notes a pulse, or what followed it, that failed: nothing is known for
// sure of what this host has, nor of what others did to it.
func (t *tenure) missed(ctx context.Context, err error) {
	t.e.mu.Lock()
	t.unsure = true
	t.e.mu.Unlock()
	if !t.failing {
		t.failing = true
		t.e.log.WarnContext(ctx, "leases were not renewed; trying again", "host", t.me.ID, "left", t.left(), "err", err)
	}
}

// expire ends all work if the leases could not be renewed.
func (t *tenure) expire(ctx context.Context) {
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	if left := t.left(); left > 0 {
		t.guard.Reset(left)
		return
	}
	if !t.over && len(t.e.actors) > 0 {
		t.e.log.ErrorContext(ctx, "leases could not be renewed in time; their workflows are stopped", "host", t.me.ID, "workflows", len(t.e.actors))
	}
	t.end()
}

// end stops every actor. The caller holds Engine.mu.
func (t *tenure) end() {
	t.over, t.settled = true, false
	for _, a := range t.e.actors {
		a.lose(errLeaseEnded) // stops it
	}
}

// outdated stops every actor of a host that must not touch the database as it is now:
// its leases are not its own any more.
func (t *tenure) outdated() {
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	t.end()
}

// mend reads which leases this host has, if that is in doubt.
func (t *tenure) mend(ctx context.Context, p keep.Pulse) error {
	t.e.mu.Lock()
	sure := !t.unsure && p.Held == len(t.held)
	t.e.mu.Unlock()
	if sure {
		return nil
	}
	leases, err := t.store.Leases(ctx, t.me.ID)
	if err != nil {
		return err
	}
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	clear(t.held)
	for _, l := range leases {
		t.held[l.Workflow] = l
	}
	for name, a := range t.e.actors {
		if t.held[name].Epoch != a.epoch {
			a.lose(errLeaseEnded)
		} else {
			a.poke(true) // what it has not heard of is in the store
		}
	}
	t.unsure = false
	t.e.relist()
	return nil
}

// tell passes on what others committed, and whether there is more to get.
func (t *tenure) tell(p keep.Pulse) {
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	for _, name := range p.Touched {
		if a := t.e.actors[name]; a != nil {
			a.poke(true)
		}
	}
	was := t.settled
	t.settled = p.Free == 0
	if t.me.Partial {
		t.settled = len(t.held) == len(t.e.cfg.Only)
	}
	if t.settled != was {
		t.e.relist()
	}
}

// yield makes actors end after the step they are at, the idle ones first, until
// n workflows are about to be given back.
func (t *tenure) yield(n int) {
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	n -= len(t.resting)
	var rest []*actor
	for _, a := range t.e.actors {
		if a.yields {
			n--
		} else {
			rest = append(rest, a)
		}
	}
	slices.SortFunc(rest, func(a, b *actor) int {
		if a.isIdle != b.isIdle {
			if a.isIdle {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.name, b.name)
	})
	for _, a := range rest[:max(0, min(n, len(rest)))] {
		a.yields = true
		a.poke(false)
	}
}

// giveBack gives back what is at rest.
func (t *tenure) giveBack(ctx context.Context) error {
	t.e.mu.Lock()
	names := sortedKeys(t.resting)
	t.e.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	if err := t.store.Release(ctx, t.me.ID, names); err != nil {
		return err
	}
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	for _, name := range names {
		delete(t.held, name)
		delete(t.resting, name)
	}
	return nil
}

// claim takes up to n workflows more.
func (t *tenure) claim(ctx context.Context, n int, p keep.Pulse) error {
	if t.me.Partial && p.Held == len(t.e.cfg.Only) {
		return nil
	}
	for n > 0 && ctx.Err() == nil {
		leases, err := t.store.Claim(ctx, t.me.ID, min(n, claimAtOnce), t.e.cfg.Only)
		if err != nil || len(leases) == 0 {
			return err
		}
		t.e.mu.Lock()
		for _, l := range leases {
			t.held[l.Workflow] = l
		}
		t.e.relist()
		t.e.mu.Unlock()
		if n -= len(leases); n > 0 {
			continue
		}
		t.look() // to learn whether this was all
	}
	return nil
}

// ended is told that nobody works on a's workflow here any more.
func (t *tenure) ended(a *actor, err error, stops bool) {
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	delete(t.e.actors, a.name)
	a.lose(errStopping) // nothing of it is left; its contexts are freed
	if errors.Is(err, keep.ErrFenced) {
		if t.held[a.name].Epoch == a.epoch {
			delete(t.held, a.name)
		}
		t.unsure = true
	} else if a.yields || stops {
		t.resting[a.name] = true
		t.look()
	}
	t.e.relist()
}

// mine returns the workflows that may be worked on.
func (t *tenure) mine() []keep.Lease {
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	if t.over {
		return nil
	}
	var mine []keep.Lease
	for _, name := range sortedKeys(t.held) {
		if !t.resting[name] {
			mine = append(mine, t.held[name])
		}
	}
	return mine
}

// callTime returns how much of timeout a call may take: it ends before the
// leases do. If they would cut it short they are renewed first. If too little
// is left the host is about to stop.
func (t *tenure) callTime(ctx context.Context, timeout time.Duration) (time.Duration, error) {
	if t.left()+lookEvery < min(timeout, t.rules.TTL-t.rules.Margin()) {
		t.renew(ctx)
	}
	left := t.left()
	if left < min(timeout, t.rules.Margin()) {
		return 0, errLeaseEnded
	}
	return min(timeout, left), nil
}

// renew waits for a beat, or for ctx.
func (t *tenure) renew(ctx context.Context) {
	t.e.mu.Lock()
	t.wantsBeat = true
	beaten := t.beaten
	t.e.mu.Unlock()
	t.look()
	select {
	case <-beaten:
	case <-ctx.Done():
	}
}
