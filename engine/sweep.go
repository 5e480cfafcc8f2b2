package engine

import (
	"context"
	"errors"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/policy"
)

// A Sweeper finds what is over and old, for keep.Sweep.
type Sweeper interface {
	// Over looks at up to limit runs, oldest first, from a place on: that of the
	// first call is empty. It returns the chains that begin there and that keep.Sweep
	// would take, and the place to go on from; it is empty at the end.
	Over(ctx context.Context, before time.Time, after string, limit int) (old []keep.OldChain, next string, err error)
}

// A sweep looks at so many runs at once, and forgets so many chains in a commit: a few
// milliseconds of the one writer.
const (
	sweepLook  = 500
	sweepBatch = 20
)

// Swept says what a sweep forgot.
type Swept struct{ Chains, Runs, Mutations int }

// add counts a chain.
func (s *Swept) add(c keep.OldChain) {
	s.Chains++
	s.Runs += c.Runs
	s.Mutations += c.Mutations
}

// Sweep forgets what is over and older than r says (DESIGN section 5), in small
// commits. It may end at any moment, with ctx or with the process: each chain is
// there whole or not at all, and a later sweep goes on. On a database of several hosts
// it takes the workflows that this one has; an engine that does not Run takes all.
//
// Each, if not nil, is called with what was forgotten so far after every commit; it may
// rest, for the sake of others who write. With preview nothing is forgotten: the result
// is what would be.
func (e *Engine) Sweep(ctx context.Context, r policy.Retention, preview bool, each func(Swept)) (done Swept, err error) {
	now := e.now()
	latest, some := r.Latest(now)
	if !some {
		return done, nil
	}
	for after := ""; ; {
		old, next, err := e.store.Over(ctx, latest, after, sweepLook)
		if err != nil {
			return done, err
		}
		of := make(map[keep.WorkflowName][]keep.OldChain)
		for _, c := range old {
			if before, some := r.Before(c.Workflow, now); some && c.At.Before(before) {
				of[c.Workflow] = append(of[c.Workflow], c)
			}
		}
		for _, w := range sortedKeys(of) {
			before, _ := r.Before(w, now)
			if err := e.sweepSome(ctx, w, before, of[w], preview, &done, each); err != nil {
				return done, err
			}
		}
		if after = next; next == "" {
			return done, nil
		}
	}
}

// sweepSome forgets chains of one workflow.
func (e *Engine) sweepSome(ctx context.Context, w keep.WorkflowName, before time.Time, old []keep.OldChain, preview bool, done *Swept, each func(Swept)) error {
	for len(old) > 0 {
		part := old[:min(len(old), sweepBatch)]
		old = old[len(part):]
		if preview {
			for _, c := range part {
				done.add(c)
			}
			continue
		}
		epoch, ours := e.epochOf(w)
		if !ours {
			return nil // its host sweeps it
		}
		if err := e.forget(ctx, w, epoch, before, part, done); err != nil {
			return err
		}
		if each != nil {
			each(*done)
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// forget makes one commit. If something moved since it was read, each chain is tried
// by itself, and those that are not over any more are left.
func (e *Engine) forget(ctx context.Context, w keep.WorkflowName, epoch int64, before time.Time, part []keep.OldChain, done *Swept) error {
	var changes []keep.Change
	for _, c := range part {
		changes = append(changes, keep.Sweep{Chain: c.Chain, Before: before})
	}
	err := e.commit(ctx, w, epoch, e.now(), changes...)
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
		if err := e.forget(ctx, w, epoch, before, part[i:i+1], done); err != nil {
			return err
		}
	}
	return nil
}

// epochOf returns the epoch under which this engine commits to a workflow, and false
// if that is another host's.
func (e *Engine) epochOf(w keep.WorkflowName) (epoch int64, ours bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tenure == nil {
		return 0, true
	}
	a := e.actors[w]
	if a == nil {
		return 0, false
	}
	return a.epoch, true
}
