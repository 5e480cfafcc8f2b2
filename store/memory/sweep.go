package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/keep-run/keep"
)

// A chain is a chain of runs with what belongs to it.
type chain struct {
	id        keep.RunID
	runs      []row[keep.Run] // the first is first
	mutations []row[keep.Mutation]
	questions []row[keep.Escalation]
	events    []keep.Event // that it finished or holds
	tried     []keep.Event // that it gave back
}

// chain returns a chain, and whether there is one.
func (s *Store) chain(id keep.RunID) (c chain, ok bool) {
	first, ok := s.runs[id]
	if !ok || first.v.Chain != id {
		return c, false
	}
	c = chain{id: id, runs: []row[keep.Run]{first}}
	of := map[keep.RunID]bool{id: true}
	for _, r := range s.runs {
		if r.v.Chain == id && r.v.ID != id {
			c.runs = append(c.runs, r)
			of[r.v.ID] = true
		}
	}
	for _, m := range s.mutations {
		if of[m.v.Run] {
			c.mutations = append(c.mutations, m)
		}
	}
	for _, q := range s.escalations {
		if of[q.v.Run] {
			c.questions = append(c.questions, q)
		}
	}
	for _, e := range s.events {
		if e.ReservedBy == id {
			c.events = append(c.events, e)
		}
	}
	for _, seq := range s.tried[id] {
		c.tried = append(c.tried, s.events[seq])
	}
	return c, true
}

// over reports whether keep.Sweep takes a chain.
func (s *Store) over(c chain, before time.Time) bool {
	itemOver := func(w keep.WorkflowName, id string, attempt int) bool {
		it := s.items[itemKey{w, id}].v
		return id == "" || it.Attempt > attempt || it.Status == keep.ItemDone || it.Status == keep.ItemSkipped
	}
	newestRun, newestMutation, newestQuestion := newestOf(s.runs), newestOf(s.mutations), newestOf(s.escalations)
	ids := make(map[keep.RunID]bool)
	for _, r := range c.runs {
		if !r.v.Closed || !r.v.UpdatedAt.Before(before) || r.n == newestRun {
			return false
		}
		ids[r.v.ID] = true
	}
	for _, m := range c.mutations {
		known := m.v.State == keep.Applied || m.v.State == keep.Skipped || m.v.State == keep.Failed
		if !known || !m.v.UpdatedAt.Before(before) || m.n == newestMutation || !itemOver(m.v.Workflow, m.v.Item, m.v.Attempt) {
			return false
		}
	}
	for _, q := range c.questions {
		if q.v.ClosedAt.IsZero() || !q.v.ClosedAt.Before(before) || q.n == newestQuestion || !itemOver(q.v.Workflow, q.v.Item, math.MaxInt) {
			return false
		}
	}
	for _, e := range slices.Concat(c.events, c.tried) {
		if e.Status == keep.EventPending || !e.UpdatedAt.Before(before) {
			return false
		}
		for _, id := range e.CausedBy {
			if s.withStatus(s.inputs[id].v).Status == keep.InputPending {
				return false
			}
		}
	}
	for _, r := range s.runs {
		stands := !r.v.Closed && slices.ContainsFunc(c.mutations, func(m row[keep.Mutation]) bool {
			return m.v.Key == r.v.Mutation && m.v.Workflow == r.v.Workflow
		})
		if ids[r.v.RetryOf] && r.v.Chain != c.id || stands {
			return false
		}
	}
	for _, h := range s.handlers {
		if h.LastRun != "" && ids[h.LastRun] && h.Workflow == c.runs[0].v.Workflow {
			return false
		}
	}
	return !s.doubted(c)
}

// doubted reports whether a question about one of the chain's mutations is open,
// any caller.
func (s *Store) doubted(c chain) bool {
	for _, q := range s.escalations {
		if q.v.ClosedAt.IsZero() && slices.ContainsFunc(c.mutations, func(m row[keep.Mutation]) bool { return m.v.Key == q.v.Mutation }) {
			return true
		}
	}
	return false
}

// newestOf returns the place of the newest row.
func newestOf[K comparable, V any](m map[K]row[V]) (n int64) {
	for r := range maps.Values(m) {
		n = max(n, r.n)
	}
	return n
}

// sweep forgets a chain.
func (t *tx) sweep(c keep.Sweep) error {
	old, ok := t.s.chain(c.Chain)
	if !ok || old.runs[0].v.Workflow != t.workflow {
		return &keep.NotFoundError{What: "chain", ID: string(c.Chain)}
	}
	if !t.s.over(old, clean(c.Before)) {
		return fmt.Errorf("sweep %s: %w", c.Chain, keep.ErrStale)
	}
	for _, e := range old.events {
		e.Payload, e.ReservedBy = nil, keep.Swept
		put(t, t.s.events, e.Seq, e)
	}
	if err := t.resetKV(keep.PaidAnswers(c.Chain)); err != nil {
		return err
	}
	drop(t, t.s.pinned, c.Chain)
	drop(t, t.s.tried, c.Chain)
	for _, q := range old.questions {
		for key := range maps.Clone(t.s.notices) {
			if key.escalation == q.v.ID {
				drop(t, t.s.notices, key)
			}
		}
		drop(t, t.s.escalations, q.v.ID)
	}
	for _, m := range old.mutations {
		key := itemKey{m.v.Workflow, m.v.Item}
		if it, ok := t.s.items[key]; ok && it.v.Swept < m.v.Attempt {
			it.v.Swept = m.v.Attempt
			put(t, t.s.items, key, it)
		}
		drop(t, t.s.mutations, m.v.Key)
		drop(t, t.s.moves, m.v.Key)
	}
	for _, r := range old.runs {
		drop(t, t.s.runs, r.v.ID)
		drop(t, t.s.logs, r.v.ID)
		drop(t, t.s.traces, r.v.ID)
	}
	return nil
}

// OldTraces counts old parts; see store.Sweeper.
func (s *Store) OldTraces(ctx context.Context, before time.Time) (n int, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, parts := range s.traces {
		for _, p := range parts {
			if p.v.At.Before(clean(before)) {
				n++
			}
		}
	}
	return n, context.Cause(ctx)
}

// ForgetTraces deletes old parts; see store.Sweeper.
func (s *Store) ForgetTraces(ctx context.Context, before time.Time, limit int) (gone int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var old []row[keep.TracePart]
	for _, parts := range s.traces {
		for _, p := range parts {
			if p.v.At.Before(clean(before)) {
				old = append(old, p)
			}
		}
	}
	slices.SortFunc(old, func(a, b row[keep.TracePart]) int { return cmp.Or(a.v.At.Compare(b.v.At), cmp.Compare(a.n, b.n)) })
	for _, p := range old[:min(limit, len(old))] {
		s.traces[p.v.Run] = slices.DeleteFunc(slices.Clone(s.traces[p.v.Run]), func(q row[keep.TracePart]) bool { return q.n == p.n })
		gone++
	}
	return gone, context.Cause(ctx)
}

// Over returns the old chains among the next runs; see store.Sweeper.
func (s *Store) Over(ctx context.Context, of keep.OldRuns, after string, limit int) (list []keep.OldChain, next string, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	from := int64(0)
	if after != "" {
		if from, err = strconv.ParseInt(after, 10, 64); err != nil {
			return nil, "", fmt.Errorf("cursor %q: %w", after, keep.ErrBadCursor)
		}
	}
	var rows []row[keep.Run]
	for _, r := range s.runs {
		if r.n > from && r.v.Workflow == of.Workflow && (!of.Empty || r.v.Idle && r.v.Chain == r.v.ID) {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b row[keep.Run]) int { return cmp.Compare(a.n, b.n) })
	if len(rows) > limit {
		rows = rows[:limit]
		next = strconv.FormatInt(rows[limit-1].n, 10)
	}
	before := clean(of.Before)
	for _, r := range rows {
		if !r.v.CreatedAt.Before(before) {
			next = "" // later rows are newer
			continue
		}
		c, ok := s.chain(r.v.ID)
		if !ok || !s.over(c, before) {
			continue
		}
		old := keep.OldChain{Workflow: r.v.Workflow, Chain: c.id, Runs: len(c.runs), Mutations: len(c.mutations)}
		for _, r := range c.runs {
			if r.v.UpdatedAt.After(old.At) {
				old.At = r.v.UpdatedAt
			}
		}
		list = append(list, old)
	}
	return list, next, context.Cause(ctx)
}
