package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/keep-run/keep"
)

// A Refusal says that the store takes no commits: the disk is full, or the database is read-only or out of reach.
type Refusal struct {
	Since time.Time
	Err   error // of the newest commit
}

// Refusal returns what the store answered to the last commit. Err is nil if it takes commits.
func (h *Host) Refusal() Refusal {
	h.refusals.mu.Lock()
	defer h.refusals.mu.Unlock()
	return h.refusals.last
}

// refusals note whether a store takes commits.
type refusals struct {
	now  func() time.Time
	mu   sync.Mutex // protects last
	last Refusal
}

// note takes what became of a commit. One that was refused for what is in it says nothing of the store.
func (r *refusals) note(err error) {
	if errors.Is(err, keep.ErrRefused) || errors.Is(err, context.Canceled) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.last = Refusal{}
	case r.last.Err == nil:
		r.last = Refusal{r.now(), err}
	default:
		r.last.Err = err
	}
}
