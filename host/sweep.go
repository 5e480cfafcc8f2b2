package host

import (
	"context"
	"time"

	"github.com/keep-run/keep/engine"
)

// A shrinker is a store whose space does not come back by itself.
type shrinker interface {
	Shrink(ctx context.Context) (bytes int64, err error)
}

// What is over and old is looked for so often, and for the first time when a host has
// settled.
const (
	firstSweep = time.Minute
	sweepEvery = time.Hour

	// sweepRest is the time between two commits of a sweep: workflows come first.
	sweepRest = 5 * time.Millisecond
)

// sweep forgets what is over and old until ctx is done. It may be stopped at any
// moment; what is left is old the next time, too.
func (h *Host) sweep(ctx context.Context) {
	if _, some := h.cfg.Retention.Latest(time.Time{}); !some {
		return
	}
	tick := time.NewTimer(firstSweep)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h.sweepOnce(ctx)
		tick.Reset(sweepEvery)
	}
}

// sweepOnce forgets what is old now, and gives the space back.
func (h *Host) sweepOnce(ctx context.Context) {
	rest := time.NewTimer(0)
	defer rest.Stop()
	done, err := h.Engine.Sweep(ctx, h.cfg.Retention, false, func(engine.Swept) {
		rest.Reset(sweepRest)
		select {
		case <-ctx.Done():
		case <-rest.C:
		}
	})
	if err != nil && ctx.Err() == nil {
		h.log.WarnContext(ctx, "sweep; the rest is swept later", "err", err)
	}
	if done.Chains == 0 {
		return
	}
	var bytes int64
	if s, ok := h.store.(shrinker); ok {
		if bytes, err = s.Shrink(ctx); err != nil && ctx.Err() == nil {
			h.log.WarnContext(ctx, "give space back", "err", err)
		}
	}
	h.log.InfoContext(ctx, "swept what is over and old", "runs", done.Runs, "mutations", done.Mutations, "bytes", bytes)
}
