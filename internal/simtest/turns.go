package simtest

import (
	"cmp"
	"slices"
	"sync"
	"testing/synctest"
)

// turns orders the goroutines of a bubble: one at a time touches the world. Each waits
// for its turn first; when every goroutine of the bubble waits, for a turn or for time,
// the seed chooses which one continues. So the order in which things happen
// does not depend on Go's scheduler.
type turns struct {
	choose func(n int) int
	signal chan struct{} // holds a token when somebody began to wait

	mu      sync.Mutex // protects waiting
	waiting []*ticket
}

// A ticket is one goroutine that waits for its turn.
type ticket struct {
	who   string
	p     *process // nil: of no process
	yours chan struct{}
}

func newTurns(choose func(n int) int) *turns {
	return &turns{choose: choose, signal: make(chan struct{}, 1)}
}

// wait returns when it is the caller's turn. The turn ends when the caller
// blocks, on whatever it is.
func (s *turns) wait(p *process, who string) {
	t := &ticket{who, p, make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, t)
	s.mu.Unlock()
	s.look()
	<-t.yours
}

// look makes run see who waits.
func (s *turns) look() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// run gives out turns until stop.
func (s *turns) run() {
	for range s.signal {
		for s.next() {
		}
	}
}

// next gives out one turn, and reports whether anybody wanted it.
func (s *turns) next() bool {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	// Those of a frozen process wait behind all others.
	n := len(s.waiting) - s.sink()
	if n == 0 {
		return false
	}
	i := 0
	if n > 1 {
		// The order of arrival is the scheduler's; that of names is ours.
		slices.SortStableFunc(s.waiting[:n], func(a, b *ticket) int { return cmp.Compare(a.who, b.who) })
		i = s.choose(n)
	}
	t := s.waiting[i]
	s.waiting = slices.Delete(s.waiting, i, i+1)
	close(t.yours)
	return true
}

// sink moves the tickets of frozen processes to the end, and counts them.
func (s *turns) sink() int {
	slices.SortStableFunc(s.waiting, func(a, b *ticket) int {
		return cmp.Compare(a.frozen(), b.frozen())
	})
	n := 0
	for _, t := range s.waiting {
		n += t.frozen()
	}
	return n
}

// frozen returns 1 if the process of t is stopped, as by SIGSTOP.
func (t *ticket) frozen() int {
	if t.p != nil && t.p.frozen {
		return 1
	}
	return 0
}

// release wakes all goroutines of a dead process, which end at once.
func (s *turns) release(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(t *ticket) bool {
		if t.p == p {
			close(t.yours)
		}
		return t.p == p
	})
}

// stop ends run. Nobody may wait for a turn any more.
func (s *turns) stop() { close(s.signal) }
