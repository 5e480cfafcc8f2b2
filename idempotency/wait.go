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
	moved map[key.ID]chan struct{} // closed when the record moved
}

// lookAgain is how often a duplicate looks at a record that another process may
// complete.
const lookAgain = 200 * time.Millisecond

// changed returns a channel that is closed when the record moves next.
func (w *waiting) changed(id key.ID) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	ch, ok := w.moved[id]
	if !ok {
		if w.moved == nil {
			w.moved = make(map[key.ID]chan struct{})
		}
		ch = make(chan struct{})
		w.moved[id] = ch
	}
	return ch
}

// wake makes those who wait for a record read it again.
func (w *waiting) wake(id key.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ch, ok := w.moved[id]; ok {
		close(ch)
		delete(w.moved, id)
	}
}

// wait waits until the record may have moved, and reports whether the caller has
// time left to look again.
func (c *exchange) wait(now time.Time) bool {
	left := c.rt.Wait - now.Sub(c.started)
	if left <= 0 {
		return false
	}
	ch := c.g.waiting.changed(c.claim.ID)
	timer := time.NewTimer(min(left, lookAgain))
	defer timer.Stop()
	select {
	case <-ch:
	case <-timer.C:
	case <-c.r.Context().Done():
		return false
	}
	return true
}
