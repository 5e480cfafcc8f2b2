package operator_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// crowded refuses commits that skip many inputs at once, as if one of them had moved.
type crowded struct {
	*memory.Store
	refused int
}

func (c *crowded) Commit(ctx context.Context, commit keep.Commit) error {
	inputs := 0
	for _, change := range commit.Changes {
		if _, ok := change.(keep.SkipInput); ok {
			inputs++
		}
	}
	if inputs > 3 {
		c.refused++
		return fmt.Errorf("crowded: %w", keep.ErrStale)
	}
	return c.Store.Commit(ctx, commit)
}

func TestSkipInputsInSmallerPartsWhenSomethingMoves(t *testing.T) {
	s := &crowded{Store: memory.New()}
	o, err := operator.New(s, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const n = operator.MaxSkip + 100
	var ids []keep.InputID
	began := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for i := range n {
		id := keep.InputID(fmt.Sprintf("in_%04d", i))
		ids = append(ids, id)
		err := s.Commit(t.Context(), keep.Commit{Workflow: "w", At: began, Changes: []keep.Change{
			keep.PutInput{Input: keep.Input{ID: id, Workflow: "w", ExternalID: string(id), CreatedAt: began}},
			keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: keep.MessageID(id), CausedBy: []keep.InputID{id}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	res, err := o.SkipInputs(t.Context(), "w", ids, keep.Decision{})
	if want := (operator.InputsSkipped{Inputs: n, Events: n}); err != nil || res != want || s.refused == 0 {
		t.Errorf("SkipInputs = %+v, %v after %d refusals, want %+v", res, err, s.refused, want)
	}
	if res, err = o.SkipInputs(t.Context(), "w", ids, keep.Decision{}); err != nil || res.Events != 0 {
		t.Errorf("SkipInputs again = %+v, %v, want no event", res, err)
	}
}

// Of inputs that are skipped together only those count as late that a run past its call has an event of, and not those whose runs
// are ended before theirs.
func TestSkipInputsCountsWhatIsLate(t *testing.T) {
	s := memory.New()
	o := newOperator(t, s)
	for id, phase := range map[string]keep.Phase{"early": keep.Prepared, "late": keep.Mutated} {
		run := keep.RunID("run_" + id)
		commit(t, s,
			keep.PutInput{Input: keep.Input{ID: keep.InputID(id), Workflow: "w", ExternalID: id}},
			keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: keep.MessageID(id), CausedBy: []keep.InputID{keep.InputID(id)}}},
			keep.PutRun{Run: keep.Run{ID: run, Chain: run, Workflow: "w", Handler: "h", Kind: keep.Consumer, Lane: keep.KeyLane("h", id), Phase: phase, Status: keep.StatusTransient}},
			keep.Reserve{Chain: run, Reservation: keep.Reservation{Topic: "t", IDs: []keep.MessageID{keep.MessageID(id)}}})
	}
	res, err := o.SkipInputs(t.Context(), "w", []keep.InputID{"early", "late"}, keep.Decision{})
	if want := (operator.InputsSkipped{Inputs: 1, Late: 1, Events: 1, Aborted: 1}); err != nil || res != want {
		t.Errorf("SkipInputs = %+v, %v, want %+v", res, err, want)
	}
}

func TestSkipInput(t *testing.T) {
	t.Run("done", func(t *testing.T) {
		s := memory.New()
		o, err := operator.New(s, operator.Config{})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
		run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Handler: "h", Kind: keep.Consumer, Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true}
		err = s.Commit(t.Context(), keep.Commit{Workflow: "w", At: began, Changes: []keep.Change{
			keep.PutInput{Input: keep.Input{ID: "in_1", Workflow: "w", ExternalID: "1", CreatedAt: began}},
			keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "m1", CausedBy: []keep.InputID{"in_1"}}},
			keep.PutRun{Run: run}, keep.Reserve{Chain: run.ID, Reservation: keep.Reservation{Topic: "t", IDs: []keep.MessageID{"m1"}}},
			keep.Finish{Chain: run.ID, Status: keep.EventConsumed},
		}})
		if err != nil {
			t.Fatal(err)
		}
		res, err := o.SkipInput(t.Context(), "w", "in_1", keep.Decision{})
		if err != nil || res.Skipped != 0 || res.Finished != 1 {
			t.Errorf("SkipInput = %+v, %v, want one finished event", res, err)
		}
		if many, err := o.SkipInputs(t.Context(), "w", []keep.InputID{"in_1"}, keep.Decision{}); err != nil || many != (operator.InputsSkipped{}) {
			t.Errorf("SkipInputs = %+v, %v, want nothing skipped", many, err)
		}
		if in, err := s.Input(t.Context(), "in_1"); err != nil || in.Status != keep.InputDone {
			t.Errorf("the input is %s, %v, want done", in.Status, err)
		}
	})
}
