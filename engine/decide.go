package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/ledger"
	"github.com/keep-run/keep/lifecycle"
	"github.com/keep-run/keep/schedule"
)

// The methods of this file record what a person decides. They need no running
// engine, and they may run in another process than the one that has it: they
// read, decide by the law, and commit only if nothing moved meanwhile.

// An ActionError is returned when a question does not offer an action, or its
// subject is no longer in the state that the action needs.
type ActionError struct {
	ID     keep.EscalationID
	Action keep.Action
	Why    string
}

// Error names the question, the action and why it is refused.
func (e *ActionError) Error() string {
	return fmt.Sprintf("question %s: %s: %s", e.ID, e.Action, e.Why)
}

// Decide records a person's answer to a question, once: the second answer is
// keep.ErrDecided. What the action does is in DESIGN section 8.
func (e *Engine) Decide(ctx context.Context, id keep.EscalationID, d keep.Decision) error {
	const tries = 10 // what the question is about may move meanwhile; it rarely does twice
	for n := 1; ; n++ {
		err := e.decide(ctx, id, d)
		_, refused := errors.AsType[*ActionError](err)
		stale := errors.Is(err, keep.ErrStale)
		if !refused && !stale {
			return err
		}
		// Perhaps somebody answered after we had read the question.
		if q, readErr := e.store.Escalation(ctx, id); readErr == nil && !q.ClosedAt.IsZero() {
			return fmt.Errorf("question %s: %w", id, keep.ErrDecided)
		}
		if refused || n == tries {
			return err
		}
	}
}

func (e *Engine) decide(ctx context.Context, id keep.EscalationID, d keep.Decision) error {
	q, err := e.store.Escalation(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case !q.ClosedAt.IsZero():
		return fmt.Errorf("question %s: %w", id, keep.ErrDecided)
	case !q.Allows(d.Action):
		return &ActionError{id, d.Action, "it is not among the choices"}
	}
	run, err := e.store.Run(ctx, q.Run)
	if err != nil {
		return err
	}
	if run.Closed && !isDetached(q, run) {
		return &ActionError{id, d.Action, "the run is over"}
	}
	d.At = e.now()
	changes, err := e.effect(ctx, q, run, d)
	if err != nil {
		return err
	}
	changes = append(changes, keep.CloseEscalation{ID: id, Decision: &d})
	if err := e.commit(ctx, q.Workflow, 0, d.At, changes...); err != nil {
		return err
	}
	e.wake(q.Workflow)
	return nil
}

// effect returns the changes that an action causes.
func (e *Engine) effect(ctx context.Context, q keep.Escalation, run keep.Run, d keep.Decision) ([]keep.Change, error) {
	if isDetached(q, run) {
		return e.resolveDetached(ctx, q, run, d)
	}
	var m keep.Mutation
	if run.Mutation != "" {
		var err error
		if m, err = e.store.Mutation(ctx, run.Mutation); err != nil {
			return nil, err
		}
	}
	if q.Kind == keep.AskUnknownOutcome {
		return e.resolve(ctx, q, run, m, d)
	}
	switch d.Action {
	case keep.Retry:
		if lifecycle.Unknown(m.State) {
			return nil, &ActionError{q.ID, d.Action, "a retry never unblocks an unknown outcome"}
		}
		run.RetryAt, run.UpdatedAt = d.At, d.At
		return []keep.Change{keep.PutRun{Run: run}}, nil
	case keep.Approve:
		run.RetryAt, run.UpdatedAt = d.At, d.At
		return []keep.Change{keep.PutRun{Run: run}}, nil
	case keep.Reprocess:
		item, err := e.store.Item(ctx, run.Workflow, q.Item)
		if err != nil {
			return nil, err
		}
		run.RetryAt, run.UpdatedAt = d.At, d.At
		return []keep.Change{keep.PutRun{Run: run}, keep.PutItem{Item: lifecycle.Reprocess(item, d.At)}}, nil
	case keep.Skip, keep.Reject:
		if q.Item != "" {
			return e.skipItem(ctx, q, run, d)
		}
		return e.abort(ctx, q, run, m, d)
	}
	return nil, &ActionError{q.ID, d.Action, "not for a question of kind " + string(q.Kind)}
}

// resolve ends, or renews, the doubt about a mutation.
func (e *Engine) resolve(ctx context.Context, q keep.Escalation, run keep.Run, m keep.Mutation, d keep.Decision) ([]keep.Change, error) {
	changes, _, err := e.learn(ctx, q, m, d)
	if err != nil {
		return nil, err
	}
	if d.Action != keep.CheckAgain {
		run.RetryAt = d.At
	}
	run.UpdatedAt = d.At
	return append(changes, keep.PutRun{Run: run}), nil
}

// learn returns the changes that a decision causes to a mutation in doubt and its
// item, and the mutation as they leave it.
func (e *Engine) learn(ctx context.Context, q keep.Escalation, m keep.Mutation, d keep.Decision) ([]keep.Change, keep.Mutation, error) {
	evidence := map[keep.Action]ledger.Evidence{
		keep.CheckAgain: ledger.CheckAgain, keep.DidNotHappen: ledger.DidNotHappen, keep.Skip: ledger.Skip,
	}[d.Action]
	moved, move, err := ledger.Learn(m, ledger.Fact{Evidence: evidence, By: d.By, Detail: d.Note}, d.At)
	if err != nil {
		return nil, m, &ActionError{q.ID, d.Action, err.Error()}
	}
	changes := []keep.Change{keep.PutMutation{Mutation: moved, Moves: []keep.Move{move}}}
	if d.Action == keep.Skip && m.Item != "" {
		item, err := e.itemSkipped(ctx, m.Workflow, m.Item, d.At)
		if err != nil {
			return nil, m, err
		}
		changes = append(changes, item)
	}
	return changes, moved, nil
}

// skipItem leaves an item undone, and lets its job go on with the others.
func (e *Engine) skipItem(ctx context.Context, q keep.Escalation, run keep.Run, d keep.Decision) ([]keep.Change, error) {
	item, err := e.itemSkipped(ctx, run.Workflow, q.Item, d.At)
	if err != nil {
		return nil, err
	}
	run.RetryAt, run.UpdatedAt = d.At, d.At
	return []keep.Change{keep.PutRun{Run: run}, item}, nil
}

func (e *Engine) itemSkipped(ctx context.Context, w keep.WorkflowName, id string, now time.Time) (keep.Change, error) {
	item, err := e.store.Item(ctx, w, id)
	if err != nil {
		return nil, err
	}
	item.Status, item.UpdatedAt = keep.ItemSkipped, now
	return keep.PutItem{Item: item}, nil
}

// abort ends a run before its mutation: what it reserved, or else its trigger,
// is skipped.
func (e *Engine) abort(ctx context.Context, q keep.Escalation, run keep.Run, m keep.Mutation, d keep.Decision) ([]keep.Change, error) {
	if lifecycle.Settled(m.State) || lifecycle.Unknown(m.State) {
		return nil, &ActionError{q.ID, d.Action, "the mutation is " + string(m.State) + "; only the way forward is left"}
	}
	changes := []keep.Change{keep.PutRun{Run: lifecycle.Abort(run, d.At)}}
	if len(run.Reservations) > 0 {
		return append(changes, keep.Finish{Chain: run.Chain, Status: keep.EventSkipped}), nil
	}
	if run.Trigger.IsZero() {
		return changes, nil
	}
	events, err := e.store.EventsByID(ctx, run.Workflow, run.Trigger.Topic, []keep.MessageID{run.Trigger.MessageID})
	if err != nil {
		return nil, err
	}
	if len(events) == 1 && events[0].Free() {
		changes = append(changes, keep.SkipEvents{Topic: run.Trigger.Topic, IDs: []keep.MessageID{run.Trigger.MessageID}})
	}
	return changes, nil
}

// SetPaused pauses or resumes a workflow. A call that is under way finishes and
// is recorded.
func (e *Engine) SetPaused(ctx context.Context, w keep.WorkflowName, paused bool) error {
	if err := e.commit(ctx, w, 0, e.now(), keep.SetPaused{Paused: paused}); err != nil {
		return err
	}
	e.wake(w)
	return nil
}

// Trigger asks for a run of a producer or job now. It is refused with
// keep.ErrRunOpen while the workflow has an unfinished run.
func (e *Engine) Trigger(ctx context.Context, w keep.WorkflowName, h keep.HandlerName) error {
	if e.executes(w) {
		return fmt.Errorf("run %s of %s now: %w", h, w, keep.ErrRunOpen)
	}
	if err := e.commit(ctx, w, 0, e.now(), keep.RequestRun{Handler: h}); err != nil {
		return err
	}
	e.wake(w)
	return nil
}

// ResetCheckpoint makes a producer begin where it began at first: its ctx.kv is empty
// at its next run. Nobody sees what was in it. Events and inputs that it made before
// stay; what it publishes again under the same id is no new event. While the producer
// runs it is refused with ErrRunOpen, as far as this host knows; a run on another host
// may still store what it set.
func (e *Engine) ResetCheckpoint(ctx context.Context, w keep.WorkflowName, h keep.HandlerName) error {
	wf, err := e.store.Workflow(ctx, w)
	if err != nil {
		return err
	}
	d, err := e.store.Deployment(ctx, w, wf.Version)
	if err != nil {
		return err
	}
	def, ok := d.Definition.Handler(h)
	if !ok || def.Kind != keep.Producer {
		return &keep.NotFoundError{What: "producer", ID: string(w) + "/" + string(h)}
	}
	r, open, err := e.store.OpenRun(ctx, w)
	if err != nil {
		return err
	}
	if e.executes(w) || open && r.Status == keep.StatusActive && r.Handler == h {
		return fmt.Errorf("reset the checkpoint of %s of %s: %w", h, w, keep.ErrRunOpen)
	}
	if err := e.commit(ctx, w, 0, e.now(), keep.ResetKV{Producer: h}); err != nil {
		return err
	}
	e.log.InfoContext(ctx, "checkpoint reset", "workflow", w, "handler", h)
	e.wake(w)
	return nil
}

// executes reports whether this engine is at a run of w, which the store may not
// show before its first commit.
func (e *Engine) executes(w keep.WorkflowName) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.actors[w]
	return a != nil && a.isBusy
}

// Deploy makes a version current. If the script is the current one, nothing
// happens. A run that failed by logic is tried again with the new version; an
// unknown outcome stays as it is (DESIGN section 14).
func (e *Engine) Deploy(ctx context.Context, d keep.Deployment) (keep.Version, error) {
	return e.deployOver(ctx, d, nil)
}

// Replace is Deploy for whoever knows which version he replaces; the zero Version
// means that the workflow is new. If another one is current when it is committed,
// here or on another host, nothing is changed and the error is *keep.VersionError.
func (e *Engine) Replace(ctx context.Context, d keep.Deployment, over keep.Version) (keep.Version, error) {
	return e.deployOver(ctx, d, &over)
}

// deployOver deploys. Stores refuse a version that is not later than the current one,
// so what was read is still so when it is committed.
func (e *Engine) deployOver(ctx context.Context, d keep.Deployment, over *keep.Version) (keep.Version, error) {
	for {
		v, err := e.deploy(ctx, d, over)
		if !errors.Is(err, keep.ErrStale) {
			return v, err
		}
		// The workflow moved while we decided; look again.
	}
}

func (e *Engine) deploy(ctx context.Context, d keep.Deployment, over *keep.Version) (keep.Version, error) {
	now := e.now()
	var before keep.Deployment
	w, err := e.store.Workflow(ctx, d.Workflow)
	if over != nil && (err == nil || isNotFound(err)) && w.Version != *over {
		return keep.Version{}, &keep.VersionError{Workflow: d.Workflow, Want: *over, Current: w.Version}
	}
	switch {
	case err == nil:
		if before, err = e.store.Deployment(ctx, d.Workflow, w.Version); err != nil {
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
	states, err := e.store.Handlers(ctx, d.Workflow)
	if err != nil {
		return keep.Version{}, err
	}
	for _, h := range d.Definition.Handlers {
		s, err := e.deployedState(h, states, before, now)
		if err != nil {
			return keep.Version{}, fmt.Errorf("%s: %w", h.Name, err)
		}
		s.Workflow = d.Workflow
		changes = append(changes, keep.PutHandler{State: s})
	}
	unblock, err := e.unblock(ctx, d.Workflow, now)
	if err != nil {
		return keep.Version{}, err
	}
	if err := e.commit(ctx, d.Workflow, 0, now, append(changes, unblock...)...); err != nil {
		return keep.Version{}, err
	}
	e.wake(d.Workflow)
	return d.Version, nil
}

// deployedState returns the handler state that a new version starts with. A
// schedule that did not change keeps its next tick; every consumer looks again
// at the events it passed over.
func (e *Engine) deployedState(h keep.Handler, states []keep.HandlerState, before keep.Deployment, now time.Time) (keep.HandlerState, error) {
	s := keep.HandlerState{Handler: h.Name, Kind: h.Kind}
	if i := slices.IndexFunc(states, func(s keep.HandlerState) bool { return s.Handler == h.Name }); i >= 0 && states[i].Kind == h.Kind {
		s = states[i]
	}
	s.IdleSeq = 0
	if h.Kind == keep.Consumer {
		return s, nil
	}
	old, known := before.Definition.Handler(h.Name)
	if known && old.Schedule == h.Schedule && !s.NextAt.IsZero() {
		return s, nil
	}
	plan, err := schedule.Parse(h.Schedule, e.policy.DefaultInterval)
	if err != nil {
		return s, err
	}
	s.NextAt = plan.First(now)
	return s, nil
}

// unblock returns the changes that let a run go on that failed by logic.
func (e *Engine) unblock(ctx context.Context, w keep.WorkflowName, now time.Time) ([]keep.Change, error) {
	run, ok, err := e.store.OpenRun(ctx, w)
	if err != nil || !ok {
		return nil, err
	}
	next, yes := lifecycle.Deployed(run, now)
	if !yes {
		return nil, nil
	}
	return []keep.Change{keep.PutRun{Run: next}}, nil
}
