package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
)

// putGrant gives the workflow the grant that follows the one that holds.
func (t *tx) putGrant(g keep.Grant) error {
	if err := t.own("grant", g.ID(), g.Workflow); err != nil {
		return err
	}
	if err := g.Validate(); err != nil {
		return err
	}
	w, ok := t.s.workflows[t.workflow]
	if !ok {
		return &keep.NotFoundError{What: "workflow", ID: string(t.workflow)}
	}
	if len(t.s.grants[w.Name]) != g.N-1 || w.Granted != g.N-1 {
		return fmt.Errorf("grant %s: %w", g.ID(), keep.ErrStale)
	}
	w.Granted, w.UpdatedAt = g.N, t.at
	put(t, t.s.workflows, w.Name, w)
	put(t, t.s.grants, w.Name, append(slices.Clone(t.s.grants[w.Name]), g))
	return nil
}

// underGrant refuses the commit if another grant holds than the one of that number, or
// another version is current.
func (t *tx) underGrant(c keep.UnderGrant) error {
	w, ok := t.s.workflows[t.workflow]
	if !ok || w.Granted != c.N {
		return fmt.Errorf("call under grant %s/%d: %w", t.workflow, c.N, keep.ErrStale)
	}
	if !c.Version.IsZero() && w.Version != c.Version {
		return fmt.Errorf("approved for version %s of %s: %w", c.Version, t.workflow, keep.ErrStale)
	}
	return nil
}

// Grant returns the grant of a workflow that holds; see store.Grants.
func (s *Store) Grant(ctx context.Context, w keep.WorkflowName) (keep.Grant, error) {
	list, err := s.GrantsBefore(ctx, w)
	if err == nil && len(list) == 0 {
		err = &keep.NotFoundError{What: "grant of workflow", ID: string(w)}
	}
	if err != nil {
		return keep.Grant{}, err
	}
	return list[0], nil
}

// Grants returns the grant of each workflow that holds; see store.Grants.
func (s *Store) Grants(ctx context.Context) ([]keep.Grant, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Grant
	for _, name := range sortedKeys(s.grants) {
		if all := s.grants[name]; len(all) > 0 {
			list = append(list, all[len(all)-1].Clone())
		}
	}
	return list, context.Cause(ctx)
}

// GrantsBefore returns every grant that a workflow ever had; see store.Grants.
func (s *Store) GrantsBefore(ctx context.Context, w keep.WorkflowName) ([]keep.Grant, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []keep.Grant
	for _, g := range slices.Backward(s.grants[w]) {
		list = append(list, g.Clone())
	}
	return list, context.Cause(ctx)
}

// copyGrant returns g as stores keep it.
func copyGrant(g keep.Grant) keep.Grant {
	g = g.Clone()
	if len(g.Tools) == 0 {
		g.Tools = nil
	}
	g.GivenAt, g.TakenAt = clean(g.GivenAt), clean(g.TakenAt)
	return g
}
