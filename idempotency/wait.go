package idempotency

import (
	"sync"
	"time"

	"github.com/keep-run/keep/law/key"
)

// waiting is where duplicates wait for an owner in this process. One in another
// process is noticed by looking again.
type waiting struct {
	// mu protects the field below.
	mu    sync.Mutex
	moved map[key.ID]*awaited
}

// An awaited is a record that somebody waits for.
type awaited struct {
	moved chan struct{} // closed when the record moved
	by    int           // how many wait; protected by waiting.mu
}

// lookAgain is how often a duplicate looks at a record that another process may
// complete.
const lookAgain = 200 * time.Millisecond

// changed returns a channel that is closed when the record moves next, and what to call when it is awaited no more: the
// owner may be another process, and then nobody here wakes those who wait.
func (w *waiting) changed(id key.ID) (moved <-chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, ok := w.moved[id]
	if !ok {
		if w.moved == nil {
			w.moved = make(map[key.ID]*awaited)
		}
		a = &awaited{moved: make(chan struct{})}
		w.moved[id] = a
	}
	a.by++
	return a.moved, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if a.by--; a.by == 0 && w.moved[id] == a {
			delete(w.moved, id)
		}
	}
}

// wake makes those who wait for a record read it again.
func (w *waiting) wake(id key.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a, ok := w.moved[id]; ok {
		close(a.moved)
		delete(w.moved, id)
	}
}

// wait waits until the record may have moved, and reports whether the caller has
// time left to look again.
func (c *exchange) wait() bool {
	left := c.rt.Wait - time.Since(c.started)
	if left <= 0 {
		return false
	}
	moved, leave := c.g.waiting.changed(c.claim.ID)
	defer leave()
	timer := time.NewTimer(min(left, lookAgain))
	defer timer.Stop()
	select {
	case <-moved:
	case <-timer.C:
	case <-c.r.Context().Done():
		return false
	}
	return true
}
