package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/store"
)

// A SkipResult says what became of the events that a person skipped.
type SkipResult struct {
	Skipped  int          // marked skipped
	Aborted  []keep.RunID // runs that were ended before their mutation, their other events released
	TooLate  int          // their run is past its mutation, or in doubt: it completes
	Finished int          // were consumed or skipped already
}

// SkipEvents leaves events of a topic undone. A pending event
// is marked skipped. One that is reserved by a run before its mutation ends that
// run, whose other events are released. After that the run completes.
func (o *Operator) SkipEvents(ctx context.Context, w keep.WorkflowName, topic keep.TopicName, ids []keep.MessageID, d keep.Decision) (SkipResult, error) {
	return o.skipEvents(ctx, w, topic, ids, 0, d)
}

// SkipEventAttempt is SkipEvents of an event that is at that attempt, else *EventError: who leaves what was shown does not leave what
// somebody had done again since.
func (o *Operator) SkipEventAttempt(ctx context.Context, w keep.WorkflowName, topic keep.TopicName, id keep.MessageID, attempt int, d keep.Decision) (SkipResult, error) {
	return o.skipEvents(ctx, w, topic, []keep.MessageID{id}, attempt, d)
}

// skipEvents is SkipEvents of events that are at an attempt; 0: at any.
func (o *Operator) skipEvents(ctx context.Context, w keep.WorkflowName, topic keep.TopicName, ids []keep.MessageID, attempt int, d keep.Decision) (SkipResult, error) {
	return retryStale(ctx, func() (SkipResult, error) {
		events, err := o.named(ctx, w, topic, ids, attempt)
		if err != nil {
			return SkipResult{}, err
		}
		res, _, err := o.skip(ctx, w, events, nil, d)
		return res, err
	})
}

// named returns the events of a topic that a person named, each once. All of them exist, and are at that attempt; 0: at any.
func (o *Operator) named(ctx context.Context, w keep.WorkflowName, topic keep.TopicName, ids []keep.MessageID, attempt int) ([]keep.Event, error) {
	ids = once(ids)
	events, err := o.store.EventsByID(ctx, w, topic, ids)
	if err == nil && len(events) < len(ids) {
		err = &keep.NotFoundError{What: "event in topic " + string(topic), ID: string(missing(ids, events))}
	}
	for _, ev := range events {
		if err == nil && attempt != 0 && ev.Attempt() != attempt {
			err = &EventError{topic, ev.MessageID, fmt.Sprintf("it is at attempt %d, and what was shown is attempt %d", ev.Attempt(), attempt)}
		}
	}
	return events, err
}

// An EventError is returned when an event is not as it was shown. Nothing was changed.
type EventError struct {
	Topic keep.TopicName
	ID    keep.MessageID
	Why   string
}

// Error names the event, and why nothing was changed.
func (e *EventError) Error() string {
	return fmt.Sprintf("event %s in topic %s: %s", e.ID, e.Topic, e.Why)
}

// SkipInput leaves an input undone: every event that it caused is skipped as
// SkipEvents does, and the input is marked skipped.
func (o *Operator) SkipInput(ctx context.Context, w keep.WorkflowName, id keep.InputID, d keep.Decision) (SkipResult, error) {
	return o.skipInput(ctx, w, id, d, func([]keep.Event) error { return nil })
}

// SkipShownInput is SkipInput of an input whose events were done again that often (Redone), else *EventError: who leaves what was
// shown does not leave what somebody had done again since.
func (o *Operator) SkipShownInput(ctx context.Context, w keep.WorkflowName, id keep.InputID, redone int, d keep.Decision) (SkipResult, error) {
	return o.skipInput(ctx, w, id, d, asShown(redone))
}

// ErrTakenUp is returned where somebody had something of an input done again, or undid a skip of it, since it was decided to leave it.
var ErrTakenUp = errors.New("somebody took it up again since")

// SkipInputAsOf is SkipInput of an input of which nothing was done again at that time or later, nor taken up again after a skip, else
// ErrTakenUp: who leaves what was there then does not leave what somebody else wanted since.
func (o *Operator) SkipInputAsOf(ctx context.Context, w keep.WorkflowName, id keep.InputID, at time.Time, d keep.Decision) (SkipResult, error) {
	return o.skipInput(ctx, w, id, d, func(events []keep.Event) error {
		taken, err := o.takenUpSince(ctx, keep.Input{Workflow: w, ID: id}, events, at)
		if err == nil && taken {
			err = fmt.Errorf("input %s: %w", id, ErrTakenUp)
		}
		return err
	})
}

// Redone is how often events were done again, all together.
func Redone(events []keep.Event) (n int) {
	for _, ev := range events {
		n += ev.Attempt() - 1
	}
	return n
}

// asShown returns what refuses the events of an input if one of them was done again since they were shown.
func asShown(redone int) func([]keep.Event) error {
	return func(events []keep.Event) error {
		if Redone(events) <= redone {
			return nil
		}
		i := slices.IndexFunc(events, func(ev keep.Event) bool { return ev.Attempt() > 1 })
		return &EventError{events[i].Topic, events[i].MessageID, fmt.Sprintf("it is at attempt %d: something of its input was done again since that was shown", events[i].Attempt())}
	}
}

// skipInput is SkipInput of an input whose events check accepts.
func (o *Operator) skipInput(ctx context.Context, w keep.WorkflowName, id keep.InputID, d keep.Decision, check func([]keep.Event) error) (SkipResult, error) {
	return retryStale(ctx, func() (SkipResult, error) {
		in, err := o.store.Input(ctx, id)
		if err != nil {
			return SkipResult{}, err
		}
		events, err := o.causedBy(ctx, w, id)
		if err == nil {
			err = check(events)
		}
		if err != nil {
			return SkipResult{}, err
		}
		if in.Status == keep.InputDone { // it stays done
			return SkipResult{Finished: len(events)}, nil
		}
		res, _, err := o.skip(ctx, w, events, []keep.Input{in}, d)
		return res, err
	})
}

// causedBy returns every event that an input caused.
func (o *Operator) causedBy(ctx context.Context, w keep.WorkflowName, id keep.InputID) (events []keep.Event, err error) {
	for ev, err := range store.All(ctx, o.store.Events, keep.EventFilter{Workflow: w, Input: id}, keep.Page{Limit: 1000, Bare: true}) {
		if err != nil {
			return nil, err
		}
		events = append(events, ev)
	}
	return events, nil
}

// maxTries is how often a decision is tried while what it is about changes between its
// reading and its commit (law: bounded). It rarely does twice.
const maxTries = 100

// retryStale repeats f when a record changed between its reading and its commit.
func retryStale[T any](ctx context.Context, f func() (T, error)) (T, error) {
	for n := 1; ; n++ {
		res, err := f()
		if !changed(err) || ctx.Err() != nil || n == maxTries {
			return res, err
		}
	}
}

// changed reports whether a commit was refused since something changed after it was read.
func changed(err error) bool {
	_, taken := errors.AsType[*keep.ReservationError](err)
	return taken || errors.Is(err, keep.ErrStale)
}

// skip commits what skipping events causes, and before it that of inputs: one is marked while its events are still to be done. One that is
// skipped already stays so, and what came of it since is left, too. What d decides
// is recorded for the inputs or, without them, for the events. late are the events, by Seq, for which it is too late.
func (o *Operator) skip(ctx context.Context, w keep.WorkflowName, events []keep.Event, inputs []keep.Input, d keep.Decision) (res SkipResult, late map[int64]bool, err error) {
	now := o.now()
	late = make(map[int64]bool)
	changes := markSkipped(inputs)
	left := make(map[int64]bool) // that are skipped, by Seq
	free := make(map[keep.TopicName][]keep.MessageID)
	runs, err := o.store.OpenRuns(ctx, w)
	if err != nil {
		return res, nil, err
	}
	held := make(map[keep.RunID][]keep.Event)
	for _, ev := range events {
		of := slices.IndexFunc(runs, func(r keep.Run) bool { return r.Chain == ev.ReservedBy })
		switch {
		case ev.Status != keep.EventPending:
			res.Finished++
		case ev.ReservedBy == "":
			free[ev.Topic], left[ev.Seq] = append(free[ev.Topic], ev.MessageID), true
		case of >= 0:
			held[runs[of].ID] = append(held[runs[of].ID], ev)
		default:
			// Its run began or ended after the events were read, and before the runs were.
			return res, nil, fmt.Errorf("event %s in topic %s is reserved by %s, which is no open run: %w", ev.MessageID, ev.Topic, ev.ReservedBy, keep.ErrStale)
		}
	}
	for _, run := range runs {
		if len(held[run.ID]) == 0 {
			continue
		}
		ending, aborted, err := o.endIfAbortable(ctx, run, now)
		if err != nil {
			return res, nil, err
		}
		if aborted {
			changes = append(changes, ending...)
			for _, ev := range held[run.ID] {
				free[ev.Topic], left[ev.Seq] = append(free[ev.Topic], ev.MessageID), true
			}
			res.Aborted = append(res.Aborted, run.ID)
		} else {
			res.TooLate += len(held[run.ID])
			for _, ev := range held[run.ID] {
				late[ev.Seq] = true
			}
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(free)) {
		changes = append(changes, keep.SkipEvents{Topic: topic, IDs: free[topic]})
		res.Skipped += len(free[topic])
		if len(inputs) == 0 {
			changes = append(changes, decidedAboutEvents(w, topic, free[topic], keep.Skip, d, now)...)
		}
	}
	for _, in := range inputs {
		of := func(ev keep.Event) bool { return left[ev.Seq] && slices.Contains(ev.CausedBy, in.ID) }
		if in.Status != keep.InputSkipped || slices.ContainsFunc(events, of) {
			changes = append(changes, decidedAbout(aboutInput(in), keep.Skip, d, now))
		}
	}
	if len(changes) == 0 {
		return res, late, nil
	}
	return res, late, o.decided(ctx, w, now, changes...)
}

// markSkipped returns the changes that mark those of the inputs that are not skipped.
func markSkipped(inputs []keep.Input) (changes []keep.Change) {
	for _, in := range inputs {
		if in.Status != keep.InputSkipped {
			changes = append(changes, keep.SkipInput{Input: in.ID})
		}
	}
	return changes
}

// endIfAbortable returns the changes that end a run and its questions; aborted is false if it is past its mutation, or in doubt.
func (o *Operator) endIfAbortable(ctx context.Context, r keep.Run, now time.Time) (changes []keep.Change, aborted bool, err error) {
	if aborted, err = o.abortable(ctx, r); err != nil || !aborted {
		return nil, false, err
	}
	closing, err := o.closeQuestions(ctx, r)
	return append(endRun(r, now), closing...), true, err
}

// aboutInput returns the subject of decisions about an input.
func aboutInput(in keep.Input) keep.Subject {
	return keep.Subject{Workflow: in.Workflow, Kind: keep.AboutInput, ID: string(in.ID)}
}

// decidedAbout returns the change that records a decision beside any question: who, when, from where, with what note.
func decidedAbout(about keep.Subject, action keep.Action, d keep.Decision, now time.Time) keep.Change {
	return keep.AppendDecision{Decided: keep.Decided{About: about, Decision: keep.Decision{Action: action, By: d.By, From: d.From, Note: d.Note, At: now}}}
}

// decidedAboutEvents is decidedAbout of each of some events.
func decidedAboutEvents(w keep.WorkflowName, topic keep.TopicName, ids []keep.MessageID, action keep.Action, d keep.Decision, now time.Time) (changes []keep.Change) {
	for _, id := range ids {
		changes = append(changes, decidedAbout(keep.Subject{Workflow: w, Kind: keep.AboutEvent, Topic: topic, ID: string(id)}, action, d, now))
	}
	return changes
}

// abortable reports whether a run is before its mutation.
func (o *Operator) abortable(ctx context.Context, r keep.Run) (bool, error) {
	if r.Mutation == "" {
		return r.Phase == keep.Preparing || r.Phase == keep.Prepared, nil
	}
	m, err := o.store.Mutation(ctx, r.Mutation)
	return err == nil && m.State == keep.Failed && !m.Doubted, err
}

// endRun returns the changes that abort a run and give its events back.
func endRun(r keep.Run, now time.Time) []keep.Change {
	aborted := lifecycle.Abort(r, now)
	return []keep.Change{keep.PutRun{Run: aborted}, keep.Release{Chain: r.Chain}}
}

// closeQuestions returns the changes that close the open questions of a run.
func (o *Operator) closeQuestions(ctx context.Context, r keep.Run) ([]keep.Change, error) {
	qs, _, err := o.store.Escalations(ctx, keep.EscalationFilter{Workflow: r.Workflow, Run: r.ID, Open: true}, keep.Page{})
	if err != nil {
		return nil, err
	}
	var cs []keep.Change
	for _, q := range qs {
		if !q.Kind.Shared() { // other runs wait for its answer, too
			cs = append(cs, keep.CloseEscalation{ID: q.ID})
		}
	}
	return cs, nil
}

// once returns ids in their order, each once: what is named twice is one thing.
func once(ids []keep.MessageID) []keep.MessageID {
	out, seen := make([]keep.MessageID, 0, len(ids)), make(map[keep.MessageID]bool, len(ids))
	for _, id := range ids {
		if !seen[id] {
			seen[id], out = true, append(out, id)
		}
	}
	return out
}

func missing(ids []keep.MessageID, events []keep.Event) keep.MessageID {
	for _, id := range ids {
		if !slices.ContainsFunc(events, func(ev keep.Event) bool { return ev.MessageID == id }) {
			return id
		}
	}
	return ""
}
