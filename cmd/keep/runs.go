package main

import (
	"context"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/spf13/cobra"
)

// runsCmd lists runs, shows one, and prints what the script of one logged.
func (a *app) runsCmd() *cobra.Command {
	list := func() *cobra.Command {
		var open bool
		return listCmd(a, "", "Runs: what was executed, how far it came, what it waits for", listing[api.Run]{
			header:   []string{"RUN", "WORKFLOW", "HANDLER", "PHASE", "STATUS", "UPDATED", "TITLE", "WAITS FOR"},
			statuses: words(keep.RunStatuses()),
			flags: func(cmd *cobra.Command) {
				cmd.Flags().BoolVar(&open, "open", false, "only those that are not finished")
			},
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Run], error) {
				return c.Runs(ctx, api.RunQuery{Workflow: keep.WorkflowName(f.workflow), Status: keep.RunStatus(f.status), Open: open}, p)
			},
			row: a.runRow,
		})
	}
	show := showCmd(a, "show ID", "Show one run with its log", 1,
		func(ctx context.Context, c *api.Client, args []string) (api.Run, error) {
			return c.Run(ctx, keep.RunID(args[0]))
		}, a.printRun)
	show.ValidArgsFunction = a.byPosition(runIDs)
	logs := showCmd(a, "logs ID", "Show what the script of a run logged", 1,
		func(ctx context.Context, c *api.Client, args []string) ([]api.LogLine, error) {
			return c.Logs(ctx, keep.RunID(args[0]))
		},
		func(_ context.Context, _ *api.Client, lines []api.LogLine) error {
			for _, l := range lines {
				if _, err := fmt.Fprintln(a.out, logText(l)); err != nil {
					return err
				}
			}
			return nil
		})
	logs.ValidArgsFunction = a.byPosition(runIDs)
	return noun("runs", list, show, logs)
}

// runRow is a run in a list; what it waits for is cut, and whole in show.
func (a *app) runRow(r api.Run) []string {
	return []string{string(r.ID), string(r.Workflow), string(r.Handler), string(r.Phase), string(r.Status),
		a.at(r.UpdatedAt), cutTo(orDash(r.Title), maxTitle), cutTo(orDash(r.WaitsFor), maxTitle)}
}

// printRun shows everything that is known about one attempt, its log included.
func (a *app) printRun(ctx context.Context, c *api.Client, r api.Run) error {
	var s sheet
	s.add("run", "%s", r.ID)
	s.add("workflow", "%s %s, %s %s", r.Workflow, r.Version, r.Kind, r.Handler)
	s.add("title", "%s", clean(orEmpty(r.Title)))
	s.add("status", "%s, phase %s", r.Status, r.Phase)
	s.add("waits for", "%s", clean(orEmpty(r.WaitsFor)))
	if r.Error != nil {
		s.add("error", "%s", errorText(r.Error))
	}
	s.add("retry of", "%s", orEmpty(r.RetryOf))
	if r.Trigger != nil {
		s.add("trigger", "%s %s", r.Trigger.Topic, clean(string(r.Trigger.MessageID)))
	}
	for _, res := range r.Reservations {
		s.add("reserved", "%s %s", res.Topic, joinIDs(res.IDs))
	}
	s.add("prepared", "%s", r.Prepared)
	s.add("mutation", "%s", orEmpty(r.Mutation))
	s.add("created", "%s", a.at(r.CreatedAt))
	s.add("updated", "%s", a.at(r.UpdatedAt))
	if err := s.print(a.out, a.outInk); err != nil {
		return err
	}
	lines, err := c.Logs(ctx, r.ID)
	if err != nil {
		return err
	}
	for i, l := range lines {
		if i == 0 {
			fmt.Fprintf(a.out, "\n%s\n", a.outInk.dim("log"))
		}
		fmt.Fprintln(a.out, logText(l))
	}
	return nil
}

// logText returns one line of a log as people read it.
func logText(l api.LogLine) string {
	where := ""
	if l.Where != nil {
		where = " (" + clean(*l.Where) + ")"
	}
	return l.At.String() + " " + l.Level + " " + cleanText(l.Text) + where
}
