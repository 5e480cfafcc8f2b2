package engine

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/schedule"
)

// overtaken repairs what a run of an older version wrote after the current version
// was deployed: the deploy could not see the run that was executing. What it
// would have done to the handler's state and to a failed run is done here, once
// for each version and host.
func (a *actor) overtaken(ctx context.Context) error {
	if a.settled == a.current.Version {
		return nil
	}
	now := a.e.Now()
	var changes []keep.Change
	for _, h := range a.current.Definition.Handlers {
		stale, by, err := a.staleStates(ctx, h)
		if err != nil {
			return err
		}
		if len(stale) == 0 {
			continue
		}
		state, err := a.redeployed(ctx, h, stale, by)
		if err != nil {
			return err
		}
		if schedule.Same(state, a.states[h.Name]) {
			continue // as the deploy left it
		}
		state.Workflow, a.states[h.Name] = a.name, state
		changes = append(changes, keep.PutHandler{State: state})
	}
	for _, o := range a.open {
		r := o.Run
		next, yes := lifecycle.Deployed(r, now)
		if !yes || !r.RetryAt.IsZero() && !lifecycle.AwaitsApproval(r) || r.Version == a.current.Version {
			continue
		}
		if declared, err := a.declares(ctx, r); err != nil {
			return err
		} else if declared {
			changes = append(changes, keep.PutRun{Run: next})
		}
	}
	if len(changes) > 0 {
		if err := a.commit(ctx, now, changes...); err != nil {
			return err
		}
		if err := a.loadOpen(ctx); err != nil {
			return err
		}
	}
	a.settled = a.current.Version
	return nil
}

// redeployed returns the state of h as a deploy over a version leaves it. A tick since the deploy is due.
func (a *actor) redeployed(ctx context.Context, h keep.Handler, stale []keep.HandlerState, by keep.Version) (keep.HandlerState, error) {
	before, err := a.e.store.Deployment(ctx, a.name, by)
	if err != nil {
		return keep.HandlerState{}, err
	}
	return schedule.Deployed(h, stale, before, a.e.policy.DefaultInterval, a.current.CreatedAt)
}

// staleStates returns the state of h, with that of a handler which is h by now and ran later, if a run of another version
// wrote the later one although the current version was deployed already, and that version; none: no run did.
func (a *actor) staleStates(ctx context.Context, h keep.Handler) (states []keep.HandlerState, by keep.Version, err error) {
	own := a.states[h.Name]
	if by, err = a.overtook(ctx, own, h); err != nil {
		return nil, by, err
	}
	if !by.IsZero() {
		states = append(states, own)
	}
	for name, s := range a.states {
		if _, declared := a.current.Definition.Handler(name); declared || s.Kind != h.Kind || !s.LastAt.After(own.LastAt) {
			continue
		}
		if v, err := a.overtook(ctx, s, h); err != nil {
			return nil, by, err
		} else if !v.IsZero() {
			return []keep.HandlerState{own, s}, v, nil
		}
	}
	return states, by, nil
}

// overtook returns the version of the run that wrote s, the state of h or of what it was called, although the current version was
// deployed already, or perhaps was: another host may have deployed it, by a clock that is ahead. Zero: it wrote it before, or is none of h.
func (a *actor) overtook(ctx context.Context, s keep.HandlerState, h keep.Handler) (v keep.Version, err error) {
	if s.LastRun == "" || s.LastAt.Before(a.current.CreatedAt.Add(-ledger.ClockTolerance)) {
		return v, nil
	}
	last, err := a.e.store.Run(ctx, s.LastRun)
	if isNotFound(err) || err == nil && last.Version == a.current.Version {
		return v, nil
	}
	if err != nil || s.Handler == h.Name {
		return last.Version, err
	}
	now, ok, err := a.successor(ctx, last)
	if !ok || now.Name != h.Name {
		return v, err
	}
	return last.Version, err
}

// declares reports whether the current version can carry on with the work of r.
func (a *actor) declares(ctx context.Context, r keep.Run) (bool, error) {
	_, ok, err := a.successor(ctx, r)
	return ok, err
}

// successor returns the handler of the current version that carries on with the work of r:
// that of the same name, or the one that had the same name first. It may have been renamed more
// than once since, or back.
func (a *actor) successor(ctx context.Context, r keep.Run) (keep.Handler, bool, error) {
	h, ok := a.current.Definition.Carrier(r.Kind, r.Handler)
	if ok || r.Version == a.current.Version {
		return h, ok, nil
	}
	first, err := a.firstName(ctx, r)
	if err != nil {
		return h, false, err
	}
	h, ok = a.current.Definition.FirstNamed(r.Kind, first)
	return h, ok, nil
}

// A versionHandler is a handler of a version.
type versionHandler struct {
	version keep.Version
	name    keep.HandlerName
}

// firstName returns the first name that the handler of a run had, as the version of the run says; empty: it is not known.
func (a *actor) firstName(ctx context.Context, r keep.Run) (string, error) {
	of := versionHandler{r.Version, r.Handler}
	if first, known := a.firsts[of]; known {
		return first, nil
	}
	d, err := a.e.store.Deployment(ctx, a.name, r.Version)
	if err != nil && !isNotFound(err) {
		return "", err
	}
	var first string
	if h, known := d.Definition.Handler(r.Handler); known {
		first = h.ItemsOf()
	}
	a.firsts[of] = first
	return first, nil
}
