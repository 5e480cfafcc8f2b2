package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// skipInputsCmd skips inputs that are named at once, since each can be undone (keep inputs unskip);
// those of a filter, of which nobody sees each, only with --yes.
func (a *app) skipInputsCmd() *cobra.Command {
	var all skipAllFlags
	var note string
	cmd := &cobra.Command{
		Use: "skip [ID…]", Short: "Leave out pending inputs",
		Long: `Skip leaves inputs undone: every event that they caused and that waits is marked
skipped. A run that holds one of them and has not made its call is ended, and its
other events are released. A run past its call completes.

With --all it is about every pending input, or those of a --workflow and those whose
titles --match, however many. Without --yes it only says how many there are. What
comes in meanwhile, or is done again, is left alone. It may be stopped at any moment:
what is skipped stays so, and to start it again does the rest.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := all.check(args); err != nil {
				return err
			}
			return a.decide(cmd.Context(), func(c *api.Client) error {
				if all.all {
					return a.skipAllInputs(cmd.Context(), c, all, note)
				}
				return a.skipInputs(cmd.Context(), c, args, note)
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&note, "note", "", noteUsage)
	fs.BoolVar(&all.all, "all", false, "all pending inputs")
	fs.StringVar(&all.workflow, "workflow", "", "with --all: those of this `workflow`")
	fs.StringVar(&all.match, "match", "", "with --all: those whose titles have words that begin like this `text`")
	fs.BoolVar(&all.yes, "yes", false, "with --all: do it")
	a.completeFlag(cmd, "workflow", a.completeWorkflows)
	cmd.ValidArgsFunction = a.byPosition(inputIDs)
	return cmd
}

// skipInputs skips inputs that are named, and tells of each what was too late for it.
func (a *app) skipInputs(ctx context.Context, c *api.Client, args []string, note string) error {
	if len(args) > maxNamed {
		return exit.Misusef("%d inputs are named, want at most %d", len(args), maxNamed)
	}
	ids, err := fixedIDs[keep.InputID](ctx, c, keep.NounInput, args)
	if err != nil {
		return err
	}
	out, err := c.SkipInputs(ctx, ids, note)
	if err != nil {
		return err
	}
	for _, r := range out {
		a.saySkipped(terminal.OrEmpty(r.Input), r)
	}
	if !a.JSON {
		return nil
	}
	return a.PrintJSON(out)
}

// maxNamed is how many things one command may name, as many as the API takes at once: all of
// them exist, or nothing is done.
const maxNamed = 1000

// skipEventsCmd skips events of one topic: what a person knows of them is their message ids.
func (a *app) skipEventsCmd() *cobra.Command {
	return a.namedEventsCmd(&cobra.Command{
		Use: "skip WORKFLOW TOPIC ID…", Short: "Leave out pending events",
		Long: `Skip marks pending events as skipped. A run that holds one of them and has not made
its call is ended, and its other events are released. A run past its call completes.`,
	}, func(ctx context.Context, c *api.Client, w keep.WorkflowName, t keep.TopicName, ids []keep.MessageID, note string) (any, error) {
		res, err := c.SkipEvents(ctx, w, t, ids, note)
		if err == nil {
			a.saySkipped(terminal.Plural(len(ids), "event"), res)
		}
		return res, err
	})
}

// namedEventsCmd makes cmd a command about events of one topic. Do says what became of them,
// and returns it.
func (a *app) namedEventsCmd(cmd *cobra.Command, do func(_ context.Context, _ *api.Client, _ keep.WorkflowName, _ keep.TopicName, _ []keep.MessageID, note string) (any, error)) *cobra.Command {
	var note string
	cmd.Flags().StringVar(&note, "note", "", noteUsage)
	cmd.Args = cobra.MinimumNArgs(3)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids := make([]keep.MessageID, 0, len(args)-2)
		for _, id := range args[2:] {
			ids = append(ids, keep.MessageID(id))
		}
		if len(ids) > maxNamed {
			return exit.Misusef("%d events are named, want at most %d", len(ids), maxNamed)
		}
		return a.decide(cmd.Context(), func(c *api.Client) error {
			res, err := do(cmd.Context(), c, keep.WorkflowName(args[0]), keep.TopicName(args[1]), ids, note)
			if err != nil || !a.JSON {
				return err
			}
			return a.PrintJSON(res)
		})
	}
	cmd.ValidArgsFunction = a.byPosition(workflowNames, topicNames)
	return cmd
}

// noteUsage is of the flag by which a person says why.
const noteUsage = "why: `text` that is kept with who decided it"

// saySkipped tells what became of what was skipped.
func (a *app) saySkipped(what string, r api.Skipped) {
	fmt.Fprintf(a.Err, "%s: %s skipped.\n", terminal.Clean(what), terminal.Plural(r.Skipped, "event"))
	for _, id := range r.Aborted {
		fmt.Fprintf(a.Err, "Run %s was ended before its call.\n", id)
	}
	if r.TooLate > 0 {
		fmt.Fprintf(a.Err, "Too late for %s: the run is past its call, and completes.\n", terminal.Plural(r.TooLate, "event"))
	}
	if r.Finished > 0 {
		fmt.Fprintf(a.Err, "Finished before: %s.\n", terminal.Plural(r.Finished, "event"))
	}
}
