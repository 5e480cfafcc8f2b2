package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// A counterTime is when counters begin, and how long they count.
type counterTime struct {
	step keep.Step
	at   int64 // in milliseconds
}

// A counterKey names a counter.
type counterKey struct {
	counterTime
	workflow keep.WorkflowName
}

func sortCounters(list []keep.Counter) []keep.Counter {
	slices.SortFunc(list, func(a, b keep.Counter) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Workflow, b.Workflow))
	})
	return list
}

// Counters returns counters; see store.Counters.
func (s *Store) Counters(ctx context.Context, step keep.Step, w keep.WorkflowName, from, to time.Time) ([]keep.Counter, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Counter
	begin, end := clean(from).UnixMilli(), clean(to).UnixMilli()
	for t, counters := range s.counters { // a host asks all the time for a few of very many
		if t.step != step || t.at < begin || t.at >= end {
			continue
		}
		for _, c := range counters {
			if w == "" || c.Workflow == w {
				c.Took = slices.Clone(c.Took)
				list = append(list, c)
			}
		}
	}
	return sortCounters(list), context.Cause(ctx)
}

// Ended counts runs that committed or failed; see store.Counting.
func (s *Store) Ended(ctx context.Context, from, to time.Time) ([]keep.Counter, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	found := make(map[counterKey]*keep.Counter)
	for _, row := range s.runs {
		r := row.v
		refused := r.Status == keep.StatusAborted && r.Phase == keep.Mutating && r.Mutation != "" // its call was made, and did not happen
		at, failed := r.UpdatedAt, refused || r.Status.Fails()
		if failed {
			at = s.failedAt(r)
		}
		if !failed && r.Status != keep.StatusCommitted || at.Before(clean(from)) || !at.Before(clean(to)) {
			continue
		}
		at = at.Truncate(time.Minute)
		key := counterKey{counterTime{keep.Minute, at.UnixMilli()}, r.Workflow}
		c := found[key]
		if c == nil {
			c = &keep.Counter{Step: keep.Minute, At: at, Workflow: r.Workflow}
			found[key] = c
		}
		switch {
		case r.Idle:
			c.Idle++
		case failed:
			c.Failed++
		default:
			if c.Took == nil {
				c.Took = make([]int, len(keep.TookBounds())+1)
			}
			c.Committed++
			i, _ := slices.BinarySearch(keep.TookBounds(), r.UpdatedAt.Sub(r.CreatedAt))
			c.Took[i]++
		}
	}
	var list []keep.Counter
	for _, c := range found {
		list = append(list, *c)
	}
	return sortCounters(list), context.Cause(ctx)
}

// failedAt returns when a run failed: it is changed again when another attempt takes over.
func (s *Store) failedAt(r keep.Run) time.Time {
	var first time.Time
	for _, row := range s.escalations {
		q := row.v
		if q.Run == r.ID && (q.Kind == keep.AskLogic || q.Kind == keep.AskInternal) && (first.IsZero() || q.CreatedAt.Before(first)) {
			first = q.CreatedAt
		}
	}
	if first.IsZero() {
		return r.UpdatedAt
	}
	return first
}

// Standing counts what waits now; see store.Counting.
func (s *Store) Standing(ctx context.Context) ([]keep.Counter, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	found := make(map[keep.WorkflowName]keep.Counter)
	for _, id := range s.open {
		if r := s.runs[id].v; r.Status != keep.StatusActive {
			c := found[r.Workflow]
			c.Waiting++
			found[r.Workflow] = c
		}
	}
	for _, q := range s.escalations {
		if q.v.ClosedAt.IsZero() && q.v.Workflow != "" {
			c := found[q.v.Workflow]
			c.Asked++
			found[q.v.Workflow] = c
		}
	}
	var list []keep.Counter
	for w, c := range found {
		c.Workflow = w
		list = append(list, c)
	}
	return sortCounters(list), context.Cause(ctx)
}

// PutCounters writes counters, and deletes old ones; see store.Counting.
func (s *Store) PutCounters(ctx context.Context, list []keep.Counter, before map[keep.Step]time.Time) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for step, at := range before {
		maps.DeleteFunc(s.counters, func(t counterTime, _ map[keep.WorkflowName]keep.Counter) bool {
			return t.step == step && t.at < clean(at).UnixMilli()
		})
	}
	for _, c := range list {
		c.At, c.Took = clean(c.At), slices.Clone(c.Took)
		t := counterTime{c.Step, c.At.UnixMilli()}
		if s.counters[t] == nil {
			s.counters[t] = make(map[keep.WorkflowName]keep.Counter)
		}
		s.counters[t][c.Workflow] = c
	}
	return nil
}
