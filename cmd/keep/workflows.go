package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/spf13/cobra"
)

// workflowsCmd lists workflows, shows one, and lists the versions of one.
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
				return []string{string(w.Name), w.Version, pausedText(w.Paused), number(len(w.Handlers)),
					orDash(w.OpenRun), a.at(w.UpdatedAt)}
			},
		})
	}
	show := showCmd(a, "show NAME", "Show one workflow with its handlers", 1,
		func(ctx context.Context, c *api.Client, args []string) (api.Workflow, error) {
			return c.Workflow(ctx, keep.WorkflowName(args[0]))
		}, a.printWorkflow)
	show.ValidArgsFunction = a.byPosition(workflowNames)
	versions := showCmd(a, "versions NAME", "List the versions of a workflow, newest first", 1,
		func(ctx context.Context, c *api.Client, args []string) ([]api.Version, error) {
			return c.Versions(ctx, keep.WorkflowName(args[0]))
		},
		func(_ context.Context, _ *api.Client, all []api.Version) error {
			t := table{header: []string{"VERSION", "FILE", "CREATED", "HASH"}}
			for _, v := range all {
				t.add(v.Version, v.Entry, a.at(v.CreatedAt), v.Hash)
			}
			return t.print(a.out, a.outInk)
		})
	versions.ValidArgsFunction = a.byPosition(workflowNames)
	return noun("workflows", list, show, versions)
}

// pausedText says whether a person paused the workflow.
func pausedText(paused bool) string {
	if paused {
		return "paused"
	}
	return "on"
}

// printWorkflow shows a workflow, what its open run waits for, and when each
// handler comes next.
func (a *app) printWorkflow(ctx context.Context, c *api.Client, w api.Workflow) error {
	var s sheet
	s.add("workflow", "%s", w.Name)
	s.add("version", "%s, %s", w.Version, pausedText(w.Paused))
	s.add("topics", "%s", names(w.Topics))
	s.add("updated", "%s", a.at(w.UpdatedAt))
	if w.OpenRun != nil {
		r, err := c.Run(ctx, *w.OpenRun)
		if err != nil {
			return err
		}
		s.add("run", "%s of %s: %s", r.ID, r.Handler, clean(orEmpty(r.WaitsFor)))
	}
	if err := s.print(a.out, a.outInk); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	t := table{header: []string{"HANDLER", "KIND", "WHEN", "NEXT", "LAST RUN"}}
	for _, h := range w.Handlers {
		next := "-"
		if at := h.NextRunAt; at != nil {
			next = a.at(*at)
		} else if at := h.WakeAt; at != nil {
			next = a.at(*at)
		}
		t.add(string(h.Name), string(h.Kind), handlerWhen(h), next, orDash(h.LastRun))
	}
	return t.print(a.out, a.outInk)
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
	return strings.TrimSpace(orEmpty(h.Schedule.Cron) + " " + orEmpty(h.Schedule.Timezone))
}
