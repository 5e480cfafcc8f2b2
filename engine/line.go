package engine

import (
	"slices"
	"sync"
)

// A line lets callers have a turn one after another, in the order in which they came.
type line struct {
	mu      sync.Mutex // protects the fields below
	taken   bool
	waiting []chan struct{} // each is closed when its turn comes
}

// join stands in line. The channel that it returns is closed when the turn has come; leave
// must be called with it, whether that happened or not.
func (l *line) join() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	turn := make(chan struct{})
	if l.taken {
		l.waiting = append(l.waiting, turn)
		return turn
	}
	l.taken = true
	close(turn)
	return turn
}

// isTaken reports whether who joins now has to wait.
func (l *line) isTaken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

// leave ends a turn, or gives a place in line up.
func (l *line) leave(turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, turn); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		return
	}
	if l.taken = len(l.waiting) > 0; l.taken {
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
	}
}
