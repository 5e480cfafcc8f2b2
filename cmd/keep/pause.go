package main

import (
	"context"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/engine"
	"github.com/spf13/cobra"
)

// pauseCmd is undone by resumeCmd.
func (a *app) pauseCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pause WORKFLOW", Short: "Let a workflow's current call finish, then start nothing new",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.setPaused(cmd.Context(), keep.WorkflowName(args[0]), true)
		},
	}
	cmd.ValidArgsFunction = a.byPosition(workflowNames)
	return cmd
}

// resumeCmd undoes pauseCmd, and no more than that.
func (a *app) resumeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "resume WORKFLOW", Short: "Let a paused workflow go on",
		Long: "Resume lets a paused workflow go on. It answers no question: an unknown outcome\nstays blocked until you decide it in keep inbox.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.setPaused(cmd.Context(), keep.WorkflowName(args[0]), false)
		},
	}
	cmd.ValidArgsFunction = a.byPosition(workflowNames)
	return cmd
}

// setPaused looks the workflow up first: a mistyped name is not found, rather
// than paused for ever.
func (a *app) setPaused(ctx context.Context, name keep.WorkflowName, paused bool) error {
	return a.withEngine(ctx, func(db database, e *engine.Engine) error {
		if _, err := api.ShowWorkflow(ctx, db, name); err != nil {
			return err
		}
		if err := e.SetPaused(ctx, name, paused); err != nil {
			return err
		}
		return a.changed(ctx, db, name, map[bool]string{true: "paused", false: "on"}[paused])
	})
}

// changed tells what a command did to a workflow.
func (a *app) changed(ctx context.Context, db database, name keep.WorkflowName, what string) error {
	fmt.Fprintf(a.err, "Workflow %s: %s.\n", name, what)
	if !a.json {
		return nil
	}
	w, err := api.ShowWorkflow(ctx, db, name)
	if err != nil {
		return err
	}
	return a.printJSON(w)
}
