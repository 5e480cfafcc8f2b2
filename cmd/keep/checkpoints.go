package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// checkpointsCmd shows how far producers came, and changes it. What a value means only its script
// knows, so each change is shown before it is made.
func (a *app) checkpointsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "checkpoints", Short: "Checkpoints: how far producers came, in their ctx.kv",
		Long: `A producer remembers how far it came in ctx.kv. These commands show what is there, set a value and
reset it. No event and no input is lost by that, and what is published again under a message id
that is known is no new event. Nobody notices what the producer does not read any more.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	show := showCmd(a, "show WORKFLOW PRODUCER", "Show all values of a checkpoint", 2,
		func(ctx context.Context, c *api.Client, args []string) (api.Checkpoint, error) {
			return c.Checkpoint(ctx, keep.WorkflowName(args[0]), keep.HandlerName(args[1]))
		},
		func(_ context.Context, _ *api.Client, p api.Checkpoint) error {
			if len(p.Values) == 0 {
				fmt.Fprintf(a.Err, "The checkpoint of %s of %s is empty.\n", p.Handler, p.Workflow)
				return nil
			}
			t := terminal.Table{Header: []string{"KEY", "VALUE"}}
			for _, key := range slices.Sorted(maps.Keys(p.Values)) {
				t.Add(key, terminal.CutTo(string(p.Values[key]), maxShownValue))
			}
			return t.Print(a.Out, a.OutInk)
		})
	show.Long = `Show prints all values of a checkpoint. A long value is cut; --json has it whole.`
	show.ValidArgsFunction = a.byPosition(workflowNames)
	cmd.AddCommand(show, a.setCheckpointCmd(), a.resetCheckpointCmd())
	return cmd
}

// maxShownValue is how much of a value a table shows, in characters.
const maxShownValue = 500

// setCheckpointCmd sets one value. Without --yes the host makes the preview, so that what was is
// as it is there and not as it was read here.
func (a *app) setCheckpointCmd() *cobra.Command {
	var in api.CheckpointRequest
	var yes bool
	cmd := &cobra.Command{
		Use: "set WORKFLOW PRODUCER KEY JSON", Short: "Set one value of a checkpoint",
		Long: `Set shows what a value is and what it would be, and the command that sets it: with --yes, and with --seen, by which
nothing is changed if the value is another one by then. The next run of the producer begins there. keep workflows
show says who did it, and why.`,
		Args: cobra.ExactArgs(4),
		RunE: func(cmd *cobra.Command, args []string) error {
			// A text without its quotes is the usual mistake, and would be refused by the host in other words.
			if !json.Valid([]byte(args[3])) {
				return exit.Misusef("%s is no JSON; a text is written as '\"text\"'", terminal.CutTo(args[3], 80))
			}
			in.Handler, in.Key, in.Value, in.Preview = keep.HandlerName(args[1]), args[2], json.RawMessage(args[3]), !yes
			return a.setCheckpoint(cmd, args, in)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it; without it, only show what would change")
	cmd.Flags().StringVar(&in.Seen, "seen", "", seenValueUsage)
	cmd.Flags().StringVar(&in.Note, "note", "", "why: `text` for the history of the workflow")
	cmd.ValidArgsFunction = a.byPosition(workflowNames)
	return cmd
}

// resetCheckpointCmd deletes all values, or one. One value goes the way of a change to it, which
// shows values and needs the role admin for that; a whole reset shows none.
func (a *app) resetCheckpointCmd() *cobra.Command {
	var note, seen string
	var yes bool
	cmd := &cobra.Command{
		Use: "reset WORKFLOW PRODUCER [KEY]", Short: "Delete a checkpoint, or one value of it",
		Long: `Reset makes a producer begin where it began at first, or, with a key, deletes that value. It cannot be undone:
without --yes it only says what would happen. An operator may reset a whole checkpoint without seeing it; one
value needs the role admin.`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, w, h := cmd.Context(), keep.WorkflowName(args[0]), keep.HandlerName(args[1])
			if len(args) == 3 {
				return a.setCheckpoint(cmd, args, api.CheckpointRequest{Handler: h, Key: args[2], Delete: true, Note: note, Preview: !yes, Seen: seen})
			}
			if seen != "" {
				return exit.Misusef("--seen is of one value: name its key")
			}
			if !yes {
				return a.look(ctx, func(c *api.Client) error { return a.previewReset(ctx, c, w, h) })
			}
			return a.decide(ctx, func(c *api.Client) error {
				shown, err := c.ResetCheckpoint(ctx, w, h, note)
				if err != nil {
					return err
				}
				fmt.Fprintf(a.Err, "The checkpoint of %s of %s is empty.\n", h, w)
				if a.JSON {
					return a.PrintJSON(shown)
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it; without it, only say what would happen")
	cmd.Flags().StringVar(&seen, "seen", "", seenValueUsage)
	cmd.Flags().StringVar(&note, "note", "", "why: `text` for the history of the workflow")
	cmd.ValidArgsFunction = a.byPosition(workflowNames)
	return cmd
}

// seenValueUsage is of the flag by which a change is of the value that was shown, and of none that the producer, or somebody else, set since.
const seenValueUsage = "only if the value is as it was shown: the `seen` of --json, or of the command that confirms"

// previewReset says what a reset would do. It only reads, and finds a wrong name before --yes.
func (a *app) previewReset(ctx context.Context, c *api.Client, w keep.WorkflowName, h keep.HandlerName) error {
	shown, err := c.Workflow(ctx, w)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(shown.Handlers, func(x api.Handler) bool { return x.Name == h && x.Kind == keep.Producer }) {
		return &keep.NotFoundError{What: "producer", ID: string(w) + "/" + string(h)}
	}
	fmt.Fprintf(a.Err, "The next run of %s of %s would begin as the first one did. Nothing was changed. Add --yes to do it.\n", h, w)
	return nil
}

// setCheckpoint changes one value, or shows what that would change, and the command that does.
func (a *app) setCheckpoint(cmd *cobra.Command, args []string, in api.CheckpointRequest) error {
	ctx, w := cmd.Context(), keep.WorkflowName(args[0])
	return a.decide(ctx, func(c *api.Client) error {
		done, err := c.SetCheckpoint(ctx, w, in)
		if err != nil {
			return err
		}
		shown := func(v json.RawMessage) string {
			if v == nil {
				return "not set"
			}
			return terminal.CutTo(terminal.Clean(string(v)), maxShownValue)
		}
		fmt.Fprintf(a.Err, "Checkpoint of %s of %s, %s:\n  was: %s\n  now: %s\n", done.Handler, done.Workflow, terminal.Clean(done.Key), shown(done.Was), shown(done.Now))
		if done.Preview {
			more := []string{"--yes"}
			if done.Seen != "" { // a host of before has no name for it
				more = append(more, "--seen", done.Seen)
			}
			fmt.Fprintf(a.Err, "Nothing was changed. To do it: %s\n", confirmation(cmd, args, more...))
		}
		if a.JSON {
			return a.PrintJSON(done)
		}
		return nil
	})
}
