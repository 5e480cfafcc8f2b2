package operator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func commit(t *testing.T, s operator.Store, changes ...keep.Change) {
	t.Helper()
	if err := s.Commit(t.Context(), keep.Commit{Workflow: "w", At: noon, Changes: changes}); err != nil {
		t.Fatal(err)
	}
}

func newOperator(t *testing.T, s operator.Store) *operator.Operator {
	t.Helper()
	o, err := operator.New(s, operator.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// A racing store lets something happen between two reads of a decision: before the open
// run is read for the first time.
type racing struct {
	*memory.Store
	race func()
}

func (r *racing) OpenRuns(ctx context.Context, w keep.WorkflowName) ([]keep.Run, error) {
	if race := r.race; race != nil {
		r.race = nil
		race()
	}
	return r.Store.OpenRuns(ctx, w)
}

// The run that has an event commits after the event was read: the skip reads again, and
// finds it finished.
func TestSkipRacesWithACommit(t *testing.T) {
	s := &racing{Store: memory.New()}
	commit(t, s, keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "m"}})
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Handler: "c", Kind: keep.Consumer, Phase: keep.Prepared,
		Status: keep.StatusActive, Reservations: []keep.Reservation{{Topic: "t", IDs: []keep.MessageID{"m"}}}, CreatedAt: noon, UpdatedAt: noon}
	commit(t, s, keep.PutRun{Run: run}, keep.Reserve{Chain: "run_1", Reservation: run.Reservations[0]})
	s.race = func() {
		run.Rev, run.Phase, run.Status, run.Closed = 1, keep.Committed, keep.StatusCommitted, true
		commit(t, s, keep.PutRun{Run: run}, keep.Finish{Chain: "run_1", Status: keep.EventConsumed})
	}
	res, err := newOperator(t, s).SkipEvents(t.Context(), "w", "t", []keep.MessageID{"m"}, keep.Decision{})
	if err != nil || res.Finished != 1 || s.race != nil {
		t.Errorf("SkipEvents = %+v, %v, want one that is finished", res, err)
	}
}

// The question of an item is found however many others are open.
func TestQuestionOfAnItemAmongMany(t *testing.T) {
	s := memory.New()
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Handler: "j", Kind: keep.Job, Phase: keep.Running,
		Status: keep.StatusPerson, CreatedAt: noon, UpdatedAt: noon}
	commit(t, s, keep.PutRun{Run: run}, keep.PutItem{Item: keep.Item{Workflow: "w", ID: "a", Status: keep.ItemAttention, Attempt: 1, CreatedAt: noon, UpdatedAt: noon}})
	for i := range keep.MaxPage + 1 { // the first one is the oldest, and comes last
		q := keep.Escalation{ID: keep.EscalationID(fmt.Sprintf("esc_%05d", i)), Kind: keep.AskItem, Workflow: "w", Run: "run_1", Item: fmt.Sprint(i),
			Question: "?", Choices: []keep.Choice{{Action: keep.Reprocess}}, CreatedAt: noon}
		if i == 0 {
			q.Item = "a"
		}
		commit(t, s, keep.OpenEscalation{Escalation: q})
	}
	if err := newOperator(t, s).ReprocessItem(t.Context(), "w", "a", keep.Decision{By: "ann"}); err != nil {
		t.Errorf("ReprocessItem: %v", err)
	}
	if it, err := s.Item(t.Context(), "w", "a"); err != nil || it.Attempt != 2 {
		t.Errorf("the item is %+v, %v, want its second attempt", it, err)
	}
}

// What an item of which a call may still happen does is not done again beside it.
func TestReprocessItemInDoubt(t *testing.T) {
	for _, state := range []keep.MutationState{keep.InFlight, keep.NeedsReconcile, keep.Indeterminate, keep.Failed} {
		s := memory.New()
		run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Handler: "j", Kind: keep.Job, Phase: keep.Running,
			Status: keep.StatusAborted, Closed: true, CreatedAt: noon, UpdatedAt: noon}
		m := keep.Mutation{Key: "item_1", Workflow: "w", Run: "run_1", Item: "a", Attempt: 1, Tool: "x.y", Level: keep.LevelNone, Token: "t",
			State: state, Pin: []byte(`{}`), PinHash: "00", Attempts: 1, CallDeadline: noon, CreatedAt: noon, UpdatedAt: noon}
		commit(t, s, keep.PutRun{Run: run}, keep.PutItem{Item: keep.Item{Workflow: "w", ID: "a", Status: keep.ItemSkipped, Attempt: 1, CreatedAt: noon, UpdatedAt: noon}},
			keep.PutMutation{Mutation: m})
		err := newOperator(t, s).ReprocessItem(t.Context(), "w", "a", keep.Decision{By: "ann"})
		_, refused := errors.AsType[*operator.ItemError](err)
		if it, _ := s.Item(t.Context(), "w", "a"); refused != (state != keep.Failed) || refused != (it.Attempt == 1) {
			t.Errorf("%s: ReprocessItem: %v; the item is %+v", state, err, it)
		}
	}
}

// Nor by an answer to a question about another call of it, and it is not left either.
func TestAnswerAboutAnItemInDoubt(t *testing.T) {
	for _, action := range []keep.Action{keep.Reprocess, keep.Skip} {
		for _, state := range []keep.MutationState{keep.InFlight, keep.NeedsReconcile, keep.Indeterminate, keep.Failed} {
			s := memory.New()
			run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Handler: "j", Kind: keep.Job, Phase: keep.Running,
				Status: keep.StatusPerson, CreatedAt: noon, UpdatedAt: noon}
			m := keep.Mutation{Key: "item_1", Workflow: "w", Run: "run_1", Item: "a", Attempt: 1, Tool: "x.y", Level: keep.LevelNone, Token: "t",
				State: state, Pin: []byte(`{}`), PinHash: "00", Attempts: 1, CallDeadline: noon, CreatedAt: noon, UpdatedAt: noon}
			q := keep.Escalation{ID: "esc_1", Kind: keep.AskItem, Workflow: "w", Run: "run_1", Item: "a",
				Question: "?", Choices: []keep.Choice{{Action: keep.Reprocess}, {Action: keep.Skip}}, CreatedAt: noon}
			commit(t, s, keep.PutRun{Run: run}, keep.PutItem{Item: keep.Item{Workflow: "w", ID: "a", Status: keep.ItemAttention, Attempt: 1, CreatedAt: noon, UpdatedAt: noon}},
				keep.PutMutation{Mutation: m}, keep.OpenEscalation{Escalation: q})
			err := newOperator(t, s).Decide(t.Context(), "esc_1", keep.Decision{Action: action, By: "ann"})
			_, refused := errors.AsType[*operator.ItemError](err)
			if it, _ := s.Item(t.Context(), "w", "a"); refused != (state != keep.Failed) || refused != (it.Status == keep.ItemAttention) {
				t.Errorf("%s: %s: %v; the item is %+v", state, action, err, it)
			}
		}
	}
}
