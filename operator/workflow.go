package operator

import (
	"context"
	"fmt"

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
