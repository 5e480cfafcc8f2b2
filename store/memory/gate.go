package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// Gate returns the gate of a connection; see store.Gates.
func (s *Store) Gate(ctx context.Context, connection string) (keep.Gate, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	g, known := s.gates[connection]
	if !known {
		g.Connection = connection
	}
	return copyGate(g), context.Cause(ctx)
}

// PutGate writes a gate; see store.Gates.
func (s *Store) PutGate(ctx context.Context, g keep.Gate) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if g.Connection == "" {
		return errors.New("gate: connection required")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gates[g.Connection].Rev != g.Rev {
		return fmt.Errorf("gate of connection %s: %w", g.Connection, keep.ErrStale)
	}
	g = copyGate(g)
	g.Rev++
	s.gates[g.Connection] = g
	return nil
}

// Gates returns all gates; see store.Gates.
func (s *Store) Gates(ctx context.Context) ([]keep.Gate, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := slices.SortedFunc(maps.Values(s.gates), func(a, b keep.Gate) int { return strings.Compare(a.Connection, b.Connection) })
	for i := range list {
		list[i] = copyGate(list[i])
	}
	return list, context.Cause(ctx)
}

func copyGate(g keep.Gate) keep.Gate {
	g.State = slices.Clone(g.State)
	return g
}
