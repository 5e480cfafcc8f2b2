package memory

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// deploy adds a version that is later than the current one, and makes it current.
func (t *tx) deploy(d keep.Deployment) error {
	if err := t.own("deployment", d.Version, d.Workflow); err != nil {
		return err
	}
	w, exists := t.s.workflows[d.Workflow]
	if older(d.Version, w.Version) || d.Version == w.Version {
		return fmt.Errorf("deploy %s after %s: %w", d.Version, w.Version, keep.ErrStale)
	}
	if t.proposed(d.Version, true) {
		return fmt.Errorf("deploy %s beside a proposal: %w", d.Version, keep.ErrStale)
	}
	if !exists {
		w = keep.Workflow{Name: d.Workflow, CreatedAt: t.at}
		put(t, t.s.leases, w.Name, lease{Lease: keep.Lease{Workflow: w.Name, Since: t.at}})
	}
	w.Version, w.UpdatedAt = d.Version, t.at
	put(t, t.s.workflows, w.Name, w)
	put(t, t.s.deployments, w.Name, append(slices.Clone(t.s.deployments[w.Name]), row[keep.Deployment]{t.next(), d}))
	return nil
}

// older reports whether version a came before b.
func older(a, b keep.Version) bool {
	return a.Major < b.Major || a.Major == b.Major && a.Minor < b.Minor
}

// setPaused pauses or resumes the workflow.
func (t *tx) setPaused(c keep.SetPaused) error {
	if !c.Paused && c.Note != "" {
		return errors.New("a resume has no note")
	}
	w, ok := t.s.workflows[t.workflow]
	if !ok {
		return &keep.NotFoundError{What: "workflow", ID: string(t.workflow)}
	}
	if c.If != nil && (w.Paused != c.If.Paused || w.PauseNote != c.If.Note) {
		return keep.ErrStale
	}
	if c.IsCondition() {
		return nil
	}
	w.Paused, w.PauseNote, w.UpdatedAt = c.Paused, c.Note, t.at
	put(t, t.s.workflows, w.Name, w)
	return nil
}

// putHandler writes a state, and clears a request that was made at or before
// Served.
func (t *tx) putHandler(c keep.PutHandler) error {
	h, served := c.State, clean(c.Served)
	if err := t.own("handler", h.Handler, h.Workflow); err != nil {
		return err
	}
	if h.Handler == "" || !slices.Contains(keep.Kinds(), h.Kind) {
		return fmt.Errorf("handler %q: unknown kind %q", h.Handler, h.Kind)
	}
	key := handlerKey{h.Workflow, h.Handler}
	h = copyHandlerState(c.Merged(t.s.handlers[key]))
	h.RequestedAt = t.s.handlers[key].RequestedAt
	if !h.RequestedAt.After(served) {
		h.RequestedAt = time.Time{}
	}
	put(t, t.s.handlers, key, h)
	return nil
}

// requestRun asks for a run as soon as the workflow is free.
func (t *tx) requestRun(name keep.HandlerName) error {
	for _, lane := range []keep.Lane{keep.WorkflowLane, keep.HandlerLane(name)} {
		if open, ok := t.s.open[laneKey{t.workflow, lane}]; ok {
			return fmt.Errorf("run %s now: %w: %s", name, keep.ErrRunOpen, open)
		}
	}
	key := handlerKey{t.workflow, name}
	h, ok := t.s.handlers[key]
	if !ok {
		return &keep.NotFoundError{What: "handler", ID: string(name)}
	}
	h.RequestedAt = t.requested(h)
	put(t, t.s.handlers, key, h)
	return nil
}

// lookAgain makes a consumer look at all its events.
func (t *tx) lookAgain(name keep.HandlerName) error {
	key := handlerKey{t.workflow, name}
	h, ok := t.s.handlers[key]
	if !ok {
		return &keep.NotFoundError{What: "handler", ID: string(name)}
	}
	h.IdleSeq, h.RequestedAt = 0, t.requested(h)
	put(t, t.s.handlers, key, h)
	return nil
}

// requested returns when a request counts as made: after the one before it.
func (t *tx) requested(h keep.HandlerState) time.Time {
	if at := h.RequestedAt; !at.IsZero() && !t.at.After(at) {
		return at.Add(time.Millisecond)
	}
	return t.at
}

// setKV sets one value of a checkpoint; nil deletes it.
func (t *tx) setKV(c keep.SetKV) error {
	key := kvKey{handlerKey{t.workflow, c.Producer}, c.Key}
	if c.Value == nil {
		drop(t, t.s.kv, key)
	} else {
		put(t, t.s.kv, key, slices.Clone([]byte(c.Value)))
	}
	return nil
}

// ifKV refuses the commit if a value of a checkpoint is another one.
func (t *tx) ifKV(c keep.IfKV) error {
	is, ok := t.s.kv[kvKey{handlerKey{t.workflow, c.Producer}, c.Key}]
	if ok != (c.Value != nil) || !bytes.Equal(is, c.Value) {
		return fmt.Errorf("%s of %s was decided by another value: %w", c.Key, c.Producer, keep.ErrStale)
	}
	return nil
}

// resetKV deletes a whole checkpoint.
func (t *tx) resetKV(producer keep.HandlerName) error {
	for key := range t.s.kv {
		if key.handlerKey == (handlerKey{t.workflow, producer}) {
			drop(t, t.s.kv, key)
		}
	}
	return nil
}
