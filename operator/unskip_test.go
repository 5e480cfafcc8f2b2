package operator_test

import (
	"context"
	"errors"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// skippedBy commits an event that a chain finished as skipped, with its run and record.
func skippedBy(t *testing.T, s operator.Store, id keep.MessageID, run keep.Run, m keep.Mutation) {
	t.Helper()
	r := keep.Reservation{Topic: "t", IDs: []keep.MessageID{id}}
	run.ID, run.Chain, run.Workflow, run.Handler, run.Kind = keep.RunID("run_"+id), keep.RunID("run_"+id), "w", "c", keep.Consumer
	run.Reservations, run.Closed, run.CreatedAt, run.UpdatedAt = []keep.Reservation{r}, true, noon, noon
	changes := []keep.Change{keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: id}}, keep.Reserve{Chain: run.Chain, Reservation: r}}
	if m.State != "" {
		m.Key, m.Workflow, m.Run, m.Tool, m.Level, m.Token = keep.MutationKey("mut_"+id), "w", run.ID, "x.y", keep.LevelNone, "token"
		m.Pin, m.PinHash, m.Attempts, m.CallDeadline, m.CreatedAt, m.UpdatedAt, m.ResolvedBy = []byte(`{}`), "00", 1, noon, noon, noon, "call"
		run.Mutation = m.Key
		changes = append(changes, keep.PutMutation{Mutation: m})
	}
	commit(t, s, append(changes, keep.PutRun{Run: run}, keep.Finish{Chain: run.Chain, Status: keep.EventSkipped})...)
}

// What a chain did decides whether the skip of its event can be undone: nothing of it may
// have happened, as far as anybody knows, and no doubt gives up its key.
func TestUnskipLooksAtTheChain(t *testing.T) {
	aborted := keep.Run{Phase: keep.Prepared, Status: keep.StatusAborted}
	for name, tt := range map[string]struct {
		run keep.Run
		m   keep.Mutation
		ok  bool
	}{
		"before its call":        {aborted, keep.Mutation{}, true},
		"its call failed":        {aborted, keep.Mutation{State: keep.Failed}, true},
		"its call was in doubt":  {aborted, keep.Mutation{State: keep.Failed, Doubted: true}, false},
		"skipped without an end": {keep.Run{Phase: keep.Committed, Status: keep.StatusCommitted}, keep.Mutation{State: keep.Skipped, Doubted: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := memory.New()
			skippedBy(t, s, "m", tt.run, tt.m)
			res, err := newOperator(t, s).UnskipEvents(t.Context(), "w", "t", []keep.MessageID{"m"}, keep.Decision{})
			_, kept := errors.AsType[*operator.UnskipError](err)
			ev, _ := s.Event(t.Context(), "w", "t", "m")
			if kept == tt.ok || tt.ok != (err == nil && res.Unskipped == 1 && ev.Free()) {
				t.Errorf("UnskipEvents = %+v, %v; the event is %s by %q", res, err, ev.Status, ev.ReservedBy)
			}
			if err == nil {
				again, err := newOperator(t, s).UnskipEvents(t.Context(), "w", "t", []keep.MessageID{"m"}, keep.Decision{})
				if err != nil || again.Pending != 1 {
					t.Errorf("again: %+v, %v", again, err)
				}
			}
		})
	}
}

// Of several events all are pending again, or none.
func TestUnskipAllOrNone(t *testing.T) {
	s := memory.New()
	skippedBy(t, s, "doubt", keep.Run{Phase: keep.Committed, Status: keep.StatusCommitted}, keep.Mutation{State: keep.Skipped, Doubted: true})
	skippedBy(t, s, "free", keep.Run{Phase: keep.Prepared, Status: keep.StatusAborted}, keep.Mutation{})
	_, err := newOperator(t, s).UnskipEvents(t.Context(), "w", "t", []keep.MessageID{"free", "doubt"}, keep.Decision{})
	if _, kept := errors.AsType[*operator.UnskipError](err); !kept {
		t.Errorf("UnskipEvents: %v", err)
	}
	if ev, _ := s.Event(t.Context(), "w", "t", "free"); ev.Status != keep.EventSkipped {
		t.Errorf("the other event is %s", ev.Status)
	}
}

// An input takes back what can be taken back, and says what cannot.
func TestUnskipInput(t *testing.T) {
	s := memory.New()
	in := keep.Input{ID: "in_1", Workflow: "w", Source: "s", Type: "t", ExternalID: "1", CreatedAt: noon}
	commit(t, s, keep.PutInput{Input: in})
	for _, id := range []keep.MessageID{"doubt", "a", "b"} {
		commit(t, s, keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: id, CausedBy: []keep.InputID{"in_1"}}})
	}
	skippedBy(t, s, "doubt", keep.Run{Phase: keep.Committed, Status: keep.StatusCommitted}, keep.Mutation{State: keep.Skipped, Doubted: true})
	o := newOperator(t, s)
	if _, err := o.UnskipInput(t.Context(), "w", "in_1", keep.Decision{}); err == nil {
		t.Error("an input that is not skipped was taken")
	}
	if _, err := o.SkipInput(t.Context(), "w", "in_1", keep.Decision{}); err != nil {
		t.Fatal(err)
	}
	res, err := o.UnskipInput(t.Context(), "w", "in_1", keep.Decision{})
	if err != nil || res.Unskipped != 2 || len(res.Kept) != 1 || res.Kept[0].ID != "doubt" {
		t.Errorf("UnskipInput = %+v, %v", res, err)
	}
	if in, _ := s.Input(t.Context(), "in_1"); in.Status != keep.InputPending {
		t.Errorf("the input is %s", in.Status)
	}
}

// A swept event has no payload any more, and stays skipped.
func TestUnskipOfWhatWasSwept(t *testing.T) {
	s := memory.New()
	skippedBy(t, s, "m", keep.Run{Phase: keep.Prepared, Status: keep.StatusAborted}, keep.Mutation{})
	skippedBy(t, s, "later", keep.Run{Phase: keep.Prepared, Status: keep.StatusAborted}, keep.Mutation{})
	if err := s.Commit(t.Context(), keep.Commit{Workflow: "w", At: noon.Add(2), Changes: []keep.Change{keep.Sweep{Chain: "run_m", Before: noon.Add(1_000_000)}}}); err == nil {
		t.Fatal("the sweep is of the future")
	}
	later := noon.AddDate(0, 1, 0)
	if err := s.Commit(t.Context(), keep.Commit{Workflow: "w", At: later, Changes: []keep.Change{keep.Sweep{Chain: "run_m", Before: later}}}); err != nil {
		t.Fatal(err)
	}
	_, err := newOperator(t, s).UnskipEvents(t.Context(), "w", "t", []keep.MessageID{"m"}, keep.Decision{})
	if _, kept := errors.AsType[*operator.UnskipError](err); !kept {
		t.Errorf("UnskipEvents: %v", err)
	}
}

// An item with a call whose outcome nobody knows stays skipped: to make it again may
// repeat it.
func TestUnskipItemInDoubt(t *testing.T) {
	for _, state := range []keep.MutationState{keep.Applied, keep.Skipped} {
		s := memory.New()
		run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Handler: "j", Kind: keep.Job, Phase: keep.Running,
			Status: keep.StatusAborted, Closed: true, CreatedAt: noon, UpdatedAt: noon}
		m := keep.Mutation{Key: "item_1", Workflow: "w", Run: "run_1", Item: "a", Attempt: 1, Tool: "x.y", Level: keep.LevelNone, Token: "t",
			State: state, Pin: []byte(`{}`), PinHash: "00", Attempts: 1, ResolvedBy: "x", CallDeadline: noon, CreatedAt: noon, UpdatedAt: noon}
		if state == keep.Applied {
			m.Result = []byte(`{}`)
		}
		commit(t, s, keep.PutRun{Run: run}, keep.PutItem{Item: keep.Item{Workflow: "w", ID: "a", Status: keep.ItemSkipped, Attempt: 1, CreatedAt: noon, UpdatedAt: noon}},
			keep.PutMutation{Mutation: m})
		err := newOperator(t, s).UnskipItem(t.Context(), "w", "a", keep.Decision{By: "ann"})
		_, kept := errors.AsType[*operator.ItemError](err)
		it, _ := s.Item(t.Context(), "w", "a")
		if kept != (state == keep.Skipped) || !kept && (it.Status != keep.ItemProcessing || it.Attempt != 1) {
			t.Errorf("%s: UnskipItem: %v; the item is %+v", state, err, it)
		}
	}
}

// A run that began before has not seen the event that is pending again: with its commit
// it says that it looked at all there was, and the consumer still looks again.
func TestUnskipWakesWhoPassedOver(t *testing.T) {
	s := memory.New()
	def := keep.Definition{Name: "w", Topics: []keep.TopicName{"t"}, Handlers: []keep.Handler{{Name: "c", Kind: keep.Consumer, Subscribe: []keep.TopicName{"t"}}}}
	state := keep.HandlerState{Workflow: "w", Handler: "c", Kind: keep.Consumer, IdleSeq: 9}
	commit(t, s, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Definition: def}}, keep.PutHandler{State: state},
		keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "m"}}, keep.SkipEvents{Topic: "t", IDs: []keep.MessageID{"m"}})
	if _, err := newOperator(t, s).UnskipEvents(t.Context(), "w", "t", []keep.MessageID{"m"}, keep.Decision{}); err != nil {
		t.Fatal(err)
	}
	handler := func() keep.HandlerState {
		hs, err := s.Handlers(context.Background(), "w")
		if err != nil || len(hs) != 1 {
			t.Fatalf("handlers: %v, %v", hs, err)
		}
		return hs[0]
	}
	if h := handler(); h.IdleSeq != 0 || h.RequestedAt.IsZero() {
		t.Errorf("after the skip was undone the consumer is %+v", h)
	}
	commit(t, s, keep.PutHandler{State: state, Served: noon}) // noon is before now
	if h := handler(); h.RequestedAt.IsZero() {
		t.Errorf("after the commit of a run that began before the consumer is %+v", h)
	}
}
