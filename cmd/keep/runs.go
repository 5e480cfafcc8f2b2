package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/law/trace"
)

// runsCmd lists runs, shows one, and prints what the script of one logged. A run is one attempt; those
// that took up the same work have it in retry of.
func (a *app) runsCmd() *cobra.Command {
	list := func() *cobra.Command {
		var open bool
		var handler, failure string
		return listCmd(a, "", "Runs: what was executed, how far it came, what it waits for", listing[api.Run]{
			header:   []string{"RUN", "WORKFLOW", "HANDLER", "PHASE", "STATUS", "UPDATED", "TITLE", "WAITS FOR"},
			statuses: words(keep.RunStatuses()),
			flags: func(cmd *cobra.Command) {
				cmd.Flags().BoolVar(&open, "open", false, "only those that are not finished")
				cmd.Flags().StringVar(&handler, "handler", "", "only of the handler of this `name`")
				cmd.Flags().StringVar(&failure, "error", "", "only those that an error stopped of this `class` or code, such as logic or http-503")
			},
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Run], error) {
				return c.Runs(ctx, api.RunQuery{Workflow: keep.WorkflowName(f.workflow), Handler: keep.HandlerName(handler), Status: keep.RunStatus(f.status), Open: open,
					Error: failure, Made: f.made(), Text: f.text}, p)
			},
			row: a.runRow, words: "titles and ids of messages",
			key: func(r api.Run) string { return string(r.ID) }, kinds: []feed.Kind{feed.Run},
		})
	}
	show := showCmd(a, "show ID", "Show one run with its log", 1,
		func(ctx context.Context, c *api.Client, args []string) (api.Run, error) {
			id, err := fullID[keep.RunID](ctx, c, keep.NounRun, args[0])
			if err != nil {
				return api.Run{}, err
			}
			return c.Run(ctx, id)
		}, a.printRun)
	show.Long = "Show prints everything about a run.\n\n" + shortHelp
	show.ValidArgsFunction = a.byPosition(runIDs)
	logs := showCmd(a, "logs ID", "Show what the script of a run logged", 1,
		func(ctx context.Context, c *api.Client, args []string) ([]api.LogLine, error) {
			id, err := fullID[keep.RunID](ctx, c, keep.NounRun, args[0])
			if err != nil {
				return nil, err
			}
			return c.Logs(ctx, id)
		},
		func(_ context.Context, _ *api.Client, lines []api.LogLine) error {
			for _, l := range lines {
				if _, err := fmt.Fprintln(a.Out, logText(l)); err != nil {
					return err
				}
			}
			return nil
		})
	logs.ValidArgsFunction = a.byPosition(runIDs)
	return noun("runs", list, show, logs, a.replayCmd(), a.cancelRunCmd(), a.retryRunCmd())
}

// runRow is a run in a list; what it waits for is cut, and whole in show.
func (a *app) runRow(r api.Run) []string {
	return []string{string(r.ID), string(r.Workflow), string(r.Handler), string(r.Phase), statusOf(r),
		a.At(r.UpdatedAt), terminal.CutTo(terminal.OrDash(r.Title), terminal.MaxTitle), terminal.CutTo(terminal.OrDash(r.WaitsFor), terminal.MaxTitle)}
}

// statusOf is the status of a run; one that is over waits for nothing.
func statusOf(r api.Run) string {
	if r.Wait == nil && r.Status.Waits() {
		return "taken over"
	}
	return string(r.Status)
}

// printRun shows everything that is known about one attempt, its log included.
func (a *app) printRun(ctx context.Context, c *api.Client, r api.Run) error {
	var s terminal.Sheet
	s.Add("run", "%s", r.ID)
	s.Add("workflow", "%s %s, %s %s", r.Workflow, r.Version, r.Kind, r.Handler)
	s.Add("title", "%s", terminal.Clean(terminal.OrEmpty(r.Title)))
	s.Add("status", "%s, phase %s", statusOf(r), r.Phase)
	s.Add("waits for", "%s", terminal.Clean(terminal.OrEmpty(r.WaitsFor)))
	if r.Error != nil {
		s.Add("error", "%s", terminal.ErrorText(r.Error))
	}
	s.Add("retry of", "%s", terminal.OrEmpty(r.RetryOf))
	if r.Trigger != nil {
		s.Add("trigger", "%s %s", r.Trigger.Topic, terminal.Clean(string(r.Trigger.MessageID)))
	}
	if r.OrderKey != nil {
		s.Add("order key", "%s", terminal.Clean(*r.OrderKey))
	}
	for _, res := range r.Reservations {
		s.Add("reserved", "%s %s", res.Topic, joinIDs(res.IDs))
	}
	s.Add("prepared", "%s", r.Prepared)
	s.Add("mutation", "%s", terminal.OrEmpty(r.Mutation))
	s.Add("created", "%s", a.At(r.CreatedAt))
	s.Add("updated", "%s", a.At(r.UpdatedAt))
	if err := s.Print(a.Out, a.OutInk); err != nil {
		return err
	}
	lines, err := c.Logs(ctx, r.ID)
	if err != nil {
		return err
	}
	for i, l := range lines {
		if i == 0 {
			fmt.Fprintf(a.Out, "\n%s\n", a.OutInk.Dim("log"))
		}
		fmt.Fprintln(a.Out, logText(l))
	}
	return a.printTrace(r)
}

// printTrace shows what a run read, called and looked up, and how long each took. That nothing is
// kept is said, since an empty trace would say that the run read nothing.
func (a *app) printTrace(r api.Run) error {
	t := r.Trace
	switch {
	case t == nil:
		return nil
	case t.Swept:
		_, err := fmt.Fprintln(a.Out, "\nWhat it saw is not kept (any more): see [trace] in keep.toml")
		return err
	}
	fmt.Fprintf(a.Out, "\n%s\n", a.OutInk.Dim("what it saw"))
	for _, e := range t.Entries {
		line := fmt.Sprintf("%s %9.1f ms  %s %s", e.At, e.MS, e.Phase, e.What)
		id, begins := trace.ItemOf(terminal.OrEmpty(e.Tool), e.Params)
		switch {
		case begins:
			line = fmt.Sprintf("%s %9.1f ms  %s item %s", e.At, e.MS, e.Phase, terminal.Clean(id))
		case e.Tool != nil:
			line += " " + terminal.Clean(*e.Tool)
		}
		if hasValue(e.Params) && !begins {
			line += " " + terminal.CutTo(terminal.Clean(string(e.Params)), maxSeen)
		}
		switch {
		case e.Error != nil && (e.What != "lookup" || !hasValue(e.Result)):
			line += ": " + terminal.ErrorText(e.Error)
		case e.Cut:
			line += " → too large to be kept"
		// Most phases return nothing; of a read, null is an answer.
		case e.Result != nil && (hasValue(e.Result) || e.What != trace.Phase):
			line += " → " + terminal.CutTo(terminal.Clean(string(e.Result)), maxSeen)
		}
		fmt.Fprintln(a.Out, line)
	}
	if t.Dropped > 0 {
		fmt.Fprintf(a.Out, "%d more did not fit into [trace] limit\n", t.Dropped)
	}
	return nil
}

// hasValue reports whether v is there and is not null.
func hasValue(v json.RawMessage) bool { return v != nil && string(v) != "null" }

// maxSeen is how much of params and results a line has; --json has all.
const maxSeen = 80

// logText returns one line of a log as people read it.
func logText(l api.LogLine) string {
	where := ""
	if l.Where != nil {
		where = " (" + terminal.Clean(*l.Where) + ")"
	}
	return l.At.String() + " " + l.Level + " " + terminal.Indented(l.Text) + where
}
