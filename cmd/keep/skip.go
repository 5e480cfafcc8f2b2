package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

func (a *app) skipInputsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "skip ID…", Short: "Leave inputs undone",
		Long: `Skip leaves inputs undone: every event that they caused and that waits is marked
skipped. A run that holds one of them and has not made its call is ended, and its
other events are released. A run past its call completes.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.decide(cmd.Context(), func(c *api.Client) error { return a.skipInputs(cmd.Context(), c, args) })
		},
	}
	cmd.ValidArgsFunction = a.byPosition(inputIDs)
	return cmd
}

func (a *app) skipInputs(ctx context.Context, c *api.Client, args []string) error {
	if len(args) > maxNamed {
		return misusef("%d inputs are named, want at most %d", len(args), maxNamed)
	}
	ids := make([]keep.InputID, len(args))
	for i, id := range args {
		ids[i] = keep.InputID(id)
	}
	out, err := c.SkipInputs(ctx, ids)
	if err != nil {
		return err
	}
	for _, r := range out {
		a.saySkipped(orEmpty(r.Input), r)
	}
	if !a.json {
		return nil
	}
	return a.printJSON(out)
}

// maxNamed is how many things one command may skip: they are skipped together or
// not at all.
const maxNamed = 1000

func (a *app) skipEventsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "skip WORKFLOW TOPIC ID…", Short: "Leave events undone",
		Long: `Skip marks events skipped that wait. A run that holds one of them and has not made
its call is ended, and its other events are released. A run past its call completes.`,
		Args: cobra.MinimumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids := make([]keep.MessageID, 0, len(args)-2)
			for _, id := range args[2:] {
				ids = append(ids, keep.MessageID(id))
			}
			if len(ids) > maxNamed {
				return misusef("%d events are named, want at most %d", len(ids), maxNamed)
			}
			return a.decide(cmd.Context(), func(c *api.Client) error {
				res, err := c.SkipEvents(cmd.Context(), keep.WorkflowName(args[0]), keep.TopicName(args[1]), ids)
				if err != nil {
					return err
				}
				a.saySkipped(plural(len(ids), "event"), res)
				if !a.json {
					return nil
				}
				return a.printJSON(res)
			})
		},
	}
	cmd.ValidArgsFunction = a.byPosition(workflowNames, topicNames)
	return cmd
}

// saySkipped tells what became of what was skipped.
func (a *app) saySkipped(what string, r api.Skipped) {
	fmt.Fprintf(a.err, "%s: %s skipped.\n", clean(what), plural(r.Skipped, "event"))
	for _, id := range r.Aborted {
		fmt.Fprintf(a.err, "Run %s was ended before its call.\n", id)
	}
	if r.TooLate > 0 {
		fmt.Fprintf(a.err, "Too late for %s: the run is past its call, and completes.\n", plural(r.TooLate, "event"))
	}
	if r.Finished > 0 {
		fmt.Fprintf(a.err, "Finished before: %s.\n", plural(r.Finished, "event"))
	}
}
