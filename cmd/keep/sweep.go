package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/config"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/policy"
)

// sweepSummary is what keep db sweep did, or would do.
type sweepSummary struct {
	Preview   bool  `json:"preview"`   // nothing was changed
	Runs      int   `json:"runs"`      // that are deleted, with their logs and questions
	Mutations int   `json:"mutations"` // that are deleted, with their history
	Bytes     int64 `json:"bytes"`     // that the file is shorter
}

func (a *app) sweepCmd() *cobra.Command {
	var older string
	var yes bool
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Delete finished runs that are older than [retention] says",
		Long: `Sweep deletes what is over and older than [retention] of keep.toml says: runs with
their logs, their mutations with all history, their questions, and the payloads of
their events. Without --yes it only says how much that is.

Nothing goes that is not finished: no call in doubt, no open question, no item that
is not done, nothing of an input that is pending. What keeps things from being done
twice stays: inputs, the message ids of events, items and checkpoints.

A host does the same by itself once an hour, if there is a [retention]. It may go on
meanwhile. The sweep may be stopped at any moment and started again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withStore(cmd.Context(), toDecide, func(cfg *config.Config, db database) error {
				r := cfg.Retention
				if older != "" {
					d, err := config.ParseDuration(older)
					if err != nil {
						return misusef("--older-than: %w", err)
					}
					r = policy.Retention{After: d}
				}
				return a.sweep(cmd.Context(), db, r, !yes)
			})
		},
	}
	cmd.Flags().StringVar(&older, "older-than", "", "`time` since the last change, such as 90d, instead of [retention]")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// sweep deletes what is over and old, or says how much that is.
func (a *app) sweep(ctx context.Context, db database, r policy.Retention, preview bool) error {
	if err := r.Validate(); err != nil {
		return misusef("%w", err)
	}
	if _, some := r.Latest(a.now()); !some {
		return misusef("there is no [retention] in keep.toml, so everything is kept; say --older-than 90d")
	}
	e, err := engine.New(db, nil, nil, engine.Config{Logger: a.log, Leases: leasesOf(db), Clock: a.clock})
	if err == nil {
		err = e.Sync(ctx)
	}
	if err != nil {
		return err
	}
	told := time.Now()
	done, err := e.Sweep(ctx, r, preview, func(s engine.Swept) {
		if a.tty && !a.json && time.Since(told) > quiet {
			told = time.Now()
			fmt.Fprintf(a.err, "%s deleted so far.\n", plural(s.Runs, "run"))
		}
	})
	sum := sweepSummary{Preview: preview, Runs: done.Runs, Mutations: done.Mutations}
	if s, ok := db.(interface {
		Shrink(ctx context.Context) (int64, error)
	}); ok && err == nil && !preview {
		sum.Bytes, err = s.Shrink(ctx)
	}
	if a.json {
		return errors.Join(err, a.printJSON(sum))
	}
	what := plural(sum.Runs, "run") + " with " + plural(sum.Mutations, "mutation")
	switch {
	case preview && sum.Runs == 0:
		fmt.Fprintln(a.err, "Nothing is over and old enough.")
	case preview:
		fmt.Fprintf(a.err, "Nothing was changed. To delete %s, say --yes.\n", what)
	default:
		fmt.Fprintf(a.err, "Deleted: %s. The file is %s bytes shorter.\n", what, number(int(sum.Bytes)))
	}
	return err
}
