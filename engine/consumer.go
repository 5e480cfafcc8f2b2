package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/policy"
)

// prepare selects and pins: nothing outside changes, and nothing is written
// before the mutation is known.
func (x *execution) prepare(ctx context.Context) error {
	x.run.SeenSeq, x.looked = x.backlog.Newest, true
	var trigger json.RawMessage
	if x.backlog.Oldest.Seq != 0 {
		oldest := x.backlog.Oldest
		x.run.Trigger = keep.EventRef{Topic: oldest.Topic, MessageID: oldest.MessageID}
		trigger = eventJSON(x.v.Definition, oldest)
	}
	if x.keyless != nil {
		return x.fail(ctx, x.keyless)
	}
	host := x.host(policy.InPrepare)
	out, err := x.call(ctx, "prepare", []json.RawMessage{trigger}, host, x.e.slow(200*time.Millisecond), x.announce(ctx))
	if err != nil {
		return x.fail(ctx, err)
	}
	p, f := parsePrepared(out, x.v.Definition, x.def, x.e.policy, x.e.Now())
	if f != nil {
		return x.fail(ctx, f)
	}
	if err := x.checkReservations(ctx, p.reservations); err != nil {
		return x.fail(ctx, err)
	}
	x.run.Reservations, x.run.Prepared = p.reservations, out
	x.run.Title, x.run.WakeAt = p.title, p.wakeAt
	if !p.trigger.IsZero() {
		x.run.Trigger = p.trigger
	}
	if err := x.transition(keep.Prepared); err != nil {
		return x.fail(ctx, err)
	}
	return x.mutate(ctx)
}

// checkReservations refuses what cannot be reserved before mutate runs, and sets at which
// attempts the events are. The store refuses it again at commit 1, also if a person had one
// of them done again meanwhile. The trigger itself was just read.
func (x *execution) checkReservations(ctx context.Context, rs []keep.Reservation) error {
	var causes []keep.InputID
	var all []keep.Event
	for i, r := range rs {
		if len(r.IDs) == 1 && (keep.EventRef{Topic: r.Topic, MessageID: r.IDs[0]}) == x.run.Trigger {
			rs[i].Attempts = attemptsAt(r, []keep.Event{x.backlog.Oldest})
			all = append(all, x.backlog.Oldest)
			continue
		}
		events, err := x.e.store.EventsByID(ctx, x.a.name, r.Topic, r.IDs)
		if err != nil {
			return &storeError{err}
		}
		if bad := unreservable(r, events); bad != nil {
			return reservationFailure(bad)
		}
		for _, ev := range events {
			causes = append(causes, ev.CausedBy...)
		}
		rs[i].Attempts = attemptsAt(r, events)
		all = append(all, events...)
	}
	if err := x.takeLane(ctx, all); err != nil {
		return err
	}
	slices.Sort(causes)
	if limit := x.e.policy.Limits.Causes; len(slices.Compact(causes)) > limit {
		return keep.Failf(keep.ClassLogic, "too-many-causes",
			"the reserved events come from more than %d inputs; reserve fewer, the consumer runs again for the rest", limit)
	}
	return nil
}

// attemptsAt returns the attempts at which the events of r are.
func attemptsAt(r keep.Reservation, events []keep.Event) []int {
	byID := make(map[keep.MessageID]int, len(events))
	for _, ev := range events {
		byID[ev.MessageID] = ev.Attempt()
	}
	attempts := make([]int, 0, len(r.IDs))
	for _, id := range r.IDs {
		attempts = append(attempts, byID[id])
	}
	return keep.AttemptsOf(attempts)
}

// unreservable returns the first id of r that cannot be reserved, nil if all can.
func unreservable(r keep.Reservation, events []keep.Event) *keep.ReservationError {
	byID := make(map[keep.MessageID]keep.Event, len(events))
	for _, ev := range events {
		byID[ev.MessageID] = ev
	}
	for _, id := range r.IDs {
		ev, ok := byID[id]
		switch {
		case !ok:
			return &keep.ReservationError{Topic: r.Topic, ID: id, Why: "unknown"}
		case ev.Status != keep.EventPending:
			return &keep.ReservationError{Topic: r.Topic, ID: id, Why: string(ev.Status)}
		case ev.ReservedBy != "":
			return &keep.ReservationError{Topic: r.Topic, ID: id, Why: "reserved"}
		}
	}
	return nil
}

func reservationFailure(err error) *keep.Failure {
	r, ok := errors.AsType[*keep.ReservationError](err)
	if !ok {
		return nil
	}
	return keep.Failf(keep.ClassLogic, "reservation-"+r.Why,
		"%v; reserve only events that peek, getByIds or trigger returned as pending, each once", r)
}

// mutate runs the script until it calls its mutate tool, and takes over there.
func (x *execution) mutate(ctx context.Context) error {
	if len(x.run.Reservations) == 0 || !x.def.HasMutate {
		return x.outcome(ctx, keep.Mutated)
	}
	host := x.host(policy.InMutate)
	_, err := x.call(ctx, "mutate", []json.RawMessage{x.run.Prepared}, host, x.e.slow(200*time.Millisecond), x.announce(ctx))
	switch {
	case err == nil:
		return x.outcome(ctx, keep.Mutated)
	case !errors.Is(err, errTaken):
		return x.fail(ctx, err)
	}
	return x.send(ctx, host.taken)
}

// send makes the call that ended mutate, and continues with what became of it.
func (x *execution) send(ctx context.Context, call *takenCall) error {
	if t := x.e.tools.known(x.mut.Tool); x.mut.Key != "" && (t == nil || t.name != call.tool.name) {
		// One key is one effect of one tool: the new chain has a new key.
		return x.fail(ctx, &keep.Failure{Class: keep.ClassLogic, Code: "other-tool", Tool: call.tool.name, At: call.at, Message: fmt.Sprintf(
			"an earlier attempt at the same work called %s, which did nothing; another tool needs a new start, from prepare", x.mut.Tool)})
	}
	c := call.ledgerCall(x, ledger.RunKey(x.run.Chain), ledger.Hash(call.payload))
	if x.mut.Key != "" {
		c.Tool = x.mut.Tool // it may have had another name
	}
	mutating := func() ([]keep.Change, error) { return nil, x.transition(keep.Mutating) }
	err := x.makeCall(ctx, call, c, x.mut, mutating)
	if done, ok := errors.AsType[*treatedError](err); ok {
		x.mut, x.run.Mutation = done.outcome(), ""
		return x.outcome(ctx, keep.Mutated)
	}
	if err != nil {
		return x.fail(ctx, err)
	}
	if !lifecycle.Settled(x.mut.State) {
		return x.fail(ctx, x.callFailure())
	}
	return x.outcome(ctx, keep.Mutated)
}

// outcome enters the phase mutated and continues to next. A result that could not
// be asked for again is made durable first.
func (x *execution) outcome(ctx context.Context, to keep.Phase) error {
	if x.run.Phase != to {
		if err := x.transition(to); err != nil {
			return x.fail(ctx, err)
		}
	}
	if len(x.moves) > 0 && !x.mut.CanReconcile {
		if err := x.commitOutcome(ctx)(); err != nil {
			return err
		}
	}
	return x.next(ctx)
}

// commitOutcome makes the outcome durable on its own, if it is not yet.
func (x *execution) commitOutcome(ctx context.Context) func() error {
	return func() error {
		if len(x.moves) == 0 && x.run.Rev > 0 {
			return nil
		}
		x.run.UpdatedAt = x.e.Now()
		if err := x.commit(ctx); err != nil {
			return err
		}
		x.trace(OutcomeWritten)
		return nil
	}
}

// next computes downstream events and commits the run. It waits for nothing
// outside, so a host that stops lets it finish.
func (x *execution) next(context.Context) error {
	ctx := x.a.hard
	if err := x.transition(keep.Emitting); err != nil {
		return x.fail(ctx, err)
	}
	host := x.host(policy.InNext)
	if x.def.HasNext {
		args := []json.RawMessage{x.run.Prepared, resultJSON(x.mut)}
		if _, err := x.call(ctx, "next", args, host, x.e.slow(100*time.Millisecond), x.commitOutcome(ctx)); err != nil {
			return x.fail(ctx, err)
		}
	}
	x.trace(BeforeCommit)
	if err := x.transition(keep.Committed); err != nil {
		return x.fail(ctx, err)
	}
	x.run.Idle = len(x.run.Reservations) == 0 && x.run.Mutation == "" && len(host.publishes) == 0
	now := x.run.UpdatedAt
	more, err := x.finish(ctx, host, now)
	if err != nil {
		return err
	}
	state := x.state(now)
	more = append(more, keep.PutHandler{State: state, Served: x.served()})
	if err := x.commit(ctx, more...); err != nil {
		return err
	}
	x.remember(&state)
	x.trace(AfterCommit)
	return nil
}

// finish returns the changes of commit 2 besides the run itself.
func (x *execution) finish(ctx context.Context, host *scriptHost, now time.Time) ([]keep.Change, error) {
	var cs []keep.Change
	if len(x.run.Reservations) > 0 {
		status := keep.EventConsumed
		if x.mut.State == keep.Skipped {
			status = keep.EventSkipped
		}
		cs = append(cs, keep.Finish{Chain: x.run.Chain, Status: status})
	}
	if len(host.publishes) == 0 {
		return cs, nil
	}
	causes, err := x.causes(ctx)
	if err != nil {
		return nil, err
	}
	for _, ev := range host.publishes {
		ev.CausedBy = mergeInputs(causes, ev.CausedBy)
		ev.CreatedAt, ev.UpdatedAt = now, now
		cs = append(cs, keep.Publish{Event: ev})
	}
	return cs, nil
}

// causes returns the inputs that the reserved events come from.
func (x *execution) causes(ctx context.Context) ([]keep.InputID, error) {
	rs, oldest := x.run.Reservations, x.backlog.Oldest
	if len(rs) == 1 && len(rs[0].IDs) == 1 && oldest.Seq != 0 && rs[0].Topic == oldest.Topic && rs[0].IDs[0] == oldest.MessageID {
		return oldest.CausedBy, nil
	}
	if x.reserved {
		return x.e.store.Causes(ctx, x.run.Chain)
	}
	var all []keep.InputID
	for _, r := range rs {
		events, err := x.e.store.EventsByID(ctx, x.a.name, r.Topic, r.IDs)
		if err != nil {
			return nil, err
		}
		for _, ev := range events {
			all = mergeInputs(all, ev.CausedBy)
		}
	}
	return all, nil
}

// resultJSON returns the mutationResult that next is given.
func resultJSON(m keep.Mutation) json.RawMessage {
	switch m.State {
	case keep.Applied:
		result := json.RawMessage(m.Result)
		if result == nil {
			result = json.RawMessage("null")
		}
		return marshal(struct {
			Status string          `json:"status"`
			Result json.RawMessage `json:"result"`
		}{"applied", result})
	case keep.Skipped:
		return json.RawMessage(`{"status":"skipped"}`)
	default:
		return json.RawMessage(`{"status":"none"}`)
	}
}
