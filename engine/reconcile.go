package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/commitlog"
	"github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/schedule"
)

// lookUp asks the service what became of m. It returns also the tool that it asked, which only looks for a call
// that may not be sent again.
func (e *Engine) lookUp(ctx context.Context, t *tool, m keep.Mutation) (f ledger.Fact, by *tool) {
	ctx, end := e.toolSpan(ctx, MeasuredLookup, m.Workflow, t, m.Key)
	defer end(nil)
	ans, at, by := e.reconcile(ctx, t, m)
	if ans.Verdict == connector.Unwitnessed {
		ans, at, by = e.witness(ctx, t, m, ans, at, by)
	}
	f = factOf(e.ofThisAttempt(ctx, t, m, ans))
	f.AskedAt = at
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("keep.evidence", string(f.Evidence)))
	return f, by
}

// anotherAttempt is the verdict about an effect that may be that of the attempt before.
const anotherAttempt connector.Verdict = "another attempt"

// ofThisAttempt returns an answer as it counts for m: in an attempt after the first, an
// effect that is found without our mark may be that of an attempt before. Only a person can
// tell them apart.
func (e *Engine) ofThisAttempt(ctx context.Context, t *tool, m keep.Mutation, ans connector.Answer) connector.Answer {
	if ans.Verdict != connector.Happened || t.spec.Marked || ans.ByKey {
		return ans
	}
	switch n, err := e.attemptOf(ctx, m); {
	case err != nil:
		return connector.Answer{Verdict: connector.Retry, Detail: ans.Detail + "; but its attempt could not be read: " + err.Error()}
	case n > 1:
		return connector.Answer{Verdict: anotherAttempt, Detail: fmt.Sprintf(
			"%s; but this is attempt %d, and the lookup finds no mark of it: that may be what an attempt before did", ans.Detail, n)}
	}
	return ans
}

// attemptOf returns the attempt to which a call belongs: that of its item, or the highest of
// the events that its run has, and of those of which these came.
func (e *Engine) attemptOf(ctx context.Context, m keep.Mutation) (int, error) {
	if m.Item != "" {
		return m.Attempt, nil
	}
	return e.attemptOfRun(ctx, m.Workflow, m.Run, make(map[keep.RunID]bool))
}

// maxAbove is how many runs are looked at above a call, as of a workflow that publishes to itself.
const maxAbove = 5000

// attemptOfRun is attemptOf of a run. What a new attempt publishes under another id is at its first attempt, and makes what reads it do its
// work once more. seen are runs that were looked at.
func (e *Engine) attemptOfRun(ctx context.Context, w keep.WorkflowName, id keep.RunID, seen map[keep.RunID]bool) (int, error) {
	n := 1
	switch {
	case seen[id]:
		return n, nil
	case len(seen) == maxAbove:
		return 2, nil // nobody knows: a person is asked
	}
	seen[id] = true
	run, err := e.store.Run(ctx, id)
	if err != nil {
		return n, err
	}
	for _, r := range run.Reservations {
		for i := range r.IDs {
			n = max(n, r.Attempt(i))
		}
		if n > 1 {
			return n, nil
		}
		events, err := e.store.EventsByID(ctx, w, r.Topic, r.IDs)
		if err != nil {
			return n, err
		}
		for _, ev := range events {
			by := ev.CreatedBy.Run()
			if by == "" {
				continue
			}
			above, err := e.attemptOfRun(ctx, w, by, seen)
			if isNotFound(err) { // that one was swept: nobody knows either, as its inputs may have been over before this event was read
				return 2, nil
			}
			if err != nil {
				return n, err
			}
			if n = max(n, above); n > 1 {
				return n, nil
			}
		}
	}
	return n, nil
}

// factOf returns what an answer means to the ledger.
func factOf(ans connector.Answer) ledger.Fact {
	f := ledger.Fact{Evidence: ledger.Unsure, By: "reconcile", Detail: ans.Detail, Failure: ans.Refused}
	switch ans.Verdict {
	case connector.Happened:
		f.Evidence, f.Result, f.Warning, f.ByKey = ledger.Happened, ans.Result, ans.Warning, ans.ByKey
	case connector.Absent:
		f.Evidence = ledger.Absent
	case connector.Unwitnessed:
		f.Evidence, f.Unwitnessed = ledger.Absent, true
	case anotherAttempt:
		f.Evidence = ledger.CannotAsk
	}
	return f
}

// maxControls is how many known effects are looked for beside one that was not found.
const maxControls = 3

// witness finds out whether the lookup that did not find m finds anything: it asks for
// recent effects of the same tool that are known to have happened. If one of them is
// there, it asks for m once more, since the service may have come back in between; if
// none is, the lookup answered nothing. Without a known effect the answer stays, and at, when it was asked for, and by which tool.
func (e *Engine) witness(ctx context.Context, t *tool, m keep.Mutation, ans connector.Answer, at time.Time, by *tool) (connector.Answer, time.Time, *tool) {
	if _, ok := t.impl.(connector.Controller); !ok {
		return ans, at, by
	}
	known, err := e.knownEffects(ctx, t, m)
	if err != nil {
		return connector.Answer{Verdict: connector.Retry, Detail: ans.Detail + "; known effects could not be read: " + err.Error()}, at, by
	}
	if len(known) == 0 {
		return ans, at, by
	}
	for _, k := range known {
		if !e.control(ctx, t, k) {
			continue
		}
		second, at, by := e.reconcile(ctx, t, m)
		if second.Verdict == connector.Unwitnessed {
			second.Verdict = connector.Absent
			second.Detail += "; the same lookup finds " + k.Target
		}
		return second, at, by
	}
	return connector.Answer{Verdict: connector.Retry, Detail: ans.Detail + "; but the same lookup does not find " +
		known[0].Target + " either, which is known to have happened"}, at, by
}

// knownEffects returns recent applied mutations of the tool, the newest of each of its names
// first. What a person said is not among them: the service has not confirmed it.
func (e *Engine) knownEffects(ctx context.Context, t *tool, m keep.Mutation) ([]keep.Mutation, error) {
	var known []keep.Mutation
	for _, name := range t.namesWith(m.Tool) {
		recent, _, err := e.store.Mutations(ctx, keep.MutationFilter{Tool: name, State: keep.Applied}, keep.Page{Limit: 4 * maxControls})
		if err != nil {
			return nil, err
		}
		for _, r := range recent {
			if (r.ResolvedBy == "call" || r.ResolvedBy == "reconcile") && r.Key != m.Key && r.PinHash == m.PinHash && len(account.Changes(r.SentAs().As, m.SentAs().As)) == 0 && len(known) < maxControls {
				known = append(known, r)
			}
		}
	}
	return known, nil
}

// ask asks what became of an open run's call, and lets the run continue, wait, or
// come to a person.
func (a *actor) ask(ctx context.Context, o schedule.Open) error {
	x, err := a.resume(ctx, o)
	if err != nil {
		return err
	}
	began := time.Now()
	doubt, fact, until, err := a.find(ctx, x.mut)
	switch {
	case err != nil:
		return err
	case !until.IsZero():
		a.askLater(o.Run.ID, until)
		return nil
	}
	if err := a.withdrawFormer(ctx, x.mut.Tool); err != nil {
		return err
	}
	now := a.e.Now()
	x.sawLookup(began, fact)
	x.mut = doubt
	m, move, err := ledger.AfterLookup(x.mut, fact, a.e.askLimit(x.mut, fact, now), now)
	if err != nil {
		return err
	}
	x.mut, x.moves = m, []keep.Move{move}
	if m.State != keep.Applied {
		return x.fail(ctx, x.callFailure())
	}
	if x.run.Kind != keep.Consumer || x.v.script == nil {
		return x.goOn(ctx, now)
	}
	ctx, end := x.span(ctx)
	defer end()
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

// askLater plans the lookup about the call of an open run, in memory: the record says when
// it was due, and the limits of its connection when it may be made.
func (a *actor) askLater(id keep.RunID, until time.Time) {
	for i := range a.open {
		if a.open[i].Run.ID == id {
			a.open[i].Doubt.NextReconcileAt = until
		}
	}
}

// askLimit bounds the lookups about m after the one that brought f. While the call
// is out, or its account is lost, they do not count, and come as seldom as they ever do.
func (e *Engine) askLimit(m keep.Mutation, f ledger.Fact, now time.Time) ledger.Limit {
	p, n := e.policy.Reconcile, m.ReconcileAttempts
	if f.Out || ledger.Waits(f.Failure) {
		n = p.Attempts
	}
	return ledger.Limit{Attempts: p.Attempts, Next: now.Add(p.Delay(n, 0, e.jitter()))}
}

// goOn plans the attempt of a job that replays what is now known, or the one by the current version if
// this program does not have that of the run.
func (x *execution) goOn(ctx context.Context, now time.Time) error {
	x.run.RetryAt, x.run.UpdatedAt = now, now
	if err := x.commit(ctx); err != nil {
		return err
	}
	x.remember(nil)
	return nil
}

// resume returns the execution of an open run, to carry on with it. Without the script of its
// version the service can still be asked.
func (a *actor) resume(ctx context.Context, o schedule.Open) (*execution, error) {
	run := o.Run
	v, err := a.version(ctx, run.Version)
	if err != nil && !errors.Is(err, ErrNotHere) {
		return nil, err
	}
	h, ok := v.Definition.Carrier(run.Kind, run.Handler)
	if !ok {
		return nil, fmt.Errorf("run %s: version %s has no handler %s", run.ID, run.Version, run.Handler)
	}
	x := a.execution(v, h, run)
	x.mut = o.Doubt
	x.reserved = len(run.Reservations) > 0
	return x, nil
}

// callFailure returns why the call did not end as applied.
func (x *execution) callFailure() *keep.Failure {
	f := keep.Failure{Class: keep.ClassUnknown, Code: "no-answer", Message: "the outcome of the call is not known"}
	if x.mut.Error != nil {
		f = *x.mut.Error
	}
	f.Tool = cmp.Or(f.Tool, x.mut.Tool)
	if x.mut.State == keep.Failed && f.Class == keep.ClassUnknown {
		// The doubt is resolved: nothing happened, so it can be tried again.
		why := "the service shows no effect of the call: "
		if by := x.mut.ResolvedBy; by != "reconcile" && by != "call" { // a person
			why = by + " said that the call did not happen: "
		}
		f.Class, f.Message = keep.ClassTransient, why+f.Message
	}
	return &f
}

// recover takes over a run that a crash left active. Doing it again after a
// crash of its own changes nothing: what it writes is one commit.
func (a *actor) recover(ctx context.Context, o schedule.Open) error {
	now := a.e.Now()
	crashed, loop := lifecycle.Crash(o.Run, now)
	a.log.WarnContext(ctx, "recovering a run that the host left active", commitlog.Attrs(crashed.ID, crashed.Handler, crashed.Mutation, "phase", crashed.Phase, "crashes", crashed.Crashes)...)
	if lifecycle.Unknown(o.Doubt.State) {
		return a.handOver(ctx, crashed, o.Doubt, now)
	}
	changes := []keep.Change{keep.PutRun{Run: crashed}}
	if loop {
		x := a.execution(a.current, keep.Handler{Name: crashed.Handler, Kind: crashed.Kind}, crashed)
		x.mut = o.Doubt
		changes = append(changes, keep.OpenEscalation{Escalation: x.question(ctx, keep.AskInternal, crashed.Error, now, nil)})
	}
	if err := a.commit(ctx, now, changes...); err != nil {
		return err
	}
	return a.loadOpen(ctx)
}

// handOver gives the call of an ended run, whose outcome is unknown, to a
// recovery run, which asks about it before anything else.
func (a *actor) handOver(ctx context.Context, ended keep.Run, doubt keep.Mutation, now time.Time) error {
	changes, err := a.recoverDoubt(ctx, ended, doubt, now)
	if err != nil {
		return err
	}
	if err := a.commit(ctx, now, changes...); err != nil {
		return err
	}
	return a.loadOpen(ctx)
}

// handlerOf returns the handler of r as the current version declares it, or what r knows.
func (a *actor) handlerOf(r keep.Run) keep.Handler {
	if h, ok := a.current.Definition.Carrier(r.Kind, r.Handler); ok {
		return h
	}
	return keep.Handler{Name: r.Handler, Kind: r.Kind}
}

// diedWithCall is all that is known of a call that a host recorded and did not settle.
const diedWithCall = "the host died after it recorded the call, and may have sent it"

// recoverDoubt returns the changes that handOver commits.
func (a *actor) recoverDoubt(ctx context.Context, crashed keep.Run, doubt keep.Mutation, now time.Time) ([]keep.Change, error) {
	next, closed := lifecycle.NextAttempt(crashed, doubt, keep.RunID(a.e.newID("run", now)), crashed.Version, now)
	if crashed.Status == keep.StatusInternal {
		next.Error = crashed.Error
	}
	m := a.e.markOut(doubt)
	var moves []keep.Move
	var escalate bool
	if m.State == keep.InFlight {
		fact := ledger.Fact{Evidence: ledger.Unsure, By: "recovery", Detail: diedWithCall}
		if !m.CanReconcile {
			fact.Evidence = ledger.CannotAsk
		}
		moved, move, err := ledger.Apply(ledger.Died(m), fact, now)
		if err != nil {
			return nil, err
		}
		m, moves, escalate = moved, []keep.Move{move}, moved.State == keep.Indeterminate
	}
	m.Run, m.UpdatedAt = next.ID, now
	changes := []keep.Change{keep.PutRun{Run: closed}, keep.PutRun{Run: next}, keep.PutMutation{Mutation: m, Moves: moves}}
	if escalate {
		x := a.execution(a.current, a.handlerOf(next), next)
		x.mut = m
		f := keep.Failf(keep.ClassUnknown, "crash", diedWithCall)
		changes = append(changes, keep.OpenEscalation{Escalation: x.question(ctx, keep.AskUnknownOutcome, f, now, moves)})
	}
	return changes, nil
}
