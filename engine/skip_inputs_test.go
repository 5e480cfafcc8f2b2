package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/memory"
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
	e, err := engine.New(s, nil, nil, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const n = engine.MaxSkip + 100
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
	res, err := e.SkipInputs(t.Context(), "w", ids)
	if want := (engine.InputsSkipped{Inputs: n, Events: n}); err != nil || res != want || s.refused == 0 {
		t.Errorf("SkipInputs = %+v, %v after %d refusals, want %+v", res, err, s.refused, want)
	}
	if res, err = e.SkipInputs(t.Context(), "w", ids); err != nil || res.Events != 0 {
		t.Errorf("SkipInputs again = %+v, %v, want no event", res, err)
	}
}
