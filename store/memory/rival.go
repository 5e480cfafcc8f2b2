package memory

import (
	"bytes"
	"context"
	"slices"

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
