package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/breaker"
	"github.com/keep-run/keep/law/lifecycle"
)

// closeBreaker lets calls of a tool through again. The row comes before the answer: if the process
// dies in between, calls are made, and the question is still there.
func (o *Operator) closeBreaker(ctx context.Context, q keep.Escalation, d keep.Decision) error {
	d.At = o.now()
	t := breaker.ToolOf(q.ID)
	for q.ClosedAt.IsZero() {
		row, err := o.store.Gate(ctx, keep.ToolGate(t))
		if err != nil {
			return err
		}
		var s breaker.State
		if len(row.State) > 0 {
			if err := json.Unmarshal(row.State, &s); err != nil {
				return fmt.Errorf("breaker of %s: %w", t, err)
			}
		}
		if s.Open == nil || breaker.QuestionID(t, s) != q.ID {
			break // calls are made, or a later question is asked
		}
		if row.State, err = json.Marshal(breaker.Close(s)); err != nil {
			return err
		}
		if err = o.store.PutGate(ctx, row); err == nil {
			break
		}
		if !errors.Is(err, keep.ErrStale) {
			return err
		}
	}
	o.cfg.Executor.ReloadLimits(ctx)
	if err := o.decided(ctx, q.Workflow, d.At, keep.CloseEscalation{ID: q.ID, Decision: &d}); err != nil {
		return err
	}
	return o.SettleBreakers(ctx)
}

// SettleBreakers lets the runs continue that wait for a tool whose calls are made again. Any host
// may do it at any time.
func (o *Operator) SettleBreakers(ctx context.Context) error {
	open := make(map[keep.ToolName]bool)
	for p := (keep.Page{Limit: 500, Bare: true}); ; {
		list, next, err := o.store.Runs(ctx, keep.RunFilter{Status: keep.StatusPerson, Open: true}, p)
		if err != nil {
			return err
		}
		for _, r := range list {
			if !lifecycle.Stopped(r) || !r.RetryAt.IsZero() {
				continue
			}
			is, known := open[r.Error.Tool]
			if !known {
				if is, err = o.breakerIsOpen(ctx, r.Error.Tool); err != nil {
					return err
				}
				open[r.Error.Tool] = is
			}
			if is {
				continue
			}
			if err := o.continueRun(ctx, r.ID); err != nil {
				return fmt.Errorf("continue run %s: %w", r.ID, err)
			}
		}
		if p.After = next; next == "" {
			return nil
		}
	}
}

func (o *Operator) breakerIsOpen(ctx context.Context, t keep.ToolName) (bool, error) {
	row, err := o.store.Gate(ctx, keep.ToolGate(t))
	var s breaker.State
	if err == nil && len(row.State) > 0 {
		err = json.Unmarshal(row.State, &s)
	}
	return s.Open != nil, err
}
