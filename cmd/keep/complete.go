package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// A completer tells the shell what an argument can be.
type completer = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// completeFor is how long the shell waits for the database. Who pressed the tab key types on.
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
func (a *app) fromStore(position int, f func(ctx context.Context, c *api.Client, args []string) ([]string, error)) completer {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) != position {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), completeFor)
		defer cancel()
		defer a.Err.Redirect(a.Err.Redirect(io.Discard)) // a shell has no place for it
		var out []string
		err := a.look(ctx, func(c *api.Client) (err error) {
			out, err = f(ctx, c, args)
			return err
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// described returns a completion with its description, on one safe line.
func described(word, text string) string {
	return word + "\t" + terminal.CutTo(terminal.Clean(text), terminal.MaxTitle)
}

// recent is how many things are offered: more than that nobody reads in a shell.
var recent = api.Paging{Limit: 50}

// completeWorkflows completes the flag --workflow.
func (a *app) completeWorkflows(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return a.fromStore(0, workflowNames)(cmd, nil, toComplete)
}

// workflowNames completes workflows.
func workflowNames(ctx context.Context, c *api.Client, _ []string) ([]string, error) {
	all, err := c.Workflows(ctx)
	return eachOf(all, func(w api.Workflow) string { return described(string(w.Name), "version "+w.Version) }), err
}

// runIDs completes the newest runs.
func runIDs(ctx context.Context, c *api.Client, _ []string) ([]string, error) {
	runs, err := c.Runs(ctx, api.RunQuery{}, recent)
	return eachOf(runs.Items, func(r api.Run) string {
		return described(string(r.ID), string(r.Workflow)+" "+string(r.Handler)+" "+string(r.Status))
	}), err
}

// inputIDs completes the newest inputs, with their titles.
func inputIDs(ctx context.Context, c *api.Client, _ []string) ([]string, error) {
	ins, err := c.Inputs(ctx, api.InputQuery{}, recent)
	return eachOf(ins.Items, func(in api.Input) string { return described(string(in.ID), in.Title) }), err
}

// mutationKeys completes the newest mutations.
func mutationKeys(ctx context.Context, c *api.Client, _ []string) ([]string, error) {
	ms, err := c.Mutations(ctx, api.MutationQuery{}, recent)
	return eachOf(ms.Items, func(m api.Mutation) string {
		return described(string(m.Key), string(m.Tool)+" "+m.Target+" "+string(m.State))
	}), err
}

// questionIDs completes the open questions.
func questionIDs(ctx context.Context, c *api.Client, _ []string) ([]string, error) {
	qs, err := c.Escalations(ctx, api.EscalationQuery{}, recent)
	return eachOf(qs.Items, func(q api.Answered) string { return described(string(q.ID), string(q.Workflow)+": "+q.Question) }), err
}

// topicNames completes the topics of the workflow named before.
func topicNames(ctx context.Context, c *api.Client, args []string) ([]string, error) {
	all, err := c.Topics(ctx, keep.WorkflowName(args[0]))
	return eachOf(all, func(t api.Topic) string { return string(t.Topic) }), err
}

// eachOf returns a completion for each thing.
func eachOf[T any](all []T, f func(T) string) []string {
	out := make([]string, 0, len(all))
	for _, v := range all {
		out = append(out, f(v))
	}
	return out
}

// byPosition completes each argument in its own way.
func (a *app) byPosition(fs ...func(context.Context, *api.Client, []string) ([]string, error)) completer {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(fs) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.fromStore(len(args), fs[len(args)])(cmd, args, toComplete)
	}
}
