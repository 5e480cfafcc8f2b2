package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// workflowsCmd lists workflows, shows one, and lists the versions of one. It shows what is deployed,
// whatever is on the disk.
func (a *app) workflowsCmd() *cobra.Command {
	list := func() *cobra.Command {
		return listCmd(a, "", "Workflows: versions, handlers, when they come next", listing[api.Workflow]{
			header: []string{"WORKFLOW", "VERSION", "STATE", "HANDLERS", "OPEN RUN", "UPDATED"},
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Workflow], error) {
				if f.workflow != "" {
					one, err := c.Workflow(ctx, keep.WorkflowName(f.workflow))
					return api.Page[api.Workflow]{Items: []api.Workflow{one}}, err
				}
				all, err := c.Workflows(ctx)
				return inMemory(all, p, func(w api.Workflow) string { return string(w.Name) }, err)
			},
			row: func(w api.Workflow) []string {
				return []string{string(w.Name), w.Version, terminal.PausedText(w.Paused), terminal.Number(len(w.Handlers)),
					terminal.OrDash(w.OpenRun), a.At(w.UpdatedAt)}
			},
		})
	}
	source := false
	show := showCmd(a, "show NAME", "Show one workflow with its handlers, or the text of its current version", 1,
		func(ctx context.Context, c *api.Client, args []string) (api.Workflow, error) {
			if source {
				return c.WorkflowSource(ctx, keep.WorkflowName(args[0]))
			}
			return c.Workflow(ctx, keep.WorkflowName(args[0]))
		},
		func(ctx context.Context, c *api.Client, w api.Workflow) error {
			if source {
				return a.printSource(w)
			}
			return a.printWorkflow(ctx, c, w)
		})
	show.Flags().BoolVar(&source, "source", false, "the text of the current version as it was deployed; of several files, with the name above each")
	show.ValidArgsFunction = a.byPosition(workflowNames)
	versions := showCmd(a, "versions NAME", "List the versions of a workflow, newest first", 1,
		func(ctx context.Context, c *api.Client, args []string) ([]api.Version, error) {
			return c.Versions(ctx, keep.WorkflowName(args[0]))
		},
		func(_ context.Context, _ *api.Client, all []api.Version) error {
			t := terminal.Table{Header: []string{"VERSION", "STATE", "FILE", "CREATED", "HASH"}}
			for _, v := range all {
				t.Add(v.Version, string(v.State), v.Entry, a.At(v.CreatedAt), v.Hash)
			}
			return t.Print(a.Out, a.OutInk)
		})
	versions.ValidArgsFunction = a.byPosition(workflowNames)
	return noun("workflows", list, show, versions, a.compareCmd())
}

// printSource prints the files of a version. The text of one is printed as it is, so that it can be put into its file.
func (a *app) printSource(w api.Workflow) error {
	for _, name := range slices.Sorted(maps.Keys(w.Source)) {
		text := w.Source[name]
		if len(w.Source) > 1 {
			text = fmt.Sprintf("=== %s\n%s\n", terminal.Clean(name), strings.TrimSuffix(text, "\n"))
		}
		if err := a.PrintText(text); err != nil {
			return err
		}
	}
	return nil
}

// maxRunsShown is how many unfinished runs are shown with their workflow.
const maxRunsShown = 5

// printWorkflow shows a workflow, what its open runs wait for, and when each
// handler comes next.
func (a *app) printWorkflow(ctx context.Context, c *api.Client, w api.Workflow) error {
	var s terminal.Sheet
	s.Add("workflow", "%s", w.Name)
	s.Add("version", "%s, %s", w.Version, terminal.PausedText(w.Paused))
	if w.PauseNote != nil {
		s.Add("paused", "%s", terminal.Clean(*w.PauseNote))
	}
	a.addActsOfWorkflow(&s, w.History)
	if w.Intent != nil {
		s.Add("intent", "%s", terminal.Clean(*w.Intent))
	}
	s.Add("topics", "%s", names(w.Topics))
	s.Add("updated", "%s", a.At(w.UpdatedAt))
	// Only where it is not the default, which stops the workflow.
	if w.OnBlocked != keep.BlockedStop.String() {
		s.Add("on blocked", "%s", w.OnBlocked)
	}
	for i, id := range w.OpenRuns {
		if i == maxRunsShown {
			s.Add("runs", "and %d more: keep runs --open --workflow %s", len(w.OpenRuns)-i, w.Name)
			break
		}
		r, err := c.Run(ctx, id)
		if err != nil {
			return err
		}
		s.Add("run", "%s of %s: %s", r.ID, r.Handler, terminal.Clean(terminal.OrEmpty(r.WaitsFor)))
	}
	if err := s.Print(a.Out, a.OutInk); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	t := terminal.Table{Header: []string{"HANDLER", "KIND", "WHEN", "NEXT", "LAST RUN"}}
	for _, h := range w.Handlers {
		// Producers and jobs have a next run; a consumer may have a time at which it is to look again.
		next := "-"
		switch {
		case w.Paused:
			next = "when resumed"
		case h.NextRunAt != nil:
			next = a.At(*h.NextRunAt)
		case h.WakeAt != nil:
			next = a.At(*h.WakeAt)
		}
		t.Add(string(h.Name), string(h.Kind), handlerWhen(h), next, terminal.OrDash(h.LastRun))
	}
	return t.Print(a.Out, a.OutInk)
}

// maxActsShown is how many of the things that people did with a workflow, and how many with its handlers, are shown with it.
const maxActsShown = 5

// addActsOfWorkflow adds the newest of what people did with a workflow, and with its handlers: runs that something asks for all the time do
// not take the place of who paused it.
func (a *app) addActsOfWorkflow(s *terminal.Sheet, acts []api.Act) {
	var shown []api.Act
	left := map[bool]int{false: maxActsShown, true: maxActsShown}
	for _, act := range slices.Backward(acts) {
		if of := act.Handler != nil; left[of] > 0 {
			left[of]--
			shown = append(shown, act)
		}
	}
	slices.Reverse(shown)
	a.addActs(s, shown)
	if more := len(acts) - len(shown); more > 0 {
		s.Add("", "and %d more before: --json has them", more)
	}
}

// handlerWhen says what makes a handler run.
func handlerWhen(h api.Handler) string {
	switch {
	case h.Kind == keep.Consumer:
		return "on " + names(h.Subscribe)
	case h.Schedule == nil:
		return "each start"
	case h.Schedule.Interval != nil:
		return "every " + *h.Schedule.Interval
	}
	return strings.TrimSpace(terminal.OrEmpty(h.Schedule.Cron) + " " + terminal.OrEmpty(h.Schedule.Timezone))
}
