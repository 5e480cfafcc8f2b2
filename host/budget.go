package host

import (
	"context"
	"errors"
	"time"
)

// budgetsEvery is how often a host looks whether runs wait for a budget, or for a tool, about which
// nothing is asked any more: another process answered, or the run that asked continues by itself.
const budgetsEvery = 5 * time.Second

// settleBudgets lets such runs continue, until ctx is done.
func (h *Host) settleBudgets(ctx context.Context) {
	tick := time.NewTicker(budgetsEvery)
	defer tick.Stop()
	for {
		h.settleBudgetsOnce(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// settleBudgetsOnce lets such runs continue that wait now.
func (h *Host) settleBudgetsOnce(ctx context.Context) {
	if err := errors.Join(h.SettleBudgets(ctx), h.SettleBreakers(ctx)); err != nil && ctx.Err() == nil {
		h.log.WarnContext(ctx, "look for runs that wait for budgets", "err", err)
	}
}
