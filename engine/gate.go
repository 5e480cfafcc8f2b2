package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/limit"
)

// A gate lets the calls of one connection in (docs/design/0008-limits.md). What it knows
// is a cache of the store's row, which it replaces only if nobody else did: the law decides
// in every host as if there were one.
//
// A connection without limits that answers needs no row: its calls pass without a look at
// the store, and without a write.
type gate struct {
	e    *Engine
	name string

	line  line          // of those who claim one after another
	freed chan struct{} // holds a token when it may be worth claiming again

	mu     sync.Mutex // protects all below
	state  limit.State
	rev    int
	unsure bool                // a write failed, and may be in the store all the same
	opened time.Time           // when it opened last, as far as this process knows
	held   int                 // calls of this host that are out
	last   time.Time           // when the last of them is over
	parked map[*actor]struct{} // that have a run which waits for the connection to open
}

const (
	// lookEvery is how often those who wait look at what other hosts did.
	lookEvery = time.Second

	// tellAfter is how long a run waits for a limit before it says so, and then how often it
	// looks whether a person wants something else.
	tellAfter = time.Second
)

// gate returns the gate of the connection of a tool, which a record may name as it was before; nil
// for no tool.
func (e *Engine) gate(t keep.ToolName) *gate {
	if now := e.tools.known(t); now != nil {
		t = now.name
	}
	if t.Connection() == "" {
		return nil
	}
	return e.gateOf(t.Connection())
}

// gateOf returns the gate of a connection.
func (e *Engine) gateOf(name string) *gate {
	e.gatesMu.Lock()
	defer e.gatesMu.Unlock()
	g := e.gates[name]
	if g == nil {
		g = &gate{e: e, name: name, freed: make(chan struct{}, 1), parked: make(map[*actor]struct{})}
		e.gates[name] = g
	}
	return g
}

// loadGates reads the gates that there are.
func (e *Engine) loadGates(ctx context.Context) error {
	all, err := e.store.Gates(ctx)
	if err != nil {
		return fmt.Errorf("read the limits of connections: %w", err)
	}
	for _, row := range all {
		if t := row.OfTool(); t != "" {
			if _, err := e.acceptBreaker(t, row); err != nil {
				return err
			}
		}
		if !row.OfConnection() {
			continue // that of a budget is read when it is asked for
		}
		if err := e.gateOf(row.Connection).accept(row); err != nil {
			return err
		}
	}
	return nil
}

// ReloadLimits reads again what the users of connections share about their limits, because
// somebody else changed it. Where there are leases the engine does so by itself.
func (e *Engine) ReloadLimits(ctx context.Context) { _ = e.reloadLimits(ctx) }

// reloadLimits is ReloadLimits for who tries again.
func (e *Engine) reloadLimits(ctx context.Context) error {
	err := e.loadGates(ctx)
	if err != nil && ctx.Err() == nil {
		e.log.WarnContext(ctx, "limits of connections are not known", "err", err)
	}
	return err
}

// accept takes what the store has, unless this host knows better.
func (g *gate) accept(row keep.Gate) error {
	var s limit.State
	if len(row.State) > 0 {
		if err := json.Unmarshal(row.State, &s); err != nil {
			return fmt.Errorf("limits of connection %s: %w", g.name, err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.unsure = false; row.Rev <= g.rev { // it was read before what this host wrote since
		return nil
	}
	was := g.state.Shut
	if was != nil && s.Shut == nil {
		g.opened = g.e.Now()
	}
	if s.Shut == nil {
		s.Failures = g.state.Failures // each host counts its own
	}
	g.state, g.rev = s, row.Rev
	if was != nil && (s.Shut == nil || s.Shut.Until.Before(was.Until)) {
		g.wake()
	}
	return nil
}

// wake makes those who wait claim again. The caller holds mu.
func (g *gate) wake() {
	select {
	case g.freed <- struct{}{}:
	default:
	}
	for a := range g.parked {
		a.Reload()
	}
	clear(g.parked)
}

// stored returns what of s is kept in the store: what one host alone must know is not.
func (g *gate) stored(s limit.State) limit.State {
	s.Failures = 0
	if g.e.cfg.Leases == nil {
		s.Out = nil // calls end with the process
	}
	return s
}

// change replaces the state by what f makes of it, in the store if that is worth it. f may
// be called again on what another host wrote.
func (g *gate) change(ctx context.Context, f func(s limit.State, now time.Time) limit.State) error {
	for {
		if err := g.settle(ctx); err != nil {
			return err
		}
		now := g.e.Now()
		g.mu.Lock()
		was, rev := g.state, g.rev
		next := f(was, now)
		if g.stored(next).Equal(g.stored(was)) {
			g.state = next
			g.mu.Unlock()
			return nil
		}
		g.mu.Unlock()
		if was.Shut != nil && next.Shut == nil && was.MayBeAsked() {
			if err := g.withdraw(ctx, now); err != nil {
				return err
			}
		}
		row := keep.Gate{Connection: g.name, State: marshal(g.stored(next)), Rev: rev}
		err := g.e.store.PutGate(ctx, row)
		switch {
		case err == nil:
			g.mu.Lock()
			if g.rev == rev {
				g.state, g.rev = next, rev+1
				if was.Shut != nil && next.Shut == nil {
					g.opened = now
					g.wake()
				}
			}
			g.mu.Unlock()
			return nil
		case !errors.Is(err, keep.ErrStale):
			g.mu.Lock()
			g.unsure = true
			g.mu.Unlock()
			return err
		}
		if err := g.reload(ctx); err != nil {
			return err
		}
	}
}

// settle reads the row if it is not known whether the last write is there.
func (g *gate) settle(ctx context.Context) error {
	g.mu.Lock()
	unsure := g.unsure
	g.mu.Unlock()
	if !unsure {
		return nil
	}
	return g.reload(ctx)
}

// reload reads what other hosts did.
func (g *gate) reload(ctx context.Context) error {
	row, err := g.e.store.Gate(ctx, g.name)
	if err != nil {
		return err
	}
	return g.accept(row)
}

// claim asks the law for a place for a call of at most d, or for one more request of it.
func (g *gate) claim(ctx context.Context, r limit.Rule, who string, d time.Duration, more bool) (limit.Answer, error) {
	var ans limit.Answer
	counts := r.Concurrency > 0 && !more
	if counts { // before it is stored: who leaves meanwhile must not forget it
		g.count(1, d)
	}
	err := g.change(ctx, func(s limit.State, now time.Time) limit.State {
		c := limit.Claim{Host: string(g.e.cfg.Host.ID), Who: who, Held: g.held, Until: now.Add(d), Last: g.last, More: more}
		if counts {
			c.Held--
		}
		s, ans = limit.Take(s, r, c, now)
		return s
	})
	if counts && (err != nil || !ans.Granted) {
		g.count(-1, 0)
	}
	return ans, err
}

// A pass is the right to make one call.
type pass struct {
	g    *gate
	tool *tool
	who  string

	probe   bool
	counted bool                   // among the calls that are out
	pause   func() (resume func()) // stops the clock of the phase; nil: it has none
	notice  *notice                // says that the run waits; nil: nobody does

	mu     sync.Mutex // protects all below
	clock  *stopwatch // of the call; nil: it waits for nothing
	credit int        // requests that were let in and are not begun
	over   bool
	failed *keep.Failure // of a lookup
	ended  error         // see whyEnded
}

// A ticket is a wish for a pass.
type ticket struct {
	tool *tool
	who  keep.WorkflowName
	most time.Duration                           // that the call takes
	now  bool                                    // it does not wait
	more bool                                    // it is for one more request of a call that was let in
	wait func(context.Context, limit.Wait) error // is called each second while it waits, and ends that with an error; nil: nothing is
	next time.Time                               // when wait is called next
}

// enter waits for a pass, in line behind those who came before. If nobody may use the
// connection now, and with t.now if there is no place, it returns why instead.
func (g *gate) enter(ctx context.Context, t ticket) (*pass, limit.Wait, error) {
	p := &pass{g: g, tool: t.tool, who: string(t.who), credit: 1}
	if g.isOpen(g.rule(t.tool)) {
		return p, limit.Wait{}, nil
	}
	g.e.cfg.Trace(t.who, AtGate)
	t.next = time.Now().Add(tellAfter)
	if t.now && g.line.isTaken() {
		w := g.ahead(t)
		w.Until = g.e.Now().Add(lookEvery)
		return nil, w, nil
	}
	turn := g.line.join()
	defer g.line.leave(turn)
	if err := g.await(ctx, &t, turn); err != nil {
		return nil, limit.Wait{}, err
	}
	for {
		r := g.rule(t.tool) // which may be another one since it waits
		ans, err := g.claim(ctx, r, p.who, t.most, false)
		switch {
		case err != nil:
			return nil, limit.Wait{}, err
		case ans.Granted:
			p.probe, p.counted = ans.Probe, r.Concurrency > 0
			return p, limit.Wait{}, nil
		case ans.Wait.IsShut() || t.now:
			return nil, ans.Wait, nil
		}
		if err := g.sleep(ctx, &t, ans.Wait); err != nil {
			return nil, limit.Wait{}, err
		}
	}
}

// rule returns the limits that are configured now. If the connection is not configured any
// more, who still uses a tool of it has the limits that it had.
func (g *gate) rule(t *tool) limit.Rule {
	if r, configured := g.e.tools.limits(g.name); configured {
		return r
	}
	return t.limits
}

// isOpen reports whether a call needs no place.
func (g *gate) isOpen(r limit.Rule) bool {
	if !r.IsZero() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.Shut == nil && !g.unsure
}

// ahead returns for what those wait who are in line before a call.
func (g *gate) ahead(t ticket) limit.Wait {
	if rates := g.rule(t.tool).Rates; len(rates) > 0 {
		return limit.Wait{Kind: limit.ByRate, Why: rates[0].String()}
	}
	return limit.Wait{Kind: limit.ByConcurrency}
}

// await waits until it is the turn of this call.
func (g *gate) await(ctx context.Context, t *ticket, turn chan struct{}) error {
	for {
		select {
		case <-turn:
			return nil
		default:
		}
		timer := time.NewTimer(time.Until(t.next))
		select {
		case <-turn:
		case <-ctx.Done():
			timer.Stop()
			return errStopping
		case <-timer.C:
			if err := t.second(ctx, g.ahead(*t)); err != nil {
				return err
			}
		}
		timer.Stop()
	}
}

// second calls wait if the call has waited for another second.
func (t *ticket) second(ctx context.Context, w limit.Wait) error {
	if time.Until(t.next) > 0 {
		return nil
	}
	if t.next = time.Now().Add(tellAfter); t.wait == nil {
		return nil
	}
	return t.wait(ctx, w)
}

// sleep waits until it may be worth claiming again.
func (g *gate) sleep(ctx context.Context, t *ticket, w limit.Wait) error {
	d := lookEvery
	if until := w.Until.Sub(g.e.Now()); !w.Until.IsZero() {
		d = min(d, max(until, time.Millisecond))
	}
	if t.wait != nil {
		d = min(d, max(time.Until(t.next), 0))
	}
	freed := g.freed
	if t.more {
		freed = nil // it needs no place
	}
	select {
	case <-freed:
		return nil
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return errStopping
	case <-freed:
		return nil
	case <-timer.C:
	}
	if err := t.second(ctx, w); err != nil {
		return err
	}
	if g.e.cfg.Leases != nil && w.Kind == limit.ByConcurrency {
		return g.reload(ctx) // a place of another host may be free
	}
	return nil
}

// count adds to the calls that are out. The new one is over after d.
func (g *gate) count(n int, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held += n
	if until := g.e.Now().Add(d); n > 0 && until.After(g.last) {
		g.last = until
	}
}

// Next lets the next request of the call in; it is connector.Meter.
func (p *pass) Next(ctx context.Context) error {
	p.mu.Lock()
	if p.credit > 0 {
		p.credit--
		p.mu.Unlock()
		return nil
	}
	p.mu.Unlock()
	if p.isFree() {
		return nil
	}
	defer p.stopClocks()()
	err := p.more(ctx, p.notice)
	if _, refused := errors.AsType[*keep.Failure](err); err != nil && !refused && ctx.Err() == nil {
		p.mu.Lock()
		p.ended = err
		p.mu.Unlock()
	}
	return err
}

// whyEnded returns why the call must end that has nothing to do with its service: the store
// failed, or a person wants something else. Nil: nothing did.
func (p *pass) whyEnded() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil || errors.Is(p.ended, errStopping) {
		return p.ended
	}
	return &storeError{p.ended}
}

// isFree reports whether a further request needs no leave.
func (p *pass) isFree() bool {
	if len(p.rule().Rates) > 0 {
		return false
	}
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	return p.g.state.Shut == nil || p.probe
}

// more waits for one more request of the call. A connection that is shut meanwhile gets
// none, but of the probe. Where calls have places it does not stand in line: the first in
// line may wait for the place of this very call.
func (p *pass) more(ctx context.Context, n *notice) error {
	g, t := p.g, ticket{tool: p.tool, wait: n.wait, next: time.Now().Add(tellAfter), more: true}
	if p.rule().Concurrency == 0 {
		turn := g.line.join()
		defer g.line.leave(turn)
		if err := g.await(ctx, &t, turn); err != nil {
			return err
		}
	}
	for {
		if w, shut := g.shut(); shut && !p.probe {
			return limited(p.tool.name, w, g.e.Now())
		}
		ans, err := g.claim(ctx, p.rule(), p.who, 0, true)
		if err != nil {
			return err
		}
		if ans.Granted {
			return nil
		}
		if err := g.sleep(ctx, &t, ans.Wait); err != nil {
			return err
		}
	}
}

// renew makes sure that the next request of the call may begin at once.
func (p *pass) renew(ctx context.Context) error {
	if err := p.Next(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	p.credit++
	p.mu.Unlock()
	return nil
}

// rule returns the limits of the connection as they are now.
func (p *pass) rule() limit.Rule { return p.g.rule(p.tool) }

// stopClocks stops what counts the time of the call and of its phase.
func (p *pass) stopClocks() (resume func()) {
	resumes := []func(){func() {}}
	p.mu.Lock()
	clock := p.clock
	p.mu.Unlock()
	if clock != nil {
		resumes = append(resumes, clock.pause())
	}
	if p.pause != nil {
		resumes = append(resumes, p.pause())
	}
	return func() {
		for _, f := range resumes {
			f()
		}
	}
}

// note keeps why a lookup failed.
func (p *pass) note(f *keep.Failure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = f
}

// done gives the pass back and reports what became of the call. f is nil if the service
// answered. unsent says that nothing was sent. It does nothing the second time.
func (p *pass) done(ctx context.Context, f *keep.Failure, unsent bool) {
	p.mu.Lock()
	over := p.over
	p.over, unsent = true, unsent || p.ended != nil
	if f == nil {
		f = p.failed
	}
	p.mu.Unlock()
	if over {
		return
	}
	g, e := p.g, p.g.e
	o := limit.Outcome{Who: p.who, Probe: p.probe, Unsent: unsent}
	if e.cfg.Leases != nil {
		o.Host = string(e.cfg.Host.ID)
	}
	if f != nil {
		o.Unsent = unsent || f.Code == keep.CodeLimit || f.Class == keep.ClassInternal
		o.Failed = f.Class == keep.ClassTransient || f.Class == keep.ClassUnknown
		o.RetryAfter, o.Why = f.RetryAfter, f.Message
	}
	if p.counted {
		g.count(-1, 0)
	}
	jitter := 0.0
	if o.Failed {
		jitter = e.jitter()
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), e.policy.Lease.TTL, &keep.TimeoutError{Op: "store limits", After: e.policy.Lease.TTL})
	defer cancel()
	err := g.change(ctx, func(s limit.State, now time.Time) limit.State {
		if p.counted {
			s = limit.Leave(s, string(e.cfg.Host.ID), g.held, g.last, now)
		}
		return limit.Report(s, o, e.policy.Retry, e.policy.Outage.After, jitter, now)
	})
	if err != nil {
		e.log.WarnContext(ctx, "what became of a call is not known to others who use its connection", "connection", g.name, "err", err)
	}
	if p.counted {
		select {
		case g.freed <- struct{}{}:
		default:
		}
	}
}

// shut returns why nobody may use the connection.
func (g *gate) shut() (limit.Wait, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.NextCall()
}

// park makes the actor look again when the connection opens.
func (g *gate) park(a *actor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state.Shut == nil {
		a.Reload()
		return
	}
	g.parked[a] = struct{}{}
}

// down returns whether the service does not answer, whether a person is to be asked about
// it, and whether one was.
func (g *gate) down() (is, asks, asked bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	is = g.state.IsDown()
	return is, g.state.Asks(g.e.policy.Retry), is && g.state.Shut.Asked != ""
}

// limited is why a call was not made.
func limited(t keep.ToolName, w limit.Wait, now time.Time) *keep.Failure {
	return &keep.Failure{Class: keep.ClassTransient, Code: keep.CodeLimit, Tool: t,
		Message: w.Sentence(t.Connection()), RetryAfter: max(w.Until.Sub(now), time.Millisecond)}
}

// A stopwatch ends a context when its time is over. It can be stopped.
type stopwatch struct {
	mu     sync.Mutex // protects the fields below
	timer  *time.Timer
	until  time.Time
	from   time.Time     // since when it is stopped; zero: it runs
	paused time.Duration // before that
}

// newStopwatch returns a context that ends with cause after d.
func newStopwatch(ctx context.Context, d time.Duration, cause error) (context.Context, *stopwatch, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &stopwatch{until: time.Now().Add(d)}
	s.timer = time.AfterFunc(d, func() { cancel(cause) })
	return ctx, s, func() {
		s.timer.Stop()
		cancel(context.Canceled)
	}
}

// pause stops it until resume is called.
func (s *stopwatch) pause() (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.timer.Stop() {
		return func() {}
	}
	s.from = time.Now()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		d := time.Since(s.from)
		s.until, s.paused, s.from = s.until.Add(d), s.paused+d, time.Time{}
		s.timer.Reset(time.Until(s.until))
	}
}

// stood returns for how long it was stopped.
func (s *stopwatch) stood() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.from.IsZero() {
		return s.paused + time.Since(s.from)
	}
	return s.paused
}

// withTime returns a context that ends with cause after d. The time in which a request waits
// for the limits of its connection does not count, if the context has a pass.
func withTime(ctx context.Context, d time.Duration, cause error) (context.Context, func()) {
	p, ok := ctx.Value(passKey{}).(*pass)
	if !ok || p.rule().IsZero() {
		return context.WithTimeoutCause(ctx, d, cause)
	}
	ctx, clock, stop := newStopwatch(ctx, d, cause)
	p.mu.Lock()
	p.clock = clock
	p.mu.Unlock()
	return ctx, stop
}

// stood returns for how long the time of the call stood still.
func (p *pass) stood() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clock == nil {
		return 0
	}
	return p.clock.stood()
}

// noteLookup keeps why a lookup failed with the pass under which it was made.
func noteLookup(ctx context.Context, t *tool, err error) {
	p, ok := ctx.Value(passKey{}).(*pass)
	if !ok {
		return
	}
	f := &keep.Failure{Class: keep.ClassTransient, Code: "lookup-failed", Tool: t.name, Message: err.Error()}
	if known, ok := errors.AsType[*keep.Failure](err); ok {
		f = known
	}
	p.note(f)
}

type passKey struct{}

// within returns a context in which the requests of a call or lookup use the pass.
func (p *pass) within(ctx context.Context) context.Context {
	return connector.WithMeter(context.WithValue(ctx, passKey{}, p), p)
}

// openedAfter reports whether the connection opened at a time or after it: what failed before may be
// tried at once.
func (g *gate) openedAfter(t time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.opened.IsZero() && !g.opened.Before(t)
}
