package access

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// stillKey is the key of a *right in a context.
type stillKey struct{}

// stillWait is how long the store may take to say whether a credential still holds.
const stillWait = 10 * time.Second

// Still asks whether whoever made the request would be let in now, too. What answers
// for long, such as a stream, asks before each thing that it sends. The error is
// ErrDenied, or that of the store; either ends the answer. Those who come by the
// socket are always let in.
func Still(ctx context.Context) error {
	if r, ok := ctx.Value(stillKey{}).(*right); ok {
		return r.still(ctx)
	}
	return nil
}

// rights are the credentials of requests under way. Many requests of one share what
// the store is asked.
type rights struct {
	store store.Access

	mu    sync.Mutex
	known map[string]*right // protected by mu
}

// A right is a credential by which requests were let in.
type right struct {
	rights *rights
	id     string
	users  int // protected by rights.mu

	turn  chan struct{} // holds a token for whoever may touch the fields below
	asked time.Time     // when the last question began
	err   error         // its answer
}

// of returns the right of a credential, and what to call when the request is over.
func (s *rights) of(id string) (r *right, end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = make(map[string]*right)
	}
	if r = s.known[id]; r == nil {
		r = &right{rights: s, id: id, turn: make(chan struct{}, 1)}
		s.known[id] = r
	}
	r.users++
	return r, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.users--; r.users == 0 {
			delete(s.known, id)
		}
	}
}

// still asks the store, or takes the answer to a question that began after this call.
func (r *right) still(ctx context.Context) error {
	since := time.Now()
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if r.asked.After(since) {
		return r.err
	}
	// Others take this answer, so it does not end with this request.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stillWait, &keep.TimeoutError{Op: "looking up a credential", After: stillWait})
	defer cancel()
	r.asked = time.Now()
	c, err := r.rights.store.Credential(ctx, r.id)
	if errors.Is(err, keep.ErrNotFound) || err == nil && expired(c, r.asked) {
		err = ErrDenied
	}
	r.err = err
	return err
}
