package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/store/transfer"
)

// restoredCmd is what a person says of a database that came from a backup. Only a person can say
// it: the same rows are also those of a file that was never away.
func (a *app) restoredCmd() *cobra.Command {
	anyway := false
	cmd := &cobra.Command{
		Use:   "restored",
		Short: "Say that a restored database is the one to work on: pauses every workflow",
		Long: `Restored is for a database that came from a backup, before a host works on it.

A ledger that goes back in time has forgotten calls, and Keep makes them again: what
was pending then is consumed a second time, under a new key, and producers go back to
their old checkpoints and see the same things again. Only two kinds of calls are safe:
those that were in flight at the moment of the backup, which are looked up, and those of items
by tools of level A, whose keys and tokens are the same again.

So every workflow is paused, and you let each continue when you know how:

  approve = "always"         in keep.toml, at each tool of the workflow that changes
                             something: every call becomes a question with what would be sent
  keep resume W              lets the workflow W continue
  keep inbox                 approve what was not done; treat-as-done what was: nothing is
                             sent, and what comes after the call is done. reject ends the run,
                             and what comes after the call is not done either
  keep events skip W TOPIC ID…  or leave out many of those that were pending at once, with
                             all that would come of them

Take the line away when only new things come. Tools whose repetition does no harm
need none of this.

A file that keep db backup made cannot be worked on before this. What pg_restore or a base
backup brought back can: run this command before you start a host. It shows the hosts of its
original for 40 seconds, as long as their leases last: wait; they need not be stopped.

The tokens of an account may have been used up since the backup: they are tried once, and
then you are asked to connect the account again.

Restored checks every record first, and the file itself, and refuses what is damaged. If
the host of the file before did not end well, its log keep.db-wal is still there, which does not
belong to the backup: it is renamed to keep.db-wal.before.

A backup that an earlier version made is brought up to date first. That version cannot restore
it any more: keep a copy if you may go back to it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.restored(cmd.Context(), anyway) },
	}
	cmd.Flags().BoolVar(&anyway, "anyway", false, "work on it although records break laws, as keep db check says")
	return cmd
}

// A restoredReport is what keep db restored --json prints.
type restoredReport struct {
	DB        string             `json:"db"`
	Newest    *api.Time          `json:"newest"` // of the last record; what came later is not known
	Workflows []restoredWorkflow `json:"workflows"`
}

// A restoredWorkflow is what may be done again.
type restoredWorkflow struct {
	Name    keep.WorkflowName `json:"name"`
	Pending int               `json:"pending"` // events
}

// restored makes a copy one that may be worked on, in an order that leaves nothing open if the
// process dies: the log of the other file goes first, since nothing may read the copy with it;
// then the records are checked, and in one step the workflows are paused and the accounts set to be
// tried once. Each step may be repeated.
func (a *app) restored(ctx context.Context, anyway bool) error {
	cfg, err := a.configOfDB()
	if err != nil {
		return err
	}
	place, err := placeOf(cfg.DB)
	if err != nil {
		return err
	}
	if file, ok := place.(*sqlite.Place); ok {
		aside, err := file.SetAsideLog(ctx)
		if err != nil {
			return exit.NoDatabase(err)
		}
		if aside != "" {
			fmt.Fprintf(a.Err, "The log of the file that was there before is %s now.\n", terminal.Short(aside))
		}
	}
	if err := (transfer.Mover{Now: a.Now(), By: daemon.User(), Anyway: anyway}).Restore(ctx, place); err != nil {
		return exit.NoDatabase(err)
	}
	report := restoredReport{DB: place.Name(), Workflows: []restoredWorkflow{}}
	// Only now may the database be opened: the restore has made it one to work on.
	err = a.withStore(ctx, database.ToMigrate, func(_ *config.Config, db database.DB) error {
		return report.fill(ctx, db)
	})
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(report)
	}
	if report.Newest != nil {
		fmt.Fprintf(a.Err, "The newest record is of %s. What was done after it is not known here, and would be done again.\n", time.Time(*report.Newest).Format(time.RFC3339))
	}
	for _, w := range report.Workflows {
		fmt.Fprintf(a.Err, "Workflow %s: paused; %s pending.\n", w.Name, terminal.Plural(w.Pending, "event"))
	}
	fmt.Fprintln(a.Err, "How to let them continue without doing things twice: keep db restored --help")
	return nil
}

// fill reads what may be done again. The newest run says about when the backup was made, as far
// as the records know.
func (r *restoredReport) fill(ctx context.Context, db database.DB) error {
	runs, _, err := db.Runs(ctx, keep.RunFilter{}, keep.Page{Limit: 1})
	if err != nil {
		return err
	}
	if len(runs) == 1 {
		newest := api.Time(runs[0].UpdatedAt)
		r.Newest = &newest
	}
	ws, err := db.Workflows(ctx)
	if err != nil {
		return err
	}
	for _, w := range ws {
		counts, err := db.TopicCounts(ctx, w.Name)
		if err != nil {
			return err
		}
		one := restoredWorkflow{Name: w.Name}
		for _, c := range counts {
			// A reserved event was in work at the backup, and may have been consumed since.
			one.Pending += c.Pending + c.Reserved
		}
		r.Workflows = append(r.Workflows, one)
	}
	return nil
}
