package operator

import (
	"context"
	"fmt"

	"github.com/keep-run/keep"
)

// Pause lets the call of a workflow that is under way finish, and nothing else begin. The note of d
// says why; it is shown until the workflow is resumed. Of a workflow that is paused already it takes the place of the note.
func (o *Operator) Pause(ctx context.Context, w keep.WorkflowName, d keep.Decision) error {
	return o.setPaused(ctx, w, keep.PauseState{Paused: true, Note: d.Note}, d)
}

// PauseRunning is Pause of a workflow that is not paused, else keep.ErrStale: whoever paused it meanwhile keeps his note.
func (o *Operator) PauseRunning(ctx context.Context, w keep.WorkflowName, d keep.Decision) error {
	return o.setPausedOver(ctx, w, keep.PauseState{}, keep.PauseState{Paused: true, Note: d.Note}, d)
}

// ResumePaused is Resume of a workflow that is paused with that note, else keep.ErrStale.
func (o *Operator) ResumePaused(ctx context.Context, w keep.WorkflowName, note string, d keep.Decision) error {
	return o.setPausedOver(ctx, w, keep.PauseState{Paused: true, Note: note}, keep.PauseState{}, d)
}

// Resume lets a paused workflow continue.
func (o *Operator) Resume(ctx context.Context, w keep.WorkflowName, d keep.Decision) error {
	return o.setPaused(ctx, w, keep.PauseState{}, d)
}

// setPaused pauses or resumes a workflow, whatever it is. One that is so already is left as it is: nothing was decided.
func (o *Operator) setPaused(ctx context.Context, w keep.WorkflowName, to keep.PauseState, d keep.Decision) error {
	_, err := retryStale(ctx, func() (none struct{}, err error) {
		wf, err := o.store.Workflow(ctx, w)
		if err != nil {
			return none, err
		}
		is := keep.PauseState{Paused: wf.Paused, Note: wf.PauseNote}
		if is == to {
			return none, nil
		}
		return none, o.setPausedOver(ctx, w, is, to, d)
	})
	return err
}

// setPausedOver pauses or resumes a workflow that is paused, or not, as over says, else keep.ErrStale.
func (o *Operator) setPausedOver(ctx context.Context, w keep.WorkflowName, over, to keep.PauseState, d keep.Decision) error {
	now, action := o.now(), keep.Resume
	if to.Paused {
		action = keep.Pause
	}
	return o.decided(ctx, w, now, keep.SetPaused{Paused: to.Paused, Note: to.Note, If: &over}, decidedAbout(w.Subject(), action, d, now))
}

// Trigger asks for a run of a producer or job now. It is refused with
// keep.ErrRunOpen while the workflow waits for an unfinished run.
func (o *Operator) Trigger(ctx context.Context, w keep.WorkflowName, h keep.HandlerName, d keep.Decision) error {
	if o.cfg.Executor.Executing(w) {
		return fmt.Errorf("run %s of %s now: %w", h, w, keep.ErrRunOpen)
	}
	def, err := o.definition(ctx, w)
	if err != nil {
		return err
	}
	about := keep.Handler{Name: h} // of a version before, perhaps: the commit says whether there is one
	if of, ok := def.Handler(h); ok {
		about = of
	}
	now := o.now()
	return o.decided(ctx, w, now, keep.RequestRun{Handler: h}, decidedAbout(about.Subject(w), keep.Trigger, d, now))
}

// definition returns what the current version of a workflow declares.
func (o *Operator) definition(ctx context.Context, w keep.WorkflowName) (keep.Definition, error) {
	wf, err := o.store.Workflow(ctx, w)
	if err != nil {
		return keep.Definition{}, err
	}
	v, err := o.store.Deployment(ctx, w, wf.Version)
	return v.Definition, err
}
