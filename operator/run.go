package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
)

// A RunError is returned when a run is not in the state that an action needs. Nothing was
// changed.
type RunError struct {
	ID     keep.RunID
	Action keep.Action
	Why    string
}

// Error names the run, the action and why it is refused.
func (e *RunError) Error() string { return fmt.Sprintf("run %s: %s: %s", e.ID, e.Action, e.Why) }

// A RunDone says what an action on a run caused, or would cause.
type RunDone struct {
	Run    keep.Run // as it was before
	Effect string
	Events []keep.Reservation // that are skipped
}

// DoRun ends a run before its call (keep.Cancel), or brings its next attempt or lookup
// forward (keep.Retry). With preview it only says what that would cause. What was done is in
// the log of the run: who, by which surface and why. Of the events that are skipped that is recorded, too: they stay longer than the run.
func (o *Operator) DoRun(ctx context.Context, id keep.RunID, d keep.Decision, preview bool) (RunDone, error) {
	return retryStale(ctx, func() (RunDone, error) {
		run, err := o.store.Run(ctx, id)
		if err != nil {
			return RunDone{}, err
		}
		var m keep.Mutation
		if run.Mutation != "" {
			if m, err = o.store.Mutation(ctx, run.Mutation); err != nil {
				return RunDone{}, err
			}
		}
		now := o.now()
		done, changes := RunDone{Run: run}, []keep.Change(nil)
		switch {
		case run.Closed:
			err = &RunError{id, d.Action, "it is over: " + string(run.Status)}
		case run.Status == keep.StatusActive:
			err = &RunError{id, d.Action, "it is being executed, and may make its call now; try again when it waits"}
		case d.Action == keep.Cancel:
			changes, err = o.cancel(ctx, &done, m, now)
		case d.Action == keep.Retry:
			changes, err = hurry(&done, m, now)
		default:
			err = &RunError{id, d.Action, "is no action on a run"}
		}
		if err != nil || preview || len(changes) == 0 {
			return done, err
		}
		for _, r := range done.Events {
			changes = append(changes, decidedAboutEvents(run.Workflow, r.Topic, r.IDs, keep.Cancel, d, now)...)
		}
		changes = append(changes, keep.AppendLogs{Lines: []keep.LogLine{{Run: id, At: now, Level: "info", Text: said(d, done)}}})
		return done, o.decided(ctx, run.Workflow, now, changes...)
	})
}

// said is the line of the run's log about what a person did.
func said(d keep.Decision, done RunDone) string {
	text := fmt.Sprintf("%s by %s, from the %s: %s", d.Action, d.By, d.From, done.Effect)
	if d.Note != "" {
		text += "; note: " + d.Note
	}
	return text
}

// cancel returns the changes that end a run of which no call can have happened. Its events
// are skipped, which can be undone.
func (o *Operator) cancel(ctx context.Context, done *RunDone, m keep.Mutation, now time.Time) ([]keep.Change, error) {
	run := done.Run
	refuse := func(why string) ([]keep.Change, error) { return nil, &RunError{run.ID, keep.Cancel, why} }
	if run.Kind != keep.Consumer {
		return refuse("it is a run of a " + string(run.Kind) + ", which has no events to skip; pause the workflow, or skip an item")
	}
	switch ok, err := o.abortable(ctx, run); {
	case err != nil:
		return nil, err
	case !ok && m.Key != "":
		return refuse(fmt.Sprintf("its call %s is %s: it may have been sent, so only the way forward is left", m.Key, m.State))
	case !ok:
		return refuse("it is past its call, in phase " + string(run.Phase))
	}
	changes, err := o.abort(ctx, keep.Escalation{}, run, m, keep.Decision{Action: keep.Cancel, At: now})
	if err != nil {
		return nil, err
	}
	closing, err := o.closeQuestions(ctx, run)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, c := range changes {
		switch c := c.(type) {
		case keep.Finish:
			done.Events = run.Reservations
		case keep.SkipEvents:
			done.Events = append(done.Events, keep.Reservation{Topic: c.Topic, IDs: c.IDs})
		}
	}
	for _, r := range done.Events {
		n += len(r.IDs)
	}
	done.Effect = fmt.Sprintf("ends the run before its call and skips its events (%d); sends nothing; keep events unskip undoes the skip", n)
	return append(changes, closing...), nil
}

// hurry returns the changes that bring the next attempt of a run, or the next lookup of its
// call, forward. What a connection allows and what settles a doubt stay as they are.
func hurry(done *RunDone, m keep.Mutation, now time.Time) ([]keep.Change, error) {
	run := done.Run
	refuse := func(why string) ([]keep.Change, error) { return nil, &RunError{run.ID, keep.Retry, why} }
	switch {
	case run.Status == keep.StatusReconciliation && m.State == keep.NeedsReconcile:
		done.Effect = fmt.Sprintf("asks now what became of %s on %s; %s", m.Tool, m.Target, lifecycle.LookupEffect(m))
		if until := m.SentAgainUntil(); until.After(now) {
			done.Effect = fmt.Sprintf("changes nothing: it is being asked already what became of %s on %s, until %s at the latest", m.Tool, m.Target, until.UTC().Format(time.DateTime+" UTC"))
		}
		sooner, is := ledger.AskSooner(m, now)
		if !is {
			return nil, nil
		}
		return []keep.Change{keep.PutMutation{Mutation: sooner}}, nil
	case lifecycle.Unknown(m.State):
		return refuse("nobody knows whether its call " + string(m.Key) + " happened: a person decides that, see keep inbox")
	case !lifecycle.WaitsForTime(run):
		return refuse("it waits for a person, and not for a time: see keep inbox")
	}
	done.Effect = "makes the next attempt now"
	if lifecycle.Resends(m) {
		done.Effect += fmt.Sprintf(", which may call %s on %s again under the same key: the call before is known not to have happened", m.Tool, m.Target)
	}
	run, sooner := lifecycle.BringForward(run, now)
	if !sooner {
		return nil, nil
	}
	return []keep.Change{keep.PutRun{Run: run}}, nil
}

// TryCurrent lets a run that failed by logic be tried again with the version that is current by
// now, as a deploy does. That somebody else did, or that it is over, is no error. Neither is another change of it since: whoever
// repairs sees each commit of a run that still needs a script, and looks again.
func (o *Operator) TryCurrent(ctx context.Context, id keep.RunID) error {
	run, err := o.store.Run(ctx, id) // whole: it is written
	if err != nil || !lifecycle.NeedsScript(run) {
		return err
	}
	now := o.now()
	next, _ := lifecycle.Deployed(run, now)
	if err := o.decided(ctx, run.Workflow, now, keep.PutRun{Run: next}); !errors.Is(err, keep.ErrStale) {
		return err
	}
	return nil
}
