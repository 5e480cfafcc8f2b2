package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/keep-run/keep"
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
	parked map[*actor]struct{} // that have a run which waits for the connection to open or for its probe
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
	if isSooner(was, s.Shut) {
		g.wake()
	}
	return nil
}

// isSooner reports whether those who wait by what was known before may claim sooner by what is known now: while a probe is
// out they wait until it must be over, which may be long after it failed.
func isSooner(was, now *limit.Shut) bool {
	switch {
	case was == nil:
		return false
	case now == nil:
		return true
	}
	return now.Until.Before(was.Until) || was.Probe != nil && now.Probe == nil
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
		if was.Shut != nil && next.Shut == nil && was.MayBeAsked(now) {
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
				}
				if isSooner(was.Shut, next.Shut) {
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

// count adds to the calls that are out. The new one is over after d.
func (g *gate) count(n int, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held += n
	if until := g.e.Now().Add(d); n > 0 && until.After(g.last) {
		g.last = until
	}
}

// shut returns why nobody may use the connection.
func (g *gate) shut() (limit.Wait, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.NextCall()
}

// park makes the actor, which was refused with w, look again when the connection opens or its probe fails: at once if that was
// meanwhile.
func (g *gate) park(a *actor, w limit.Wait) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.state.Shut; s == nil || w.Probe && s.Probe == nil {
		a.Reload()
		return
	}
	g.parked[a] = struct{}{}
}

// down returns whether the service does not answer, whether a person is to be asked about the
// connection, which may be slow only, and whether one was.
func (g *gate) down() (is, asks, asked bool) {
	now := g.e.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.IsDown(), g.state.Asks(g.e.policy.Retry, now), g.state.Shut != nil && g.state.Shut.Asked != ""
}

// openedAfter reports whether the connection opened at a time or after it: what failed before may be
// tried at once.
func (g *gate) openedAfter(t time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.opened.IsZero() && !g.opened.Before(t)
}
