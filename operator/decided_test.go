package operator_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// Every decision is recorded: who, when, from where and with what note, also where no question was open. What changes nothing is none.
func TestDecisionsAreRecorded(t *testing.T) {
	ctx, of := t.Context(), keep.Decision{By: "ann", From: "cli", Note: "a duplicate"}
	event := keep.Event{Workflow: "w", Topic: "t", MessageID: "m", CausedBy: []keep.InputID{"in_1"}}
	input := keep.Subject{Workflow: "w", Kind: keep.AboutInput, ID: "in_1"}
	about := keep.Subject{Workflow: "w", Kind: keep.AboutEvent, Topic: "t", ID: "m"}
	item := keep.Subject{Workflow: "w", Kind: keep.AboutItem, ID: "i"}
	producer := keep.Subject{Workflow: "w", Kind: keep.AboutHandler, ID: "p"} // by the first name that it had
	for name, c := range map[string]struct {
		about keep.Subject
		do    []func(*operator.Operator) error
		want  []keep.Action
	}{
		"an input": {input, []func(*operator.Operator) error{
			func(o *operator.Operator) error { _, err := o.SkipInput(ctx, "w", "in_1", of); return err },
			func(o *operator.Operator) error { _, err := o.SkipInput(ctx, "w", "in_1", of); return err }, // is skipped
			func(o *operator.Operator) error { _, err := o.UnskipInput(ctx, "w", "in_1", of); return err },
			func(o *operator.Operator) error { _, err := o.SkipShownInput(ctx, "w", "in_1", 0, of); return err },
			func(o *operator.Operator) error { _, err := o.UnskipShownInput(ctx, "w", "in_1", 0, of); return err },
			func(o *operator.Operator) error {
				_, err := o.SkipInputs(ctx, "w", []keep.InputID{"in_1"}, of)
				return err
			},
		}, []keep.Action{keep.Skip, keep.Unskip, keep.Skip, keep.Unskip, keep.Skip}},
		"an event": {about, []func(*operator.Operator) error{
			func(o *operator.Operator) error {
				_, err := o.SkipEvents(ctx, "w", "t", []keep.MessageID{"m"}, of)
				return err
			},
			func(o *operator.Operator) error {
				_, err := o.SkipEvents(ctx, "w", "t", []keep.MessageID{"m"}, of)
				return err
			}, // is skipped
			func(o *operator.Operator) error {
				_, err := o.UnskipEvents(ctx, "w", "t", []keep.MessageID{"m"}, of)
				return err
			},
			func(o *operator.Operator) error { _, err := o.SkipEventAttempt(ctx, "w", "t", "m", 1, of); return err },
			func(o *operator.Operator) error {
				_, err := o.UnskipEventAttempt(ctx, "w", "t", "m", 1, of)
				return err
			},
		}, []keep.Action{keep.Skip, keep.Unskip, keep.Skip, keep.Unskip}},
		"an item": {item, []func(*operator.Operator) error{
			func(o *operator.Operator) error { return o.SkipItem(ctx, "w", "i", of) },
			func(o *operator.Operator) error { return o.UnskipItem(ctx, "w", "i", of) },
			func(o *operator.Operator) error { return o.SkipAttempt(ctx, "w", "i", 1, of) },
			func(o *operator.Operator) error { return o.ReprocessItem(ctx, "w", "i", of) },
		}, []keep.Action{keep.Skip, keep.Unskip, keep.Skip, keep.Reprocess}},
		"a workflow": {keep.WorkflowName("w").Subject(), []func(*operator.Operator) error{
			func(o *operator.Operator) error { return o.Resume(ctx, "w", of) }, // is not paused
			func(o *operator.Operator) error { return o.Pause(ctx, "w", of) },
			func(o *operator.Operator) error { return o.Pause(ctx, "w", of) }, // is paused, with that note
			func(o *operator.Operator) error { return o.Resume(ctx, "w", of) },
			func(o *operator.Operator) error { return o.PauseRunning(ctx, "w", of) },
			func(o *operator.Operator) error { return refused(o.PauseRunning(ctx, "w", of)) },
			func(o *operator.Operator) error { return o.ResumePaused(ctx, "w", of.Note, of) },
			func(o *operator.Operator) error { return refused(o.ResumePaused(ctx, "w", of.Note, of)) },
		}, []keep.Action{keep.Pause, keep.Resume, keep.Pause, keep.Resume}},
		"a producer": {producer, []func(*operator.Operator) error{
			func(o *operator.Operator) error { return o.Trigger(ctx, "w", "fetch", of) },
			func(o *operator.Operator) error { return o.ResetCheckpoint(ctx, "w", "fetch", of) },
		}, []keep.Action{keep.Trigger, keep.ResetCheckpoint}},
	} {
		s := memory.New()
		def := keep.Definition{Name: "w", Topics: []keep.TopicName{"t"}, Handlers: []keep.Handler{{Name: "fetch", Items: "p", Kind: keep.Producer},
			{Name: "c", Kind: keep.Consumer, Subscribe: []keep.TopicName{"t"}}}}
		commit(t, s, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Hash: "h", CreatedAt: noon, Definition: def}},
			keep.PutHandler{State: keep.HandlerState{Workflow: "w", Handler: "fetch", Kind: keep.Producer}})
		commit(t, s, keep.PutInput{Input: keep.Input{ID: "in_1", Workflow: "w", Source: "s", Type: "t", ExternalID: "1", CreatedAt: noon}}, keep.Publish{Event: event},
			keep.PutItem{Item: keep.Item{Workflow: "w", ID: "i", Status: keep.ItemProcessing, Attempt: 1, CreatedAt: noon, UpdatedAt: noon}})
		o := newOperator(t, s)
		for i, do := range c.do {
			if err := do(o); err != nil {
				t.Fatalf("%s: %d: %v", name, i, err)
			}
		}
		got, err := s.Decided(ctx, c.about)
		if err != nil {
			t.Fatal(err)
		}
		var want []keep.Decided
		for i, action := range c.want {
			d := of
			if d.Action = action; i < len(got) {
				d.At = got[i].Decision.At
			}
			want = append(want, keep.Decided{About: c.about, Decision: d})
		}
		if diff := cmp.Diff(want, got); diff != "" || time.Since(got[0].Decision.At).Abs() > time.Hour {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// To skip inputs again that are skipped decides nothing, unless something came of one since; an input that is done again says who did, and
// so does an event whose run a person cancelled.
func TestDecisionsOfInputsTogether(t *testing.T) {
	ctx, of, s := t.Context(), keep.Decision{By: "ann", From: "cli", Note: "why"}, memory.New()
	def := keep.Definition{Name: "w", Topics: []keep.TopicName{"t"}, Handlers: []keep.Handler{{Name: "c", Kind: keep.Consumer, Subscribe: []keep.TopicName{"t"}}}}
	commit(t, s, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Hash: "h", CreatedAt: noon, Definition: def}},
		keep.PutHandler{State: keep.HandlerState{Workflow: "w", Handler: "c", Kind: keep.Consumer}},
		keep.PutInput{Input: keep.Input{ID: "in_1", Workflow: "w", Source: "s", Type: "t", ExternalID: "1", CreatedAt: noon}},
		keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "m", CausedBy: []keep.InputID{"in_1"}}})
	o, ids := newOperator(t, s), []keep.InputID{"in_1"}
	decided := func(about keep.Subject, want ...keep.Action) {
		t.Helper()
		list, err := s.Decided(ctx, about)
		var got []keep.Action
		for _, d := range list {
			if got = append(got, d.Decision.Action); d.Decision.By != "ann" || d.Decision.Note != "why" || d.Decision.At.IsZero() {
				t.Errorf("recorded is %+v", d)
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("recorded about %s %s is %q, %v, want %q", about.Kind, about.ID, got, err, want)
		}
	}
	skip := func(events int) {
		t.Helper()
		if res, err := o.SkipInputs(ctx, "w", ids, of); err != nil || res.Inputs != 1 || res.Events != events {
			t.Errorf("SkipInputs = %+v, %v, want one input and %d events", res, err, events)
		}
	}
	input, event := keep.Subject{Workflow: "w", Kind: keep.AboutInput, ID: "in_1"}, keep.Subject{Workflow: "w", Kind: keep.AboutEvent, Topic: "t", ID: "m"}
	skip(1)
	skip(0)
	decided(input, keep.Skip)
	commit(t, s, keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "n", CausedBy: ids}})
	skip(1)
	decided(input, keep.Skip, keep.Skip)
	r := operator.RedoRequest{Workflow: "w", Input: "in_1"}
	p, err := o.PlanRedo(ctx, r)
	if r.Mark = p.Mark; err == nil {
		_, err = o.Redo(ctx, r, of)
	}
	if err != nil {
		t.Fatal(err)
	}
	decided(input, keep.Skip, keep.Skip, keep.DoneAgain)
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Handler: "c", Kind: keep.Consumer, Phase: keep.Preparing, Status: keep.StatusPerson,
		Version: keep.Version{Major: 1}, Trigger: keep.EventRef{Topic: "t", MessageID: "m"}, CreatedAt: time.Now().Add(time.Hour), UpdatedAt: time.Now().Add(time.Hour)}
	commit(t, s, keep.PutRun{Run: run})
	cancel := of
	cancel.Action = keep.Cancel
	if _, err := o.DoRun(ctx, run.ID, cancel, false); err != nil {
		t.Fatal(err)
	}
	decided(event, keep.Cancel)
}

// refused turns what was refused into nothing, and nothing into an error.
func refused(err error) error {
	if errors.Is(err, keep.ErrStale) {
		return nil
	}
	return fmt.Errorf("%w, want stale", err)
}

// Who leaves all that was there at a time does not leave what somebody took up again since, by its input or by one of its events.
func TestSkipOfWhatWasTakenUpSince(t *testing.T) {
	ctx, of := t.Context(), keep.Decision{By: "ann"}
	for name, again := range map[string]func(o *operator.Operator) error{
		"its input": func(o *operator.Operator) error {
			_, err := o.SkipInput(ctx, "w", "in_1", of)
			if err == nil {
				_, err = o.UnskipInput(ctx, "w", "in_1", of)
			}
			return err
		},
		"its event": func(o *operator.Operator) error {
			_, err := o.SkipEvents(ctx, "w", "t", []keep.MessageID{"m"}, of)
			if err == nil {
				_, err = o.UnskipEvents(ctx, "w", "t", []keep.MessageID{"m"}, of)
			}
			return err
		},
	} {
		s := memory.New()
		commit(t, s, keep.PutInput{Input: keep.Input{ID: "in_1", Workflow: "w", Source: "s", Type: "t", ExternalID: "1", CreatedAt: noon}},
			keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "m", CausedBy: []keep.InputID{"in_1"}}})
		o, ids := newOperator(t, s), []keep.InputID{"in_1"}
		if err := again(o); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, as := range []struct {
			of   time.Time
			want int
		}{{time.Now().Add(-time.Hour), 0}, {time.Now().Add(time.Hour), 1}} {
			if res, err := o.SkipInputsAsOf(ctx, "w", ids, as.of, of); err != nil || res.Inputs != as.want {
				t.Errorf("%s was taken up again: SkipInputsAsOf %s = %+v, %v; want %d inputs", name, as.of, res, err, as.want)
			}
		}
	}
}

// An event that has several causes is not left with one of them if somebody took up another one since.
func TestSkipOfAnEventThatAnotherInputTookUp(t *testing.T) {
	ctx, of, s := t.Context(), keep.Decision{By: "ann"}, memory.New()
	ids := []keep.InputID{"in_1", "in_2"}
	for _, id := range ids {
		commit(t, s, keep.PutInput{Input: keep.Input{ID: id, Workflow: "w", Source: "s", Type: "t", ExternalID: string(id), CreatedAt: noon}})
	}
	commit(t, s, keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "m", CausedBy: ids}})
	o := newOperator(t, s)
	_, err := o.SkipInput(ctx, "w", "in_2", of)
	if err == nil {
		_, err = o.UnskipInput(ctx, "w", "in_2", of)
	}
	if err != nil {
		t.Fatal(err)
	}
	res, err := o.SkipInputsAsOf(ctx, "w", ids, time.Now().Add(-time.Hour), of)
	ev, evErr := s.Event(ctx, "w", "t", "m")
	if err != nil || evErr != nil || res.Events != 0 || ev.Status != keep.EventPending {
		t.Errorf("SkipInputsAsOf = %+v, %v, and the event is %s, %v; want it pending", res, err, ev.Status, evErr)
	}
	if res, err = o.SkipInputsAsOf(ctx, "w", ids, time.Now().Add(time.Hour), of); err != nil || res.Inputs != 2 || res.Events != 1 {
		t.Errorf("of all that was there by then: %+v, %v; want both inputs and their event", res, err)
	}
}

// Each version that becomes current says who had it do so: who deployed it or, of one that waited, who agreed. One that is current already is
// not deployed again.
func TestWhoDeployed(t *testing.T) {
	s := memory.New()
	o := newOperator(t, s)
	deploy := deployer(t, o)
	deploy("one", calls(true, "mail.send"))
	deploy("one", calls(true, "mail.send"))
	asks := calls(true)
	asks.Ask = true
	waits := deploy("two", asks).Waiting
	if err := o.Decide(t.Context(), waits.Question, keep.Decision{Action: keep.Approve, By: "bob", From: "web", Note: "read it"}); err != nil {
		t.Fatal(err)
	}
	list, err := s.Decided(t.Context(), keep.WorkflowName("w").Subject())
	var got []string
	for _, d := range list {
		got = append(got, fmt.Sprintf("%s by %s from %s: %s", d.Decision.Action, d.Decision.By, d.Decision.From, d.Decision.Note))
	}
	if want := []string{"deploy by ann from cli: version 1.0", "deploy by bob from web: version 2.0; read it"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("recorded is %q, %v, want %q", got, err, want)
	}
}
