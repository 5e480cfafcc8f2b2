package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/law/lifecycle"
)

// statusCmd answers the question of every morning on one page.
func (a *app) statusCmd() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "What needs a person, what fails, what is late",
		Long: `Status says what needs a person, what fails and what is late. It ends with 0
whatever it says, so that scripts may print it.

With --exit-code it ends with 4 if a question is open, else with 1 if something
fails, is in doubt or is late, the database refuses what the host writes, a change of keep.toml is not in force, or events wait
that nothing will handle, and with 0 if all is well.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.look(cmd.Context(), func(c *api.Client) error {
				s, err := c.Status(cmd.Context())
				if err != nil {
					return err
				}
				print := a.printStatus
				if a.JSON {
					print = func(s api.Status) error { return a.PrintJSON(s) }
				}
				// Printed either way: who is woken by the status wants to read why.
				if err := print(s); err != nil || !check {
					return err
				}
				return statusCode(s)
			})
		},
	}
	cmd.Flags().BoolVar(&check, "exit-code", false, "end with 4 if a question is open, 1 if something fails or is late")
	return cmd
}

// statusCode returns how keep status --exit-code ends. A question comes first: to answer it is what
// a person can do. Runs that wait for the limits of a connection are as they should be, and
// do not count.
func statusCode(s api.Status) error {
	failing, _ := byLimit(s)
	unknown := s.KeysUnknown != nil && *s.KeysUnknown > 0
	switch {
	case len(s.NeedsYou) > 0:
		return exit.With(exit.NeedsPerson)
	case len(failing)+len(s.InDoubt)+len(s.Late)+len(s.NotTold)+len(s.Unlike)+len(s.NoProgram)+len(s.Stranded) > 0 || unknown || s.Refusal != nil || configFault(s) != "":
		return exit.With(exit.Failed)
	}
	return nil
}

// printStatus prints what needs a person first, and what is well last.
func (a *app) printStatus(s api.Status) error {
	if n := s.KeysUnknown; n != nil && *n > 0 {
		a.heading("Unknown keys", *n)
		fmt.Fprintln(a.Out, "  requests whose outcome nobody knows: keep keys --status unknown, then keep keys resolve")
	}
	// A database of keep proxy or keep gateway has no workflows; what it asks is shown all the same, and what is wrong with its host.
	said := s
	said.KeysUnknown = nil // are above
	if len(s.Workflows) == 0 && statusCode(said) == nil {
		fmt.Fprintln(a.Err, "There are no workflows yet: keep deploy PATH, or keep dev PATH.")
		return nil
	}
	a.printNeeds(s)
	first(a, s.NotTold, "keep status --json", func(n api.NotTold) string {
		return fmt.Sprintf("%s was given up after %s to tell of %s: %s", n.Sink, terminal.Plural(n.Attempts, "attempt"), n.Question, terminal.Clean(n.Error))
	})
	failing, held := byLimit(s)
	a.heading("Failing", len(failing)+len(s.InDoubt))
	first(a, failing, "keep runs --open", waitText)
	first(a, s.InDoubt, "keep mutations --status indeterminate", func(d api.Doubt) string {
		return fmt.Sprintf("%s: item %s: %s", d.Workflow, terminal.Clean(d.Item), terminal.Clean(d.Why))
	})
	a.printHostFaults(s)
	a.heading("Late", len(s.Late))
	ask := "; is a host running (keep serve)?"
	if s.Config != nil { // one answered
		ask = ""
	}
	first(a, s.Late, "keep status --json", func(l api.Late) string {
		return fmt.Sprintf("%s: %s was due %s%s", l.Workflow, terminal.Clean(l.What), a.At(l.DueAt), ask)
	})
	a.printStranded(s)
	a.printPauses(s)
	if len(held) > 0 {
		a.heading("Waiting for a connection", len(held))
		first(a, held, "keep runs --open", waitText)
	}
	if len(s.Connections) > 0 {
		fmt.Fprintln(a.Out)
		t := terminal.Table{Header: []string{"CONNECTION", "STATE", "SINCE", "NEXT CALL", "WAITING", "WHY"}}
		for _, c := range s.Connections {
			t.Add(c.Name, string(c.State), a.atOrDash(c.Since), a.nextCall(c.NextProbeAt), terminal.Number(c.Waiting),
				terminal.CutTo(terminal.OrDash(c.Why), terminal.MaxTitle))
		}
		if err := t.Print(a.Out, a.OutInk); err != nil {
			return err
		}
	}
	pending, reserved := make(map[keep.WorkflowName]int), make(map[keep.WorkflowName]int)
	for _, t := range s.Topics {
		pending[t.Workflow] += t.Pending
		reserved[t.Workflow] += t.Reserved
	}
	t := terminal.Table{Header: []string{"WORKFLOW", "VERSION", "STATE", "PENDING", "RESERVED", "OPEN RUN"}}
	for _, w := range s.Workflows {
		t.Add(string(w.Name), w.Version, terminal.PausedText(w.Paused), terminal.Number(pending[w.Name]), terminal.Number(reserved[w.Name]), terminal.OrDash(w.OpenRun))
	}
	fmt.Fprintln(a.Out)
	return t.Print(a.Out, a.OutInk)
}

// printNeeds prints what the open questions are about.
func (a *app) printNeeds(s api.Status) {
	a.heading("Needs you", max(s.Asked, len(s.NeedsYou)))
	// Accounts come first: one that does not work holds up every workflow that uses it.
	listed := 0
	for _, q := range s.NeedsYou {
		if q.Kind == keep.AskReconnect {
			fmt.Fprintln(a.Out, "  "+terminal.Clean(q.Question))
			listed++
		}
	}
	for _, c := range s.Causes {
		// Of very many questions the list has the newest only.
		if c.Kind != keep.AskReconnect || c.Count > listed {
			fmt.Fprintln(a.Out, "  "+causeText(c))
		}
	}
}

// configFault returns what became of a change of keep.toml or of a secret that is not in force, or not wholly; empty: all is.
func configFault(s api.Status) string {
	switch c := s.Config; {
	case c != nil && c.Refused != nil:
		return "refused, and what was before is in force: " + terminal.Clean(c.Refused.Reason)
	case c != nil && c.Unfinished != nil:
		return "taken, but for a part that is tried again: " + terminal.Clean(c.Unfinished.Reason)
	}
	return ""
}

// printStranded prints the topics whose events nothing will handle.
func (a *app) printStranded(s api.Status) {
	if len(s.Stranded) > 0 {
		a.heading("Read by no consumer", len(s.Stranded))
	}
	first(a, s.Stranded, "keep status --json", func(t api.Stranded) string { return terminal.Clean(t.Why) })
}

// printPauses prints why workflows are paused, each reason once: what pauses all of them is read once.
func (a *app) printPauses(s api.Status) {
	var notes []string
	paused := make(map[string][]keep.WorkflowName)
	for _, w := range s.Workflows {
		if w.PauseNote == nil {
			continue
		}
		if paused[*w.PauseNote] == nil {
			notes = append(notes, *w.PauseNote)
		}
		paused[*w.PauseNote] = append(paused[*w.PauseNote], w.Name)
	}
	if len(notes) > 0 {
		a.heading("Paused", len(notes))
	}
	first(a, notes, "keep workflows show W", func(note string) string {
		return fmt.Sprintf("%s: %s", andMore(paused[note]), terminal.Clean(note))
	})
}

// andMore names the first of workflows, of which there is one at least, and how many more there are.
func andMore(ws []keep.WorkflowName) string {
	if more := len(ws) - 1; more > 0 {
		return fmt.Sprintf("%s and %d more", ws[0], more)
	}
	return string(ws[0])
}

// printHostFaults prints what the hosts lack.
func (a *app) printHostFaults(s api.Status) {
	if r := s.Refusal; r != nil {
		a.heading("The database refuses writes", 1)
		fmt.Fprintf(a.Out, "  since %s: %s\n", a.At(r.Since), terminal.Clean(r.Reason))
	}
	if fault := configFault(s); fault != "" {
		a.heading("Configuration", 1)
		fmt.Fprintln(a.Out, "  "+fault)
	}
	if len(s.NoProgram) > 0 {
		a.heading("Executed by no host", len(s.NoProgram))
	}
	first(a, s.NoProgram, "keep status --json", func(m api.NoProgram) string { return terminal.Clean(m.Why) })
	for i, m := range s.Unlike {
		if i == 0 {
			a.heading("Hosts that differ", len(s.Unlike))
		}
		fmt.Fprintf(a.Out, "  %s; give all hosts the same keep.toml (keep hosts)\n", terminal.Clean(m.Why))
	}
}

// maxStatus is how many things of one sort keep status shows: what stops fifty workflows
// or items has one cause, and is read once.
const maxStatus = 5

// first prints the first of what a part of the status has, and how to see the others.
func first[T any](a *app, all []T, more string, line func(T) string) {
	for i, v := range all {
		if i == maxStatus {
			fmt.Fprintf(a.Out, "  and %d more: %s\n", len(all)-i, more)
			return
		}
		fmt.Fprintln(a.Out, "  "+line(v))
	}
}

// causeText returns what questions are about on one line, and how to see one of them. Questions with
// one cause are one line, since what repairs one of them repairs the others.
func causeText(c api.Cause) string {
	about := string(c.Kind)
	if c.Tool != "" {
		about += ", " + c.Tool
	}
	if c.Code != "" {
		about += " (" + c.Code + ")"
	}
	if len(c.Workflows) > 0 { // what is asked about a secret is of none
		about += " in " + andMore(c.Workflows)
	}
	if c.Count == 1 {
		return fmt.Sprintf("%s: keep inbox show %s", about, c.Example)
	}
	return fmt.Sprintf("%d × %s: keep inbox, such as keep inbox show %s", c.Count, about, c.Example)
}

// heading begins a part of the status. Parts that have nothing say so: an empty page would not tell
// all is well from what was not looked at.
func (a *app) heading(name string, n int) {
	if n == 0 {
		fmt.Fprintf(a.Out, "%s: nothing\n", name)
		return
	}
	fmt.Fprintf(a.Out, "%s\n", a.OutInk.Bold(fmt.Sprintf("%s: %d", name, n)))
}

// byLimit returns the runs that fail, and those that only wait for a connection: they continue by
// themselves, and nobody is to be woken for them.
func byLimit(s api.Status) (failing, held []api.Run) {
	for _, r := range s.Failing {
		if r.Wait != nil && r.Wait.Kind == lifecycle.WaitsForLimit {
			held = append(held, r)
		} else {
			failing = append(failing, r)
		}
	}
	return failing, append(held, s.Limited...)
}

// waitText says for what a run waits.
func waitText(r api.Run) string {
	return fmt.Sprintf("%s: run %s of %s: %s", r.Workflow, r.ID, r.Handler, terminal.Clean(terminal.OrEmpty(r.WaitsFor)))
}

// nextCall says when a connection may be called again.
func (a *app) nextCall(at *api.Time) string {
	if at != nil && !time.Time(*at).After(a.Now()) {
		return "when one is due"
	}
	return a.atOrDash(at)
}

// atOrDash returns a time as people read it, or a dash for none.
func (a *app) atOrDash(v *api.Time) string {
	if v == nil {
		return "-"
	}
	return a.At(*v)
}
