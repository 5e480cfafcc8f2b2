package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/keep-run/keep"
)

// Check reports every record that breaks a law, as *keep.Violation. A healthy
// store yields nothing. Stopping early is fine. Nothing can be committed while
// the caller looks at what is yielded.
func (s *Store) Check(ctx context.Context) iter.Seq[error] {
	return func(yield func(error) bool) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		c := &checker{s: s, on: true, yield: yield}
		c.workflows()
		c.checkpoints()
		c.references()
		c.runs()
		c.events()
		c.attempts()
		c.mutations()
		c.budgets()
		if err := context.Cause(ctx); err != nil && c.on {
			yield(err)
		}
	}
}

// A checker walks the store and yields what it finds while it is wanted.
type checker struct {
	s     *Store
	on    bool
	yield func(error) bool
}

// broken reports a violation if ok is false.
func (c *checker) broken(ok bool, law, record, format string, args ...any) {
	if !ok && c.on {
		c.on = c.yield(&keep.Violation{Law: law, Record: record, Why: fmt.Sprintf(format, args...)})
	}
}

// workflows checks versions, and that one run of a lane is open at most.
func (c *checker) workflows() {
	for _, name := range sortedKeys(c.s.workflows) {
		w, record := c.s.workflows[name], "workflow "+string(name)
		var latest keep.Version
		for _, d := range c.s.deployments[name] {
			c.broken(older(latest, d.v.Version), "nothing-lost", record, "version %s was deployed after a later one", d.v.Version)
			latest = d.v.Version
		}
		c.broken(w.Version == latest, "nothing-lost", record, "its version %s is not the latest that was deployed", w.Version)
		c.broken(w.Granted == len(c.s.grants[name]), "permitted", record, "grant %d holds, and it was given %d", w.Granted, len(c.s.grants[name]))
	}
	c.proposals()
	open := make(map[laneKey]int)
	for _, r := range c.s.runs {
		if !r.v.Closed {
			open[laneKey{r.v.Workflow, r.v.Lane}]++
		}
	}
	for lane, n := range open {
		c.broken(n == 1, "one-at-a-time", "workflow "+string(lane.workflow), `%d runs of lane "%s" are not closed`, n, lane.lane)
	}
}

// checkpoints checks the limits of docs/GUARANTEES.md.
func (c *checker) checkpoints() {
	sizes := make(map[handlerKey]int)
	for key, value := range c.s.kv {
		sizes[key.handlerKey] += len(key.key) + len(value)
		c.broken(len(value) <= 64<<10, "bounded", fmt.Sprintf("checkpoint %s/%s", key.workflow, key.handler),
			"key %s has %d bytes", key.key, len(value))
	}
	for key, size := range sizes {
		c.broken(size <= 1<<20, "bounded", fmt.Sprintf("checkpoint %s/%s", key.workflow, key.handler), "it has %d bytes", size)
	}
}

// references checks that what is named exists.
func (c *checker) references() {
	for _, e := range c.s.events {
		for _, id := range e.CausedBy {
			in, ok := c.s.inputs[id]
			c.broken(ok && in.v.Workflow == e.Workflow, "nothing-lost", eventRecord(e), "input %s does not exist", id)
		}
	}
	for key, m := range c.s.mutations {
		r, ok := c.s.runs[m.v.Run]
		c.broken(ok && r.v.Workflow == m.v.Workflow, "nothing-lost", "mutation "+string(key), "run %s does not exist", m.v.Run)
		if m.v.Item == "" {
			continue
		}
		it, ok := c.s.items[itemKey{m.v.Workflow, m.v.Item}]
		c.broken(ok, "nothing-lost", "mutation "+string(key), "item %s does not exist", m.v.Item)
		c.broken(!ok || it.v.Attempt >= m.v.Attempt, "nothing-lost", "mutation "+string(key),
			"it belongs to attempt %d of item %s, which is at %d", m.v.Attempt, m.v.Item, it.v.Attempt)
	}
	for id, e := range c.s.escalations {
		r, ok := c.s.runs[e.v.Run]
		c.broken(e.v.Run == "" || ok && r.v.Workflow == e.v.Workflow, "nothing-lost", "escalation "+string(id), "run %s does not exist", e.v.Run)
	}
}

// eventRecord names an event as Check does in every store.
func eventRecord(e keep.Event) string {
	return fmt.Sprintf("event %s/%s/%s", e.Workflow, e.Topic, e.MessageID)
}

// runs checks chains, and what a run claims of its mutation and its events.
func (c *checker) runs() {
	for _, id := range sortedKeys(c.s.runs) {
		r, record := c.s.runs[id].v, "run "+string(id)
		first, ok := c.s.runs[r.Chain]
		c.broken(ok && first.v.Chain == r.Chain && first.v.Workflow == r.Workflow, "pinned", record,
			"its chain %s does not begin with a run", r.Chain)
		before, ok := c.s.runs[r.RetryOf]
		c.broken(r.RetryOf == "" || ok && before.v.Closed && before.v.Workflow == r.Workflow, "pinned", record,
			"it retries %s, which is not a closed run of its workflow", r.RetryOf)
		c.outcome(r, record)
		if !r.Closed {
			c.waiting(r, record)
		}
	}
}

// outcome checks that a run continued only after the outcome was known.
func (c *checker) outcome(r keep.Run, record string) {
	past := r.Phase == keep.Mutated || r.Phase == keep.Emitting || r.Phase == keep.Committed
	m, ok := c.s.mutations[r.Mutation]
	// That of a job run may be of an earlier one, which was swept.
	if r.Mutation != "" && (past || r.Phase == keep.Mutating) && r.Status != keep.StatusApproval && (r.Kind == keep.Consumer || !r.Closed) {
		c.broken(ok && m.v.Workflow == r.Workflow, "nothing-lost", record, "mutation %s does not exist", r.Mutation)
	}
	if ok && past && r.Kind == keep.Consumer {
		c.broken(m.v.State == keep.Applied || m.v.State == keep.Skipped, "all-or-nothing", record,
			"it is %s, its mutation %s is %s", r.Phase, r.Mutation, m.v.State)
	}
}

// waiting checks that a run that is not over says what it waits for, and holds
// what it reserved.
func (c *checker) waiting(r keep.Run, record string) {
	c.broken(r.Status != keep.StatusTransient || !r.RetryAt.IsZero(), "explained", record,
		"it waits to be tried again, and no time is set")
	if waits := r.Status == keep.StatusPerson || r.Status == keep.StatusApproval; waits && r.RetryAt.IsZero() && (r.Error == nil || r.Error.Code != keep.CodeReconnect && r.Error.Code != keep.CodeBudget && r.Error.Code != keep.CodeBreaker) { // there the question is about the account, the budget or the tool
		c.broken(c.asked(func(e keep.Escalation) bool { return e.Run == r.ID }), "explained", record,
			"it waits for a person, and nothing is asked")
	}
	if r.Status == keep.StatusLogic || r.Status == keep.StatusInternal {
		return // its events may have been released
	}
	for _, list := range r.Reservations {
		for _, id := range list.IDs {
			e := c.s.events[c.s.eventIDs[eventKey{topicKey{r.Workflow, list.Topic}, id}]]
			c.broken(e.Status == keep.EventPending && e.ReservedBy == r.Chain, "pinned", record,
				"event %s/%s is not reserved by its chain", list.Topic, id)
		}
	}
}

// asked reports whether a question that matches is open.
func (c *checker) asked(match func(keep.Escalation) bool) bool {
	for _, e := range c.s.escalations {
		if e.v.ClosedAt.IsZero() && match(e.v) {
			return true
		}
	}
	return false
}

// events checks that what was consumed belongs to a chain that committed, and
// what is reserved by one that continues.
func (c *checker) events() {
	committed := make(map[keep.RunID]bool)
	for _, r := range c.s.runs {
		if r.v.Status == keep.StatusCommitted {
			committed[r.v.Chain] = true
		}
	}
	for _, seq := range sortedKeys(c.s.events) {
		e := c.s.events[seq]
		switch {
		case e.Status == keep.EventConsumed:
			c.broken(committed[e.ReservedBy] || e.ReservedBy == keep.Swept, "all-or-nothing", eventRecord(e), "it was consumed by %s, which did not commit", e.ReservedBy)
		case e.Status == keep.EventPending && e.ReservedBy != "":
			c.reserved(e)
		}
	}
}

// reserved checks that the open run of the chain knows of the event. Of a chain with several, which
// breaks another law, each is to know of it.
func (c *checker) reserved(e keep.Event) {
	open := false
	for lane, id := range c.s.open {
		r := c.s.runs[id].v
		if lane.workflow != e.Workflow || r.Chain != e.ReservedBy {
			continue
		}
		open = true
		listed := slices.ContainsFunc(r.Reservations, func(list keep.Reservation) bool {
			return list.Topic == e.Topic && slices.Contains(list.IDs, e.MessageID)
		})
		c.broken(listed, "pinned", eventRecord(e), "it is reserved by %s, whose run does not list it", e.ReservedBy)
	}
	c.broken(open, "pinned", eventRecord(e), "it is reserved by %s, which has no open run", e.ReservedBy)
}

// An attempted is an event that runs list whose call is one.
type attempted struct {
	call keep.MutationKey
	ref  eventKey
}

// attempts checks that each attempt at an event has runs and a call of its own.
func (c *checker) attempts() {
	calls := make(map[attempted][]int)
	told := make(map[string]bool)
	once := func(ok bool, law, record, why string) {
		c.broken(ok || told[record+why], law, record, "%s", why)
		told[record+why] = told[record+why] || !ok
	}
	for _, id := range sortedKeys(c.s.runs) {
		r := c.s.runs[id].v
		for _, list := range r.Reservations {
			for i, m := range list.IDs {
				n, ref := list.Attempt(i), eventKey{topicKey{r.Workflow, list.Topic}, m}
				calls[attempted{r.Mutation, ref}] = append(calls[attempted{r.Mutation, ref}], n)
				seq, known := c.s.eventIDs[ref]
				if !known {
					continue
				}
				e := c.s.events[seq]
				c.broken(n >= 1 && n <= e.Attempt(), "pinned", "run "+string(id), "it has event %s/%s at attempt %d, which is at %d", e.Topic, m, n, e.Attempt())
				once(e.ReservedBy != r.Chain || n == e.Attempt(), "pinned", eventRecord(e),
					fmt.Sprintf("it is at attempt %d, and chain %s had it at %d", e.Attempt(), r.Chain, n))
			}
		}
	}
	for of, n := range calls {
		c.broken(of.call == "" || slices.Min(n) == slices.Max(n), "once", "mutation "+string(of.call), "attempts %d and %d of event %s/%s/%s share it",
			slices.Min(n), slices.Max(n), of.ref.workflow, of.ref.topic, of.ref.id)
	}
	for _, e := range c.s.events {
		for _, d := range e.Redone {
			r, known := c.s.runs[d.Chain]
			once(!known || r.v.Workflow != e.Workflow || slices.Contains(c.s.tried[d.Chain], e.Seq), "nothing-lost", eventRecord(e),
				fmt.Sprintf("chain %s finished an attempt at it, and is not linked with it", d.Chain))
		}
	}
}

// moves are the legal ones. They repeat package ledger on purpose: this store is what the
// others are compared with.
var moves = map[keep.MutationState][]keep.MutationState{
	"":                  {keep.InFlight},
	keep.InFlight:       {keep.Applied, keep.Failed, keep.NeedsReconcile, keep.Indeterminate},
	keep.NeedsReconcile: {keep.Applied, keep.Failed, keep.NeedsReconcile, keep.Indeterminate},
	keep.Indeterminate:  {keep.Applied, keep.Failed, keep.Skipped, keep.NeedsReconcile},
	keep.Failed:         {keep.InFlight, keep.Applied},
}

// mutations checks histories, and that a chain has one mutation at most.
func (c *checker) mutations() {
	chains := make(map[keep.RunID]int)
	keys := slices.SortedFunc(maps.Keys(c.s.mutations), cmp.Compare[keep.MutationKey])
	for _, key := range keys {
		m, record := c.s.mutations[key].v, "mutation "+string(key)
		if r, ok := c.s.runs[m.Run]; ok && r.v.Kind == keep.Consumer {
			chains[r.v.Chain]++
		}
		c.history(m, record)
		if m.State == keep.Indeterminate {
			c.broken(c.asked(func(e keep.Escalation) bool { return e.Mutation == key }), "explained", record,
				"nobody can tell whether it happened, and nobody is asked")
		}
	}
	for chain, n := range chains {
		c.broken(n == 1, "once", "chain "+string(chain), "it has %d mutations", n)
	}
}

// history checks that the moves of a record are legal, and lead to its state.
func (c *checker) history(m keep.Mutation, record string) {
	var state keep.MutationState
	calls := 0
	for i, move := range c.s.moves[m.Key] {
		c.broken(move.From == state, "nothing-lost", record, "move %d leaves %q, the state was %q", i+1, move.From, state)
		c.broken(slices.Contains(moves[move.From], move.To), "doubt-is-not-failure", record,
			"move %d goes from %q to %q", i+1, move.From, move.To)
		if state = move.To; state == keep.InFlight {
			calls++
		}
	}
	c.broken(state == m.State, "nothing-lost", record, "its history ends in %q, its state is %q", state, m.State)
	c.broken(calls == m.Attempts, "recorded-before-sent", record, "%d calls are counted, its history has %d", m.Attempts, calls)
}
