package engine

import (
	"context"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/limit"
)

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
			p.probe, p.wanted, p.counted = ans.Probe, ans.Wanted, r.Concurrency > 0
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
			return errEnded
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
	if !w.Until.IsZero() && g.e.reach(w.Until) {
		return nil
	}
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
		return errEnded
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
