package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
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
				case a.JSON:
					return a.PrintJSON(s)
				}
				return a.printStatus(s)
			})
		},
	}
}

// printStatus prints what needs a person first, and what is well last.
func (a *app) printStatus(s api.Status) error {
	if n := s.KeysUnknown; n != nil && *n > 0 {
		a.heading("Unknown keys", *n)
		fmt.Fprintln(a.Out, "  requests whose outcome nobody knows: keep keys --status unknown, then keep keys resolve")
	}
	if len(s.Workflows) == 0 && len(s.NeedsYou) == 0 {
		fmt.Fprintln(a.Err, "There are no workflows yet: keep deploy PATH, or keep dev PATH.")
		return nil
	}
	a.heading("Needs you", len(s.NeedsYou))
	for _, q := range s.NeedsYou {
		if q.Kind == keep.AskReconnect {
			fmt.Fprintln(a.Out, "  "+terminal.Clean(q.Question))
		}
	}
	for _, c := range s.Causes {
		if c.Kind != keep.AskReconnect {
			fmt.Fprintln(a.Out, "  "+causeText(c))
		}
	}
	for _, n := range s.NotTold {
		fmt.Fprintf(a.Out, "  %s was given up after %s to tell of %s: %s\n", n.Sink, terminal.Plural(n.Attempts, "attempt"), n.Question, terminal.Clean(n.Error))
	}
	a.heading("Failing", len(s.Failing)+len(s.InDoubt))
	for _, r := range s.Failing {
		fmt.Fprintf(a.Out, "  %s: run %s of %s: %s\n", r.Workflow, r.ID, r.Handler, terminal.Clean(terminal.OrEmpty(r.WaitsFor)))
	}
	for _, d := range s.InDoubt {
		fmt.Fprintf(a.Out, "  %s: item %s: %s\n", d.Workflow, terminal.Clean(d.Item), terminal.Clean(d.Why))
	}
	for i, m := range s.Unlike {
		if i == 0 {
			a.heading("Hosts that differ", len(s.Unlike))
		}
		fmt.Fprintf(a.Out, "  %s; give all hosts the same keep.toml (keep hosts)\n", terminal.Clean(m.Why))
	}
	a.heading("Late", len(s.Late))
	for _, l := range s.Late {
		fmt.Fprintf(a.Out, "  %s: %s was due %s; is a host running (keep serve)?\n", l.Workflow, terminal.Clean(l.What), a.At(l.DueAt))
	}
	pending := make(map[keep.WorkflowName]int)
	for _, t := range s.Topics {
		pending[t.Workflow] += t.Pending + t.Reserved
	}
	t := terminal.Table{Header: []string{"WORKFLOW", "VERSION", "STATE", "PENDING EVENTS", "OPEN RUN"}}
	for _, w := range s.Workflows {
		t.Add(string(w.Name), w.Version, terminal.PausedText(w.Paused), terminal.Number(pending[w.Name]), terminal.OrDash(w.OpenRun))
	}
	fmt.Fprintln(a.Out)
	return t.Print(a.Out, a.OutInk)
}

// causeText returns what questions are about on one line, and how to see one of them.
func causeText(c api.Cause) string {
	about := string(c.Kind)
	if c.Tool != "" {
		about += ", " + c.Tool
	}
	if c.Code != "" {
		about += " (" + c.Code + ")"
	}
	in := string(c.Workflows[0])
	if more := len(c.Workflows) - 1; more > 0 {
		in = fmt.Sprintf("%s and %d more", in, more)
	}
	if c.Count == 1 {
		return fmt.Sprintf("%s in %s: keep inbox show %s", about, in, c.Example)
	}
	return fmt.Sprintf("%d × %s in %s: keep inbox, such as keep inbox show %s", c.Count, about, in, c.Example)
}

// heading begins a part of the status.
func (a *app) heading(name string, n int) {
	if n == 0 {
		fmt.Fprintf(a.Out, "%s: nothing\n", name)
		return
	}
	fmt.Fprintf(a.Out, "%s\n", a.OutInk.Bold(fmt.Sprintf("%s: %d", name, n)))
}
