package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/key"
)

// After each batch a sweep rests nine times as long as the batch took, and at
// least that long: it takes a tenth of the store's time, however much is over.
const (
	pauseBetweenBatches = 20 * time.Millisecond
	sweepRests          = 9
)

// Run sweeps until ctx is done, at once and then every Config.SweepEvery, and
// returns the cause. A sweep that fails is logged and tried again. Once the database was removed or
// replaced under the store, nothing is executed any more and Run returns keep.ErrReplaced: the
// process should end, as a host does.
//
// Without Run a guard works as well, but the store keeps what is over.
func (g *Guard) Run(ctx context.Context) error {
	ticker := time.NewTicker(g.cfg.SweepEvery)
	defer ticker.Stop()
	for {
		if _, err := g.Sweep(ctx, g.clock.time.Local()); err != nil && ctx.Err() == nil {
			g.cfg.Logger.ErrorContext(ctx, "idempotency keys: sweep", "err", err)
		}
		select {
		case <-ticker.C:
		case <-g.loss.noticed:
			return g.loss.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Sweep deletes what is over at now, a time of the process's clock, in small batches, and marks the keys whose
// owners did not renew their lease, so that lists say what is true. Then a
// Shrinker gives back the space. It returns how many records it deleted.
func (g *Guard) Sweep(ctx context.Context, now time.Time) (deleted int, err error) {
	if err := g.follow(ctx); err != nil {
		return 0, err
	}
	now = g.clock.at(now)
	if err := errors.Join(g.markLate(ctx, now), g.forgetSettled(ctx)); err != nil {
		return 0, err
	}
	for {
		start := time.Now()
		n, err := g.store.Sweep(ctx, now, g.cfg.SweepBatch)
		g.notice(ctx, err)
		deleted += n
		if err != nil {
			return deleted, fmt.Errorf("sweep idempotency keys: %w", err)
		}
		if n < g.cfg.SweepBatch {
			return deleted, g.shrink(ctx)
		}
		if !rest(ctx, max(pauseBetweenBatches, sweepRests*time.Since(start))) {
			return deleted, context.Cause(ctx)
		}
	}
}

func (g *Guard) shrink(ctx context.Context) error {
	store, ok := g.store.(Shrinker)
	if !ok {
		return nil
	}
	bytes, err := store.Shrink(ctx)
	if bytes > 0 {
		g.cfg.Logger.InfoContext(ctx, "idempotency keys: disk space given back", "bytes", bytes)
	}
	if err != nil {
		return fmt.Errorf("give back the space of idempotency keys: %w", err)
	}
	return nil
}

// forgetSettled forgets the requests whose outcome this process could not record once somebody else did.
func (g *Guard) forgetSettled(ctx context.Context) (err error) {
	g.executing.Range(func(name, known any) bool {
		if known != unsettled {
			return true
		}
		var rec key.Record
		if rec, err = g.store.Read(ctx, name.(key.ID)); err == nil && rec.State != key.InProgress && rec.State != key.Unknown {
			g.executing.CompareAndDelete(name, unsettled)
		}
		return err == nil
	})
	return err
}

// A watchedAt is a record in progress as a sweep saw it first.
type watchedAt struct {
	rev int64
	at  time.Time // with the monotonic reading
}

// unrenewed reports whether a record in progress was not written for as long as its lease is, as far as sweeps saw, and notes in
// watched that this one sees it.
func unrenewed(r key.Record, last, watched map[key.ID]watchedAt) bool {
	known, ok := last[r.ID]
	if !ok || known.rev != r.Rev {
		watched[r.ID] = watchedAt{r.Rev, time.Now()}
		return false
	}
	watched[r.ID] = known
	return time.Since(known.at) >= r.LeaseUntil.Sub(r.UpdatedAt)
}

// markLate moves the records whose lease ended.
func (g *Guard) markLate(ctx context.Context, now time.Time) error {
	g.sweeping.Lock()
	defer g.sweeping.Unlock()
	watched := make(map[key.ID]watchedAt)
	for cursor := ""; ; {
		page, next, err := g.store.List(ctx, key.Filter{State: key.InProgress}, keep.Page{Limit: g.cfg.SweepBatch, After: cursor})
		if err != nil {
			return fmt.Errorf("list idempotency keys in progress: %w", err)
		}
		for _, rec := range page {
			if _, here := g.executing.Load(rec.Fence); here {
				continue // it lives, whatever the clock says
			}
			after, err := key.Apply(rec, key.Fact{Evidence: key.LeaseEnded, Unrenewed: unrenewed(rec, g.watched, watched), By: "lease"}, now)
			if err != nil {
				continue // it lives
			}
			err = g.store.Write(ctx, after)
			g.notice(ctx, err)
			if err != nil && !errors.Is(err, keep.ErrStale) {
				return fmt.Errorf("mark idempotency key %s: %w", rec.ID, err)
			}
			g.waiting.wake(rec.ID)
		}
		if cursor = next; cursor == "" {
			g.watched = watched
			return nil
		}
	}
}
