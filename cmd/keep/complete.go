package main

import (
	"context"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/config"
	"github.com/spf13/cobra"
)

// A completer tells the shell what an argument can be.
type completer = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// completeFor is how long the shell waits for the database.
const completeFor = 2 * time.Second

// fixed completes from a closed set.
func fixed(words []string) completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag sets the completer of a flag that the command has.
func (a *app) completeFlag(cmd *cobra.Command, flag string, f completer) {
	// It fails only for a flag that does not exist, which every test of the
	// command line would find.
	_ = cmd.RegisterFlagCompletionFunc(flag, f)
}

// fromStore completes the argument at position with what the database holds. It
// says nothing if there is no database: a shell is no place for errors.
func (a *app) fromStore(position int, f func(ctx context.Context, db database, args []string) ([]string, error)) completer {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) != position {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), completeFor)
		defer cancel()
		var out []string
		err := a.withStore(ctx, toLook, func(_ *config.Config, db database) (err error) {
			out, err = f(ctx, db, args)
			return err
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// described returns a completion with its description, on one safe line.
func described(word, text string) string { return word + "\t" + cutTo(clean(text), maxTitle) }

// recent is how many things are offered.
var recent = keep.Page{Limit: 50}

// completeWorkflows completes the flag --workflow.
func (a *app) completeWorkflows(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return a.fromStore(0, workflowNames)(cmd, nil, toComplete)
}

// workflowNames completes workflows.
func workflowNames(ctx context.Context, db database, _ []string) ([]string, error) {
	all, err := db.Workflows(ctx)
	var out []string
	for _, w := range all {
		out = append(out, described(string(w.Name), "version "+w.Version.String()))
	}
	return out, err
}

// runIDs completes the newest runs.
func runIDs(ctx context.Context, db database, _ []string) ([]string, error) {
	runs, _, err := db.Runs(ctx, keep.RunFilter{}, recent)
	var out []string
	for _, r := range runs {
		out = append(out, described(string(r.ID), string(r.Workflow)+" "+string(r.Handler)+" "+string(r.Status)))
	}
	return out, err
}

// inputIDs completes the newest inputs, with their titles.
func inputIDs(ctx context.Context, db database, _ []string) ([]string, error) {
	ins, _, err := db.Inputs(ctx, keep.InputFilter{}, recent)
	var out []string
	for _, in := range ins {
		out = append(out, described(string(in.ID), in.Title))
	}
	return out, err
}

// mutationKeys completes the newest mutations.
func mutationKeys(ctx context.Context, db database, _ []string) ([]string, error) {
	ms, _, err := db.Mutations(ctx, keep.MutationFilter{}, recent)
	var out []string
	for _, m := range ms {
		out = append(out, described(string(m.Key), string(m.Tool)+" "+m.Target+" "+string(m.State)))
	}
	return out, err
}

// questionIDs completes the open questions.
func questionIDs(ctx context.Context, db database, _ []string) ([]string, error) {
	qs, _, err := db.Escalations(ctx, keep.EscalationFilter{Open: true}, recent)
	var out []string
	for _, q := range qs {
		out = append(out, described(string(q.ID), string(q.Workflow)+": "+q.Question))
	}
	return out, err
}

// topicNames completes the topics of the workflow named before.
func topicNames(ctx context.Context, db database, args []string) ([]string, error) {
	counts, err := db.TopicCounts(ctx, keep.WorkflowName(args[0]))
	var out []string
	for _, c := range counts {
		out = append(out, string(c.Topic))
	}
	return out, err
}

// byPosition completes each argument in its own way.
func (a *app) byPosition(fs ...func(context.Context, database, []string) ([]string, error)) completer {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(fs) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.fromStore(len(args), fs[len(args)])(cmd, args, toComplete)
	}
}
