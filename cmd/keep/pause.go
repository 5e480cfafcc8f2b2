package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// allPaused begins the note of a workflow that was paused with all others, by which it is resumed with
// them.
const allPaused = "paused with all"

// pauseCmd is undone by resumeCmd.
func (a *app) pauseCmd() *cobra.Command {
	var note string
	var all bool
	cmd := &cobra.Command{
		Use: "pause WORKFLOW | --all", Short: "Let a workflow's current call finish, then start nothing new",
		Long: `Pause lets the call of a workflow that is under way finish and be recorded, and nothing
new begin. With --all it pauses every workflow that is not paused, one after the other, with
a note that says so; one that was paused before stays as it is.`,
		Args: oneOrAll(&all),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all {
				why := strings.TrimSuffix(allPaused+": "+note, ": ")
				return a.setAllPaused(cmd.Context(), func(ctx context.Context, c *api.Client, w api.Workflow) (api.Workflow, error) {
					if w.Paused {
						return w, nil
					}
					return c.PauseRunning(ctx, w.Name, why)
				})
			}
			return a.setPaused(cmd.Context(), func(ctx context.Context, c *api.Client) (api.Workflow, error) {
				return c.Pause(ctx, keep.WorkflowName(args[0]), note)
			})
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "why: a `TEXT` that is shown until it is resumed")
	cmd.Flags().BoolVar(&all, "all", false, "pause every workflow that is not paused")
	cmd.ValidArgsFunction = a.byPosition(workflowNames)
	return cmd
}

// resumeCmd undoes pauseCmd, and no more than that.
func (a *app) resumeCmd() *cobra.Command {
	var note string
	var all bool
	cmd := &cobra.Command{
		Use: "resume WORKFLOW | --all", Short: "Let a paused workflow continue",
		Long: `Resume lets a paused workflow continue. It answers no question: an unknown outcome
stays blocked until you decide it in keep inbox. With --all it resumes the workflows that
keep pause --all paused, which their notes say, and names the others that stay paused: those
that a person paused by name, and those that wait after a restore.`,
		Args: oneOrAll(&all),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all {
				return a.setAllPaused(cmd.Context(), func(ctx context.Context, c *api.Client, w api.Workflow) (api.Workflow, error) {
					if !w.Paused || w.PauseNote == nil || *w.PauseNote != allPaused && !strings.HasPrefix(*w.PauseNote, allPaused+": ") {
						return w, nil
					}
					return c.Resume(ctx, w.Name, api.Resume{Note: note, IfNote: w.PauseNote})
				})
			}
			return a.setPaused(cmd.Context(), func(ctx context.Context, c *api.Client) (api.Workflow, error) {
				return c.Resume(ctx, keep.WorkflowName(args[0]), api.Resume{Note: note})
			})
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "why: a `TEXT` that is kept with who resumed it")
	cmd.Flags().BoolVar(&all, "all", false, "resume every workflow that keep pause --all paused")
	cmd.ValidArgsFunction = a.byPosition(workflowNames)
	return cmd
}

// oneOrAll wants the name of a workflow, or --all.
func oneOrAll(all *bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if *all && len(args) > 0 {
			return fmt.Errorf("--all is for every workflow, and %s is one: leave out either", args[0])
		}
		if *all {
			return nil
		}
		return cobra.ExactArgs(1)(cmd, args)
	}
}

// setAllPaused does something to each workflow that is as it was listed, and tells how each is then. One that cannot be changed
// keeps none of the others; what was done stays done, and the same command does the rest.
func (a *app) setAllPaused(ctx context.Context, set func(context.Context, *api.Client, api.Workflow) (api.Workflow, error)) error {
	return a.decide(ctx, func(c *api.Client) error {
		all, err := c.Workflows(ctx)
		if err != nil {
			return err
		}
		var failed []error
		for i, w := range all {
			now, err := set(ctx, c, w)
			if errors.Is(err, keep.ErrStale) { // somebody else paused or resumed it meanwhile, which stays
				now, err = c.Workflow(ctx, w.Name)
				w = now
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("workflow %s: %w", w.Name, err))
				continue
			}
			all[i] = now
			switch {
			case now.Paused != w.Paused:
				fmt.Fprintf(a.Err, "Workflow %s: %s.\n", w.Name, terminal.PausedText(now.Paused))
			case now.Paused:
				fmt.Fprintf(a.Err, "Workflow %s: stays paused%s.\n", w.Name, pausedFor(w.PauseNote))
			}
		}
		if err := errors.Join(failed...); err != nil || !a.JSON {
			return err
		}
		return a.PrintJSON(all)
	})
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
