package engine

import (
	"encoding/json"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/keep-run/keep/internal/schema"
)

// Schemas are JSON schemas that were compiled, each text once, for tools that share them:
// those of one configuration, or of the many hosts of a suite of tests. The zero value has
// none. It is safe for concurrent use, and only grows.
type Schemas struct {
	mu    sync.Mutex // protects known
	known map[string]*jsonschema.Schema
}

// compile returns the compiled schema; nil, which allows anything, for no text.
func (s *Schemas) compile(raw json.RawMessage) (*jsonschema.Schema, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.known[string(raw)]; ok {
		return c, nil
	}
	c, err := schema.Compile(raw)
	if err != nil {
		return nil, err
	}
	if s.known == nil {
		s.known = make(map[string]*jsonschema.Schema)
	}
	s.known[string(raw)] = c
	return c, nil
}
