package engine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/commitlog"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
)

// overtime is how long after its time a call may take to return before the engine
// continues without it.
const overtime = 5 * time.Second

// codeOut marks a record whose connector had not returned when the engine continued.
const codeOut = "not-returned"

// An overdue is a call whose connector did not return when its time was over. A
// connector that ignores the end of its context may still send, as long as it has
// not returned:
//
//   - its record stays in doubt, whatever lookups do not find and however often,
//     so that no second call is made and nobody is asked to vouch for it;
//   - a lookup that finds the effect is believed, and so is the call itself if it
//     returns a result after all;
//   - when it has returned without one, the effect settles from then on;
//   - the actor of its workflow, and with it Run, ends after it.
//
// A process that dies takes its goroutines along, and one that lost the lease of the workflow
// may not write. The next one knows by codeOut that the call may have been sent until it took the workflow.
//
// None of this is for tools that cannot be asked: the answer of the call is all
// that can be known about it, so the engine waits for it.
type overdue struct {
	at      time.Time // when it returned; zero: it has not
	receipt connector.Receipt
	fail    *keep.Failure
}

// A callAnswer is what a call came to.
type callAnswer struct {
	receipt connector.Receipt
	fail    *keep.Failure
}

// callOut makes the call that m records, within limit, and returns what became of
// it as tool.mutate does. It returns without the connector when that ignores the
// end of its context.
func (a *actor) callOut(ctx context.Context, t *tool, m keep.Mutation, limit time.Duration, at string) (connector.Receipt, *keep.Failure) {
	if !t.canReconcile() {
		return t.mutate(ctx, m, limit, at)
	}
	done := make(chan callAnswer, 1)
	a.calls.Go(func() {
		receipt, fail := t.mutate(ctx, m, limit, at)
		done <- callAnswer{receipt, fail}
	})
	ans, ok := await(ctx, done, limit)
	if !ok {
		a.goWithout(t, m, done)
		fail := stillOut(t.name)
		fail.At = at
		return connector.Receipt{}, fail
	}
	return ans.receipt, ans.fail
}

// stillOut is why the outcome of an overdue call is unknown.
func stillOut(tool keep.ToolName) *keep.Failure {
	return &keep.Failure{Class: keep.ClassUnknown, Code: codeOut, Tool: tool,
		Message: fmt.Sprintf("%s took longer than its timeout, and its connector ignores that its time is over; the call may still be out", tool)}
}

// await waits for an answer: for limit, or until ctx is done, and overtime.
func await[T any](ctx context.Context, done <-chan T, limit time.Duration) (T, bool) {
	var none T
	timer := time.NewTimer(limit + overtime)
	defer timer.Stop()
	select {
	case ans := <-done:
		return ans, true
	case <-timer.C:
		return none, false
	case <-ctx.Done():
	}
	timer.Reset(overtime)
	select {
	case ans := <-done:
		return ans, true
	case <-timer.C:
		return none, false
	}
}

// goWithout leaves a call to itself, and keeps what it returns.
func (a *actor) goWithout(t *tool, m keep.Mutation, done <-chan callAnswer) {
	a.e.dropOverdue(a.hard)
	o := &overdue{}
	a.e.mu.Lock()
	a.e.overdue[m.Key] = o
	n := len(a.e.overdue)
	a.e.mu.Unlock()
	a.log.Error("a connector ignores that the time of its call is over; the workflow waits for what became of it",
		commitlog.Attrs(m.Run, "", m.Key, "tool", t.name, "overdue", n)...)
	a.calls.Go(func() {
		ans := <-done
		a.e.mu.Lock()
		o.at, o.receipt, o.fail = a.e.Now(), ans.receipt, ans.fail
		a.e.mu.Unlock()
		a.log.Warn("an overdue call returned", commitlog.Attrs(m.Run, "", m.Key, "tool", t.name, "err", ans.fail)...)
	})
}

// find finds out what became of m, by the tool that can be asked about it today. If the limits
// of its connection do not allow that now, until says when to try again.
func (a *actor) find(ctx context.Context, m keep.Mutation) (judged keep.Mutation, fact ledger.Fact, until time.Time, err error) {
	if t, none := a.e.tools.asker(m); t != nil {
		judged, fact, until, err = a.lookUp(ctx, t, m, false)
	} else {
		judged, fact = a.whatBecame(ctx, nil, none, m, a.e.overdueCall(m.Key))
	}
	if err == nil && ctx.Err() != nil {
		err = errStopping // the lookup was cut by the stop: it proves nothing
	}
	return judged, fact, until, err
}

// lookUp finds out what became of m by a tool that can be asked. With now it does not wait for
// its turn. A lookup that asks the service nothing takes no turn.
func (a *actor) lookUp(ctx context.Context, t *tool, m keep.Mutation, now bool) (judged keep.Mutation, fact ledger.Fact, until time.Time, err error) {
	late := a.e.overdueCall(m.Key)
	if !late.needsLookup(t) {
		judged, fact = a.whatBecame(ctx, t, ledger.Fact{}, m, late)
		return judged, fact, time.Time{}, nil
	}
	p, until, err := a.mayAsk(ctx, t, m, now)
	if p == nil {
		return m, ledger.Fact{}, until, err
	}
	judged, fact = a.whatBecame(p.within(ctx), t, ledger.Fact{}, m, late)
	p.done(ctx, nil, ctx.Err() != nil)
	if p.aside { // it waited for its turn in the lookup, which proves nothing without one
		err = p.whyEnded()
	}
	return judged, fact, time.Time{}, err
}

// overdueCall returns what this process knows of a call of its own that ignored its end; nil:
// it made none.
func (e *Engine) overdueCall(key keep.MutationKey) *overdue {
	e.mu.Lock()
	defer e.mu.Unlock()
	o, known := e.overdue[key]
	if !known {
		return nil
	}
	late := *o
	return &late
}

// needsLookup reports whether the service is to be asked: it is not when the call brought its
// answer, nor while it is out if asking is sending.
func (o *overdue) needsLookup(t *tool) bool {
	switch {
	case o == nil:
		return true
	case o.at.IsZero():
		return t.spec.Level != keep.LevelKey
	}
	return o.fail != nil
}

// whatBecame finds out what became of m; none says what it means if t is nil, because nobody
// can be asked. It returns m as it is to be judged, since the call may have been sent later
// than its deadline says. A call that is out counts as out, and its own answer as one,
// whether its tool can still be asked or not: the configuration may have changed meanwhile.
func (a *actor) whatBecame(ctx context.Context, t *tool, none ledger.Fact, m keep.Mutation, late *overdue) (keep.Mutation, ledger.Fact) {
	e, known := a.e, late != nil
	switch {
	case known && late.at.IsZero():
		m = e.markOut(m)
		return m, e.lookUpWhileOut(ctx, t, none, m)
	case known && late.fail == nil:
		return m, ledger.Fact{Evidence: ledger.Happened, By: "call", Detail: "the call returned after its time",
			Result: late.receipt.Result, Warning: late.receipt.Warning}
	case known:
		m = ledger.ExtendDeadline(m, late.at)
	case m.Error != nil && m.Error.Code == codeOut: // by a process that is gone, or has lost the workflow
		m = ledger.ExtendDeadline(m, a.since)
	}
	if t == nil { // what none says takes the place of codeOut, so the deadline is extended first
		return m, none
	}
	changed, as, err := e.users.userSince(ctx, t, m)
	switch {
	case err != nil:
		return m, ledger.Fact{Evidence: ledger.Unsure, By: "reconcile", Detail: ledger.NotAsked + "; whose credentials would be used is not known: " + err.Error()}
	case len(changed) > 0:
		return a.lookUpAsOther(ctx, t, m, changed)
	}
	ctx = connector.SendAs(ctx, as)
	m = a.lastSent(t, m)
	if t.spec.Level == keep.LevelKey {
		if a.recordsSendingAgain(t) {
			within, cancel, recorded, not := a.toSendAgain(ctx, t, m)
			defer cancel()
			if ctx, m = within, recorded; not != nil {
				return m, *not
			}
		}
		m = ledger.SentAgain(m, e.Now()) // to ask is to send
	}
	fact, by := e.lookUp(ctx, t, m)
	switch {
	case by.spec.Level != t.spec.Level: // a grant keeps it from being sent again
		m = a.lastSent(by, m)
	case t.spec.Level == keep.LevelKey && fact.Evidence == ledger.Unsure:
		m = ledger.ExtendDeadline(m, e.Now()) // it may have been sent again until now, and is not any more: keep.Mutation.SentAgainUntil ends
	}
	return m, fact
}

// recordsSendingAgain reports whether the record says that a call is sent again before it is: another process may ask at the same moment.
func (a *actor) recordsSendingAgain(t *tool) bool {
	return t.spec.Sets || t.spec.Level == keep.LevelKey && a.name == keep.DirectWorkflow
}

// lastSent returns m, which was sent under a key, as the record of a call that may have been
// sent again until it is only looked for: what was sent last settles last. A process that is
// gone, another host, and a commit that was lost may not have recorded when it was: since says when
// the actor began, or its last commit failed, after which it sends again only what it then records.
func (a *actor) lastSent(t *tool, m keep.Mutation) keep.Mutation {
	switch {
	case m.Level != keep.LevelKey:
	case t.spec.Level != keep.LevelKey: // it was configured in another way, or may not be sent any more
		if m.UpdatedAt.Before(a.since) {
			m = ledger.ExtendDeadline(m, a.since)
		}
	case t.spec.KeyLasts > 0 && a.e.keyAge(m)+a.e.policy.Reconcile.Inline >= t.spec.KeyLasts:
		m = ledger.ExtendDeadline(m, m.CreatedAt.Add(t.spec.KeyLasts))
	}
	return m
}

// markOut returns m with codeOut if its call is overdue in this process. The commit that
// first said so may have been lost, and then the next process would not know.
func (e *Engine) markOut(m keep.Mutation) keep.Mutation {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o, known := e.overdue[m.Key]; known && o.at.IsZero() && (m.Error == nil || m.Error.Code != codeOut) {
		m.Error = stillOut(m.Tool)
	}
	return m
}

// lookUpWhileOut asks about a call that may still be sent. At level A asking is
// sending, and a second call must not go out beside the first.
func (e *Engine) lookUpWhileOut(ctx context.Context, t *tool, none ledger.Fact, m keep.Mutation) ledger.Fact {
	fact := ledger.Fact{Evidence: ledger.Unsure, By: "reconcile", Detail: cmp.Or(none.Detail, ledger.NotAsked)}
	if t != nil && t.spec.Level != keep.LevelKey {
		fact, _ = e.lookUp(ctx, t, m)
	}
	found := fact.Evidence == ledger.Happened
	if found && t.spec.ByTarget { // another user's may be of another call
		changed, _, err := e.users.userSince(ctx, t, m)
		found = err == nil && len(changed) == 0
	}
	if !found {
		fact.Evidence, fact.Out = ledger.Unsure, true
	}
	return fact
}

// dropOverdue forgets the calls that have returned and whose records are settled.
func (e *Engine) dropOverdue(ctx context.Context) {
	e.mu.Lock()
	var back []keep.MutationKey
	for key, o := range e.overdue {
		if !o.at.IsZero() {
			back = append(back, key)
		}
	}
	e.mu.Unlock()
	for _, key := range back {
		m, err := e.store.Mutation(ctx, key)
		if err == nil && !lifecycle.Unknown(m.State) {
			e.mu.Lock()
			delete(e.overdue, key)
			e.mu.Unlock()
		}
	}
}
