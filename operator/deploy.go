package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/schedule"
)

// Deploy makes a version current. If the script is the current one, nothing
// happens. A run that failed by logic is tried again with the new version; an
// unknown outcome stays as it is.
func (o *Operator) Deploy(ctx context.Context, d keep.Deployment) (keep.Version, error) {
	return o.deployOver(ctx, d, nil)
}

// Replace is Deploy for whoever knows which version he replaces; the zero Version
// means that the workflow is new. If another one is current when it is committed,
// here or on another host, nothing is changed and the error is *keep.VersionError.
func (o *Operator) Replace(ctx context.Context, d keep.Deployment, over keep.Version) (keep.Version, error) {
	return o.deployOver(ctx, d, &over)
}

// deployOver deploys. Stores refuse a version that is not later than the current one,
// so what was read is still so when it is committed.
func (o *Operator) deployOver(ctx context.Context, d keep.Deployment, over *keep.Version) (keep.Version, error) {
	for {
		v, err := o.deploy(ctx, d, over)
		if !errors.Is(err, keep.ErrStale) {
			return v, err
		}
		// The workflow moved while we decided; look again.
	}
}

func (o *Operator) deploy(ctx context.Context, d keep.Deployment, over *keep.Version) (keep.Version, error) {
	now := o.now()
	var before keep.Deployment
	w, err := o.store.Workflow(ctx, d.Workflow)
	if over != nil && (err == nil || isNotFound(err)) && w.Version != *over {
		return keep.Version{}, &keep.VersionError{Workflow: d.Workflow, Want: *over, Current: w.Version}
	}
	switch {
	case err == nil:
		if before, err = o.store.Deployment(ctx, d.Workflow, w.Version); err != nil {
			return keep.Version{}, err
		}
		if before.Hash == d.Hash && before.Entry == d.Entry {
			return before.Version, nil
		}
	case !isNotFound(err):
		return keep.Version{}, err
	}
	d.Version, d.CreatedAt = keep.Version{Major: before.Version.Major + 1}, now
	changes := []keep.Change{keep.Deploy{Deployment: d}}
	states, err := o.store.Handlers(ctx, d.Workflow)
	if err != nil {
		return keep.Version{}, err
	}
	for _, h := range d.Definition.Handlers {
		s, err := schedule.Deployed(h, states, before, o.policy.DefaultInterval, now)
		if err != nil {
			return keep.Version{}, fmt.Errorf("%s: %w", h.Name, err)
		}
		s.Workflow = d.Workflow
		changes = append(changes, keep.PutHandler{State: s})
	}
	unblock, err := o.unblock(ctx, d.Workflow, now)
	if err != nil {
		return keep.Version{}, err
	}
	if err := o.decided(ctx, d.Workflow, now, append(changes, unblock...)...); err != nil {
		return keep.Version{}, err
	}
	return d.Version, nil
}

// unblock returns the changes that let runs continue that failed by logic.
func (o *Operator) unblock(ctx context.Context, w keep.WorkflowName, now time.Time) ([]keep.Change, error) {
	runs, err := o.store.OpenRuns(ctx, w)
	if err != nil {
		return nil, err
	}
	var changes []keep.Change
	for _, run := range runs {
		if next, yes := lifecycle.Deployed(run, now); yes {
			changes = append(changes, keep.PutRun{Run: next})
		}
	}
	return changes, nil
}
