package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/limit"
	"github.com/keep-run/keep/store"
)

// enter waits until the connection of t may be used by the run, for at most d then. The error is a failure if
// nobody may use it now: the run then waits without a place in memory or in line.
func (x *execution) enter(ctx context.Context, t *tool, d time.Duration, at string, pause func() (resume func())) (*pass, error) {
	g := x.e.gate(t.name)
	if p := x.probe; p != nil && p.g == g {
		x.probe, p.pause = nil, pause
		return p, nil
	}
	if x.direct { // its actor lives for this call alone, and nobody stops it
		var end context.CancelFunc
		ctx, end = context.WithCancel(ctx)
		defer end()
		defer context.AfterFunc(x.a.hard, end)()
	}
	n := x.newNotice(t)
	if pause != nil && !g.isOpen(g.rule(t)) {
		defer pause()()
	}
	p, w, err := g.enter(ctx, ticket{tool: t, who: x.a.name, most: d + overtime, wait: n.wait})
	if err == nil {
		err = n.over(ctx)
	}
	switch {
	case err != nil && p != nil:
		p.done(ctx, nil, true)
		fallthrough
	case err != nil && !errors.Is(err, errStopping):
		return nil, &storeError{err}
	case err != nil:
		return nil, err
	case p == nil:
		f := limited(t.name, w, x.e.Now())
		f.At = at
		return nil, f
	}
	p.pause = pause
	return p, nil
}

// aside returns the pass of a lookup where t does not send any more: the rates of the connection hold, and nothing
// else does. That it is down is not known of the place of then, nor is what that answers known of the connection.
func (a *actor) aside(t *tool) *pass {
	return &pass{g: a.e.gate(t.name), tool: t, who: string(a.name), aside: true}
}

// A notice says durably that a run waits for a limit, and that it does not any more. Nil says
// nothing.
type notice struct {
	x    *execution
	t    *tool
	said atomic.Bool
	do   func(func() error) error // in the goroutine of the actor, which alone changes the run
}

// newNotice returns the notice for a call. It is of the phase under way: after the phase it
// fails.
func (x *execution) newNotice(t *tool) *notice {
	n := &notice{x: x, t: t, do: func(f func() error) error { return f() }}
	if x.inScript {
		asks, over := x.asks, x.callOver
		n.do = func(f func() error) error { return askActor(asks, over, f) }
	}
	return n
}

// wait says that the run waits, and later whether it still may.
func (n *notice) wait(ctx context.Context, w limit.Wait) error {
	switch {
	case n == nil:
		return nil
	case ctx.Err() != nil:
		return errEnded
	case n.said.Swap(true):
		return n.do(func() error { return n.x.mayWait(ctx) })
	}
	return n.do(func() error { return n.x.tellLimit(ctx, n.t, w) })
}

// over says that the run does not wait any more, if it was said to.
func (n *notice) over(ctx context.Context) error {
	if n == nil || !n.said.Swap(false) {
		return nil
	}
	return n.do(func() error { return n.x.tellNoLimit(ctx) })
}

// giveBack gives the pass of a call back that was not made.
func (x *execution) giveBack(ctx context.Context) {
	for _, p := range []*pass{x.pass, x.probe} {
		if p != nil {
			p.done(ctx, nil, true)
		}
	}
	x.pass, x.probe = nil, nil
}

// tellLimit makes durable that the run waits for a limit.
func (x *execution) tellLimit(ctx context.Context, t *tool, w limit.Wait) error {
	now := x.e.Now()
	x.run.Error, x.run.UpdatedAt = limited(t.name, w, now), now
	return x.commit(ctx)
}

// mayWait returns why the run, which said that it waits for a limit, must not wait any
// longer: a person paused the workflow, or did something to the run.
func (x *execution) mayWait(ctx context.Context) error {
	if !x.direct && !x.poked() { // nobody pokes the actor of a direct call
		return nil
	}
	w, err := x.e.store.Workflow(ctx, x.a.name)
	if err != nil {
		return err
	}
	stored, err := x.e.store.Run(ctx, x.run.ID)
	switch {
	case err != nil:
		return err
	case stored.Rev != x.run.Rev:
		return fmt.Errorf("run %s: %w", x.run.ID, keep.ErrStale)
	case w.Paused:
		return errPaused
	}
	return nil
}

// tellNoLimit makes durable that it does not any more. A call that is about to be recorded
// says so by itself.
func (x *execution) tellNoLimit(ctx context.Context) error {
	x.run.Error, x.run.UpdatedAt = nil, x.e.Now()
	if !x.inScript {
		return nil
	}
	return x.commit(ctx)
}

// mayTry returns whether an open run may be tried again, as far as the connection on which
// it failed allows, and the pass of a probe if it is to be one.
func (a *actor) mayTry(ctx context.Context, r keep.Run) (p *pass, may bool, err error) {
	if r.Status != keep.StatusTransient || r.Error == nil || r.Error.Tool == "" {
		return nil, true, nil
	}
	g, t := a.e.gate(r.Error.Tool), a.e.tools.known(r.Error.Tool)
	if _, shut := g.shut(); !shut || t == nil {
		return nil, true, nil
	}
	p, w, err := g.enter(ctx, ticket{tool: t, who: a.name, most: t.spec.Timeout + overtime + probeTime, now: true})
	if err != nil || p != nil {
		return p, true, err
	}
	g.park(a, w)
	for i := range a.open {
		if a.open[i].Run.ID == r.ID {
			a.open[i].Run.RetryAt = a.e.notBefore(w)
		}
	}
	return nil, false, nil
}

// dueByLimits returns a run as it is due now: when it is tried again was planned by what was
// known of its connection when it stopped.
func (e *Engine) dueByLimits(r keep.Run) keep.Run {
	if r.Status != keep.StatusTransient || r.Error == nil || r.Error.Tool == "" || r.RetryAt.IsZero() {
		return r
	}
	at := r.RetryAt
	if w, shut := e.gate(r.Error.Tool).shut(); shut {
		at = w.Until
	} else if r.Error.Code == keep.CodeLimit || e.gate(r.Error.Tool).openedAfter(r.UpdatedAt) {
		at = e.Now()
	}
	if at.Before(r.RetryAt) {
		r.RetryAt = at
	}
	return r
}

// probeTime is how long a run that is the probe of a connection may take until its call.
const probeTime = 30 * time.Second

// notBefore returns when to claim again.
func (e *Engine) notBefore(w limit.Wait) time.Time {
	soon := e.Now().Add(100 * time.Millisecond)
	if w.Until.Before(soon) {
		return soon
	}
	return w.Until
}

// mayAsk returns a pass for a lookup about m, or nil and when to try again.
func (a *actor) mayAsk(ctx context.Context, t *tool, m keep.Mutation, now bool) (*pass, time.Time, error) {
	if t.moved(m) {
		return a.aside(t), time.Time{}, nil
	}
	g := a.e.gate(t.name)
	p, w, err := g.enter(ctx, ticket{tool: t, who: a.name, most: a.e.policy.Reconcile.Inline + overtime, now: now})
	if err != nil || p != nil {
		return p, time.Time{}, err
	}
	if w.IsShut() {
		g.park(a, w)
	}
	return nil, a.e.notBefore(w), nil
}

// waitsForPerson reports whether the run waits for a connection or a budget about which a
// person was asked.
func (e *Engine) waitsForPerson(r keep.Run, doubt keep.Mutation) bool {
	if lifecycle.OverBudget(r) {
		return true
	}
	tool := doubt.Tool
	if r.Status == keep.StatusTransient && r.Error != nil {
		tool = r.Error.Tool
	}
	if tool == "" || r.Status != keep.StatusTransient && r.Status != keep.StatusReconciliation {
		return false
	}
	if t := e.tools.known(tool); t != nil && r.Status == keep.StatusReconciliation && t.moved(doubt) {
		return false // its lookup is beside the gate
	}
	_, _, asked := e.gate(tool).down()
	return asked
}

// A consequence is what a failure does to a run, and why.
type consequence struct {
	lifecycle.Consequence

	why      *keep.Failure
	retryAt  time.Time
	question *keep.Escalation // to ask about the connection; nil: none
}

// routeLimit changes the consequence of a failure that the limits of its connection decide.
func (x *execution) routeLimit(ctx context.Context, v consequence) (consequence, error) {
	g := x.e.gate(v.why.Tool)
	if g == nil {
		return v, nil
	}
	spent := v.Escalate == keep.AskRetries
	down, asks, asked := g.down()
	if down && v.why.Class == keep.ClassTransient {
		f := *v.why
		f.Outage, v.why = true, &f
	}
	if spent && lifecycle.ByLimit(v.why) {
		v.Consequence = lifecycle.Classify(v.why.Class, x.mut, false) // the connection is tried again, not the run
	}
	if v.why.Code == keep.CodeLimit {
		v.retryAt = x.e.Now().Add(v.why.RetryAfter)
	}
	if w, shut := g.shut(); shut && v.Retry {
		v.retryAt = w.Until // the backoff is the connection's, and not each run's
	}
	if !asks && !(down && spent && !asked) {
		return v, nil
	}
	var err error
	v.question, err = x.connectionQuestion(ctx, g)
	return v, err
}

// connectionQuestion returns the one question about a connection, or nil if it is open: a
// process may have died after it was asked.
func (x *execution) connectionQuestion(ctx context.Context, g *gate) (*keep.Escalation, error) {
	open, err := g.questions(ctx)
	if err != nil {
		return nil, err
	}
	if len(open) > 0 {
		return nil, g.asked(ctx, open[0].ID)
	}
	w, _ := g.shut()
	now, trouble, until := x.e.Now(), "does not answer", "it answers"
	if w.Kind == limit.BySlow {
		trouble, until = "names a later time whenever it is tried, before which it wants no calls", "it takes them"
	}
	return &keep.Escalation{
		ID: keep.EscalationID(x.e.newID("esc", now)), Kind: keep.AskConnection, Connection: g.name,
		Workflow: x.a.name, Run: x.run.ID, CreatedAt: now,
		Question:  fmt.Sprintf("The service of the connection %s %s. Keep tries one call from time to time, and continues by itself when %s. Try now?", g.name, trouble, until),
		Attempted: fmt.Sprintf("calls of %s, since %s", g.name, w.Since.UTC().Format("2006-01-02 15:04:05 UTC")),
		Why:       w.Why,
		Choices: []keep.Choice{{Action: keep.Retry, Label: "Try now",
			Effect: "makes one call of those that wait, even if a look at what became of it gets no answer; if the service answers, all of them continue"}},
	}, nil
}

// questions returns the open questions about the connection. There is one at most, but while
// two hosts ask at once.
func (g *gate) questions(ctx context.Context) (about []keep.Escalation, err error) {
	for q, err := range store.All(ctx, g.e.store.Escalations, keep.EscalationFilter{Open: true}, keep.Page{Limit: keep.MaxPage}) {
		if err != nil {
			return nil, err
		}
		if q.Kind == keep.AskConnection && q.Connection == g.name {
			about = append(about, q)
		}
	}
	return about, nil
}

// asked notes that a person was asked about the connection. If the service answered meanwhile,
// nobody needs to answer; and if another host asked at the same time, its question is enough.
func (g *gate) asked(ctx context.Context, id keep.EscalationID) error {
	err := g.change(ctx, func(s limit.State, _ time.Time) limit.State { return limit.Asked(s, id) })
	if err != nil {
		return err
	}
	return g.withdrawLeft(ctx, id)
}

// withdraw closes the questions about a connection that answers again.
func (g *gate) withdraw(ctx context.Context, now time.Time) error {
	open, err := g.questions(ctx)
	if err != nil {
		return err
	}
	for _, q := range open {
		if err := g.close(ctx, q, now); err != nil {
			return err
		}
	}
	return nil
}

// close closes a question about the connection that nobody needs to answer.
func (g *gate) close(ctx context.Context, q keep.Escalation, now time.Time) error {
	err := g.e.commit(ctx, q.Workflow, 0, now, keep.CloseEscalation{ID: q.ID})
	if errors.Is(err, keep.ErrDecided) || isNotFound(err) {
		return nil
	}
	return err
}

// withdrawLeft closes the question that a run asked about its connection, if that answers: the
// process may have died between the question and the row of the connection. A connection that was
// renamed or removed meanwhile is not down any more.
func (a *actor) withdrawLeft(ctx context.Context, r keep.Run) error {
	if r.Error == nil || r.Error.Tool == "" {
		return nil
	}
	qs, _, err := a.e.store.Escalations(ctx, keep.EscalationFilter{Workflow: a.name, Run: r.ID, Open: true}, keep.Page{})
	if err != nil {
		return err
	}
	for _, q := range qs {
		if q.Kind != keep.AskConnection {
			continue
		}
		if err := a.e.gateOf(q.Connection).withdrawLeft(ctx, q.ID); err != nil {
			return err
		}
	}
	return nil
}

// withdrawFormer closes the questions about the connection that a call was recorded under, if it has another name now:
// nothing else looks at the outage of a name that no call has any more.
func (a *actor) withdrawFormer(ctx context.Context, recorded keep.ToolName) error {
	now, was := a.e.gate(recorded), recorded.Connection()
	if now == nil || now.name == was {
		return nil
	}
	return a.e.gateOf(was).withdrawLeft(ctx, "")
}

// withdrawLeft closes the questions about the connection unless its service is down, and then the
// one with that id if another one is asked.
func (g *gate) withdrawLeft(ctx context.Context, id keep.EscalationID) error {
	g.mu.Lock()
	shut := g.state.Shut
	g.mu.Unlock()
	_, configured := g.e.tools.limits(g.name)
	switch {
	case shut == nil:
		return g.withdraw(ctx, g.e.Now())
	case !configured:
		return g.change(ctx, func(limit.State, time.Time) limit.State { return limit.State{} })
	case shut.Asked == "" || shut.Asked == id:
		return nil
	}
	q, err := g.e.store.Escalation(ctx, id)
	if err != nil {
		return err
	}
	return g.close(ctx, q, g.e.Now())
}
