package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/law/grant"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
)

// A takenCall is a mutate call that the host took over from the script.
type takenCall struct {
	tool     *tool
	params   []byte // as the script passed them
	identity []byte
	payload  []byte
	subkey   string
	target   string
	ask      string            // why a person must agree, beside what its tool says; empty: nothing
	said     *keep.Escalation  // by which a person said that it was done outside of the ledger; nil: nobody did
	answers  []keep.Escalation // what persons said of calls of its item, or of an agent's call, that were done already
	at       string
	pause    func() (resume func()) // of the phase; nil: it is over

	as      map[string]string // whose credentials it is sent with
	changed []account.Change  // of those of the call before it, and not known to be of the same user
}

// ledgerCall returns what the ledger records of the call, outside of items.
func (c *takenCall) ledgerCall(x *execution, key keep.MutationKey, hash string) ledger.Call {
	spec := c.tool.spec
	return ledger.Call{
		Key: key, Workflow: x.a.name, Run: x.run.ID,
		Tool: c.tool.name, Connector: c.tool.connector, Level: spec.Level,
		Target:   c.target,
		Identity: c.identity, Subkey: c.subkey, Payload: c.payload, PayloadHash: hash,
		Token: ledger.Token(x.e.cfg.Salt, key), Title: x.run.Title,
		SettleAfter: spec.SettleAfter, CanReconcile: c.tool.canReconcile(),
		Pin: c.tool.pin, PinHash: c.tool.pinHash,
	}
}

// makeCall is the whole way of a call of a mutate tool, from what the script wants to
// a record that is settled or in doubt. The rest of this file is in its order.
//
//	lookBefore  no person said that it was done outside of the ledger; after a person said that the call before did not happen: one that the service shows is not made again
//	admit     calls of the tool are not stopped; the grant allows it; nobody made it before, if its identity is unique; a person agrees, if the
//	          tool wants that; its budgets have room; the tool is ready; there is time
//	record    the record says in_flight, durably: a crash from here on leaves a doubt
//	transmit  the connector is called, once, until the deadline of the record
//	learn     what came back is evidence, and the record moves
//	askInline if the outcome is unknown, the service is asked at once
//
// The call c continues the record before, which has failed; zero: there is none. With
// returns what is to be durable together with the record. The error is nil if the
// record has moved, in memory, and not of a call that did not succeed.
func (x *execution) makeCall(ctx context.Context, call *takenCall, c ledger.Call, before keep.Mutation, with func() ([]keep.Change, error)) error {
	x.trace(BeforeCall)
	x.callAt = call.at
	defer x.giveBack(ctx) // unless it was used
	if found, err := x.lookBefore(ctx, call, c, before, with); found || err != nil {
		return err
	}
	c, now, err := x.admit(ctx, call, c, before)
	if err != nil {
		return err
	}
	if err := x.record(ctx, c, before, now, with); err != nil {
		return err
	}
	x.trace(Recorded)
	fact, err := x.transmit(call.tool)
	switch {
	case errors.Is(err, errStopping):
		return err
	case err == nil:
		err = x.learn(fact)
	}
	if err == nil && x.mut.State == keep.NeedsReconcile {
		err = x.askInline(call.tool)
	}
	if err != nil {
		return &storeError{&commitError{err}} // the record on disk says in_flight, and the actor will ask
	}
	return nil
}

// lookBefore asks the service once more about a call of which a person said that it did not happen,
// before it is sent again, and reports whether it is there: then the record is applied, durably (law:
// witnessed). Anything else leaves it to the person's word. A tool of level A is asked by sending, under
// a key that is known: it needs no look. What dies here looks again; nothing was sent.
//
// What a lookup without marks shows may be the effect of an equal call of another record. If there is one, a
// person is asked: before the look if the identity is unique, else if it shows something. Beside one that a person
// wanted this call to be made, only what the service answers for its key counts.
func (x *execution) lookBefore(ctx context.Context, call *takenCall, c ledger.Call, before keep.Mutation, with func() ([]keep.Change, error)) (found bool, err error) {
	if err := x.checkDone(ctx, call, c); err != nil {
		return false, err
	}
	if !lifecycle.Resends(before) || !before.Doubted {
		return false, nil
	}
	moves, err := x.e.store.History(ctx, before.Key)
	if err != nil {
		return false, &storeError{err}
	}
	t, _ := x.e.tools.asker(before)
	if !ledger.Vouched(moves) || t == nil || t.spec.Level == keep.LevelKey {
		return false, nil
	}
	unmarked := !t.spec.Marked && len(c.Identity) > len("{}") // it names something
	if unmarked {
		_, rival, err := x.rival(ctx, call, c)
		if err != nil || rival.Key != "" && t.spec.Unique {
			return false, err
		}
	}
	changed, as, err := x.e.users.userSince(ctx, t, before)
	switch {
	case err != nil:
		return false, unreadAccount(err)
	case len(changed) > 0 && t.spec.ByTarget: // what another user's lookup finds may be of another call
		return false, nil
	case len(changed) == 0:
		ctx = connector.SendAs(ctx, as)
	}
	fact, err := x.look(ctx, t, before, call)
	if err != nil || fact.Evidence != ledger.Happened {
		return false, err
	}
	if unmarked && !fact.ByKey {
		u, rival, err := x.rival(ctx, call, c) // others may have looked meanwhile
		switch {
		case err != nil || len(u.Except) > 0:
			return false, err
		case rival.Key != "":
			return false, &rivalError{call: c, rival: rival, shown: true}
		}
		x.unlike = &u
	}
	now := x.e.Now()
	m, move, err := ledger.Apply(before, fact, now)
	if err != nil {
		return false, &storeError{err}
	}
	m.Run = x.run.ID
	if err := x.put(ctx, m, move, nil, now, with); err != nil {
		return false, err
	}
	x.trace(OutcomeWritten)
	return true, nil
}

// look asks the service what became of the call before, in the place of the call that would repeat it: it waits
// for the limits of the connection, and is the probe if the run is to be that. Without a place nothing is sent.
// Where the tool sends another way now, the place of then says nothing about the connection, and its answer is no probe.
// A probe that a person wants is a call: the look at it that gets no answer leaves it the pass.
func (x *execution) look(ctx context.Context, t *tool, before keep.Mutation, call *takenCall) (ledger.Fact, error) {
	p := x.a.aside(t)
	p.pause, p.notice = call.pause, x.newNotice(t)
	if !call.tool.moved(before) {
		var err error
		if p, err = x.enter(ctx, t, x.e.policy.Reconcile.Inline, call.at, call.pause); err != nil {
			return ledger.Fact{}, err
		}
	}
	began := time.Now()
	fact, _ := x.e.lookUp(p.within(x.within(ctx)), t, before)
	if ctx.Err() == nil && p.keeps() {
		x.probe = p
	} else {
		p.done(ctx, nil, ctx.Err() != nil)
	}
	x.sawLookup(began, fact)
	if ctx.Err() != nil {
		return fact, cmp.Or(p.whyEnded(), errEnded)
	}
	if err := p.whyEnded(); err != nil {
		return fact, err
	}
	if err := p.notice.over(ctx); err != nil {
		return fact, &storeError{err}
	}
	return fact, nil
}

// admit returns c as it may now be recorded and made: the grant allows it, a person agreed where the
// tool wants that, the tool has what it needs in the service, for all calls and for this
// one, and the deadline counts from here. It is never after the end of the lease.
func (x *execution) admit(ctx context.Context, call *takenCall, c ledger.Call, before keep.Mutation) (ledger.Call, time.Time, error) {
	t := call.tool
	if err := x.checkBreaker(ctx, call); err != nil {
		return c, time.Time{}, err
	}
	may, under, err := x.mayCall(ctx, call)
	if err != nil {
		return c, time.Time{}, err
	}
	unlike, err := x.checkUnique(ctx, call, c)
	if err != nil {
		return c, time.Time{}, err
	}
	if c.Pin, err = x.signs(ctx, call, c, before); err != nil {
		return c, time.Time{}, err
	}
	if err := x.checkApproval(ctx, call, c, before, may, under); err != nil {
		return c, time.Time{}, err
	}
	if c.Spent, err = x.spend(ctx, call, c); err != nil {
		return c, time.Time{}, err
	}
	if x.pass, err = x.enter(ctx, t, t.spec.Timeout, call.at, call.pause); err != nil {
		return c, time.Time{}, err
	}
	if c.Pin, err = x.ready(x.pass.within(ctx), call, c, before); err != nil {
		return c, time.Time{}, err
	}
	limit := t.spec.Timeout
	if leases := x.a.leases; leases != nil {
		var err error
		if limit, err = leases.CallTime(ctx, limit); err != nil {
			return c, time.Time{}, endedOr(ctx, errLeaseLost)
		}
		c.SettleAfter += t.spec.Timeout - limit // who is cut short waits less, and the service takes as long as ever
	}
	if err := x.checkBreaker(ctx, call); err != nil { // again: others may have failed while the call waited in line
		return c, time.Time{}, err
	}
	if err := x.stillRuns(ctx); err != nil {
		return c, time.Time{}, err
	}
	now := x.e.Now()
	if unlike, err = x.admitStill(ctx, call, c, before, may, under, unlike, now); err != nil {
		return c, time.Time{}, err
	}
	if x.spent.isOver(x.e.budgets.Load(), now) { // there is another limit now
		if c.Spent, err = x.spend(ctx, call, c); err != nil {
			return c, time.Time{}, err
		}
	}
	setting, err := x.checkSetting(ctx, call, c, before, now)
	if err != nil {
		return c, time.Time{}, err
	}
	c.Deadline, x.unlike, x.setting, x.under = x.e.clock.Deadline(now, limit), unlike, setting, under
	return c, now, nil
}

// stillRuns returns errPaused if a person paused the workflow since the run began: its prepare may have taken long, and the call is
// not under way yet. The commit that records a direct call looks for itself.
func (x *execution) stillRuns(ctx context.Context) error {
	x.e.mu.Lock()
	poked := x.a.pokes != x.pokes // the next host call of a job looks again for itself
	x.e.mu.Unlock()
	if !poked {
		return nil
	}
	switch w, err := x.e.store.Workflow(ctx, x.a.name); {
	case err != nil:
		return &storeError{err}
	case w.Paused:
		return errPaused
	}
	return nil
}

// admitStill is what of admit the call must still fulfil after it waited in line and its tool got ready, which may have taken
// long: an approval may have ended, and the configuration be another one. It returns what the commit must not repeat.
// A tool that sends as before sends as it did when the call came to it.
func (x *execution) admitStill(ctx context.Context, call *takenCall, c ledger.Call, before keep.Mutation, may grant.Verdict, under *keep.UnderGrant, unlike *keep.Unlike, now time.Time) (*keep.Unlike, error) {
	t, today := call.tool, x.e.tools.known(call.tool.name)
	switch ends := x.approvedUntil; {
	case today == t && (ends.IsZero() || now.Before(ends)):
		return unlike, nil
	case today == t:
	case today == nil || today.name != t.name || today.pinHash != t.pinHash || today.secrets != t.secrets:
		return nil, &keep.Failure{Class: keep.ClassTransient, Code: "configuration-changed", Tool: t.name, At: call.at,
			Message: fmt.Sprintf("the configuration of %s is another one since the call waited; nothing was sent", t.name)}
	}
	as := *call
	as.tool = today
	unlike, err := x.checkUnique(ctx, &as, c)
	if err != nil {
		return nil, err
	}
	return unlike, x.checkApproval(ctx, &as, c, before, may, under)
}

// ready lets the tool get what it needs before the call, and returns its pin. The call's own
// request may begin at once then: a wait for a limit is over before the call is recorded.
func (x *execution) ready(ctx context.Context, call *takenCall, c ledger.Call, before keep.Mutation) (json.RawMessage, error) {
	t := call.tool
	n := x.newNotice(t)
	x.pass.notice = n
	as, err := x.e.users.sender(ctx, t)
	switch {
	case err != nil:
		return nil, unreadAccount(err)
	case !maps.Equal(as, call.as): // it was agreed to for others
		return nil, keep.Failf(keep.ClassTransient, "account-changed", "the credentials of %s are others since the call waited; nothing was sent", t.name.Connection())
	}
	ctx, x.as = connector.SendAs(ctx, as), as
	f := t.start(ctx, x.callAt)
	var pin json.RawMessage
	if f == nil && ctx.Err() == nil {
		pin, f = t.claim(ctx, c, before, call.changed, x.e.Now(), x.callAt)
	}
	ended := x.pass.whyEnded()
	switch {
	case ended != nil:
		return nil, ended
	case ctx.Err() != nil:
		return nil, errEnded
	case f != nil:
		x.pass.done(ctx, f, false)
		return nil, f
	}
	if err := x.pass.renew(ctx); err != nil {
		return nil, cmp.Or(x.pass.whyEnded(), endedOr(ctx, err))
	}
	x.pass.notice = nil // the record says that the call is out
	if err := n.over(ctx); err != nil {
		return nil, &storeError{err}
	}
	return pin, nil
}

// record makes the call durable, in flight. From here on only evidence ends the doubt.
func (x *execution) record(ctx context.Context, c ledger.Call, before keep.Mutation, now time.Time, with func() ([]keep.Change, error)) error {
	m, move := ledger.Open(c, now)
	if before.Key != "" {
		var err error
		if m, move, err = ledger.Reopen(before, c, now); err != nil {
			return keep.Failf(keep.ClassInternal, "ledger", "%v", err)
		}
	}
	return x.put(ctx, m, move, m.Spent, now, with)
}

// put makes a move of the record of a call durable, with what it takes of budgets.
func (x *execution) put(ctx context.Context, m keep.Mutation, move keep.Move, takes []keep.Spent, now time.Time, with func() ([]keep.Change, error)) error {
	run, mut := x.run, x.mut
	undo := func() {
		x.run, x.mut, x.moves, x.takes, x.unlike, x.setting, x.under = run, mut, nil, nil, nil, nil, nil
	}
	x.mut, x.moves, x.run.Mutation, x.takes = m, []keep.Move{move}, m.Key, takes
	more, err := with()
	if err != nil {
		undo()
		return err
	}
	x.run.UpdatedAt = now
	if err = x.commit(ctx, more...); err == nil {
		return nil
	}
	if errors.Is(err, keep.ErrStale) { // nothing is recorded
		undo()
	}
	return &storeError{err}
}

// transmit makes the call that was recorded, and returns what it proves. An error means
// that it proves nothing, and that nothing is written.
func (x *execution) transmit(t *tool) (ledger.Fact, error) {
	whole := x.mut.CallDeadline.Sub(x.mut.UpdatedAt)
	limit := min(x.e.clock.Remaining(x.mut.CallDeadline), whole) // the clock may be set back meanwhile
	late := whole - limit
	if late >= ledger.MaxLate(x.mut) { // the record says that it could be out until then, and no longer
		f := &keep.Failure{Class: keep.ClassTransient, Code: "not-sent", Tool: t.name, At: x.callAt,
			Message: "recording the call took " + late.Round(time.Millisecond).String() + ", which is too much of its time; nothing was sent"}
		return ledger.Fact{By: "call", Evidence: ledger.Absent, Detail: f.Message, Failure: f}, nil
	}
	if t.spec.Level == keep.LevelKey {
		x.e.ages.meet(x.mut, x.e.Now())
	}
	ctx, end := x.e.toolSpan(connector.SendAs(x.within(x.a.hard), x.as), MeasuredCall, x.a.name, t, x.mut.Key)
	began := time.Now()
	receipt, f := x.a.callOut(x.pass.within(ctx), t, x.mut, limit, x.callAt)
	x.pass.done(ctx, f, x.a.hard.Err() != nil)
	end(f)
	x.sawCall(began, f)
	x.trace(Answered)
	if f != nil && x.a.hard.Err() != nil {
		return ledger.Fact{}, errStopping // given up: the record stays in_flight for recovery
	}
	fact := ledger.Fact{By: "call", Result: receipt.Result, Warning: receipt.Warning, Failure: f}
	switch {
	case f == nil:
		fact.Evidence = ledger.Happened
	case f.Class != keep.ClassUnknown:
		fact.Evidence, fact.Detail = ledger.Absent, f.Message
	default:
		fact.Evidence, fact.Detail = ledger.CannotAsk, f.Message
		if t.canReconcile() {
			fact.Evidence = ledger.Unsure
		}
		x.mut = ledger.ExtendDeadline(x.mut, x.mut.CallDeadline.Add(late)) // what is sent late may take effect as late
	}
	return fact, nil
}

// learn moves the record in memory. An error is a bug of Keep.
func (x *execution) learn(f ledger.Fact) error {
	m, move, err := ledger.Apply(x.mut, f, x.e.Now())
	if err != nil {
		return err
	}
	x.mut, x.moves = m, append(x.moves, move)
	return nil
}

// askInline asks once, right after the call.
func (x *execution) askInline(t *tool) error {
	if x.a.recordsSendingAgain(t) { // and what comes before it first
		x.run.UpdatedAt = x.e.Now()
		if err := x.commit(x.within(x.a.hard)); err != nil {
			return err
		}
	}
	began := time.Now()
	m, fact, until, err := x.a.lookUp(x.within(x.a.hard), t, x.mut, true)
	if err != nil {
		return err
	}
	if until.IsZero() {
		x.sawLookup(began, fact)
	} else {
		m, fact = x.mut, ledger.Fact{Evidence: ledger.Unsure, By: "reconcile", Detail: ledger.NotAsked + "; its connection is at its limits or down"}
	}
	now := x.e.Now()
	next := now.Add(x.e.policy.Reconcile.Delay(0, 0, x.e.jitter()))
	m, move, err := ledger.AfterInlineLookup(m, fact, next, now)
	if err != nil {
		return err
	}
	x.mut, x.moves = m, append(x.moves, move)
	return nil
}
