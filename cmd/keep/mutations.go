package main

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/spf13/cobra"
)

// mutationsCmd is the ledger as people see it.
func (a *app) mutationsCmd() *cobra.Command {
	list := func() *cobra.Command {
		var tool, input string
		return listCmd(a, "", "Mutations: the ledger of every change outside", listing[api.Mutation]{
			header:   []string{"MUTATION", "WORKFLOW", "TOOL", "TARGET", "STATE", "LEVEL", "CALLS", "UPDATED", "TITLE"},
			statuses: words(keep.MutationStates()),
			flags: func(cmd *cobra.Command) {
				cmd.Flags().StringVar(&tool, "tool", "", "only of the tool of this `name`, such as crm.create")
				cmd.Flags().StringVar(&input, "input", "", "only those that came of the input of this `id`")
			},
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Mutation], error) {
				return c.Mutations(ctx, api.MutationQuery{
					Workflow: keep.WorkflowName(f.workflow), State: keep.MutationState(f.status),
					Tool: keep.ToolName(tool), Input: keep.InputID(input),
				}, p)
			},
			row: func(m api.Mutation) []string {
				return []string{string(m.Key), string(m.Workflow), string(m.Tool), cutTo(clean(m.Target), maxTitle),
					string(m.State), string(m.Level), number(m.Attempts), a.at(m.UpdatedAt), cutTo(orDash(m.Title), maxTitle)}
			},
		})
	}
	show := showCmd(a, "show KEY", "Show one mutation with its history", 1,
		func(ctx context.Context, c *api.Client, args []string) (api.Mutation, error) {
			return c.Mutation(ctx, keep.MutationKey(args[0]))
		}, a.printMutation)
	show.ValidArgsFunction = a.byPosition(mutationKeys)
	return noun("mutations", list, show)
}

// printMutation shows a record with every move that it made.
func (a *app) printMutation(_ context.Context, _ *api.Client, m api.Mutation) error {
	var s sheet
	s.add("mutation", "%s", m.Key)
	s.add("call", "%s on %s, level %s", m.Tool, clean(m.Target), m.Level)
	s.add("title", "%s", clean(orEmpty(m.Title)))
	s.add("state", "%s", m.State)
	s.add("resolved by", "%s", orEmpty(m.ResolvedBy))
	s.add("workflow", "%s, run %s", m.Workflow, m.Run)
	if m.Item != nil {
		s.add("item", "%s, attempt %d", clean(*m.Item), *m.Attempt)
	}
	s.add("calls", "%d, lookups %d", m.Attempts, m.ReconcileAttempts)
	if m.NextReconcileAt != nil {
		s.add("asked again", "%s", a.at(*m.NextReconcileAt))
	}
	if m.Error != nil {
		s.add("error", "%s", errorText(m.Error))
	}
	s.add("identity", "%s", m.Identity)
	s.add("payload", "%s", indented(m.Payload))
	s.add("result", "%s", indented(m.Result))
	for _, v := range m.History {
		from := orEmpty(v.From)
		if from != "" {
			from += " "
		}
		detail := orEmpty(v.Detail)
		if detail != "" {
			detail = ": " + clean(detail)
		}
		s.add(v.At.String(), "%s-> %s by %s, %s%s", from, v.To, clean(v.By), v.Evidence, detail)
	}
	return s.print(a.out, a.outInk)
}
