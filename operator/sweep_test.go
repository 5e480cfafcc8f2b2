package operator_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// An overCounter counts the runs that a sweep may have read.
type overCounter struct {
	*memory.Store
	read int
}

func (s *overCounter) Over(ctx context.Context, r keep.OldRuns, after string, limit int) ([]keep.OldChain, string, error) {
	old, next, err := s.Store.Over(ctx, r, after, limit)
	s.read += len(old)
	if next != "" {
		s.read += limit - len(old)
	}
	return old, next, err
}

// A sweep costs nothing for what a long retention keeps: it ran every hour over every
// run that the shortest retention of the database would have taken.
func TestSweepOfLongRetention(t *testing.T) {
	s := &overCounter{Store: memory.New()}
	made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, name := range []keep.WorkflowName{"long", "short"} {
		commitTo(t, s, name, made, keep.Deploy{Deployment: keep.Deployment{Workflow: name, Version: keep.Version{Major: 1},
			Definition: keep.Definition{Name: name}, CreatedAt: made}})
	}
	for i := range 1200 {
		id := keep.RunID(fmt.Sprintf("run_%04d", i))
		commitTo(t, s, "long", made, keep.PutRun{Run: keep.Run{ID: id, Chain: id, Workflow: "long", Handler: "h", Kind: keep.Consumer,
			Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true, CreatedAt: made, UpdatedAt: made}})
	}
	o, err := operator.New(s, operator.Config{Now: func() time.Time { return made.Add(10 * 24 * time.Hour) }, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r := policy.Retention{After: 24 * time.Hour, Workflows: map[keep.WorkflowName]time.Duration{"long": 365 * 24 * time.Hour}}
	done, err := o.Sweep(t.Context(), r, false, nil)
	if err != nil || done.Chains != 0 {
		t.Errorf("Sweep = %+v, %v, want nothing", done, err)
	}
	if s.read > 0 {
		t.Errorf("the sweep read %d runs that the retention keeps", s.read)
	}
	delete(r.Workflows, "long")
	if done, err = o.Sweep(t.Context(), r, false, nil); err != nil || done.Chains != 1199 { // the newest of the database stays
		t.Errorf("Sweep = %+v, %v, want 1199 chains", done, err)
	}
}

// Runs that found nothing to do are not kept for as long as the others, and no other is read for it.
func TestSweepOfEmptyRuns(t *testing.T) {
	s := &overCounter{Store: memory.New()}
	made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, name := range []keep.WorkflowName{"long", "short"} {
		commitTo(t, s, name, made, keep.Deploy{Deployment: keep.Deployment{Workflow: name, Version: keep.Version{Major: 1},
			Definition: keep.Definition{Name: name}, CreatedAt: made}})
		for i := range 30 {
			id := keep.RunID(fmt.Sprintf("run_%s%02d", name, i))
			commitTo(t, s, name, made, keep.PutRun{Run: keep.Run{ID: id, Chain: id, Workflow: name, Handler: "h", Kind: keep.Producer,
				Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true, Idle: i%3 > 0, CreatedAt: made, UpdatedAt: made}})
		}
	}
	r := policy.Retention{Empty: 3 * 24 * time.Hour, Workflows: map[keep.WorkflowName]time.Duration{"short": 24 * time.Hour}}
	for _, c := range []struct {
		days       time.Duration
		runs, read int
	}{
		{2, 29, 29}, // all of short, but the newest of the database
		{4, 20, 20}, // the empty ones of long
		{4, 0, 0},
	} {
		s.read = 0
		o, err := operator.New(s, operator.Config{Now: func() time.Time { return made.Add(c.days * 24 * time.Hour) }, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		done, err := o.Sweep(t.Context(), r, false, nil)
		if err != nil || done.Runs != c.runs || s.read != c.read {
			t.Errorf("after %d days Sweep = %+v, %v, and read %d; want %d and %d", c.days, done, err, s.read, c.runs, c.read)
		}
	}
	if err := (policy.Retention{Empty: time.Hour}).Validate(); err == nil {
		t.Error("an hour is long enough for empty runs")
	}
}

// What counts in a budget is kept as long as it does, whatever the retention.
func TestSweepKeepsWhatCounts(t *testing.T) {
	s := &overCounter{Store: memory.New()}
	made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	commitTo(t, s, "w", made, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Definition: keep.Definition{Name: "w"}, CreatedAt: made}})
	for _, id := range []keep.RunID{"run_1", "run_2"} {
		m := keep.Mutation{Key: keep.MutationKey("mut_" + id), Workflow: "w", Run: id, Tool: "bank.pay", Level: keep.LevelNone, Token: "t", State: keep.Applied, ResolvedBy: "call",
			Attempts: 1, CallDeadline: made, CreatedAt: made, UpdatedAt: made, SpentAt: made, Spent: []keep.Spent{{Budget: "money", Amount: 1, Limit: 9, Per: time.Hour}}}
		commitTo(t, s, "w", made,
			keep.PutRun{Run: keep.Run{ID: id, Chain: id, Workflow: "w", Handler: "h", Kind: keep.Consumer, Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true,
				Mutation: m.Key, CreatedAt: made, UpdatedAt: made}},
			keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: made, By: "call", To: keep.InFlight}, {At: made, By: "call", From: keep.InFlight, To: keep.Applied}}})
	}
	rules := []budget.Rule{{Name: "money", Per: 7 * 24 * time.Hour}}
	for after, want := range map[time.Duration]int{6 * 24 * time.Hour: 0, 8 * 24 * time.Hour: 1} { // the newest of the database stays
		o, err := operator.New(s, operator.Config{Now: func() time.Time { return made.Add(after) }, Budgets: func() []budget.Rule { return rules }, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if done, err := o.Sweep(t.Context(), policy.Retention{After: 24 * time.Hour}, true, nil); err != nil || done.Chains != want {
			t.Errorf("after %s a sweep takes %+v, %v; want %d chains (law: within-budget)", after, done, err, want)
		}
	}
}

func commitTo(t *testing.T, s *overCounter, w keep.WorkflowName, at time.Time, changes ...keep.Change) {
	t.Helper()
	if err := s.Commit(t.Context(), keep.Commit{Workflow: w, At: at, Changes: changes}); err != nil {
		t.Fatal(err)
	}
}

// A host died between a question about a budget and the note that it was asked. A sweep, which
// may delete the question, notes it first, or the next question would have the same id.
func TestSweepNotesQuestionsAboutBudgets(t *testing.T) {
	s := &overCounter{Store: memory.New()}
	made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	commitTo(t, s, "w", made, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Definition: keep.Definition{Name: "w"}, CreatedAt: made}},
		keep.PutRun{Run: keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Handler: "h", Kind: keep.Consumer, Phase: keep.Prepared, Status: keep.StatusActive, CreatedAt: made, UpdatedAt: made}})
	for n := 1; n <= 2; n++ {
		commitTo(t, s, "w", made, keep.OpenEscalation{Escalation: keep.Escalation{ID: budget.QuestionID("money", n), Kind: keep.AskBudget, Budget: "money", Workflow: "w", Run: "run_1", CreatedAt: made}})
	}
	o, err := operator.New(s, operator.Config{Now: func() time.Time { return made }, Budgets: func() []budget.Rule { return []budget.Rule{{Name: "money", Per: time.Hour}} }, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := o.Sweep(t.Context(), policy.Retention{After: time.Hour}, false, nil); err != nil {
			t.Fatal(err)
		}
		row, err := s.Gate(t.Context(), keep.BudgetGate("money"))
		if err != nil || string(row.State) != `{"asked":2}` {
			t.Errorf("the row of the budget says %s, %v; want 2 questions", row.State, err)
		}
	}
}
