package operator_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// Two hosts with other files on one store: the rule of the host that has the workflow counts, and a process that
// executes nothing decides nothing about it.
func TestSettleBudgetsOfAnotherRule(t *testing.T) {
	asked := budget.Rule{Name: "money", Tools: []string{"*"}, Limit: keep.AmountUnit, Per: time.Hour}
	other := asked
	other.Limit *= 2
	for name, c := range map[string]struct {
		rules []budget.Rule
		has   operator.Executor // the workflow
		noted string
		want  bool
	}{
		"same":               {[]budget.Rule{asked}, executor(true), asked.Mark(), false},
		"other":              {[]budget.Rule{other}, executor(true), asked.Mark(), true},
		"gone":               {nil, executor(true), asked.Mark(), true},
		"of another host":    {[]budget.Rule{other}, executor(false), asked.Mark(), false},
		"a command":          {[]budget.Rule{other}, nil, asked.Mark(), false},
		"by an earlier Keep": {[]budget.Rule{asked}, executor(true), "", true},
	} {
		w := &accountWorld{t, memory.New()}
		w.waits("a", keep.CodeBudget, "", 0)
		runs, _, err := w.Runs(w.Context(), keep.RunFilter{Open: true}, keep.Page{})
		if err != nil {
			t.Fatal(err)
		}
		r := runs[0]
		r.Status, r.Error.Budget, r.Error.BudgetRule = keep.StatusApproval, asked.Name, c.noted
		q := keep.Escalation{ID: budget.QuestionID(asked.Name, 1), Kind: keep.AskBudget, Budget: asked.Name, Workflow: "a", Run: r.ID, CreatedAt: noon}
		if err := w.Commit(w.Context(), keep.Commit{Workflow: "a", At: noon, Changes: []keep.Change{keep.PutRun{Run: r}, keep.OpenEscalation{Escalation: q}}}); err != nil {
			t.Fatal(err)
		}
		o, err := operator.New(w.Store, operator.Config{Logger: slog.New(slog.DiscardHandler), Executor: c.has, Budgets: func() []budget.Rule { return c.rules }})
		if err != nil {
			t.Fatal(err)
		}
		if err := o.SettleBudgets(w.Context()); err != nil {
			t.Fatal(err)
		}
		if r, err = w.Store.Run(w.Context(), r.ID); err != nil || r.RetryAt.IsZero() == c.want {
			t.Errorf("%s: the run is tried again at %s, %v", name, r.RetryAt, err)
		}
	}
}

// Who answers the question about a budget with Stop leaves the note of whoever paused the workflow for another reason: it would be
// resumed when there is room again.
func TestStopKeepsTheNoteOfAPause(t *testing.T) {
	s := memory.New()
	q := keep.Escalation{ID: budget.QuestionID("money", 1), Kind: keep.AskBudget, Budget: "money", Workflow: "w", Run: "run_1", CreatedAt: noon, Choices: []keep.Choice{{Action: keep.Stop, Label: "Stop"}}}
	commit(t, s, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Hash: "h", CreatedAt: noon, Definition: keep.Definition{Name: "w"}}}, keep.OpenEscalation{Escalation: q})
	o := newOperator(t, s)
	for _, tt := range []struct{ before, want string }{{"it pays twice", "it pays twice"}, {"", "no money"}} {
		if err := o.Resume(t.Context(), "w", keep.Decision{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		if tt.before != "" {
			if err := o.Pause(t.Context(), "w", keep.Decision{By: "ann", Note: tt.before}); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.Decide(t.Context(), q.ID, keep.Decision{Action: keep.Stop, By: "bob", From: "web", Note: "no money"}); err != nil {
			t.Errorf("stop: %v", err)
		}
		if w, err := s.Workflow(t.Context(), "w"); err != nil || !w.Paused || w.PauseNote != tt.want {
			t.Errorf("paused %t with the note %q, %v, want %q", w.Paused, w.PauseNote, err, tt.want)
		}
	}
	list, err := s.Decided(t.Context(), keep.WorkflowName("w").Subject())
	if err != nil || len(list) != 3 {
		t.Fatalf("recorded is %+v, %v, want a pause, a resume and a pause", list, err)
	}
	if d := list[2].Decision; d.Action != keep.Pause || d.By != "bob" || d.From != "web" || d.Note != "no money" {
		t.Errorf("the stop is recorded as %+v", d)
	}
}
