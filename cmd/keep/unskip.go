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

// unskipInputsCmd undoes a skip as far as that is safe: a run that was past its call has done what
// its events asked for, and to give them out again would do it twice.
func (a *app) unskipInputsCmd() *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use: "unskip ID…", Short: "Undo the skip of inputs",
		Long: `Unskip undoes the skip of inputs: their skipped events are pending again, each in its
old place. An event stays skipped if its run was past its call, or in doubt about it, or if
its payload was deleted since. Exit 1 if nothing of an input could be undone.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > maxNamed {
				return exit.Misusef("%d inputs are named, want at most %d", len(args), maxNamed)
			}
			return a.decide(cmd.Context(), func(c *api.Client) error {
				ids, err := fixedIDs[keep.InputID](cmd.Context(), c, keep.NounInput, args)
				if err != nil {
					return err
				}
				out, err := c.UnskipInputs(cmd.Context(), ids, note)
				if err != nil {
					return err
				}
				return a.unskipped(out)
			})
		},
	}
	cmd.Flags().StringVar(&note, "note", "", noteUsage)
	cmd.ValidArgsFunction = a.byPosition(inputIDs)
	return cmd
}

// unskipped tells what became of each input. The status is 1 if one was refused, also beside others
// that were not: each was named.
func (a *app) unskipped(out []api.Unskipped) error {
	if a.JSON {
		if err := a.PrintJSON(out); err != nil {
			return err
		}
	}
	refused := 0
	for _, r := range out {
		if r.Refused != nil {
			refused++
			fmt.Fprintf(a.Err, "%s: %s.\n", *r.Input, terminal.Clean(*r.Refused))
			continue
		}
		a.sayUnskipped(string(*r.Input), r)
	}
	if refused > 0 {
		return exit.With(exit.Failed)
	}
	return nil
}

// unskipEventsCmd is the same for events that are named, all or none.
func (a *app) unskipEventsCmd() *cobra.Command {
	return a.namedEventsCmd(&cobra.Command{
		Use: "unskip WORKFLOW TOPIC ID…", Short: "Undo the skip of events",
		Long: `Unskip makes skipped events pending again, each in its old place and in the same attempt,
or none of them if one must stay skipped: its run was past its call, or in doubt about it,
or its payload was deleted since.`,
	}, func(ctx context.Context, c *api.Client, w keep.WorkflowName, t keep.TopicName, ids []keep.MessageID, note string) (any, error) {
		res, err := c.UnskipEvents(ctx, w, t, ids, note)
		if err == nil {
			a.sayUnskipped(terminal.Plural(len(ids), "event"), res)
		}
		return res, err
	})
}

// sayUnskipped tells what became of what was skipped.
func (a *app) sayUnskipped(what string, r api.Unskipped) {
	fmt.Fprintf(a.Err, "%s: %s pending again.\n", terminal.Clean(what), terminal.Plural(r.Unskipped, "event"))
	if r.Pending > 0 {
		fmt.Fprintf(a.Err, "Not skipped: %s.\n", terminal.Plural(r.Pending, "event"))
	}
	for _, k := range r.Kept {
		fmt.Fprintf(a.Err, "Event %s in topic %s stays skipped: %s.\n", terminal.Clean(string(k.ID)), k.Topic, terminal.Clean(k.Why))
	}
}

// unskipItemsCmd lets a job come to skipped items again. What was applied in their attempt keeps its
// keys, and so is not done a second time.
func (a *app) unskipItemsCmd() *cobra.Command {
	d := &itemsDoer{a: a, action: keep.Unskip}
	return d.command("Undo the skip of items",
		`Unskip makes jobs handle items again that a person skipped, in the same attempt: what
was applied for them is not done again. Without --yes it only shows what that means. An
item stays skipped if it has a call whose outcome nobody knows, or if records of its calls
were deleted since.`)
}
