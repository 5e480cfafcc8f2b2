package gateway

import (
	"fmt"
	"testing"

	"github.com/keep-run/keep"
)

// What a session remembers of answers is bounded, however many connections its client opens.
func TestToldIsBounded(t *testing.T) {
	g := &Gateway{sessions: make(map[*session]struct{})}
	s := g.newSession("a", nil, nil)
	tell := func(conn int64, call string) {
		s.tell(func() (int64, error) { return 0, nil }, conn, answer{of: call, run: keep.RunID("run_" + call)})
	}
	const conns = 3 * maxTold
	for i := range conns {
		tell(int64(i+1), fmt.Sprint(i))
		tell(noConn, fmt.Sprint("p", i))
	}
	if n := len(s.told); n > maxTold {
		t.Errorf("%d answers are remembered, want at most %d", n, maxTold)
	}
	if got := s.written(conns, everything); len(got) != 1 {
		t.Errorf("of the newest connection %d answers are remembered, want 1", len(got))
	}
	if got := s.written(noConn, everything); len(got) != 0 {
		t.Errorf("%d answers are remembered of what shows nothing", len(got))
	}
}
