package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/limit"
)

// tryNow answers the question about a connection: the next call of those that wait is made
// at once. The answer counts for all of them. The connection comes first: if the process
// dies in between, a call too many was tried, and the question is still there.
func (o *Operator) tryNow(ctx context.Context, q keep.Escalation, d keep.Decision) error {
	d.At = o.now()
	for {
		g, err := o.store.Gate(ctx, q.Connection)
		if err != nil {
			return err
		}
		var s limit.State
		if len(g.State) > 0 {
			if err := json.Unmarshal(g.State, &s); err != nil {
				return fmt.Errorf("limits of connection %s: %w", q.Connection, err)
			}
		}
		if g.State, err = json.Marshal(limit.TryNow(s, d.At)); err != nil {
			return err
		}
		if err = o.store.PutGate(ctx, g); err == nil {
			break
		}
		if !errors.Is(err, keep.ErrStale) {
			return err
		}
	}
	// Before the answer, whose commit wakes the workflow once more: woken twice at once, its actor would
	// read again once or twice, as the scheduler likes.
	o.cfg.Executor.ReloadLimits(ctx)
	return o.decided(ctx, q.Workflow, d.At, keep.CloseEscalation{ID: q.ID, Decision: &d})
}
