package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/pause"
	"github.com/keep-run/keep/law/budget"
)

// budgetsEvery is how often a host looks whether runs wait for a budget, for a tool or because of another call, about which
// nothing is asked any more: another process answered, or the run that asked continues by itself.
const budgetsEvery = 5 * time.Second

// budgetsOf returns rules ready to decide, or what is wrong with them: one about a tool that is nowhere bounds nothing.
func budgetsOf(rules []budget.Rule, conns []connector.Connection, elsewhere func(string) bool) ([]budget.Rule, error) {
	rules, err := budget.Ready(rules)
	for _, r := range rules {
		for _, tool := range r.Tools {
			conn, _, _ := strings.Cut(tool, ".")
			here := slices.ContainsFunc(conns, func(c connector.Connection) bool { return c.Name == conn })
			if tool == "*" || !here && elsewhere != nil && elsewhere(conn) {
				continue
			}
			if why := connector.Lacks(conns, tool); why != "" {
				err = errors.Join(err, fmt.Errorf("budget %q: %s", r.Name, why))
			}
		}
	}
	return rules, err
}

// settleBudgets lets such runs continue, until ctx is done.
func (h *Host) settleBudgets(ctx context.Context) {
	for wait := time.Duration(0); pause.For(ctx, wait) == nil; wait = budgetsEvery {
		h.settleBudgetsOnce(ctx)
	}
}

// settleBudgetsOnce lets such runs continue that wait now.
func (h *Host) settleBudgetsOnce(ctx context.Context) {
	if err := errors.Join(h.SettleBudgets(ctx), h.SettleBreakers(ctx), h.SettleRivals(ctx), h.SettleUsers(ctx)); err != nil && ctx.Err() == nil {
		h.log.WarnContext(ctx, "look for what waits for a person", "err", err)
	}
}
