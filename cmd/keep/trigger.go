package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

// triggerCmd asks for a run; it makes none itself. Without a host the request waits in the database
// until one starts.
func (a *app) triggerCmd() *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use:   "trigger WORKFLOW [HANDLER]",
		Short: "Run a producer or a job now",
		Long: `Trigger asks for a run of a producer or a job, without waiting for its schedule.
The host of the database makes it. It is refused while the workflow itself waits for an
unfinished run. A workflow with one producer or job needs no HANDLER.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var handler keep.HandlerName
			if len(args) == 2 {
				handler = keep.HandlerName(args[1])
			}
			return a.trigger(cmd.Context(), keep.WorkflowName(args[0]), handler, note)
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "why: a `TEXT` that is kept with who asked for it")
	cmd.ValidArgsFunction = a.byPosition(workflowNames, startable)
	return cmd
}

// trigger records the request. What it is refused for is known to the host of the
// database: an open run in the same transaction.
func (a *app) trigger(ctx context.Context, name keep.WorkflowName, handler keep.HandlerName, note string) error {
	return a.decide(ctx, func(c *api.Client) error {
		w, err := c.Trigger(ctx, name, handler, note)
		if err != nil {
			return err
		}
		if handler == "" {
			handler = keep.HandlerName(starters(w)[0]) // there is no other
		}
		return a.changed(w, string(handler)+" is asked to run; the host of the database does it")
	})
}

// starters returns the handlers that can be started by hand.
func starters(w api.Workflow) []string {
	var out []string
	for _, h := range w.Handlers {
		if h.Kind != keep.Consumer {
			out = append(out, string(h.Name))
		}
	}
	return out
}

// startable completes the handlers that can be started by hand.
func startable(ctx context.Context, c *api.Client, args []string) ([]string, error) {
	w, err := c.Workflow(ctx, keep.WorkflowName(args[0]))
	return starters(w), err
}
