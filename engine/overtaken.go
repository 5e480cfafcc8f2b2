package engine

import (
	"context"

	"github.com/keep-run/keep"
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
		s, stale, err := a.staleState(ctx, h)
		if err != nil {
			return err
		}
		if !stale {
			continue
		}
		before, err := a.e.store.Deployment(ctx, a.name, s.version)
		if err != nil {
			return err
		}
		state, err := schedule.Deployed(h, []keep.HandlerState{s.HandlerState}, before, a.e.policy.DefaultInterval, now)
		if err != nil {
			return err
		}
		a.states[h.Name] = state
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

// A versionState is a handler state and the version whose run wrote it.
type versionState struct {
	keep.HandlerState
	version keep.Version
}

// staleState returns the state of h, and whether a run of another version wrote
// it although the current one was deployed already.
func (a *actor) staleState(ctx context.Context, h keep.Handler) (versionState, bool, error) {
	s, known := a.states[h.Name]
	if !known || s.LastRun == "" || s.LastAt.Before(a.current.CreatedAt) {
		return versionState{}, false, nil
	}
	last, err := a.e.store.Run(ctx, s.LastRun)
	switch {
	case isNotFound(err):
		return versionState{}, false, nil
	case err != nil:
		return versionState{}, false, err
	}
	return versionState{s, last.Version}, last.Version != a.current.Version, nil
}

// declares reports whether the current version can carry on with the work of r.
func (a *actor) declares(ctx context.Context, r keep.Run) (bool, error) {
	_, ok, err := a.successor(ctx, r)
	return ok, err
}

// successor returns the handler of the current version that carries on with the work of r:
// that of the same name, or the job that keeps the same items, or the producer with the same
// checkpoint. It may have been renamed more than once since, or back.
func (a *actor) successor(ctx context.Context, r keep.Run) (keep.Handler, bool, error) {
	h, ok := successorIn(a.current.Definition, r)
	if ok || r.Kind == keep.Consumer || r.Version == a.current.Version {
		return h, ok, nil
	}
	d, err := a.e.store.Deployment(ctx, a.name, r.Version)
	if err != nil {
		return h, false, err
	}
	if was, known := d.Definition.Handler(r.Handler); known {
		h, ok = keptBy(a.current.Definition, r.Kind, was.ItemsOf())
	}
	return h, ok, nil
}

// successorIn returns the handler of a version that carries on with the work of r, as far as
// the name of its handler tells.
func successorIn(def keep.Definition, r keep.Run) (keep.Handler, bool) {
	if h, ok := def.Handler(r.Handler); ok {
		return h, h.Kind == r.Kind
	}
	if r.Kind == keep.Consumer {
		return keep.Handler{}, false
	}
	return keptBy(def, r.Kind, string(r.Handler))
}

// keptBy returns the job or producer of a version that keeps its items or its checkpoint under a name.
func keptBy(def keep.Definition, kind keep.Kind, name string) (keep.Handler, bool) {
	for _, h := range def.Handlers {
		if h.Kind == kind && h.ItemsOf() == name {
			return h, true
		}
	}
	return keep.Handler{}, false
}
