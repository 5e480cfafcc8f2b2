package memory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// CountHook adds to the count of a hook; see store.Hooks.
func (s *Store) CountHook(ctx context.Context, c keep.HookCount) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if c.Name == "" {
		return errors.New("hook: name required")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.LastAt, c.LastRefusedAt = clean(c.LastAt), clean(c.LastRefusedAt)
	sum := s.hooks[c.Name]
	sum.Name = c.Name
	s.hooks[c.Name] = sum.Add(c)
	return nil
}

// HookCounts returns the counts of all hooks, sorted by name.
func (s *Store) HookCounts(ctx context.Context) ([]keep.HookCount, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := slices.SortedFunc(maps.Values(s.hooks), func(a, b keep.HookCount) int {
		return strings.Compare(a.Name, b.Name)
	})
	return list, context.Cause(ctx)
}
