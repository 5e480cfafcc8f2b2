package operator

import (
	"context"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
)

// SetPaused pauses or resumes a workflow. A call that is under way finishes and
// is recorded.
func (o *Operator) SetPaused(ctx context.Context, w keep.WorkflowName, paused bool) error {
	return o.decided(ctx, w, o.now(), keep.SetPaused{Paused: paused})
}

// Trigger asks for a run of a producer or job now. It is refused with
// keep.ErrRunOpen while the workflow waits for an unfinished run.
func (o *Operator) Trigger(ctx context.Context, w keep.WorkflowName, h keep.HandlerName) error {
	if o.cfg.Executor.Executing(w) {
		return fmt.Errorf("run %s of %s now: %w", h, w, keep.ErrRunOpen)
	}
	return o.decided(ctx, w, o.now(), keep.RequestRun{Handler: h})
}

// ResetCheckpoint makes a producer begin where it began at first: its ctx.kv is empty
// at its next run. Nobody sees what was in it. Events and inputs that it made before
// stay; what it publishes again under the same id is no new event. While the producer
// runs it is refused with ErrRunOpen, as far as this host knows; a run on another host
// may still store what it set.
func (o *Operator) ResetCheckpoint(ctx context.Context, w keep.WorkflowName, h keep.HandlerName) error {
	wf, err := o.store.Workflow(ctx, w)
	if err != nil {
		return err
	}
	d, err := o.store.Deployment(ctx, w, wf.Version)
	if err != nil {
		return err
	}
	def, ok := d.Definition.Handler(h)
	if !ok || def.Kind != keep.Producer {
		return &keep.NotFoundError{What: "producer", ID: string(w) + "/" + string(h)}
	}
	runs, err := o.store.OpenRuns(ctx, w)
	if err != nil {
		return err
	}
	runs = slices.DeleteFunc(runs, func(r keep.Run) bool { return r.Status != keep.StatusActive || r.Handler != h })
	if o.cfg.Executor.Executing(w) || len(runs) > 0 {
		return fmt.Errorf("reset the checkpoint of %s of %s: %w", h, w, keep.ErrRunOpen)
	}
	if err := o.decided(ctx, w, o.now(), keep.ResetKV{Producer: h}); err != nil {
		return err
	}
	o.log.InfoContext(ctx, "checkpoint reset", "workflow", w, "handler", h)
	return nil
}
