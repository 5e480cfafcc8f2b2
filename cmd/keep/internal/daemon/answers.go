package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	askEvery   = time.Second      // what was answered is believed for so long
	askWait    = 2 * time.Second  // who asks waits for so long
	askLongest = 10 * time.Second // a question is given up after so long
)

// errNoAnswer says to who has no login that a question failed. Why is in the log: the leases, or a workflow, met the same.
var errNoAnswer = errors.New("the database does not answer: the log of this host says why")

// A databaseCheck finds out whether the database answers, for all who want to know.
//
// One question is out at a time, and another is asked after askEvery at the earliest. One that is not answered within askWait
// stays out: if each who asks had a question of his own, and ended it, a frozen server would be left a connection by each, and would
// serve all of them when it continues. A question is given up all the same, since no answer may come any more to a
// connection whose other end is gone.
type databaseCheck struct {
	ctx context.Context // ends the question that is out
	ask func(context.Context) error
	wg  sync.WaitGroup // of that question

	mu       sync.Mutex    // protects the fields below
	closed   bool          // nothing is asked any more
	out      chan struct{} // closed when the question that is out is answered; nil: none is out
	asked    time.Time     // when that, or else the last one, was asked
	answered time.Time     // when the last answer came
	err      error         // the last answer
}

// checkOf returns the check of a session's database, which ends with ctx.
func checkOf(ctx context.Context, v *Session) *databaseCheck {
	return &databaseCheck{ctx: ctx, ask: func(ctx context.Context) error {
		_, err := v.DB.StoreID(ctx)
		return err
	}}
}

// answers returns nil if the database answers, and otherwise why not, for who has no login.
func (c *databaseCheck) answers(ctx context.Context) error {
	c.mu.Lock()
	now := time.Now()
	if c.closed {
		defer c.mu.Unlock()
		return errNoAnswer
	}
	if c.out == nil && now.Sub(c.answered) < askEvery {
		defer c.mu.Unlock()
		return c.err
	}
	if c.out == nil {
		c.out, c.asked = make(chan struct{}), now
		c.wg.Go(c.question)
	}
	out, asked := c.out, c.asked
	c.mu.Unlock()
	wait := time.NewTimer(asked.Add(askWait).Sub(now))
	defer wait.Stop()
	select {
	case <-out:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.err
	case <-wait.C:
		return fmt.Errorf("the database has not answered for %s", time.Since(asked).Truncate(time.Second))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close waits for the question that is out, whose context has ended, and asks no other.
func (c *databaseCheck) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wg.Wait()
}

// question asks the database once.
func (c *databaseCheck) question() {
	ctx, cancel := context.WithTimeout(c.ctx, askLongest)
	defer cancel()
	err := c.ask(ctx)
	if err != nil {
		err = errNoAnswer
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.out)
	c.out, c.answered, c.err = nil, time.Now(), err
}
