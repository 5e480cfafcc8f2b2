package engine

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/ledger"
	"github.com/keep-run/keep/lifecycle"
)

// askInline asks once, right after the call (S4 §13.7.2).
func (x *execution) askInline(t *tool) error {
	m, fact := x.e.whatBecame(x.within(x.a.hard), t, x.mut)
	now := x.e.now()
	next := now.Add(x.e.policy.Reconcile.Delay(0, 0, x.e.jitter()))
	m, move, err := ledger.AskedInline(m, fact, next, now)
	if err != nil {
		return err
	}
	x.mut, x.moves = m, append(x.moves, move)
	return nil
}

// lookUp asks the service what became of m.
func (e *Engine) lookUp(ctx context.Context, t *tool, m keep.Mutation) ledger.Fact {
	ctx, end := e.toolSpan(ctx, "lookup", t, m.Key)
	defer end(nil)
	f := factOf(e.reconcile(ctx, t, m))
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("keep.evidence", string(f.Evidence)))
	return f
}

// factOf returns what an answer means to the ledger.
func factOf(ans connector.Answer) ledger.Fact {
	f := ledger.Fact{Evidence: ledger.Unsure, By: "reconcile", Detail: ans.Detail}
	switch ans.Verdict {
	case connector.Happened:
		f.Evidence, f.Result, f.Warning = ledger.Happened, ans.Result, ans.Warning
	case connector.Absent:
		f.Evidence = ledger.Absent
	}
	return f
}

// ask asks what became of the open run's call, and lets the run go on, wait, or
// come to a person.
func (a *actor) ask(ctx context.Context, now time.Time) error {
	x, err := a.resume(ctx)
	if err != nil {
		return err
	}
	fact := ledger.Fact{Evidence: ledger.NoWay, By: "reconcile", Detail: "the tool cannot be asked any more"}
	t := a.e.tools.byName[x.mut.Tool]
	if t != nil && t.canReconcile() {
		x.mut, fact = a.e.whatBecame(ctx, t, x.mut)
		if ctx.Err() != nil {
			return errStopping // the question was cut by the stop: it proves nothing
		}
		now = a.e.now()
	}
	m, move, err := ledger.Asked(x.mut, fact, a.e.askLimit(x.mut, fact, now), now)
	if err != nil {
		return err
	}
	x.mut, x.moves = m, []keep.Move{move}
	if m.State != keep.Applied {
		return x.fail(ctx, x.callFailure())
	}
	if x.run.Kind != keep.Consumer {
		return x.goOn(ctx, now)
	}
	if x.questions, err = a.openQuestions(ctx, x.run); err != nil {
		return err
	}
	if err := x.transition(keep.Mutated); err != nil {
		return x.fail(ctx, err)
	}
	if err := x.commitOutcome(ctx)(); err != nil {
		return err
	}
	return x.next(ctx)
}

// askLimit bounds the lookups about m after the one that brought f. While the call
// is out they do not count, and come as seldom as they ever do.
func (e *Engine) askLimit(m keep.Mutation, f ledger.Fact, now time.Time) ledger.Limit {
	p, n := e.policy.Reconcile, m.ReconcileAttempts
	if f.Out {
		n = p.Attempts
	}
	return ledger.Limit{Attempts: p.Attempts, Next: now.Add(p.Delay(n, 0, e.jitter()))}
}

// goOn plans the attempt of a job that replays what is now known.
func (x *execution) goOn(ctx context.Context, now time.Time) error {
	x.run.RetryAt, x.run.UpdatedAt = now, now
	if err := x.commit(ctx); err != nil {
		return err
	}
	x.remember(nil)
	return nil
}

// resume returns the execution of the open run, to carry on with it.
func (a *actor) resume(ctx context.Context) (*execution, error) {
	run := *a.open
	v, err := a.version(ctx, run.Version)
	if err != nil {
		return nil, err
	}
	h, ok := v.Definition.Handler(run.Handler)
	if !ok {
		return nil, fmt.Errorf("run %s: version %s has no handler %s", run.ID, run.Version, run.Handler)
	}
	x := a.execution(v, h, run)
	x.mut = a.doubt
	x.reserved = len(run.Reservations) > 0
	return x, nil
}

// callFailure returns why the call did not end as applied.
func (x *execution) callFailure() *keep.Failure {
	f := keep.Failure{Class: keep.ClassUnknown, Code: "no-answer", Message: "the outcome of the call is not known"}
	if x.mut.Error != nil {
		f = *x.mut.Error
	}
	if f.Tool == "" {
		f.Tool = x.mut.Tool
	}
	if x.mut.State == keep.Failed && f.Class == keep.ClassUnknown {
		// The doubt is resolved: nothing happened, so it can be tried again.
		f.Class, f.Message = keep.ClassTransient, "the service shows no effect of the call: "+f.Message
	}
	return &f
}

// recover takes over the run that a crash left active. Doing it again after a
// crash of its own changes nothing: what it writes is one commit.
func (a *actor) recover(ctx context.Context) error {
	now := a.e.now()
	crashed, loop := lifecycle.Crash(*a.open, now)
	a.log.WarnContext(ctx, "recovering a run that the host left active", facts(crashed.ID, crashed.Handler, crashed.Mutation, "phase", crashed.Phase, "crashes", crashed.Crashes)...)
	if lifecycle.Unknown(a.doubt.State) {
		return a.handOver(ctx, crashed, now)
	}
	changes := []keep.Change{keep.PutRun{Run: crashed}}
	if loop {
		x := a.execution(a.current, keep.Handler{Name: crashed.Handler, Kind: crashed.Kind}, crashed)
		x.mut = a.doubt
		changes = append(changes, keep.OpenEscalation{Escalation: x.question(keep.AskInternal, crashed.Error, now)})
	}
	if err := a.commit(ctx, now, changes...); err != nil {
		return err
	}
	return a.loadOpen(ctx)
}

// handOver gives the call of an ended run, whose outcome is unknown, to a
// recovery run, which asks about it before anything else.
func (a *actor) handOver(ctx context.Context, ended keep.Run, now time.Time) error {
	changes, err := a.recoverDoubt(ended, now)
	if err != nil {
		return err
	}
	if err := a.commit(ctx, now, changes...); err != nil {
		return err
	}
	return a.loadOpen(ctx)
}

// recoverDoubt returns the changes that handOver commits.
func (a *actor) recoverDoubt(crashed keep.Run, now time.Time) ([]keep.Change, error) {
	next, closed := lifecycle.Again(crashed, a.doubt.State, keep.RunID(a.e.newID("run", now)), crashed.Version, now)
	if crashed.Status == keep.StatusInternal {
		next.Error = crashed.Error
	}
	m := a.doubt
	var moves []keep.Move
	var escalate bool
	if m.State == keep.InFlight {
		fact := ledger.Fact{Evidence: ledger.Unsure, By: "recovery", Detail: "the host died while the call was out"}
		t := a.e.tools.byName[m.Tool]
		if t == nil || !t.canReconcile() {
			fact.Evidence = ledger.NoWay
		}
		moved, move, err := ledger.Learn(m, fact, now)
		if err != nil {
			return nil, err
		}
		m, moves, escalate = moved, []keep.Move{move}, moved.State == keep.Indeterminate
	}
	m.Run, m.UpdatedAt = next.ID, now
	changes := []keep.Change{keep.PutRun{Run: closed}, keep.PutRun{Run: next}, keep.PutMutation{Mutation: m, Moves: moves}}
	if escalate {
		x := a.execution(a.current, keep.Handler{Name: next.Handler, Kind: next.Kind}, next)
		x.mut = m
		f := keep.Failf(keep.ClassUnknown, "crash", "the host died while the call was out")
		changes = append(changes, keep.OpenEscalation{Escalation: x.question(keep.AskUnknownOutcome, f, now)})
	}
	return changes, nil
}
