package main

import (
	"context"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/engine"
	"github.com/spf13/cobra"
)

// triggerCmd asks for a run; it makes none itself.
func (a *app) triggerCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trigger WORKFLOW [HANDLER]",
		Short: "Run a producer or a job now",
		Long: `Trigger asks for a run of a producer or a job, without waiting for its schedule.
The host of the database makes it. It is refused while the workflow has an
unfinished run. A workflow with one producer or job needs no HANDLER.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var handler keep.HandlerName
			if len(args) == 2 {
				handler = keep.HandlerName(args[1])
			}
			return a.trigger(cmd.Context(), keep.WorkflowName(args[0]), handler)
		},
	}
	cmd.ValidArgsFunction = a.byPosition(workflowNames, startable)
	return cmd
}

// trigger finds the handler that is meant and records the request. That it is
// refused while a run is open is up to the store, in the same transaction.
func (a *app) trigger(ctx context.Context, name keep.WorkflowName, handler keep.HandlerName) error {
	return a.withEngine(ctx, func(db database, e *engine.Engine) error {
		w, err := api.ShowWorkflow(ctx, db, name)
		if err != nil {
			return err
		}
		handlers := starters(w)
		switch {
		case len(handlers) == 0:
			return failedf("workflow %s has no producer and no job; its consumers run when events come", name)
		case handler == "" && len(handlers) > 1:
			return misusef("workflow %s has several; name one of %s", name, strings.Join(handlers, ", "))
		case handler == "":
			handler = keep.HandlerName(handlers[0])
		default:
			if err := canStart(w, handler, handlers); err != nil {
				return err
			}
		}
		if err := e.Trigger(ctx, name, handler); err != nil {
			return err
		}
		return a.changed(ctx, db, name, string(handler)+" is asked to run; the host of the database does it")
	})
}

// canStart says why a handler cannot be started by hand.
func canStart(w api.Workflow, name keep.HandlerName, handlers []string) error {
	for _, h := range w.Handlers {
		if h.Name != name {
			continue
		}
		if h.Kind == keep.Consumer {
			return failedf("%s is a consumer; it runs when an event comes. To be started there are %s", name, strings.Join(handlers, ", "))
		}
		return nil
	}
	return &keep.NotFoundError{What: "handler", ID: string(w.Name) + "/" + string(name)}
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
func startable(ctx context.Context, db database, args []string) ([]string, error) {
	w, err := api.ShowWorkflow(ctx, db, keep.WorkflowName(args[0]))
	return starters(w), err
}
