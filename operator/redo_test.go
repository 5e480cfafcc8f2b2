package operator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// withReaders returns a store in which consumers read the topics t and u of workflow w.
func withReaders(t *testing.T) *memory.Store {
	t.Helper()
	s := memory.New()
	commit(t, s, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Hash: "h", CreatedAt: noon,
		Definition: keep.Definition{Name: "w", Topics: []keep.TopicName{"t", "u", "v"}, Handlers: []keep.Handler{
			{Name: "c", Kind: keep.Consumer, Subscribe: []keep.TopicName{"t"}, HasMutate: true},
			{Name: "d", Kind: keep.Consumer, Subscribe: []keep.TopicName{"u"}, HasMutate: true}}}}})
	return s
}

// consumed commits an event of a topic that a run finished, with a call in a state.
func consumed(t *testing.T, s operator.Store, topic keep.TopicName, id keep.MessageID, by keep.Publisher, state keep.MutationState, causes ...keep.InputID) keep.RunID {
	t.Helper()
	r := keep.Reservation{Topic: topic, IDs: []keep.MessageID{id}}
	run := keep.Run{ID: keep.RunID("run_" + id), Workflow: "w", Handler: "c", Kind: keep.Consumer, Phase: keep.Committed, Status: keep.StatusCommitted,
		Reservations: []keep.Reservation{r}, Closed: true, CreatedAt: noon, UpdatedAt: noon, Mutation: keep.MutationKey("mut_" + id)}
	run.Chain = run.ID
	m := keep.Mutation{Key: run.Mutation, Workflow: "w", Run: run.ID, Tool: "crm.add", Target: "contacts/1", Level: keep.LevelNone, Token: "token_" + string(id),
		State: state, Pin: []byte(`{}`), PinHash: "00", Attempts: 1, ResolvedBy: "call", CallDeadline: noon, CreatedAt: noon, UpdatedAt: noon}
	commit(t, s, keep.Publish{Event: keep.Event{Workflow: "w", Topic: topic, MessageID: id, CreatedBy: by, CausedBy: causes}},
		keep.Reserve{Chain: run.Chain, Reservation: r}, keep.PutMutation{Mutation: m}, keep.PutRun{Run: run}, keep.Finish{Chain: run.Chain, Status: keep.EventConsumed})
	return run.ID
}

func redo(topic keep.TopicName, ids ...keep.MessageID) operator.RedoRequest {
	return operator.RedoRequest{Workflow: "w", Topic: topic, IDs: ids}
}

// What a redo will cause is shown; it is done once for what was shown, and kept with the event.
func TestRedo(t *testing.T) {
	s := withReaders(t)
	commit(t, s, keep.PutInput{Input: keep.Input{ID: "in_1", Workflow: "w", Source: "s", Type: "t", ExternalID: "1", CreatedAt: noon}})
	first := consumed(t, s, "t", "m", "hook:h", keep.Applied, "in_1")
	consumed(t, s, "u", keep.MessageID(first)+"/w.js:1:1/1", keep.Publisher(first), keep.Applied, "in_1")
	consumed(t, s, "v", "named", keep.Publisher(first), keep.Failed, "in_1")
	o, d := newOperator(t, s), keep.Decision{By: "ann", From: "cli", Note: "the address was wrong"}
	p, err := o.PlanRedo(t.Context(), redo("t", "m", "m"))
	if err != nil || len(p.Events) != 1 || p.Done {
		t.Fatalf("PlanRedo = %+v, %v", p, err)
	}
	e := p.Events[0]
	if e.Refused != "" || len(e.Readers) != 1 || len(e.Calls) != 1 || e.Calls[0].Key != "mut_m" || len(e.Below) != 2 {
		t.Errorf("the plan: %+v", e)
	}
	if len(e.Published) != 2 || !e.Published[0].Made || e.Published[1].Made {
		t.Errorf("published before: %+v", e.Published)
	}
	r := redo("t", "m")
	if _, err := o.Redo(t.Context(), r, d); !isRedoError(err) {
		t.Errorf("without a look: %v", err)
	}
	r.Mark = p.Mark
	if p, err = o.Redo(t.Context(), r, d); err != nil || !p.Done {
		t.Fatalf("Redo: %v", err)
	}
	ev, _ := s.Event(t.Context(), "w", "t", "m")
	if !ev.Free() || ev.Attempt() != 2 || ev.Redone[0].By != "ann" || ev.Redone[0].Note != d.Note || ev.Redone[0].Chain != first {
		t.Errorf("the event: %+v", ev)
	}
	if _, err := o.Redo(t.Context(), r, d); !isRedoError(err) {
		t.Errorf("a second press: %v", err)
	}
}

func isRedoError(err error) bool {
	_, ok := errors.AsType[*operator.RedoError](err)
	return ok
}

// What is in doubt below an event, at any depth, refuses its redo until it is answered.
func TestRedoRefused(t *testing.T) {
	s := withReaders(t)
	commit(t, s, keep.PutInput{Input: keep.Input{ID: "in_1", Workflow: "w", Source: "s", Type: "t", ExternalID: "1", CreatedAt: noon}})
	top := consumed(t, s, "t", "top", "hook:h", keep.Applied, "in_1")
	middle := consumed(t, s, "u", "middle", keep.Publisher(top), keep.Applied, "in_1")
	consumed(t, s, "u", "below", keep.Publisher(middle), keep.Indeterminate, "in_1")
	consumed(t, s, "t", "beside", "hook:h", keep.Applied, "in_1")
	consumed(t, s, "v", "unread", "hook:h", keep.Applied)
	commit(t, s, keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "free"}})
	o := newOperator(t, s)
	for _, tt := range []struct {
		topic keep.TopicName
		id    keep.MessageID
		why   string
	}{
		{"u", "below", "its call mut_below of crm.add is indeterminate"}, {"t", "top", "its call mut_below"}, {"t", "free", "it is pending"},
		{"v", "unread", "no consumer of the current version reads topic v"}, {"t", "beside", ""},
	} {
		p, err := o.PlanRedo(t.Context(), redo(tt.topic, tt.id))
		if err != nil || !strings.HasPrefix(p.Events[0].Refused, tt.why) || (tt.why == "") != (p.Events[0].Refused == "") {
			t.Errorf("%s: %q, %v, want %q", tt.id, p.Events[0].Refused, err, tt.why)
		}
		r := redo(tt.topic, "beside", tt.id)
		if r.Mark = p.Mark; tt.topic == "t" && tt.why != "" {
			if _, err := o.Redo(t.Context(), r, keep.Decision{By: "ann"}); !isRedoError(err) {
				t.Errorf("%s: %v", tt.id, err)
			}
		}
	}
	if ev, _ := s.Event(t.Context(), "w", "t", "beside"); ev.Attempt() != 1 {
		t.Error("an event was redone whose neighbour was refused")
	}
}

// Of an input the events are done again that came from outside: what follows, follows.
func TestRedoInput(t *testing.T) {
	s := withReaders(t)
	commit(t, s, keep.PutInput{Input: keep.Input{ID: "in_1", Workflow: "w", Source: "s", Type: "t", ExternalID: "1", CreatedAt: noon}})
	top := consumed(t, s, "t", "top", "hook:h", keep.Applied, "in_1")
	consumed(t, s, "u", "below", keep.Publisher(top), keep.Applied, "in_1")
	commit(t, s, keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "skipped", CreatedBy: "hook:h", CausedBy: []keep.InputID{"in_1"}}})
	o := newOperator(t, s)
	if _, err := o.SkipInput(t.Context(), "w", "in_1", keep.Decision{}); err != nil {
		t.Fatal(err)
	}
	r := operator.RedoRequest{Workflow: "w", Input: "in_1"}
	p, err := o.PlanRedo(t.Context(), r)
	if err != nil || len(p.Events) != 2 {
		t.Fatalf("PlanRedo = %+v, %v", p, err)
	}
	r.Mark = p.Mark
	if _, err := o.Redo(t.Context(), r, keep.Decision{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[keep.MessageID]int{"top": 2, "skipped": 2} {
		if ev, _ := s.Event(t.Context(), "w", "t", id); ev.Attempt() != want || !ev.Free() {
			t.Errorf("%s: %+v", id, ev)
		}
	}
	if ev, _ := s.Event(t.Context(), "w", "u", "below"); ev.Attempt() != 1 {
		t.Errorf("what followed: %+v", ev)
	}
	if in, _ := s.Input(t.Context(), "in_1"); in.Status != keep.InputPending {
		t.Errorf("the input is %s", in.Status)
	}
}

// A redo is refused where more runs worked on an event than are looked at, whether on that which is done again or on what was published
// of it: a call in doubt may be of one that is left out.
func TestRedoBelowTooMuch(t *testing.T) {
	s := withReaders(t)
	commit(t, s, keep.PutInput{Input: keep.Input{ID: "in_1", Workflow: "w", Source: "s", Type: "t", ExternalID: "1", CreatedAt: noon}})
	top := consumed(t, s, "t", "top", "hook:h", keep.Applied, "in_1")
	consumed(t, s, "u", "below", keep.Publisher(top), keep.Indeterminate, "in_1") // by the oldest of the runs
	again := make([]keep.Change, 0, 1000)
	for i := range 1000 {
		id := keep.RunID(fmt.Sprintf("run_later_%04d", i))
		again = append(again, keep.PutRun{Run: keep.Run{ID: id, Chain: "run_below", Workflow: "w", Handler: "d", Kind: keep.Consumer, Phase: keep.Committed, Status: keep.StatusCommitted,
			Reservations: []keep.Reservation{{Topic: "u", IDs: []keep.MessageID{"below"}}}, Closed: true, CreatedAt: noon, UpdatedAt: noon}})
	}
	commit(t, s, again...)
	o := newOperator(t, s)
	for _, r := range []operator.RedoRequest{redo("t", "top"), redo("u", "below")} {
		p, err := o.PlanRedo(t.Context(), r)
		if err != nil || !strings.Contains(p.Events[0].Refused, "more than 1000 runs or events are below it") {
			t.Errorf("%v: %q, %v", r.IDs, p.Events[0].Refused, err)
		}
		r.Mark = p.Mark
		if _, err := o.Redo(t.Context(), r, keep.Decision{By: "ann"}); !isRedoError(err) {
			t.Errorf("%v is done again: %v", r.IDs, err)
		}
	}
}
