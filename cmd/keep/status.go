package main

import (
	"context"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/lifecycle"
	"github.com/spf13/cobra"
)

// statusCmd answers the question of every morning on one page.
func (a *app) statusCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "What needs a person, what fails, what is late",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.look(cmd.Context(), func(db database) error {
				s, err := a.readStatus(cmd.Context(), db)
				switch {
				case err != nil:
					return err
				case a.json:
					return a.printJSON(s)
				}
				return a.printStatus(s)
			})
		},
	}
}

// A status is what keep status prints.
type status struct {
	Workflows []api.Workflow   `json:"workflows"`
	NeedsYou  []api.Escalation `json:"needs_you"` // open questions
	NotTold   []notTold        `json:"not_told"`  // of them, and of whom [notify] gave up
	Failing   []api.Run        `json:"failing"`   // unfinished runs with an error, or in doubt
	InDoubt   []doubt          `json:"in_doubt"`  // calls with an unknown outcome that no open run waits for
	Late      []late           `json:"late"`      // what should have happened by now
	Topics    []api.Topic      `json:"topics"`
}

// A doubt is a call with an unknown outcome that blocks its item and nothing else.
type doubt struct {
	Workflow keep.WorkflowName `json:"workflow"`
	Item     string            `json:"item"`
	Mutation keep.MutationKey  `json:"mutation"`
	Why      string            `json:"why"` // a sentence
}

// A late is something that should have happened by now.
type late struct {
	Workflow keep.WorkflowName `json:"workflow"`
	What     string            `json:"what"`
	DueAt    api.Time          `json:"due_at"`
}

// lateAfter is how far behind its time something may be.
const lateAfter = time.Minute

// readStatus collects the page. It reads workflow by workflow: there are few.
func (a *app) readStatus(ctx context.Context, db database) (status, error) {
	s := status{NeedsYou: []api.Escalation{}, NotTold: []notTold{}, Failing: []api.Run{}, InDoubt: []doubt{}, Late: []late{}, Topics: []api.Topic{}}
	var err error
	if s.Workflows, err = api.ListWorkflows(ctx, db); err != nil {
		return s, err
	}
	qs, err := questions(ctx, db, "")
	if err != nil {
		return s, err
	}
	s.NeedsYou = append(s.NeedsYou, qs...)
	if err := s.addNotTold(ctx, db); err != nil {
		return s, err
	}
	for _, w := range s.Workflows {
		if err := s.addWorkflow(ctx, db, w, a.now()); err != nil {
			return s, err
		}
	}
	counts, err := db.TopicCounts(ctx, "")
	for _, c := range counts {
		s.Topics = append(s.Topics, api.TopicOf(c))
	}
	return s, err
}

// addWorkflow adds what fails and what is late of one workflow. While a run is
// open its handlers are not late: they wait for it.
func (s *status) addWorkflow(ctx context.Context, db database, w api.Workflow, now time.Time) error {
	overdue := func(what string, t time.Time) {
		if !t.IsZero() && now.Sub(t) > lateAfter {
			s.Late = append(s.Late, late{w.Name, what, api.Time(t)})
		}
	}
	run, open, err := db.OpenRun(ctx, w.Name)
	if err != nil {
		return err
	}
	if err := s.addDoubts(ctx, db, w.Name, run.Mutation); err != nil {
		return err
	}
	if open {
		v, err := api.ShowRun(ctx, db, run.ID)
		if err != nil {
			return err
		}
		if v.Error != nil || v.Status != keep.StatusActive {
			s.Failing = append(s.Failing, v)
		}
		overdue("retry of run "+string(run.ID), run.RetryAt)
		return nil // the handlers wait for this run
	}
	if w.Paused {
		return nil
	}
	for _, h := range w.Handlers {
		if h.NextRunAt != nil {
			overdue(string(h.Name), time.Time(*h.NextRunAt))
		}
	}
	return nil
}

// addDoubts adds the doubts about items that were detached from their runs. of
// is the call of the open run, which is shown with that run.
func (s *status) addDoubts(ctx context.Context, db database, w keep.WorkflowName, of keep.MutationKey) error {
	for _, state := range []keep.MutationState{keep.NeedsReconcile, keep.Indeterminate} {
		ms, _, err := db.Mutations(ctx, keep.MutationFilter{Workflow: w, State: state}, keep.Page{Limit: 1000})
		if err != nil {
			return err
		}
		for _, m := range ms {
			if m.Key != of && m.Item != "" {
				s.InDoubt = append(s.InDoubt, doubt{w, m.Item, m.Key, lifecycle.ExplainDoubt(m)})
			}
		}
	}
	return nil
}

// printStatus prints what needs a person first, and what is well last.
func (a *app) printStatus(s status) error {
	if len(s.Workflows) == 0 {
		fmt.Fprintln(a.err, "There are no workflows yet: keep deploy PATH, or keep dev PATH.")
		return nil
	}
	a.heading("Needs you", len(s.NeedsYou))
	for _, q := range s.NeedsYou {
		fmt.Fprintf(a.out, "%s\n", a.outInk.questionText(q))
	}
	for _, n := range s.NotTold {
		fmt.Fprintf(a.out, "  %s was given up after %s to tell of %s: %s\n", n.Sink, plural(n.Attempts, "attempt"), n.Question, clean(n.Error))
	}
	a.heading("Failing", len(s.Failing)+len(s.InDoubt))
	for _, r := range s.Failing {
		fmt.Fprintf(a.out, "  %s: run %s of %s: %s\n", r.Workflow, r.ID, r.Handler, clean(orEmpty(r.WaitsFor)))
	}
	for _, d := range s.InDoubt {
		fmt.Fprintf(a.out, "  %s: item %s: %s\n", d.Workflow, clean(d.Item), clean(d.Why))
	}
	a.heading("Late", len(s.Late))
	for _, l := range s.Late {
		fmt.Fprintf(a.out, "  %s: %s was due %s; is a host running (keep serve)?\n", l.Workflow, clean(l.What), a.at(l.DueAt))
	}
	pending := make(map[keep.WorkflowName]int)
	for _, t := range s.Topics {
		pending[t.Workflow] += t.Pending + t.Reserved
	}
	t := table{header: []string{"WORKFLOW", "VERSION", "STATE", "PENDING EVENTS", "OPEN RUN"}}
	for _, w := range s.Workflows {
		t.add(string(w.Name), w.Version, pausedText(w.Paused), number(pending[w.Name]), orDash(w.OpenRun))
	}
	fmt.Fprintln(a.out)
	return t.print(a.out, a.outInk)
}

// heading begins a part of the status.
func (a *app) heading(name string, n int) {
	if n == 0 {
		fmt.Fprintf(a.out, "%s: nothing\n", name)
		return
	}
	fmt.Fprintf(a.out, "%s\n", a.outInk.bold(fmt.Sprintf("%s: %d", name, n)))
}
