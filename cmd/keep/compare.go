package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/rehearsal/compare"
)

// compareCmd compares two stored versions of a workflow.
func (a *app) compareCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "compare NAME V1 V2", Short: "Say what version V2 would have done otherwise with the runs of V1",
		Long: `Compare goes through the recorded runs of version V1 of the last 7 days with version V2, in
shadow: nothing is sent, and nothing is read from a service. It says which runs, inputs and
calls would have been otherwise, and what can be done about each call.

Exit codes: 0 safe, 4 a person should look ("impact" of --json: impactful or inconclusive),
3 no such workflow or version.`,
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.look(cmd.Context(), func(c *api.Client) error {
				r, err := c.Compare(cmd.Context(), keep.WorkflowName(args[0]), api.CompareRequest{From: args[1], Version: args[2]})
				if err != nil {
					return err
				}
				return a.printComparisons([]api.Comparison{r}, true)
			})
		},
	}
	cmd.ValidArgsFunction = a.byPosition(workflowNames)
	return cmd
}

// compareScripts compares scripts that are not deployed with the current versions. One that was
// renamed is compared with the runs of the name that it had.
func (a *app) compareScripts(ctx context.Context, c *api.Client, p *project.Project, scripts []project.Script) error {
	all := []api.Comparison{}
	stored, err := c.Workflows(ctx)
	if err != nil {
		return err
	}
	for _, s := range scripts {
		text := filesOf(s.Bundle)
		// Its runs are those of the name that the database has.
		r, err := c.Compare(ctx, continuedAs(stored, s.Definition), api.CompareRequest{Script: &text})
		if errors.Is(err, keep.ErrNotFound) {
			r, err = newWorkflow(s.Name), nil
		}
		// A script that the host refuses is a mistake of the script, with its place.
		if found := project.Problems(p.Root, err); len(found) > 0 {
			a.PrintProblems(found)
			return exit.With(exit.Misused)
		}
		if err != nil {
			return fmt.Errorf("compare %s: %w", s.File, err)
		}
		all = append(all, r)
	}
	return a.printComparisons(all, len(scripts) == 1)
}

// compareWithNothing is compareScripts where nothing was ever deployed: there is no database to ask.
func (a *app) compareWithNothing(scripts []project.Script) error {
	all := []api.Comparison{}
	for _, s := range scripts {
		all = append(all, newWorkflow(s.Name))
	}
	fmt.Fprintln(a.Err, "Nothing is deployed yet, so there is nothing to compare with.")
	return a.printComparisons(all, len(scripts) == 1)
}

// newWorkflow is the comparison of a workflow that was never deployed. Its impact is unknown and
// not safe: there are no runs that could show what it does.
func newWorkflow(name keep.WorkflowName) api.Comparison {
	counts := make(map[string]int)
	for _, c := range compare.Changes() {
		counts[string(c)] = 0
	}
	return api.Comparison{Workflow: name, To: "new", Impact: string(compare.Unknown), Declared: []string{}, Runs: []api.ComparedRun{},
		Inputs: []api.ComparedInput{}, Mutations: []api.ComparedMutation{}, Counts: counts, Whole: true}
}

// printComparisons prints what came of comparing, and returns the error that ends the command.
// One prints the object of --json alone, not in a list.
func (a *app) printComparisons(all []api.Comparison, one bool) error {
	var err error
	switch {
	case a.JSON && one:
		err = a.PrintJSON(all[0])
	case a.JSON:
		err = a.PrintJSON(all)
	default:
		for _, r := range all {
			err = errors.Join(err, a.printComparison(a.Out, r))
		}
	}
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.Impact != string(compare.Safe) {
			return exit.With(exit.NeedsPerson)
		}
	}
	return nil
}

// maxCompared is how many runs, and how many calls, a comparison prints that differ.
const maxCompared = 20

// printComparison prints a comparison for a person.
func (a *app) printComparison(w io.Writer, r api.Comparison) error {
	for _, d := range r.Declared {
		fmt.Fprintf(w, "%s %s\n", a.OutInk.Yellow("declared:"), terminal.Clean(d))
	}
	shown := 0
	for _, run := range r.Runs {
		if run.Change == string(compare.Same) {
			continue
		}
		// Counted to the end: the person has to know how many more there are.
		if shown++; shown > maxCompared {
			continue
		}
		fmt.Fprintf(w, "%s of %s: %s%s\n", a.OutInk.Bold(string(run.Run)), run.Handler, run.Change, map[bool]string{false: ", its work was not done"}[run.Done])
		a.printEffects(w, "- ", run.Before, a.OutInk.Red)
		a.printEffects(w, "+ ", run.After, a.OutInk.Green)
		if run.Why != "" {
			fmt.Fprintf(w, "  not known: %s\n", terminal.Clean(run.Why))
		}
	}
	if shown > maxCompared {
		fmt.Fprintf(w, "and %d more runs: --json has all of them\n", shown-maxCompared)
	}
	if len(r.Mutations) > 0 {
		t := terminal.Table{Header: []string{"CALL", "TOOL", "WOULD BE", "WHAT CAN BE DONE"}}
		for _, m := range r.Mutations[:min(len(r.Mutations), maxCompared)] {
			t.Add(cmp.Or(string(m.Key), "-"), string(m.Tool), m.Change, strings.TrimSuffix(m.Remedy+": "+terminal.Clean(m.How), ": "))
		}
		if err := t.Print(w, a.OutInk); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "%s: %s. Nothing was sent, and nothing was deployed.\n", a.OutInk.Bold(r.Impact), compared(r))
	return nil
}

// printEffects prints what a run did, or would do, one line each and marked as in a diff.
func (a *app) printEffects(w io.Writer, sign string, list []api.ComparedEffect, ink func(string) string) {
	for _, e := range list {
		fmt.Fprintln(w, "  "+ink(sign+terminal.Clean(e.Phase+" "+e.What)+" "+terminal.CutTo(terminal.Clean(string(e.Value)), maxSeen)))
	}
}

// compared says in words what was gone through, and what was not: a verdict is worth as much as
// the runs behind it.
func compared(r api.Comparison) string {
	if r.From == "" {
		return fmt.Sprintf("%s is new, so there are no runs to compare", r.Workflow)
	}
	if len(r.Runs) == 0 {
		return fmt.Sprintf("no recorded run of version %s of %s to compare", r.From, r.Workflow)
	}
	var parts []string
	for _, c := range compare.Changes() {
		if n := r.Counts[string(c)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, c))
		}
	}
	text := fmt.Sprintf("%d runs of version %s of %s: %s", len(r.Runs), r.From, r.Workflow, strings.Join(parts, ", "))
	if r.Older {
		text += "; there are older ones"
	}
	if !r.Whole {
		text += "; the time was over before all were gone through"
	}
	return text
}
