package postgres

import (
	"context"
	"runtime"
	"sync"
)

// A combiner joins requests that arrive while others are served. Whoever comes
// when no group is under way serves one: everybody who waits, and so also itself.
// When it is done it gives the task to the first of those who came meanwhile. So
// there is no goroutine to start or to wait for, nothing waits without need, and
// under load groups grow by themselves. Up to width groups are under way at once, if
// enough wait.
type combiner[T any] struct {
	serve func(ctx context.Context, group []*request[T]) // sets the err of each
	key   func(T) string                                 // a group has one request of a key; nil: any number
	width int                                            // groups at once
	limit int                                            // requests in a group
	worth int                                            // as many must wait to leave beside another group

	// gathers makes who serves a group let all go first that could run now, since
	// they may be about to ask, too. While the processors have nothing else to do
	// it costs nothing.
	gathers bool

	// mu protects the 3 next fields.
	mu      sync.Mutex
	queue   []*request[T]
	leaders int
	closed  chan struct{} // not nil: closing; closed when the last leader is done
}

// A request is one thing to do, and its fate.
type request[T any] struct {
	what    T
	err     error         // set before ready is closed
	ready   chan struct{} // closed when the fate is known
	lead    chan struct{} // closed when this request's caller is to serve
	leading bool          // lead is closed; protected by the combiner's mu
}

// do has what served, and returns its fate. If ctx ends before anybody took it,
// it is dropped and the cause returned. After that do waits for the fate.
func (c *combiner[T]) do(ctx context.Context, what T) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	r := &request[T]{what: what, ready: make(chan struct{}), lead: make(chan struct{})}
	c.mu.Lock()
	if c.closed != nil {
		c.mu.Unlock()
		return ErrClosed
	}
	c.queue = append(c.queue, r)
	if c.mayLead() {
		c.leaders++
		r.leading = true
		close(r.lead)
	}
	c.mu.Unlock()
	select {
	case <-r.lead:
	case <-r.ready:
	case <-ctx.Done():
		if c.leave(r) {
			return context.Cause(ctx)
		}
		select {
		case <-r.lead:
		case <-r.ready:
		}
	}
	c.mu.Lock()
	leading := r.leading
	c.mu.Unlock()
	if leading {
		// Whoever is ready to run may want to come along: those of the last group
		// who were just told to go on.
		runtime.Gosched()
		c.leadOne(ctx, r)
	}
	<-r.ready
	return r.err
}

// leave takes a request out of the queue. It reports false if somebody serves it,
// or if its caller is to serve.
func (c *combiner[T]) leave(r *request[T]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, other := range c.queue {
		if other == r && !r.leading {
			c.queue = append(c.queue[:i], c.queue[i+1:]...)
			return true
		}
	}
	return false
}

// leadOne serves one group with r in it, and passes the task on.
func (c *combiner[T]) leadOne(ctx context.Context, r *request[T]) {
	if c.gathers {
		runtime.Gosched()
	}
	group := c.take(r)
	// What is done for a group must not end with one of its callers.
	c.serve(context.WithoutCancel(ctx), group)
	for _, other := range group {
		close(other.ready)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaders--
	for _, next := range c.queue {
		if !next.leading && c.mayLead() {
			c.leaders++
			next.leading = true
			close(next.lead)
			return
		}
	}
	if c.leaders == 0 && c.closed != nil {
		close(c.closed)
	}
}

// mayLead reports whether one of those who wait is to serve a group. The caller holds
// mu.
func (c *combiner[T]) mayLead() bool {
	return c.leaders == 0 || c.leaders < c.width && len(c.queue) >= c.worth
}

// take moves a group from the queue: r, and those before and after it that may
// join. Requests whose callers are about to serve stay for them.
func (c *combiner[T]) take(r *request[T]) []*request[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	group := []*request[T]{r}
	seen := make(map[string]bool)
	if c.key != nil {
		seen[c.key(r.what)] = true
	}
	rest := c.queue[:0]
	for _, other := range c.queue {
		switch {
		case other == r:
			continue
		case other.leading, len(group) == c.limit:
			rest = append(rest, other)
			continue
		case c.key != nil:
			key := c.key(other.what)
			if seen[key] {
				rest = append(rest, other)
				continue
			}
			seen[key] = true
		}
		group = append(group, other)
	}
	clear(c.queue[len(rest):])
	c.queue = rest
	return group
}

// close refuses new requests and waits for those under way.
func (c *combiner[T]) close() {
	c.mu.Lock()
	first := c.closed == nil
	if first {
		c.closed = make(chan struct{})
		if c.leaders == 0 {
			close(c.closed)
		}
	}
	closed := c.closed
	c.mu.Unlock()
	<-closed
}
