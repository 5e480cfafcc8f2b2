package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// pauseCmd is undone by resumeCmd.
func (a *app) pauseCmd() *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use: "pause WORKFLOW", Short: "Let a workflow's current call finish, then start nothing new",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.setPaused(cmd.Context(), func(ctx context.Context, c *api.Client) (api.Workflow, error) {
				return c.Pause(ctx, keep.WorkflowName(args[0]), note)
			})
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "why: a `TEXT` that is shown until it is resumed")
	cmd.ValidArgsFunction = a.byPosition(workflowNames)
	return cmd
}

// resumeCmd undoes pauseCmd, and no more than that.
func (a *app) resumeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "resume WORKFLOW", Short: "Let a paused workflow continue",
		Long: "Resume lets a paused workflow continue. It answers no question: an unknown outcome\nstays blocked until you decide it in keep inbox.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.setPaused(cmd.Context(), func(ctx context.Context, c *api.Client) (api.Workflow, error) {
				return c.Resume(ctx, keep.WorkflowName(args[0]))
			})
		},
	}
	cmd.ValidArgsFunction = a.byPosition(workflowNames)
	return cmd
}

// setPaused pauses a workflow, or lets it continue.
func (a *app) setPaused(ctx context.Context, set func(context.Context, *api.Client) (api.Workflow, error)) error {
	return a.decide(ctx, func(c *api.Client) error {
		w, err := set(ctx, c)
		if err != nil {
			return err
		}
		return a.changed(w, terminal.PausedText(w.Paused))
	})
}

// changed tells what a command did to a workflow.
func (a *app) changed(w api.Workflow, what string) error {
	fmt.Fprintf(a.Err, "Workflow %s: %s.\n", w.Name, what)
	if !a.JSON {
		return nil
	}
	return a.PrintJSON(w)
}
