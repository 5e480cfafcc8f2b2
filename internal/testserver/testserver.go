// Package testserver has one real server for all tests of a test binary: it is started when the
// first test wants it, and stopped after the last.
package testserver

import (
	"errors"
	"sync"
	"testing"
)

// A Shared is such a server. It is safe for concurrent use.
type Shared[S interface{ Stop() }] struct {
	Start   func() (S, error)
	Missing error // what Start returns on a machine without the programs: tests are skipped

	once   sync.Once
	server S
	err    error
	runs   bool // the server was started; protected by once, and by the end of the tests
}

// Main runs the tests of a package and then stops the server, if it was started. TestMain
// calls it.
func (s *Shared[S]) Main(m *testing.M) int {
	code := m.Run()
	if s.runs {
		s.server.Stop()
	}
	return code
}

// Get returns the server. It skips the test where the machine has not the programs.
func (s *Shared[S]) Get(tb testing.TB) S {
	tb.Helper()
	s.once.Do(func() {
		s.server, s.err = s.Start()
		s.runs = s.err == nil
	})
	if errors.Is(s.err, s.Missing) {
		tb.Skip(s.err)
	}
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.server
}
