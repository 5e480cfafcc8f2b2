package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/engine"
)

// A skipped is what became of what a person skipped.
type skipped struct {
	Input    *keep.InputID `json:"input"`    // null: events were named
	Skipped  int           `json:"skipped"`  // events that are skipped now
	Aborted  []keep.RunID  `json:"aborted"`  // runs that were ended before their call
	TooLate  int           `json:"too_late"` // events whose run is past its call, and completes
	Finished int           `json:"finished"` // events that were consumed or skipped before
}

func skippedOf(in *keep.InputID, r engine.SkipResult) skipped {
	return skipped{Input: in, Skipped: r.Skipped, Aborted: append([]keep.RunID{}, r.Aborted...), TooLate: r.TooLate, Finished: r.Finished}
}

func (a *app) skipInputsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "skip ID…", Short: "Leave inputs undone",
		Long: `Skip leaves inputs undone: every event that they caused and that waits is marked
skipped. A run that holds one of them and has not made its call is ended, and its
other events are released. A run past its call completes.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withEngine(cmd.Context(), func(db database, e *engine.Engine) error {
				return a.skipInputs(cmd.Context(), db, e, args)
			})
		},
	}
	cmd.ValidArgsFunction = a.byPosition(inputIDs)
	return cmd
}

func (a *app) skipInputs(ctx context.Context, db database, e *engine.Engine, args []string) error {
	var ins []api.Input
	for _, id := range args { // all of them exist, or nothing is done
		in, err := api.ShowInput(ctx, db, keep.InputID(id))
		if err != nil {
			return err
		}
		ins = append(ins, in)
	}
	out := make([]skipped, 0, len(ins))
	for _, in := range ins {
		res, err := e.SkipInput(ctx, in.Workflow, in.ID)
		if err != nil {
			return err
		}
		a.saySkipped(string(in.ID), res)
		out = append(out, skippedOf(&in.ID, res))
	}
	if !a.json {
		return nil
	}
	return a.printJSON(out)
}

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
			return a.withEngine(cmd.Context(), func(_ database, e *engine.Engine) error {
				res, err := e.SkipEvents(cmd.Context(), keep.WorkflowName(args[0]), keep.TopicName(args[1]), ids)
				if err != nil {
					return err
				}
				a.saySkipped(plural(len(ids), "event"), res)
				if !a.json {
					return nil
				}
				return a.printJSON(skippedOf(nil, res))
			})
		},
	}
	cmd.ValidArgsFunction = a.byPosition(workflowNames, topicNames)
	return cmd
}

// saySkipped tells what became of what was skipped.
func (a *app) saySkipped(what string, r engine.SkipResult) {
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
