package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/lifecycle"
)

// A SkipResult says what became of the events that a person skipped.
type SkipResult struct {
	Skipped  int          // marked skipped
	Aborted  []keep.RunID // runs that were ended before their mutation, their other events released
	TooLate  int          // their run is past its mutation, or in doubt: it completes
	Finished int          // were consumed or skipped already
}

// SkipEvents leaves events of a topic undone (DESIGN section 5). A pending event
// is marked skipped. One that is reserved by a run before its mutation ends that
// run, whose other events are released. After that the run completes.
func (e *Engine) SkipEvents(ctx context.Context, w keep.WorkflowName, topic keep.TopicName, ids []keep.MessageID) (SkipResult, error) {
	return e.retryStale(ctx, func() (SkipResult, error) {
		events, err := e.store.EventsByID(ctx, w, topic, ids)
		if err != nil {
			return SkipResult{}, err
		}
		if len(events) < len(ids) {
			return SkipResult{}, &keep.NotFoundError{What: "event in topic " + string(topic), ID: string(missing(ids, events))}
		}
		return e.skip(ctx, w, events, nil)
	})
}

// SkipInput leaves an input undone: every event that it caused is skipped as
// SkipEvents does, and the input is marked skipped.
func (e *Engine) SkipInput(ctx context.Context, w keep.WorkflowName, id keep.InputID) (SkipResult, error) {
	return e.retryStale(ctx, func() (SkipResult, error) {
		events, err := e.causedBy(ctx, w, id)
		if err != nil {
			return SkipResult{}, err
		}
		return e.skip(ctx, w, events, []keep.Change{keep.SkipInput{Input: id}})
	})
}

// causedBy returns every event that an input caused.
func (e *Engine) causedBy(ctx context.Context, w keep.WorkflowName, id keep.InputID) (events []keep.Event, err error) {
	for page := (keep.Page{Limit: 1000, Bare: true}); ; {
		some, next, err := e.store.Events(ctx, keep.EventFilter{Workflow: w, Input: id}, page)
		if err != nil {
			return nil, err
		}
		events = append(events, some...)
		if page.After = next; next == "" {
			return events, nil
		}
	}
}

// retryStale repeats f when a record moved between its reading and its commit.
func (e *Engine) retryStale(ctx context.Context, f func() (SkipResult, error)) (SkipResult, error) {
	for {
		res, err := f()
		if !moved(err) || ctx.Err() != nil {
			return res, err
		}
	}
}

// moved reports whether a commit was refused since something moved after it was read.
func moved(err error) bool {
	_, taken := errors.AsType[*keep.ReservationError](err)
	return taken || errors.Is(err, keep.ErrStale)
}

// skip commits what skipping events causes, with more changes behind.
func (e *Engine) skip(ctx context.Context, w keep.WorkflowName, events []keep.Event, more []keep.Change) (SkipResult, error) {
	now := e.now()
	var res SkipResult
	var changes []keep.Change
	free := make(map[keep.TopicName][]keep.MessageID)
	run, open, err := e.store.OpenRun(ctx, w)
	if err != nil {
		return res, err
	}
	var held []keep.Event
	for _, ev := range events {
		switch {
		case ev.Status != keep.EventPending:
			res.Finished++
		case ev.ReservedBy == "":
			free[ev.Topic] = append(free[ev.Topic], ev.MessageID)
		case open && ev.ReservedBy == run.Chain:
			held = append(held, ev)
		default:
			return res, fmt.Errorf("event %s in topic %s is reserved by %s, which is not the open run", ev.MessageID, ev.Topic, ev.ReservedBy)
		}
	}
	if len(held) > 0 {
		aborted, err := e.abortable(ctx, run)
		if err != nil {
			return res, err
		}
		if aborted {
			changes = append(changes, endRun(run, now)...)
			closing, err := e.closeQuestions(ctx, run)
			if err != nil {
				return res, err
			}
			changes = append(changes, closing...)
			for _, ev := range held {
				free[ev.Topic] = append(free[ev.Topic], ev.MessageID)
			}
			res.Aborted = []keep.RunID{run.ID}
		} else {
			res.TooLate = len(held)
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(free)) {
		changes = append(changes, keep.SkipEvents{Topic: topic, IDs: free[topic]})
		res.Skipped += len(free[topic])
	}
	changes = append(changes, more...)
	if len(changes) == 0 {
		return res, nil
	}
	if err := e.commit(ctx, w, 0, now, changes...); err != nil {
		return res, err
	}
	e.wake(w)
	return res, nil
}

// abortable reports whether a run is before its mutation.
func (e *Engine) abortable(ctx context.Context, r keep.Run) (bool, error) {
	if r.Mutation == "" {
		return r.Phase == keep.Preparing || r.Phase == keep.Prepared, nil
	}
	m, err := e.store.Mutation(ctx, r.Mutation)
	return err == nil && m.State == keep.Failed, err
}

// endRun returns the changes that abort a run and give its events back.
func endRun(r keep.Run, now time.Time) []keep.Change {
	aborted := lifecycle.Abort(r, now)
	return []keep.Change{keep.PutRun{Run: aborted}, keep.Release{Chain: r.Chain}}
}

// closeQuestions returns the changes that close the open questions of a run.
func (e *Engine) closeQuestions(ctx context.Context, r keep.Run) ([]keep.Change, error) {
	qs, _, err := e.store.Escalations(ctx, keep.EscalationFilter{Workflow: r.Workflow, Run: r.ID, Open: true}, keep.Page{})
	if err != nil {
		return nil, err
	}
	var cs []keep.Change
	for _, q := range qs {
		cs = append(cs, keep.CloseEscalation{ID: q.ID})
	}
	return cs, nil
}

func missing(ids []keep.MessageID, events []keep.Event) keep.MessageID {
	for _, id := range ids {
		if !slices.ContainsFunc(events, func(ev keep.Event) bool { return ev.MessageID == id }) {
			return id
		}
	}
	return ""
}
