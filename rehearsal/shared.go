package rehearsal

import (
	"context"
	"slices"
	"sync"

	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/script/sandbox"
)

// maxTimed is how many programs that depend on the time of their load are kept.
const maxTimed = 16

// Shared is what the rehearsals of a suite have in common, so that each is prepared in a
// fraction of the time: loaded scripts and compiled schemas. No call of a script changes any
// of it (package sandbox), so no rehearsal can see another. It is safe for concurrent use.
type Shared struct {
	rt      *sandbox.Runtime
	schemas engine.Schemas

	mu     sync.Mutex // protects all below
	loaded map[string]*sandbox.Program
	timed  []string // keys of those of loaded that depend on the time, the oldest first
}

// NewShared returns what rehearsals in rt can share.
func NewShared(rt *sandbox.Runtime) *Shared {
	return &Shared{rt: rt, loaded: make(map[string]*sandbox.Program)}
}

// Load returns the loaded script. A script whose top level asks for neither the time nor
// chance is loaded once, any other one once for each Bundle.At and Seed.
func (s *Shared) Load(ctx context.Context, b *sandbox.Bundle) (*sandbox.Program, error) {
	code := b.Entry + " " + b.Hash()
	then := code + " " + b.At.String() + " " + string(b.Seed)
	if p := s.find(code, then); p != nil {
		return p, nil
	}
	p, err := s.rt.Load(ctx, b) // two at once may both do so, for nothing
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.Constant():
		s.loaded[code] = p
		return p, nil
	case s.loaded[then] != nil:
		return p, nil
	}
	s.loaded[then], s.timed = p, append(s.timed, then)
	if len(s.timed) > maxTimed { // who uses it has it still
		delete(s.loaded, s.timed[0])
		s.timed = slices.Delete(s.timed, 0, 1)
	}
	return p, nil
}

// find returns the first program that is loaded under one of the keys; nil: there is none.
func (s *Shared) find(keys ...string) *sandbox.Program {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if p := s.loaded[key]; p != nil {
			return p
		}
	}
	return nil
}
