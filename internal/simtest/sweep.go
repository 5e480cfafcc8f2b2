package simtest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/operator"
)

// An archive is what sweeps deleted, for the audit at the end: what is checked then is
// the same as if nothing had been swept.
type archive struct {
	runs      []keep.Run
	mutations []keep.Mutation
	questions map[keep.EscalationID]keep.Escalation
	finished  map[keep.EventRef]keep.RunID // by event and workflow: the chain that finished it
}

// sweep forgets everything that is over, unless it ended this very millisecond, and what
// runs saw, over or not.
func (w *world) sweep(o *operator.Operator) (string, error) {
	if n, err := o.SweepTraces(person, policy.Retention{Traces: time.Nanosecond}, false, func() {}); err != nil {
		return "sweep", err
	} else if n > 0 {
		w.saw("sweep: traces")
	}
	done, err := o.Sweep(person, policy.Retention{After: time.Nanosecond}, false, nil)
	if done.Mutations > 0 {
		w.saw("sweep: mutations")
	}
	return fmt.Sprintf("sweep %d runs", done.Runs), err
}

// keepSwept puts what a commit is about to sweep into the archive.
func (w *world) keepSwept(c keep.Commit) (keepIt func()) {
	var a archive
	all := keep.Page{Limit: keep.MaxPage}
	for _, change := range c.Changes {
		s, ok := change.(keep.Sweep)
		if !ok {
			return func() {}
		}
		runs, _, err := w.store.Runs(person, keep.RunFilter{Chain: s.Chain}, all)
		w.must("read what is swept", err)
		a.runs = append(a.runs, runs...)
		for _, r := range runs {
			ms, _, err := w.store.Mutations(person, keep.MutationFilter{Run: r.ID}, all)
			w.must("read what is swept", err)
			a.mutations = append(a.mutations, ms...)
			qs, _, err := w.store.Escalations(person, keep.EscalationFilter{Run: r.ID}, all)
			w.must("read what is swept", err)
			for _, q := range qs {
				a.questions = put(a.questions, q.ID, q)
			}
		}
		events, _, err := w.store.Events(person, keep.EventFilter{Workflow: c.Workflow}, all)
		w.must("read what is swept", err)
		for _, ev := range events {
			if ev.ReservedBy == s.Chain {
				a.finished = put(a.finished, refOf(ev), s.Chain)
			}
		}
	}
	return func() {
		w.swept.runs = append(w.swept.runs, a.runs...)
		w.swept.mutations = append(w.swept.mutations, a.mutations...)
		for id, q := range a.questions {
			w.swept.questions = put(w.swept.questions, id, q)
		}
		for ref, chain := range a.finished {
			w.swept.finished = put(w.swept.finished, ref, chain)
		}
	}
}

// put adds to a map that may be nil.
func put[K comparable, V any](m map[K]V, k K, v V) map[K]V {
	if m == nil {
		m = make(map[K]V)
	}
	m[k] = v
	return m
}

// refOf names an event in the whole store.
func refOf(ev keep.Event) keep.EventRef {
	return keep.EventRef{Topic: keep.TopicName(ev.Workflow) + " " + ev.Topic, MessageID: ev.MessageID}
}

// record returns a record of the ledger, swept or not.
func (w *world) record(key keep.MutationKey) (keep.Mutation, bool) {
	if m, err := w.store.Mutation(person, key); err == nil {
		return m, true
	}
	for _, m := range w.swept.mutations {
		if m.Key == key {
			return m, true
		}
	}
	return keep.Mutation{}, false
}

// unsweep adds what was swept to an audit, and puts a run behind the one that it
// repeats. Times do not say: several runs begin in the same millisecond, and the
// clock of the host may be set back between two of them.
func (a *audit) unsweep() {
	a.runs = append(slices.Clone(a.w.swept.runs), a.runs...)
	a.mutations = append(a.mutations, a.w.swept.mutations...)
	before := make(map[keep.RunID]keep.RunID, len(a.runs))
	for _, r := range a.runs {
		before[r.ID] = r.RetryOf
	}
	place := make(map[keep.RunID]int, len(a.runs)) // in its chain
	for _, r := range a.runs {
		for id := r.RetryOf; id != ""; id = before[id] {
			place[r.ID]++
		}
	}
	slices.SortStableFunc(a.runs, func(x, y keep.Run) int { return cmp.Compare(place[x.ID], place[y.ID]) })
}

// finishedBy returns the chain that finished an event, swept or not.
func (a audit) finishedBy(ev keep.Event) keep.RunID {
	if ev.ReservedBy == keep.Swept {
		return a.w.swept.finished[refOf(ev)]
	}
	return ev.ReservedBy
}
