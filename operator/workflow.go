package operator

import (
	"context"
	"fmt"

	"github.com/keep-run/keep"
)

// Pause lets the call of a workflow that is under way finish, and nothing else begin. The note
// says why; it is shown until the workflow is resumed.
func (o *Operator) Pause(ctx context.Context, w keep.WorkflowName, note string) error {
	return o.decided(ctx, w, o.now(), keep.SetPaused{Paused: true, Note: note})
}

// PauseRunning is Pause of a workflow that is not paused, else keep.ErrStale: whoever paused it meanwhile keeps his note.
func (o *Operator) PauseRunning(ctx context.Context, w keep.WorkflowName, note string) error {
	return o.decided(ctx, w, o.now(), keep.SetPaused{Paused: true, Note: note, If: new(keep.PauseState)})
}

// ResumePaused is Resume of a workflow that is paused with that note, else keep.ErrStale.
func (o *Operator) ResumePaused(ctx context.Context, w keep.WorkflowName, note string) error {
	return o.decided(ctx, w, o.now(), keep.SetPaused{If: &keep.PauseState{Paused: true, Note: note}})
}

// Resume lets a paused workflow continue.
func (o *Operator) Resume(ctx context.Context, w keep.WorkflowName) error {
	return o.decided(ctx, w, o.now(), keep.SetPaused{})
}

// Trigger asks for a run of a producer or job now. It is refused with
// keep.ErrRunOpen while the workflow waits for an unfinished run.
func (o *Operator) Trigger(ctx context.Context, w keep.WorkflowName, h keep.HandlerName) error {
	if o.cfg.Executor.Executing(w) {
		return fmt.Errorf("run %s of %s now: %w", h, w, keep.ErrRunOpen)
	}
	return o.decided(ctx, w, o.now(), keep.RequestRun{Handler: h})
}
