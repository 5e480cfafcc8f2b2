package simtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/view"
)

// The watchers look at every call, lookup and commit while it happens. What they
// report no later state can hide.

// A flight is a call of a workflow by one process.
type flight struct {
	p        *process
	workflow keep.WorkflowName
}

// attemptOf names one attempt at a call.
func attemptOf(m keep.Mutation) string { return fmt.Sprint(m.Key, " attempt ", m.Attempts) }

// watchCall looks at a call before it is sent.
func (w *world) watchCall(p *process, m keep.Mutation) {
	rec, err := w.store.Mutation(context.Background(), m.Key)
	switch {
	case err != nil:
		w.broken("recorded-before-sent", "%s is sent, and the ledger says %v", m.Key, err)
	case rec.State != keep.InFlight || rec.Attempts != m.Attempts || rec.Token != m.Token || rec.PayloadHash != m.PayloadHash:
		w.broken("recorded-before-sent", "%s is sent as attempt %d, and the ledger says %s, attempt %d", m.Key, m.Attempts, rec.State, rec.Attempts)
	}
	attempt := attemptOf(m)
	if w.called[attempt] {
		w.broken("once", "%s is sent twice", attempt)
	}
	w.called[attempt] = true
	p.met[m.Key] = w.clockLag()
	if w.nowhere[attempt] {
		w.broken("recorded-before-sent", "%s is sent, and was recorded in a file that is gone", m.Key)
	}
	by := flight{p, m.Workflow}
	for _, key := range w.flying[by] {
		// One that was abandoned, of a connector that ignores its deadline, may have been found to have
		// happened meanwhile.
		// Beside such a call runs of other lanes continue.
		if rec, ok := w.record(key); (!ok || rec.State != keep.Applied) && w.lane(key) == w.lane(m.Key) {
			w.broken("one-at-a-time", "%s is called beside %s, which is %q", m.Key, key, rec.State)
		}
	}
	w.flying[by] = append(w.flying[by], m.Key)
	w.result.Calls++
	if until := w.resting[m.Workflow]; time.Now().Before(until) && !w.ordered { // another lane may call
		w.broken("bounded", "%s calls %s, and the service asked for rest until %s", m.Workflow, m.Tool, until)
	}
	w.watchLimits(p, m.Workflow, string(m.Key))
	w.watchOrder(m)
	if plainTool(m.Tool) == "p" && !w.approved(m) {
		w.broken("once", "%s is sent, and nobody approved it", m.Key)
	}
}

// lane returns the lane of the run that made a call.
func (w *world) lane(key keep.MutationKey) keep.Lane {
	m, ok := w.record(key)
	if !ok || !w.ordered {
		return keep.WorkflowLane
	}
	r, err := w.store.Run(context.Background(), m.Run)
	w.must("read the run of a call", err)
	return r.Lane
}

// watchOrder looks whether a call of a consumer with order "key" goes before an older
// event of its key. An event whose key the script could not compute holds up nobody, nor
// does one that its run has with a key that another version computed, nor one whose skip
// was undone when the later event had begun: another attempt keeps its event.
func (w *world) watchOrder(m keep.Mutation) {
	ctx := context.Background()
	if !w.ordered {
		return
	}
	r, err := w.store.Run(ctx, m.Run)
	w.must("read the run of a call", err)
	runs, err := w.store.OpenRuns(ctx, m.Workflow)
	w.must("read open runs", err)
	if len(runs) > 1 {
		w.saw("order: called beside an unfinished run")
	}
	key, ok := r.Lane.Key()
	if !ok || key != orderKey(string(r.Trigger.MessageID)) || w.hadBegun(r) {
		return
	}
	oldest := int64(math.MaxInt64)
	for _, list := range r.Reservations {
		events, err := w.store.EventsByID(ctx, m.Workflow, list.Topic, list.IDs)
		w.must("read events", err)
		for _, ev := range events {
			oldest = min(oldest, ev.Seq)
		}
	}
	for _, f := range w.flows {
		c, known := f.consumerOf(r.Trigger.Topic)
		if f.name != m.Workflow || f.keyless || !known || c.order != keep.OrderKey {
			continue
		}
		for _, topic := range c.subscribe {
			events, _, err := w.store.Events(ctx, keep.EventFilter{Workflow: m.Workflow, Topic: topic, Status: keep.EventPending}, keep.Page{Limit: keep.MaxPage})
			w.must("read events", err)
			for _, ev := range events {
				ref := keep.EventRef{Topic: ev.Topic, MessageID: ev.MessageID}
				excused := slices.ContainsFunc(runs, func(o keep.Run) bool { return o.Trigger == ref || o.Chain == ev.ReservedBy })
				if ev.Seq < oldest && ev.ReservedBy != r.Chain && orderKey(string(ev.MessageID)) == key && !excused && !w.takenUpSince(ev, r) {
					w.broken("one-at-a-time", "%s calls for %v of key %s, and %v, which is older, still waits", m.Key, r.Reservations, key, ref)
				}
			}
		}
	}
}

// takenUpSince reports whether an event was done again, or a skip of it undone, after a run had begun, or one that it is another attempt of:
// while the first commit of a run is slow, nobody sees that it has begun.
func (w *world) takenUpSince(ev keep.Event, r keep.Run) bool {
	for r.RetryOf != "" {
		before, err := w.store.Run(context.Background(), r.RetryOf)
		w.must("read the attempt before", err)
		r = before
	}
	acts, err := view.ActsOfEvent(context.Background(), w.store, ev)
	w.must("read what people did with an event", err)
	return slices.ContainsFunc(acts, func(a view.Act) bool {
		return (a.Action == keep.DoneAgain || a.Action == keep.Unskip) && a.At.After(r.CreatedAt)
	})
}

// hadBegun reports whether a run, or one that it is another attempt of, had begun with its
// event before a skip of others was undone.
func (w *world) hadBegun(r keep.Run) bool {
	for !w.overtook[r.Chain] {
		if r.RetryOf == "" {
			return false
		}
		before, err := w.store.Run(context.Background(), r.RetryOf)
		w.must("read the attempt before", err)
		r = before
	}
	return true
}

// approved reports whether a person agreed to this very call.
func (w *world) approved(m keep.Mutation) bool {
	return w.agreed(m, agreement(m, ""), agreement(m, asUser(m)))
}

// agreed reports whether a person agreed to one of these.
func (w *world) agreed(m keep.Mutation, wants ...string) bool {
	qs, _, err := w.store.Escalations(context.Background(), keep.EscalationFilter{Workflow: m.Workflow}, keep.Page{Limit: keep.MaxPage})
	return err == nil && slices.ContainsFunc(qs, func(q keep.Escalation) bool {
		return q.Kind == keep.AskApproval && slices.Contains(wants, q.PayloadHash) && q.Decision != nil && q.Decision.Action == keep.Approve
	})
}

// agreement is what a question about a call is about, with something more of it.
func agreement(m keep.Mutation, more string) string {
	return ledger.Hash([]byte(string(m.Key) + ":" + m.PayloadHash + ":" + m.PinHash + more))
}

// covered reports whether a person agreed to the call for the version that is current, and
// that this had not ended when the host decided to make it.
func (w *world) covered(m keep.Mutation, moves []keep.Move) bool {
	if !slices.ContainsFunc(moves, func(v keep.Move) bool { return v.To == keep.InFlight }) {
		return true
	}
	flow, err := w.store.Workflow(context.Background(), m.Workflow)
	w.must("read the workflow of a call", err)
	wants := []string{agreement(m, ""), agreement(m, asUser(m))}
	qs, _, err := w.store.Escalations(context.Background(), keep.EscalationFilter{Workflow: m.Workflow}, keep.Page{Limit: keep.MaxPage})
	w.must("read questions", err)
	return slices.ContainsFunc(qs, func(q keep.Escalation) bool {
		return slices.Contains(wants, q.PayloadHash) && q.Decision != nil && q.Decision.Action == keep.Approve && q.Approval.Version == flow.Version && moves[0].At.Before(q.ExpiresAt)
	})
}

// callEnds is called when a call of a process ends, also by its death.
func (w *world) callEnds(p *process, m keep.Mutation) {
	if !p.dead.Load() {
		by := flight{p, m.Workflow}
		w.flying[by] = slices.DeleteFunc(w.flying[by], func(key keep.MutationKey) bool { return key == m.Key })
	}
}

// watchLookup looks at a question to the service. One of which a person said that it did not happen
// is looked for once more before it is sent again.
func (w *world) watchLookup(m keep.Mutation) {
	rec, err := w.store.Mutation(context.Background(), m.Key)
	vouched := false
	if err == nil && rec.State == keep.Failed {
		var moves []keep.Move
		moves, err = w.store.History(context.Background(), m.Key)
		vouched = ledger.Vouched(moves)
	}
	if err != nil || rec.State != keep.InFlight && rec.State != keep.NeedsReconcile && !vouched {
		w.broken("doubt-is-not-failure", "%s is asked about, and the ledger says %q, %v", m.Key, rec.State, err)
	}
	w.result.Lookups++
}

// watchCommit looks at a commit that was just made, or refused, and began at a time by the clock of the host.
func (w *world) watchCommit(c keep.Commit, began time.Time, err error) {
	if errors.Is(err, keep.ErrMutationExists) || errors.Is(err, keep.ErrRunOpen) && !requests(c) {
		w.broken("once", "a unique index, not the law, prevented a duplicate: %v", err)
	}
	if w.group.watchCommit(w, c, err); err != nil {
		return
	}
	w.watchGrants(c)
	w.watchCancelled(c)
	for _, change := range c.Changes {
		w.saw(fmt.Sprintf("change: %T", change))
		switch v := change.(type) {
		case keep.PutMutation:
			w.watchMutation(v, began)
			w.watchSpending(v)
		case keep.PutItem:
			w.watchItem(v.Item.Workflow, v.Item.ID)
		case keep.PutRun:
			w.saw("run: " + string(v.Run.Status))
			if _, key := v.Run.Lane.Key(); !v.Run.Closed && v.Run.Status != keep.StatusActive && v.Run.Lane != keep.WorkflowLane {
				w.saw(fmt.Sprintf("lane: key %t, handler %t waits", key, v.Run.Lane.IsHandler()))
			}
			if v.Run.Status == keep.StatusReconciliation && v.Run.Mutation == "" {
				w.saw("doubt: detached")
			}
		case keep.OpenEscalation:
			w.saw("question: " + string(v.Escalation.Kind))
		case keep.CloseEscalation:
			w.watchEnd(v)
		}
	}
}

// watchEnd notes how a question about an approval ended without an answer.
func (w *world) watchEnd(c keep.CloseEscalation) {
	q, err := w.store.Escalation(context.Background(), c.ID)
	w.must("read a question that was closed", err)
	switch {
	case q.Kind != keep.AskApproval || c.Decision != nil:
	case !q.ClosedAt.Before(q.ExpiresAt):
		w.saw("approval: ended")
	default:
		w.saw("approval: overtaken")
	}
}

// requests reports whether c is a person's wish for a run now, which a run may
// forbid.
func requests(c keep.Commit) bool {
	for _, change := range c.Changes {
		if _, ok := change.(keep.RequestRun); ok {
			return true
		}
	}
	return false
}

// watchMutation looks at a record that was just written, by a commit that began at a time by the clock of the host.
func (w *world) watchMutation(put keep.PutMutation, began time.Time) {
	m := put.Mutation
	now := fmt.Sprint(m.State, " ", string(m.Result))
	if was, ok := w.settled[m.Key]; ok && was != now {
		w.broken("settled-stays", "%s was %s and becomes %s", m.Key, was, now)
	}
	if m.State == keep.Applied || m.State == keep.Skipped {
		w.settled[m.Key] = now
	}
	if m.State == keep.InFlight {
		if was, known := w.recordedAs[m.Key]; known && was != m.PinHash && m.Doubted && !w.approved(m) {
			w.broken("bound-to-its-world", "%s was in doubt, and is to be sent in another way without a word", m.Key)
		}
		w.recordedAs[m.Key] = m.PinHash
		if plainTool(m.Tool) == "p" && !m.Doubted && !w.covered(m, put.Moves) {
			w.broken("once", "%s is recorded to be sent, and no approval that has not ended and is of this version covers it", m.Key)
		}
	}
	for _, move := range put.Moves {
		if move.To == keep.InFlight {
			w.watchUnique(m)
			if m.Item != "" {
				w.watchItem(m.Workflow, m.Item)
			}
		}
		w.watchSet(m, move)
		w.watchSender(m, move)
		w.saw("move: " + string(move.From) + " on " + move.Evidence)
		if ledger.SetSince(m.Error) && move.Evidence == string(ledger.CannotAsk) {
			w.saw("set: not sent again")
		}
		if move.From != keep.NeedsReconcile || move.To != keep.Failed {
			continue
		}
		if move.At.Before(m.SettlesAt()) || began.Before(m.SettlesAt()) {
			w.broken("doubt-is-not-failure", "%s is failed at %s (%s), its effect may appear until %s", m.Key, move.At, began, m.SettlesAt())
		}
		if w.truth.contradicts(m.Token) && w.lied[m.Token] == 0 && !w.vouchedWrong(m.Key) {
			w.broken("doubt-is-not-failure", "%s is failed, and its effect is there", m.Key)
		}
	}
	if m.Level == keep.LevelNone && m.State == keep.NeedsReconcile {
		w.broken("doubt-is-not-failure", "%s is of level D and wants a lookup", m.Key)
	}
}

// vouchedWrong reports whether a person said that a mutation had not happened
// although it had, or was about to.
func (w *world) vouchedWrong(key keep.MutationKey) bool { return w.wrongAnswers()[key] > 0 }

// wrongAnswers counts those answers.
func (w *world) wrongAnswers() map[keep.MutationKey]int {
	n := make(map[keep.MutationKey]int)
	qs, _, err := w.store.Escalations(context.Background(), keep.EscalationFilter{}, keep.Page{Limit: keep.MaxPage})
	if err != nil {
		w.broken("nothing-lost", "read questions: %v", err)
	}
	for _, q := range w.swept.questions {
		qs = append(qs, q)
	}
	for _, q := range qs {
		if q.Decision != nil && q.Decision.Action == keep.DidNotHappen && w.vouched[q.ID] {
			n[q.Mutation]++
		}
	}
	return n
}
