package operator

import (
	"context"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// MaxSkip is the most inputs that one call of SkipInputs takes (law: bounded).
const MaxSkip = 500

// InputsSkipped says what became of inputs that a person skipped together.
type InputsSkipped struct {
	Inputs  int // are skipped, with all that waited of them
	Late    int // are skipped, but a run past its mutation, or in doubt, has an event of them and completes
	Events  int // marked skipped
	Aborted int // runs that were ended before their mutation
}

// Plus returns what became of both.
func (s InputsSkipped) Plus(t InputsSkipped) InputsSkipped {
	return InputsSkipped{s.Inputs + t.Inputs, s.Late + t.Late, s.Events + t.Events, s.Aborted + t.Aborted}
}

// SkipInputs does for up to MaxSkip inputs of a workflow what SkipInput does for
// one, in one commit. If something of them moves meanwhile it takes ever smaller
// parts. So after an error some of them may be skipped and others not, but none half;
// the result is what was done. To skip an input twice changes nothing.
func (o *Operator) SkipInputs(ctx context.Context, w keep.WorkflowName, ids []keep.InputID, d keep.Decision) (InputsSkipped, error) {
	return o.SkipInputsAsOf(ctx, w, ids, time.Time{}, d)
}

// SkipInputsAsOf is SkipInputs without those of which something was done again at that time or later, or taken up again after a skip: who
// leaves what was there then does not leave what somebody else wanted since. Zero: all of them.
func (o *Operator) SkipInputsAsOf(ctx context.Context, w keep.WorkflowName, ids []keep.InputID, at time.Time, d keep.Decision) (InputsSkipped, error) {
	if len(ids) > MaxSkip {
		first, err := o.SkipInputsAsOf(ctx, w, ids[:MaxSkip], at, d)
		return o.andThen(ctx, w, first, err, ids[MaxSkip:], at, d)
	}
	for n := 1; ; n++ {
		res, err := o.skipTogether(ctx, w, ids, at, d)
		switch {
		case !changed(err) || ctx.Err() != nil || n == maxTries:
			return res, err
		case len(ids) > 1:
			first, err := o.SkipInputsAsOf(ctx, w, ids[:len(ids)/2], at, d)
			return o.andThen(ctx, w, first, err, ids[len(ids)/2:], at, d)
		}
	}
}

// andThen skips the rest, unless the first part failed.
func (o *Operator) andThen(ctx context.Context, w keep.WorkflowName, first InputsSkipped, err error, rest []keep.InputID, at time.Time, d keep.Decision) (InputsSkipped, error) {
	if err != nil {
		return first, err
	}
	second, err := o.SkipInputsAsOf(ctx, w, rest, at, d)
	return first.Plus(second), err
}

// staysAsItIs returns an input, its events, and whether it is not skipped: it is done, or was taken up since.
func (o *Operator) staysAsItIs(ctx context.Context, w keep.WorkflowName, id keep.InputID, at time.Time) (in keep.Input, events []keep.Event, stays bool, err error) {
	in, err = o.store.Input(ctx, id)
	if err != nil || in.Status == keep.InputDone {
		return in, nil, true, err
	}
	if events, err = o.causedBy(ctx, w, id); err != nil {
		return in, nil, false, err
	}
	stays, err = o.takenUpSince(ctx, in, events, at)
	return in, events, stays, err
}

// takenUpSince reports whether somebody had one of the events of an input done again at that time or later, or undid a skip of it: by
// the event, by the input, or by another input that caused it, too. Zero: no.
func (o *Operator) takenUpSince(ctx context.Context, in keep.Input, events []keep.Event, at time.Time) (bool, error) {
	if at.IsZero() {
		return false, nil
	}
	about := []keep.Subject{aboutInput(in)}
	for _, ev := range events {
		if n := len(ev.Redone); n > 0 && !ev.Redone[n-1].At.Before(at) {
			return true, nil
		}
		about = append(about, keep.Subject{Workflow: ev.Workflow, Kind: keep.AboutEvent, Topic: ev.Topic, ID: string(ev.MessageID)})
		for _, cause := range ev.CausedBy {
			about = append(about, keep.Subject{Workflow: ev.Workflow, Kind: keep.AboutInput, ID: string(cause)})
		}
	}
	read := make(map[keep.Subject]bool, len(about))
	for _, subject := range about {
		if read[subject] {
			continue
		}
		read[subject] = true
		decided, err := o.store.Decided(ctx, subject)
		undone := func(d keep.Decided) bool { return d.Decision.Action == keep.Unskip && !d.Decision.At.Before(at) }
		if err != nil || slices.ContainsFunc(decided, undone) {
			return err == nil, err
		}
	}
	return false, nil
}

// skipTogether skips inputs in one commit.
func (o *Operator) skipTogether(ctx context.Context, w keep.WorkflowName, ids []keep.InputID, at time.Time, d keep.Decision) (InputsSkipped, error) {
	var all []keep.Event
	var inputs []keep.Input
	seen := make(map[int64]bool) // an event may have several causes
	of := make(map[keep.InputID][]keep.Event)
	for _, id := range ids {
		in, events, stays, err := o.staysAsItIs(ctx, w, id, at)
		if err != nil {
			return InputsSkipped{}, err
		}
		if stays {
			continue
		}
		of[id] = events
		for _, ev := range events {
			if !seen[ev.Seq] {
				seen[ev.Seq] = true
				all = append(all, ev)
			}
		}
		inputs = append(inputs, in)
	}
	if len(inputs) == 0 {
		return InputsSkipped{}, nil
	}
	res, tooLate, err := o.skip(ctx, w, all, inputs, d)
	if err != nil {
		return InputsSkipped{}, err
	}
	out := InputsSkipped{Events: res.Skipped, Aborted: len(res.Aborted)}
	for _, id := range ids {
		if of[id] == nil {
			continue
		}
		if slices.ContainsFunc(of[id], func(ev keep.Event) bool { return tooLate[ev.Seq] }) {
			out.Late++
		} else {
			out.Inputs++
		}
	}
	return out, nil
}
