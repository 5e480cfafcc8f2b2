package memory

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// Rival returns the oldest record that keeps a commit with u from being made.
func (s *Store) Rival(ctx context.Context, u keep.Unlike) (keep.Mutation, bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m, found := s.rival(u)
	return copyMutation(m), found, context.Cause(ctx)
}

// rival finds that record. The caller holds mu.
func (s *Store) rival(u keep.Unlike) (oldest keep.Mutation, found bool) {
	var first int64
	for key, m := range s.mutations {
		same := slices.Contains(u.Tools, m.v.Tool) && m.v.Subkey == u.Subkey && bytes.Equal(m.v.Identity, u.Identity)
		if !same || key == u.Key || slices.Contains(u.Except, key) || m.v.State == keep.Failed || m.v.State == keep.Skipped {
			continue
		}
		if n := int64(m.n); !found || n < first {
			oldest, found, first = m.v, true, n
		}
	}
	return oldest, found
}

// Barring returns a record that keeps a commit with c at a time from being made.
func (s *Store) Barring(ctx context.Context, c keep.Setting, at time.Time) (keep.Mutation, bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m, found := s.barring(c, at)
	return copyMutation(m), found, context.Cause(ctx)
}

// barring finds that record. The caller holds mu.
func (s *Store) barring(c keep.Setting, at time.Time) (keep.Mutation, bool) {
	var all []keep.Mutation
	for _, m := range s.mutations {
		if slices.Contains(c.Tools, m.v.Tool) && bytes.Equal(m.v.Identity, c.Identity) {
			all = append(all, m.v)
		}
	}
	return c.Barring(all, at)
}
