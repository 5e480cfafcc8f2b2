package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/breaker"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/store"
)

// closeBreaker lets calls of a tool through again. The row comes before the answer: if the process
// dies in between, calls are made, and the question is still there.
func (o *Operator) closeBreaker(ctx context.Context, q keep.Escalation, d keep.Decision) error {
	d.At = o.now()
	t := breaker.ToolOf(q.ID)
	for q.ClosedAt.IsZero() {
		s, row, err := o.breaker(ctx, t)
		if err != nil {
			return err
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

// SettleBreakers lets the runs continue that wait for a tool whose calls are made again, and asks about one whose calls are
// stopped if nobody did: the process that stopped them may have died before. Any host may do it at any time.
func (o *Operator) SettleBreakers(ctx context.Context) error {
	seen := make(map[keep.ToolName]bool) // whether its calls are stopped
	for r, err := range store.All(ctx, o.store.Runs, keep.RunFilter{Status: keep.StatusPerson, Open: true}, keep.Page{Limit: 500, Bare: true}) {
		if err != nil {
			return err
		}
		if !lifecycle.Stopped(r) || !r.RetryAt.IsZero() {
			continue
		}
		is, known := seen[r.Error.Tool]
		if !known {
			s, _, err := o.breaker(ctx, r.Error.Tool)
			if is = s.Open != nil; is && err == nil {
				err = o.askAboutBreaker(ctx, r, s)
			}
			if err != nil {
				return err
			}
			seen[r.Error.Tool] = is
		}
		if is {
			continue
		}
		if err := o.continueRun(ctx, r.ID, func(r keep.Run) (bool, error) { return lifecycle.Stopped(r), nil }); err != nil {
			return fmt.Errorf("continue run %s: %w", r.ID, err)
		}
	}
	return nil
}

// askAboutBreaker asks about the tool for which r waits, unless somebody did.
func (o *Operator) askAboutBreaker(ctx context.Context, r keep.Run, s breaker.State) error {
	_, err := o.store.Escalation(ctx, breaker.QuestionID(r.Error.Tool, s))
	if !errors.Is(err, keep.ErrNotFound) {
		return err
	}
	now := o.now()
	err = o.commit(ctx, r.Workflow, 0, now, keep.OpenEscalation{Escalation: breaker.Question(r.Error.Tool, s, r.Workflow, r.ID, now)})
	if errors.Is(err, keep.ErrStale) {
		return nil // another host was faster
	}
	return err
}

// breaker reads whether calls of a tool are stopped, and the row that says so.
func (o *Operator) breaker(ctx context.Context, t keep.ToolName) (s breaker.State, row keep.Gate, err error) {
	if row, err = o.store.Gate(ctx, keep.ToolGate(t)); err == nil && len(row.State) > 0 {
		err = json.Unmarshal(row.State, &s)
	}
	if err != nil {
		err = fmt.Errorf("breaker of %s: %w", t, err)
	}
	return s, row, err
}
