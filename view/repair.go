package view

import (
	"context"
	"errors"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/store"
)

// Waited is what runs may wait for besides what they say themselves. It is wide because a run
// waits for a connection, a repair, a version, or its workflow to be resumed.
type Waited interface {
	store.Workflows
	store.Limits
	store.RepairRecords
	store.Proposals
}

// A Waits says what runs wait for.
type Waits struct {
	limits   Limits
	repairs  map[string]law.Record                 // by the id of their signature
	proposed map[keep.WorkflowName][]keep.Proposal // of workflows with repairs that made one
	paused   map[keep.WorkflowName]bool            // of workflows whose runs are planned
}

// ReadWaits reads what the runs may wait for. It reads nothing if none waits for a service, for another script or for a
// time.
func ReadWaits(ctx context.Context, s Waited, runs ...keep.Run) (w Waits, err error) {
	if w.limits, err = ReadLimits(ctx, s, runs...); err != nil {
		return w, err
	}
	for _, r := range runs {
		sig, ok := law.SignatureOf(r)
		if !ok || !lifecycle.NeedsScript(r) {
			continue
		}
		if err := w.readRepair(ctx, s, sig); err != nil {
			return w, err
		}
	}
	w.paused, err = pausedOf(ctx, s, runs)
	return w, err
}

// pausedOf reads which workflows of runs that a host continues by itself are paused.
func pausedOf(ctx context.Context, s store.Workflows, runs []keep.Run) (map[keep.WorkflowName]bool, error) {
	paused := make(map[keep.WorkflowName]bool)
	for _, r := range runs {
		if !r.Closed && lifecycle.WaitsForTime(r) {
			paused[r.Workflow] = false
		}
	}
	if len(paused) == 0 {
		return nil, nil
	}
	list := make([]keep.Workflow, 1)
	var err error
	if len(paused) > 1 {
		list, err = s.Workflows(ctx)
	} else {
		for name := range paused {
			list[0], err = s.Workflow(ctx, name)
		}
	}
	for _, w := range list {
		paused[w.Name] = w.Paused
	}
	return paused, ignoreMissing(err)
}

// readRepair reads what is done about a failure.
func (w *Waits) readRepair(ctx context.Context, s Waited, sig law.Signature) error {
	if _, known := w.repairs[sig.ID()]; known {
		return nil
	}
	var rec law.Record
	stored, err := s.Repair(ctx, sig.ID())
	switch {
	case err == nil:
		if rec, err = law.ReadRecord(stored); err != nil {
			return err
		}
	case !errors.Is(err, keep.ErrNotFound):
		return err
	}
	if w.repairs == nil {
		w.repairs, w.proposed = make(map[string]law.Record), make(map[keep.WorkflowName][]keep.Proposal)
	}
	w.repairs[sig.ID()] = rec
	if _, known := w.proposed[sig.Workflow]; !known && rec.Proposal() != nil {
		w.proposed[sig.Workflow], err = s.Proposals(ctx, sig.Workflow)
		return err
	}
	return nil
}

// WaitOf returns what r waits for.
func (w Waits) WaitOf(r keep.Run, m keep.Mutation) lifecycle.Wait {
	out := w.limits.WaitOf(r, m)
	if w.paused[r.Workflow] && !lifecycle.Completes(r, m) {
		return out.Paused()
	}
	sig, ok := law.SignatureOf(r)
	if !ok || out.Kind != lifecycle.WaitsForScript {
		return out
	}
	rec := w.repairs[sig.ID()]
	if text := rec.Waits(); text != "" {
		return out.Repaired(text)
	}
	if rec.Proposal() == nil {
		return out
	}
	list := w.proposed[r.Workflow]
	i := slices.IndexFunc(list, func(p keep.Proposal) bool { return p.IsRepair() && p.By == sig.ID() })
	if i >= 0 && list[i].State == keep.ProposalWaiting {
		return out.Proposed(list[i].Version.String())
	}
	return out
}
