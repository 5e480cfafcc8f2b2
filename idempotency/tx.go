package idempotency

import (
	"context"
	"errors"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/key"
)

// Errors returned by Tx.
var (
	// ErrNotGuarded is returned when the context is not of a guarded handler, or
	// its outcome is recorded already, or its answer has begun: what the client saw
	// could not be taken back with the transaction.
	ErrNotGuarded = errors.New("idempotency: no guarded request is being executed here")

	// ErrNoTx is returned when the store has no such transactions.
	ErrNoTx = errors.New("idempotency: the store has no transactions of that kind")
)

// errUndone says that the handler's transaction was lost and so nothing of it
// happened.
var errUndone = errors.New("idempotency: the handler's transaction was undone")

// Tx returns the transaction in which the key of this request completes, such as
// a *sql.Tx of the SQLite store. What the handler writes in it becomes durable
// together with its answer, or not at all: an answer of 5xx, one that frees the
// key, a panic and a crash undo it.
//
// The first call begins the transaction, every further one returns the same. The
// handler must not end it: if it does, nobody knows whether what it wrote is there, and
// the outcome is recorded as unknown. If that cannot be recorded, the end of the lease says so, too, but not with Rule.Atomic,
// which promises that there is nothing then. In SQLite it holds the whole database's one place to
// write, so do the slow things before.
//
// What is in it is committed before the first byte of an answer that is passed on as it comes: a stream, one over
// Rule.ResponseLimit, and one for which there is no memory. So write all that belongs to it before the answer.
func Tx[T any](ctx context.Context) (T, error) {
	var none T
	c, ok := ctx.Value(callKey{}).(*exchange)
	if !ok {
		return none, ErrNotGuarded
	}
	store, ok := c.g.store.(TxStore)
	if !ok {
		return none, ErrNoTx
	}
	c.beginning.Lock() // and not mu: a store may wait for its place to write, and the lease is renewed meanwhile
	defer c.beginning.Unlock()
	tx, err := c.useTx(nil)
	if tx == nil && err == nil {
		begun, beginErr := store.Begin(context.WithoutCancel(ctx)) // settle ends it
		if beginErr != nil {
			return none, fmt.Errorf("begin the transaction of a key: %w", beginErr)
		}
		if tx, err = c.useTx(begun); err != nil { // the request ended meanwhile
			err = errors.Join(err, begun.Rollback())
		}
	}
	if err != nil {
		return none, err
	}
	handle, ok := tx.Handle().(T)
	if !ok {
		return none, fmt.Errorf("%w: it has a %T", ErrNoTx, tx.Handle())
	}
	return handle, nil
}

// useTx makes begun the handler's transaction, unless that is nil, and returns the one that there is.
func (c *exchange) useTx(begun key.Tx) (key.Tx, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settled || c.shown {
		return nil, ErrNotGuarded
	}
	if begun != nil {
		c.tx = begun
	}
	return c.tx, nil
}

// settleTx records the outcome in the handler's transaction and commits both.
func (c *exchange) settleTx(ctx context.Context, tx key.Tx, e key.Fact) error {
	rec := c.current()
	e.Fence = rec.Fence
	next, err := rec, error(nil)
	for range maxRounds {
		if next, err = c.nextInTx(ctx, tx, rec, e); !errors.Is(err, keep.ErrStale) {
			break
		}
		if rec, err = c.read(ctx); err != nil { // it was renewed beside us
			break
		}
	}
	committing := err == nil
	if committing {
		if err = tx.Commit(ctx); err == nil {
			next.Rev++
			c.setCurrent(next)
			return nil
		}
	}
	err = errors.Join(err, tx.Rollback())
	c.g.notice(ctx, err)
	if errors.Is(err, key.ErrFenced) || committing && errors.Is(err, keep.ErrReplaced) {
		return err
	}
	// After a failed commit only the record knows.
	if now, readErr := c.read(ctx); readErr == nil && same(now, next) {
		c.setCurrent(now)
		return nil
	}
	undone := c.rt.Atomic && !errors.Is(err, key.ErrTxEnded)
	lost := key.Fact{Evidence: key.Unsure, By: "owner"}
	if undone {
		lost.Evidence = key.Nothing
	}
	settleErr := c.settlePlain(ctx, lost)
	if committing && settleErr != nil {
		undone = false // a commit that is still under way may come; that the key is free says that none does
	}
	if undone {
		err = errors.Join(errUndone, err)
	}
	return errors.Join(err, settleErr)
}

func (c *exchange) nextInTx(ctx context.Context, tx key.Tx, rec key.Record, e key.Fact) (key.Record, error) {
	next, err := key.Apply(rec, e, c.g.clock.now())
	if err != nil {
		return next, err
	}
	return next, tx.Write(ctx, next)
}
