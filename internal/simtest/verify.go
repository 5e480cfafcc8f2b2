package simtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/keep-run/keep"
)

// An audit is everything that the store says at the end.
type audit struct {
	w         *world
	runs      []keep.Run // of a chain: in its order; see unsweep
	mutations []keep.Mutation
	allowed   map[string]int // by token: effects beyond the first that Keep is not to blame for
}

// verify compares the truth with the ledger, when nothing is left to do.
func (w *world) verify() {
	ctx, all := context.Background(), keep.Page{Limit: keep.MaxPage}
	a := audit{w: w, allowed: make(map[string]int)}
	var err error
	a.runs, _, err = w.store.Runs(ctx, keep.RunFilter{}, all)
	w.must("read runs", err)
	a.mutations, _, err = w.store.Mutations(ctx, keep.MutationFilter{}, all)
	w.must("read mutations", err)
	a.unsweep()
	w.result.Runs = len(a.runs)
	w.noteStopped()
	wrong := w.wrongAnswers()
	for _, m := range a.mutations {
		a.allowed[m.Token] = wrong[m.Key] + w.lied[m.Token] + w.forgotten[m.Token]
	}
	a.tokens()
	a.units()
	a.chains()
	a.decisions()
	a.replays()
	for _, f := range w.flows {
		a.events(f)
		a.items(f)
	}
}

// sorted returns the keys of a map in their order: what breaks is part of the
// trace, and the trace depends on the seed alone.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// tokens compares each record with what its service did.
func (a audit) tokens() {
	known := make(map[string]bool)
	for _, m := range a.mutations {
		known[m.Token] = true
		n, excused := len(a.w.truth.effects[m.Token]), a.allowed[m.Token]
		a.w.result.Effects += n
		if again := a.w.truth.again(m.Token); a.w.keyLasts == 0 && again > 0 {
			a.w.broken("once", "%s (level %s) had %d effects too many at one place, which knows its key", m.Key, m.Level, again)
		}
		if n > 1+excused {
			a.w.broken("once", "%s (level %s) had %d effects, %d are excused", m.Key, m.Level, n, excused)
		}
		switch m.State {
		case keep.Applied:
			if n == 0 {
				a.w.broken("doubt-is-not-failure", "%s is applied, and the service did nothing", m.Key)
			}
			if m.ResolvedBy == "call" && a.w.odd[m.Token] && m.Warning == "" {
				a.w.broken("explained", "%s is applied with the result %s, and nothing warns of it", m.Key, m.Result)
			}
		case keep.Failed:
			if n > 0 && a.allowed[m.Token] == 0 {
				a.w.broken("doubt-is-not-failure", "%s is failed, and the service did it", m.Key)
			}
		case keep.Skipped:
		default:
			a.w.broken("explained", "%s is still %s", m.Key, m.State)
		}
		if limit := a.w.policy.Reconcile.Attempts; m.ReconcileAttempts > limit {
			a.w.broken("bounded", "%s was asked about %d times, the policy says %d", m.Key, m.ReconcileAttempts, limit)
		}
	}
	for _, token := range sorted(a.w.truth.effects) {
		if !known[token] {
			a.w.broken("recorded-before-sent", "an effect with the token %s is in no record", token)
		}
	}
}

// units counts effects by what they were for: an event at a consumer, or a call
// in an attempt at an item, whatever keys and runs it took.
func (a audit) units() {
	count, excused := make(map[string]int), make(map[string]int)
	for _, m := range a.mutations {
		known := make(map[string]bool)
		for _, e := range a.w.truth.effects[m.Token] {
			for _, unit := range e.covers {
				unit = string(m.Workflow) + " " + unit
				count[unit]++
				known[unit] = true
			}
		}
		for unit := range known {
			excused[unit] += a.allowed[m.Token]
		}
	}
	for _, unit := range sorted(count) {
		if n := count[unit]; n > 1+excused[unit] {
			a.w.broken("once", "%s was done %d times, %d are excused", unit, n, excused[unit])
		}
	}
}

// chains checks that attempts at the same work kept what was pinned, and stayed
// within the policy.
func (a audit) chains() {
	pinned := make(map[keep.RunID]keep.Run)
	for _, r := range a.runs {
		if !r.Closed {
			a.w.broken("explained", "run %s of %s is %s in phase %s, with nothing left to wait for: %v", r.ID, r.Handler, r.Status, r.Phase, r.Error)
		}
		if limit := a.w.policy.Retry.Attempts; r.Retries > limit {
			a.w.broken("bounded", "run %s was repeated %d times, the policy says %d", r.ID, r.Retries, limit)
		}
		if r.Status == keep.StatusInternal && r.Error.Code != "crash-loop" && r.Error.Code != "tool-panic" {
			a.w.broken("explained", "run %s failed by a bug of ours: %v", r.ID, r.Error)
		}
		if r.Prepared == nil {
			continue
		}
		first, ok := pinned[r.Chain]
		if !ok {
			pinned[r.Chain] = r
			continue
		}
		same := fmt.Sprint(first.Reservations) == fmt.Sprint(r.Reservations) || r.Reservations == nil
		if string(first.Prepared) != string(r.Prepared) || !same {
			a.w.broken("pinned", "chain %s prepared %s for %v, and later %s for %v", r.Chain, first.Prepared, first.Reservations, r.Prepared, r.Reservations)
		}
	}
}

// events checks that each event ended, that its effect is there if it was
// consumed, and that what follows from it exists if and only if its run committed.
func (a audit) events(f *flow) {
	w := a.w
	events, _, err := w.store.Events(context.Background(), keep.EventFilter{Workflow: f.name}, keep.Page{Limit: keep.MaxPage})
	w.must("read events", err)
	byChain := make(map[keep.RunID]keep.Run)
	for _, r := range a.runs {
		if r.Status == keep.StatusCommitted {
			byChain[r.Chain] = r
		}
	}
	have := make(map[keep.EventRef]keep.Event)
	for _, ev := range events {
		have[keep.EventRef{Topic: ev.Topic, MessageID: ev.MessageID}] = ev
	}
	for _, ev := range events {
		c, subscribed := f.consumerOf(ev.Topic)
		chain := a.finishedBy(ev)
		run, committed := byChain[chain]
		committed = committed && chain != ""
		switch {
		case subscribed && ev.Status == keep.EventPending:
			w.broken("nothing-lost", "event %s %s %s is still pending, reserved by %q", f.name, ev.Topic, ev.MessageID, ev.ReservedBy)
		case ev.Status == keep.EventConsumed && !committed:
			w.broken("all-or-nothing", "event %s %s %s was consumed, and no run committed", f.name, ev.Topic, ev.MessageID)
		case committed:
			a.consumed(f, c, ev, run, have)
		}
		a.redone(f, c, ev, byChain, have)
	}
	for _, s := range f.sources {
		for n := range s.arrivals {
			ref := keep.EventRef{Topic: s.topic, MessageID: keep.MessageID(fmt.Sprintf("e%d", n))}
			if have[ref].Seq == 0 {
				w.broken("nothing-lost", "%s never published %v", s.producer, ref)
				continue
			}
			causes := have[ref].CausedBy
			if len(causes) != 1 {
				w.broken("nothing-lost", "%s published %v for the inputs %v, want one", s.producer, ref, causes)
				continue
			}
			if in, err := w.store.Input(context.Background(), causes[0]); err != nil || in.ExternalID != string(ref.MessageID) {
				w.broken("nothing-lost", "%v was published for %s, which is the input of %q, %v", ref, causes[0], in.ExternalID, err)
			}
		}
	}
}

// redone checks the attempts at an event before the last one: each has its own effect.
func (a audit) redone(f *flow, c consumer, ev keep.Event, byChain map[keep.RunID]keep.Run, have map[keep.EventRef]keep.Event) {
	for n, d := range ev.Redone {
		a.w.saw(fmt.Sprintf("redo: attempt %d", min(n+2, 3)))
		run, committed := byChain[d.Chain]
		if !committed || d.Chain == "" {
			continue // it was skipped
		}
		before := ev
		before.Status, before.Redone = keep.EventConsumed, ev.Redone[:n]
		if m, known := a.w.record(run.Mutation); known && m.State == keep.Skipped {
			before.Status = keep.EventSkipped
		}
		a.consumed(f, c, before, run, have)
	}
}

// attemptAt returns the attempt at which a run had an event.
func attemptAt(r keep.Run, ref keep.EventRef) int {
	return keep.Event{Topic: ref.Topic, MessageID: ref.MessageID}.AttemptOf(r)
}

// consumed checks an event whose run committed.
func (a audit) consumed(f *flow, c consumer, ev keep.Event, run keep.Run, have map[keep.EventRef]keep.Event) {
	unit := unitOf(run.Handler, ev.Topic, ev.MessageID, ev.Attempt())
	if n := attemptAt(run, keep.EventRef{Topic: ev.Topic, MessageID: ev.MessageID}); n != ev.Attempt() {
		a.w.broken("pinned", "%s %s was finished by %s, which had attempt %d", f.name, unit, run.ID, n)
	}
	var m keep.Mutation
	for _, known := range a.mutations {
		if known.Key == run.Mutation {
			m = known
		}
	}
	var prepared struct{ Data plan }
	a.w.must("read what was prepared", json.Unmarshal(run.Prepared, &prepared))
	calls := c.tool != "" && !prepared.Data.Quiet
	if calls && ev.Status == keep.EventConsumed && !a.done(f, unit) && !a.w.treated[string(run.Chain)] {
		a.w.broken("once", "%s %s was consumed by %s (mutation %s), and its effect is not there", f.name, unit, run.ID, m.State)
	}
	if ev.Status == keep.EventSkipped && m.State != keep.Skipped {
		a.w.broken("all-or-nothing", "%s %s was skipped by the committed run %s, whose mutation is %s", f.name, unit, run.ID, m.State)
	}
	out := keep.EventRef{Topic: c.out, MessageID: keep.MessageID(outOf(run.Trigger.Topic, run.Trigger.MessageID, attemptAt(run, run.Trigger)))}
	switch follows := have[out]; {
	case c.out == "":
	case follows.Seq == 0:
		a.w.broken("all-or-nothing", "%s %s was consumed by %s, and %v does not exist", f.name, unit, run.ID, out)
	default:
		for _, in := range ev.CausedBy {
			if !slices.Contains(follows.CausedBy, in) {
				a.w.broken("nothing-lost", "%s %s was caused by %s, and %v, which follows from it, was not", f.name, unit, in, out)
			}
		}
	}
}

// decisions checks that every answer that was taken is on record.
func (a audit) decisions() {
	for _, id := range sorted(a.w.taken) {
		action := a.w.taken[id]
		q, err := a.w.store.Escalation(context.Background(), id)
		if swept, ok := a.w.swept.questions[id]; ok {
			q, err = swept, nil
		}
		if err != nil || q.Decision == nil || q.Decision.Action != action || q.Decision.By != "ann" {
			a.w.broken("nothing-lost", "the answer %s to %s was taken, and is not on record: %v", action, id, err)
		}
	}
}

// done reports whether the effect for a unit is there.
func (a audit) done(f *flow, unit string) bool {
	for _, m := range a.mutations {
		for _, e := range a.w.truth.effects[m.Token] {
			if m.Workflow == f.name && slices.Contains(e.covers, unit) {
				return true
			}
		}
	}
	return false
}

func (f *flow) consumerOf(t keep.TopicName) (consumer, bool) {
	for _, c := range f.consumers {
		if slices.Contains(c.subscribe, t) {
			return c, true
		}
	}
	return consumer{}, false
}

// items checks that every item ended, and that what is done has its effects.
func (a audit) items(f *flow) {
	if f.job == nil {
		return
	}
	for _, it := range f.job.items {
		got, err := a.w.store.Item(context.Background(), f.name, it.id)
		if err != nil || got.Status != keep.ItemDone && got.Status != keep.ItemSkipped {
			a.w.broken("nothing-lost", "item %s of %s is %q, %v", it.id, f.name, got.Status, err)
			continue
		}
		for n := range it.calls {
			unit := fmt.Sprintf("%s %s attempt %d call %d", f.job.name, it.id, got.Attempt, n)
			if got.Status == keep.ItemDone && !a.done(f, unit) && !a.skippedCall(f, it.id) && !a.w.treated[string(f.name)+" "+it.id] {
				a.w.broken("once", "%s %s is done, and its effect is not there", f.name, unit)
			}
		}
	}
}

// skippedCall reports whether a person continued without knowing about a call.
func (a audit) skippedCall(f *flow, id string) bool {
	return slices.ContainsFunc(a.mutations, func(m keep.Mutation) bool {
		return m.Workflow == f.name && m.Item == id && m.State == keep.Skipped
	})
}
