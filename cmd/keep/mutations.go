package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/host/feed"
)

// mutationsCmd is the ledger as people see it. It has no verb that changes a record: what became of a
// call is found out by lookups, or decided in keep inbox.
func (a *app) mutationsCmd() *cobra.Command {
	list := func() *cobra.Command {
		var tool, input, failure string
		return listCmd(a, "", "Mutations: the ledger of every change outside", listing[api.Mutation]{
			header:   []string{"MUTATION", "WORKFLOW", "TOOL", "TARGET", "STATE", "LEVEL", "CALLS", "UPDATED", "TITLE"},
			statuses: words(keep.MutationStates()),
			flags: func(cmd *cobra.Command) {
				cmd.Flags().StringVar(&tool, "tool", "", "only of the tool of this `name`, such as crm.create")
				cmd.Flags().StringVar(&failure, "error", "", "only those that are not applied after an error of this `class` or code, such as permission or http-422")
				cmd.Flags().StringVar(&input, "input", "", "only those that came of the input of this `id`")
			},
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Mutation], error) {
				return c.Mutations(ctx, api.MutationQuery{
					Workflow: keep.WorkflowName(f.workflow), State: keep.MutationState(f.status),
					Tool: keep.ToolName(tool), Input: keep.InputID(input),
					Error: failure, Made: f.made(), Text: f.text,
				}, p)
			},
			words: "titles, targets, keys and identities",
			key:   func(m api.Mutation) string { return string(m.Key) }, kinds: []feed.Kind{feed.Mutation},
			row: func(m api.Mutation) []string {
				return []string{string(m.Key), string(m.Workflow), string(m.Tool), terminal.CutTo(terminal.Clean(m.Target), terminal.MaxTitle),
					string(m.State), string(m.Level), terminal.Number(m.Attempts), a.At(m.UpdatedAt), terminal.CutTo(terminal.OrDash(m.Title), terminal.MaxTitle)}
			},
		})
	}
	show := showCmd(a, "show KEY", "Show one mutation with its history", 1,
		func(ctx context.Context, c *api.Client, args []string) (api.Mutation, error) {
			key, err := fullID[keep.MutationKey](ctx, c, keep.NounMutation, args[0])
			if err != nil {
				return api.Mutation{}, err
			}
			return c.Mutation(ctx, key)
		}, a.printMutation)
	show.Long = "Show prints a call of the ledger and its history.\n\n" + shortHelp
	show.ValidArgsFunction = a.byPosition(mutationKeys)
	return noun("mutations", list, show)
}

// printMutation shows a record with every move that it made, who made it and by what evidence. That is
// what is looked at when somebody says that a call happened twice, or never.
func (a *app) printMutation(_ context.Context, _ *api.Client, m api.Mutation) error {
	var s terminal.Sheet
	s.Add("mutation", "%s", m.Key)
	s.Add("call", "%s on %s, level %s", m.Tool, terminal.Clean(m.Target), m.Level)
	if m.Pack != nil {
		s.Add("pack", "%s %s, %s", terminal.Clean(m.Pack.Name), terminal.Clean(m.Pack.Version), terminal.Clean(m.Pack.Hash))
	}
	s.Add("title", "%s", terminal.Clean(terminal.OrEmpty(m.Title)))
	s.Add("state", "%s", m.State)
	s.Add("resolved by", "%s", terminal.OrEmpty(m.ResolvedBy))
	s.Add("workflow", "%s, run %s", m.Workflow, m.Run)
	// A call for an item is one of its attempt; others belong to the run alone.
	if m.Item != nil {
		s.Add("item", "%s, attempt %d", terminal.Clean(*m.Item), *m.Attempt)
	}
	s.Add("calls", "%d, lookups %d", m.Attempts, m.ReconcileAttempts)
	if m.NextReconcileAt != nil {
		if m.Error != nil && m.Error.Code == keep.CodeToolMissing {
			s.Add("looked again", "%s, for its tool: nobody can be asked", a.At(*m.NextReconcileAt))
		} else {
			s.Add("asked again", "%s", a.At(*m.NextReconcileAt))
		}
	}
	if m.Error != nil {
		s.Add("error", "%s", terminal.ErrorText(m.Error))
	}
	s.Add("identity", "%s", m.Identity)
	s.Add("payload", "%s", indented(m.Payload))
	s.Add("result", "%s", indented(m.Result))
	for _, v := range m.History {
		from := terminal.OrEmpty(v.From)
		if from != "" {
			from += " "
		}
		detail := terminal.OrEmpty(v.Detail)
		if detail != "" {
			detail = ": " + terminal.Clean(detail)
		}
		s.Add(v.At.String(), "%s-> %s by %s, %s%s", from, v.To, terminal.Clean(v.By), v.Evidence, detail)
	}
	return s.Print(a.Out, a.OutInk)
}
