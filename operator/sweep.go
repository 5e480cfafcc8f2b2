package operator

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/policy"
)

// A sweep reads so many runs at once, and forgets so many chains in a commit: a few
// milliseconds of the one writer.
const (
	sweepLook  = 500
	sweepBatch = 20

	sweepTraces = 200 // parts of traces
)

// Swept says what a sweep forgot.
type Swept struct{ Chains, Runs, Mutations int }

// add counts a chain.
func (s *Swept) add(c keep.OldChain) {
	s.Chains++
	s.Runs += c.Runs
	s.Mutations += c.Mutations
}

// Sweep forgets what is over and older than r says, in small
// commits. It may end at any moment, with ctx or with the process: each chain is
// there whole or not at all, and a later sweep continues. On a database of several hosts
// it takes the workflows that this one has; without an Executor it takes all.
//
// Each, if not nil, is called with what was forgotten so far after every commit; it may
// rest, for the sake of others who write. With preview nothing is forgotten: the result
// is what would be.
func (o *Operator) Sweep(ctx context.Context, r policy.Retention, preview bool, each func(Swept)) (done Swept, err error) {
	now := o.now()
	if !preview {
		if err := o.noteAsked(ctx); err != nil {
			return done, err
		}
	}
	all, err := o.store.Workflows(ctx)
	if err != nil {
		return done, err
	}
	for _, w := range all {
		if before, some := r.EmptyBefore(w.Name, now); some {
			if err := o.sweepRuns(ctx, keep.OldRuns{Workflow: w.Name, Before: before, Empty: true}, preview, &done, each); err != nil {
				return done, err
			}
		}
		before, some := r.Before(w.Name, now)
		if !some {
			continue
		}
		if first := now.Add(-o.longestBudget()); before.After(first) {
			before = first // what counts in a budget is not forgotten (law: within-budget)
		}
		if err := o.sweepRuns(ctx, keep.OldRuns{Workflow: w.Name, Before: before}, preview, &done, each); err != nil {
			return done, err
		}
	}
	return done, nil
}

// SweepTraces forgets what runs saw that is older than r says, in small steps, and returns how
// many parts that were. Preview, each and ctx are those of Sweep.
func (o *Operator) SweepTraces(ctx context.Context, r policy.Retention, preview bool, each func()) (gone int, err error) {
	if r.Traces <= 0 {
		return 0, nil
	}
	before := o.now().Add(-r.Traces)
	if preview {
		return o.store.OldTraces(ctx, before)
	}
	for {
		n, err := o.store.ForgetTraces(ctx, before, sweepTraces)
		gone += n
		if err != nil || n < sweepTraces {
			return gone, err
		}
		each()
		if err := context.Cause(ctx); err != nil {
			return gone, err
		}
	}
}

// sweepRuns forgets old chains of one workflow.
func (o *Operator) sweepRuns(ctx context.Context, r keep.OldRuns, preview bool, done *Swept, each func(Swept)) error {
	for after := ""; ; {
		epoch, ours := o.cfg.Executor.Epoch(r.Workflow)
		if !ours && !preview {
			return nil // its host sweeps it
		}
		old, next, err := o.store.Over(ctx, r, after, sweepLook)
		if err != nil {
			return err
		}
		for part := range slices.Chunk(old, sweepBatch) {
			if preview {
				for _, c := range part {
					done.add(c)
				}
				continue
			}
			if err := o.forget(ctx, r.Workflow, epoch, r.Before, part, done); err != nil {
				return err
			}
			if each != nil {
				each(*done)
			}
			if err := context.Cause(ctx); err != nil {
				return err
			}
		}
		if after = next; next == "" {
			return nil
		}
	}
}

// forget makes one commit. If something moved since it was read, each chain is tried
// by itself, and those that are not over any more are left.
func (o *Operator) forget(ctx context.Context, w keep.WorkflowName, epoch int64, before time.Time, part []keep.OldChain, done *Swept) error {
	var changes []keep.Change
	for _, c := range part {
		changes = append(changes, keep.Sweep{Chain: c.Chain, Before: before})
	}
	err := o.commit(ctx, w, epoch, o.now(), changes...)
	switch {
	case err == nil:
		for _, c := range part {
			done.add(c)
		}
		return nil
	case errors.Is(err, keep.ErrFenced):
		return nil // another host has the workflow now
	case !errors.Is(err, keep.ErrStale) && !isNotFound(err):
		return err
	case len(part) == 1:
		return nil
	}
	for i := range part {
		if err := o.forget(ctx, w, epoch, before, part[i:i+1], done); err != nil {
			return err
		}
	}
	return nil
}
