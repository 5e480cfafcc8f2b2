package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/operator"
)

// sweepSummary is what keep db sweep did, or would do. In a preview Bytes is 0: how much shorter the
// file will be shows only afterwards.
type sweepSummary struct {
	Preview   bool  `json:"preview"`   // nothing was changed
	Runs      int   `json:"runs"`      // that are deleted, with their logs and questions
	Mutations int   `json:"mutations"` // that are deleted, with their history
	Traces    int   `json:"traces"`    // that are deleted: parts of what runs saw
	Bytes     int64 `json:"bytes"`     // that the file is shorter
}

// sweepCmd deletes, and so only says what it would delete unless --yes is given. It needs no host: a
// database that only cron works on grows, too.
func (a *app) sweepCmd() *cobra.Command {
	var older string
	var yes bool
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Delete finished runs that are older than [retention] says",
		Long: `Sweep deletes what is over and older than [retention] of keep.toml says: runs with
their logs, their mutations with all history, their questions, and the payloads of
their events; and what runs saw that is older than [trace] says. Without --yes it only
says how much that is.

Nothing goes that is not finished: no call in doubt, no open question, no item that
is not done, nothing of an input that is pending. What keeps things from being done
twice stays: inputs, the message ids of events, items and checkpoints.

Runs that found nothing to do go after retention.empty, which is 7 days if it is not set.

A host does the same by itself once an hour, and may continue meanwhile. The sweep may be
stopped at any moment and started again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withStore(cmd.Context(), database.ToDecide, func(cfg *config.Config, db database.DB) error {
				r := cfg.Retention
				if older != "" {
					d, err := config.ParseDuration(older)
					if err != nil {
						return exit.Misusef("--older-than: %w", err)
					}
					// The flag replaces all of [retention], its exceptions for workflows included.
					r = policy.Retention{After: d, Traces: r.Traces}
				}
				return a.sweep(cmd.Context(), cfg, db, r, !yes)
			})
		},
	}
	cmd.Flags().StringVar(&older, "older-than", "", "`time` since the last change, such as 90d, instead of [retention]")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// sweep deletes what is over and old, or says how much that is. It deletes in small commits, and may
// end between any two of them. After an error it still says what is gone. Traces go first, by a
// time of their own.
func (a *app) sweep(ctx context.Context, cfg *config.Config, db database.DB, r policy.Retention, preview bool) error {
	if err := r.Validate(); err != nil {
		return exit.Misusef("%w", err)
	}
	o, _, err := a.operatorOf(ctx, cfg, db, nil)
	if err != nil {
		return err
	}
	traces, err := o.SweepTraces(ctx, r, preview, func() {})
	var done operator.Swept
	if err == nil {
		told := time.Now()
		done, err = o.Sweep(ctx, r, preview, func(s operator.Swept) {
			if a.TTY && !a.JSON && time.Since(told) > terminal.ProgressDelay {
				told = time.Now()
				fmt.Fprintf(a.Err, "%s deleted so far.\n", terminal.Plural(s.Runs, "run"))
			}
		})
	}
	if preview && err != nil { // what was counted so far is not how much it is
		return err
	}
	sum := sweepSummary{Preview: preview, Runs: done.Runs, Mutations: done.Mutations, Traces: traces}
	s, isFile := db.(interface {
		// Of a file only: Postgres gives space back by itself.
		Shrink(ctx context.Context) (int64, error)
	})
	if isFile && err == nil && !preview {
		sum.Bytes, err = s.Shrink(ctx)
	}
	if a.JSON {
		return errors.Join(err, a.PrintJSON(sum))
	}
	a.saySwept(sum, r, isFile)
	return err
}

// saySwept says what a sweep deleted, or would delete.
func (a *app) saySwept(sum sweepSummary, r policy.Retention, isFile bool) {
	what := terminal.Plural(sum.Runs, "run") + " with " + terminal.Plural(sum.Mutations, "mutation")
	if sum.Traces > 0 {
		what += ", and " + terminal.Plural(sum.Traces, "trace")
	}
	switch _, some := (policy.Retention{After: r.After, Workflows: r.Workflows}).Latest(a.Now()); {
	case sum.Preview && sum.Runs == 0 && sum.Traces == 0 && !some:
		fmt.Fprintln(a.Err, "Nothing is old enough. There is no retention.after in keep.toml, so all runs that did something are kept; say --older-than 90d.")
	case sum.Preview && sum.Runs == 0 && sum.Traces == 0:
		fmt.Fprintln(a.Err, "Nothing is over and old enough.")
	case sum.Preview:
		fmt.Fprintf(a.Err, "Nothing was changed. To delete %s, say --yes.\n", what)
	case !isFile:
		fmt.Fprintf(a.Err, "Deleted: %s.\n", what)
	default:
		fmt.Fprintf(a.Err, "Deleted: %s. The file is %s bytes shorter.\n", what, terminal.Number(int(sum.Bytes)))
	}
}
