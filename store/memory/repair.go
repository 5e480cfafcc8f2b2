package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
)

// Repair returns a repair; see store.Repairs.
func (s *Store) Repair(ctx context.Context, id string) (keep.Repair, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, known := s.repairs[id]
	if !known {
		return keep.Repair{}, &keep.NotFoundError{What: "repair", ID: id}
	}
	return copyRepair(r), context.Cause(ctx)
}

// Repairs returns the repairs of a workflow, or of all; see store.Repairs.
func (s *Store) Repairs(ctx context.Context, w keep.WorkflowName, since time.Time) ([]keep.Repair, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Repair
	for _, r := range s.repairs {
		if (w == "" || r.Workflow == w) && !r.CreatedAt.Before(clean(since)) {
			list = append(list, copyRepair(r))
		}
	}
	slices.SortFunc(list, func(a, b keep.Repair) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(b.ID, a.ID))
	})
	return list, context.Cause(ctx)
}

// PutRepair writes a repair; see store.Repairs.
func (s *Store) PutRepair(ctx context.Context, r keep.Repair) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := r.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.repairs[r.ID]
	if old.Rev != r.Rev {
		return fmt.Errorf("repair %s: %w", r.ID, keep.ErrStale)
	}
	r = copyRepair(r)
	if r.Rev++; old.Rev > 0 {
		r.Workflow, r.CreatedAt = old.Workflow, old.CreatedAt
	}
	s.repairs[r.ID] = r
	return nil
}

func copyRepair(r keep.Repair) keep.Repair {
	r.State, r.CreatedAt = slices.Clone(r.State), clean(r.CreatedAt)
	return r
}
