package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// cancelRunCmd ends a run for good, and so needs --yes. It is for runs whose call was certainly not
// made: for any other, only a question can say what became of the call.
func (a *app) cancelRunCmd() *cobra.Command {
	var note string
	var yes bool
	cmd := &cobra.Command{
		Use: "cancel RUN", Short: "End a waiting run that has not made its call",
		Long: `Cancel ends a run that waits and has made no call that may have happened: its events are
skipped, and its questions closed. Without --yes it only shows what that means. A run that
is being executed, or whose call may have been sent, stays as it is, and exit 1 says why.
keep events unskip undoes the skip. Who cancelled and why is in the log of the run.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.doRun(cmd, args[0], keep.Cancel, api.RunRequest{Note: note, Preview: !yes})
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "why: `text` for the log of the run")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cmd.ValidArgsFunction = a.byPosition(runIDs)
	return cmd
}

// retryRunCmd brings a time forward. That takes nothing away, and so needs no --yes; --now is there
// to be read, since retry alone sounds as if the call were made once more.
func (a *app) retryRunCmd() *cobra.Command {
	var note string
	var now, dry bool
	cmd := &cobra.Command{
		Use: "retry RUN --now", Short: "Let a run that waits for a time continue now",
		Long: `Retry --now brings the next attempt of a run, or the next lookup of its call, forward.
The limits of its connection still hold, and a lookup believes no absence sooner. A run that
waits for a person stays as it is, and exit 1 says why: answer its question. --dry-run only
shows what would happen. Who did it and why is in the log of the run.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !now {
				return exit.Misusef("keep runs retry needs --now: a run that waits for a time continues by itself")
			}
			return a.doRun(cmd, args[0], keep.Retry, api.RunRequest{Note: note, Preview: dry})
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "why: `text` for the log of the run")
	cmd.Flags().BoolVar(&now, "now", false, "do not wait for the time of the next attempt")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show what would happen")
	cmd.ValidArgsFunction = a.byPosition(runIDs)
	return cmd
}

// doRun performs an action on a run, and tells what it caused; in a preview, what it would. The run
// is named by its id: what is last may be another run by now.
func (a *app) doRun(cmd *cobra.Command, name string, action keep.Action, in api.RunRequest) error {
	ctx := cmd.Context()
	return a.decide(ctx, func(c *api.Client) error {
		ids, err := fixedIDs[keep.RunID](ctx, c, keep.NounRun, []string{name})
		if err != nil {
			return err
		}
		done, err := c.DoRun(ctx, ids[0], action, in)
		if err != nil {
			return err
		}
		what := string(action)
		if in.Preview {
			what = "would " + what
		}
		fmt.Fprintf(a.Err, "%s: %s: %s.\n", done.Run, what, terminal.Clean(done.Effect))
		for _, s := range done.Skipped {
			fmt.Fprintf(a.Err, "  skips %s in topic %s: %s\n", terminal.Plural(len(s.IDs), "event"), s.Topic, joinIDs(s.IDs))
		}
		if in.Preview && action == keep.Cancel {
			fmt.Fprintln(a.Err, "Nothing was changed. Add --yes to do it.")
		}
		if a.JSON {
			return a.PrintJSON(done)
		}
		return nil
	})
}
