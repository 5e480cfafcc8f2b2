package main

import (
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/spf13/cobra"
)

// statusCmd answers the question of every morning on one page.
func (a *app) statusCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "What needs a person, what fails, what is late",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.look(cmd.Context(), func(c *api.Client) error {
				s, err := c.Status(cmd.Context())
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

// printStatus prints what needs a person first, and what is well last.
func (a *app) printStatus(s api.Status) error {
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
