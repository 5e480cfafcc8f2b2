package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/limit"
)

// A pass is the right to make one call.
type pass struct {
	g    *gate
	tool *tool
	who  string

	probe   bool
	wanted  bool                   // by a person: the probe is to be a call
	aside   bool                   // it is for a place of which the gate knows nothing; see actor.aside
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
	return p.g.state.Shut == nil || p.probe || p.aside
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
		if w, shut := g.shut(); shut && !p.probe && !p.aside {
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

// keeps reports whether a lookup that got no answer leaves its pass to the call that it is about: a person wants
// the connection to be tried by a call, which then is the probe.
func (p *pass) keeps() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted || p.failed == nil || p.ended != nil {
		return false
	}
	p.failed = nil
	return true
}

// done gives the pass back and reports what became of the call. f is nil if the service
// answered. unsent says that nothing was sent. It does nothing the second time.
func (p *pass) done(ctx context.Context, f *keep.Failure, unsent bool) {
	p.mu.Lock()
	over := p.over
	p.over, unsent = true, unsent || p.ended != nil || p.aside
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

// limited is why a call was not made.
func limited(t keep.ToolName, w limit.Wait, now time.Time) *keep.Failure {
	return &keep.Failure{Class: keep.ClassTransient, Code: keep.CodeLimit, Tool: t,
		Message: w.Sentence(t.Connection()), RetryAfter: max(w.Until.Sub(now), time.Millisecond)}
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
