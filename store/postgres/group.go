package postgres

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// A combiner joins requests that arrive while others are served. A caller that comes
// when no group is under way serves one: everybody who waits, and so also itself.
// When it is done it gives the task to the first of those who came meanwhile. So
// there is no goroutine to start or to wait for, nothing waits without need, and
// under load groups grow by themselves. Up to width groups are under way at once, if
// enough wait, or for long enough.
type combiner[T any] struct {
	serve func(ctx context.Context, group []*request[T]) // sets the err of each
	key   func(T) string                                 // a group has one request of a key; nil: any number
	width int                                            // groups at once
	limit int                                            // requests in a group
	worth int                                            // so many leave beside another group at once
	after time.Duration                                  // and as few as there are when it took that long; 0: never

	// gathers makes who serves a group let all go first that could run now, since
	// they may be about to ask, too: those of the last group who were just told to go
	// on. While the processors have nothing else to do it costs nothing.
	gathers bool

	// mu protects the 5 next fields.
	mu      sync.Mutex
	queue   []*request[T]
	leaders int
	next    int           // those of them who have not taken their group yet
	timer   *time.Timer   // runs while a group is under way that others wait for
	closed  chan struct{} // not nil: closing; closed when the last leader is done
}

// A request is one thing to do, and its fate.
type request[T any] struct {
	what    T
	err     error     // set before wake
	wake    chan bool // true: the caller is to serve; false: the fate is known
	leading bool      // its caller is to serve; protected by the combiner's mu
}

// do has what served, and returns its fate. If ctx ends before anybody took it,
// it is dropped and the cause returned. After that do waits for the fate.
func (c *combiner[T]) do(ctx context.Context, what T) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	r := &request[T]{what: what, wake: make(chan bool, 1)}
	c.mu.Lock()
	if c.closed != nil {
		c.mu.Unlock()
		return ErrClosed
	}
	c.queue = append(c.queue, r)
	c.mayLead(r, c.worth)
	c.mu.Unlock()
	var lead bool
	select {
	case lead = <-r.wake:
	case <-ctx.Done():
		if c.leave(r) {
			return context.Cause(ctx)
		}
		lead = <-r.wake
	}
	if lead {
		c.leadOne(ctx, r)
	}
	return r.err
}

// leave takes a request out of the queue. It reports false if it is being served,
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
		if other != r {
			other.wake <- false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaders--
	c.mayLeadFirst(c.worth)
	if c.leaders == 0 && c.closed != nil {
		close(c.closed)
	}
}

// mayLead tells the caller of r, which waits, to serve a group if none is under way,
// or if worth wait and there is room for one more. Its caller holds mu.
func (c *combiner[T]) mayLead(r *request[T], worth int) {
	if c.leaders == 0 || c.leaders < c.width && c.next == 0 && len(c.queue) >= worth {
		c.leaders++
		c.next++
		r.leading = true
		r.wake <- true // it has room for one, and a caller gets one value
	}
}

// mayLeadFirst is mayLead for the first of those who wait, if anybody does.
func (c *combiner[T]) mayLeadFirst(worth int) {
	for _, r := range c.queue {
		if !r.leading {
			c.mayLead(r, worth)
			return
		}
	}
}

// wait has those who come now served when the group that was just taken took long.
// The caller holds mu.
func (c *combiner[T]) wait() {
	switch {
	case c.after == 0:
	case c.timer == nil:
		c.timer = time.AfterFunc(c.after, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.mayLeadFirst(0)
		})
	default:
		c.timer.Reset(c.after)
	}
}

// take moves a group from the queue: r, and those before and after it that may
// join. Requests whose callers are about to serve stay for them.
func (c *combiner[T]) take(r *request[T]) []*request[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next--
	c.wait()
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
