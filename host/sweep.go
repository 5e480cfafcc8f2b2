package host

import (
	"context"
	"time"

	"github.com/keep-run/keep/internal/pause"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/operator"
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
)

// sweep calls Sweep again and again until ctx is done.
func (h *Host) sweep(ctx context.Context) {
	for wait := firstSweep; pause.For(ctx, wait) == nil; wait = sweepEvery {
		h.Sweep(ctx)
	}
}

// Sweep deletes what is over and older than the retention of the host says, and gives the
// space back. Run does it once an hour; a host that does not live that long calls it while
// Run works, and may end ctx at any moment: what is left is old the next time, too.
func (h *Host) Sweep(ctx context.Context) {
	r := h.retention()
	rest := h.giveWay(ctx)
	var done operator.Swept
	traces, err := h.Operator.SweepTraces(ctx, r, false, rest)
	if err == nil && anyRetention(r) {
		done, err = h.Operator.Sweep(ctx, r, false, func(operator.Swept) { rest() })
	}
	if err != nil && ctx.Err() == nil {
		h.log.WarnContext(ctx, "sweep; the rest is swept later", "err", err)
	}
	if done.Chains == 0 && traces == 0 {
		return
	}
	var bytes int64
	if s, ok := h.store.(shrinker); ok {
		if bytes, err = s.Shrink(ctx); err != nil && ctx.Err() == nil {
			h.log.WarnContext(ctx, "give space back", "err", err)
		}
	}
	h.log.InfoContext(ctx, "swept what is over and old", "runs", done.Runs, "mutations", done.Mutations, "traces", traces, "bytes", bytes)
}

// giveWay returns what a sweep calls after each of its steps: it rests if workflows or people wrote meanwhile.
func (h *Host) giveWay(ctx context.Context) (rest func()) {
	began := time.Now()
	step, worked := began, h.worked.Load()
	return func() {
		now := time.Now()
		_ = pause.For(ctx, policy.SweepRest(now.Sub(began), now.Sub(step), h.worked.Load() != worked))
		step, worked = time.Now(), h.worked.Load()
	}
}

// anyRetention reports whether r lets anything be deleted at all.
func anyRetention(r policy.Retention) bool {
	_, some := r.Latest(time.Time{})
	return some
}
