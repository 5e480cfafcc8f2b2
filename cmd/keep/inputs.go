package main

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/spf13/cobra"
)

// inputsCmd is the main view for people: what came in, and what became of it.
func (a *app) inputsCmd() *cobra.Command {
	list := func() *cobra.Command {
		return listCmd(a, "", "Inputs: what came in, and what became of it", listing[api.Input]{
			header:   []string{"INPUT", "WORKFLOW", "STATUS", "OUTPUTS", "CREATED", "TITLE"},
			statuses: words(keep.InputStatuses()),
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Input], error) {
				return c.Inputs(ctx, api.InputQuery{Workflow: keep.WorkflowName(f.workflow), Status: keep.InputStatus(f.status)}, p)
			},
			row: func(in api.Input) []string {
				return []string{string(in.ID), string(in.Workflow), string(in.Status), number(len(in.Outputs)),
					a.at(in.CreatedAt), cutTo(clean(in.Title), maxTitle)}
			},
		})
	}
	show := showCmd(a, "show ID", "Show one input with its outputs", 1,
		func(ctx context.Context, c *api.Client, args []string) (api.Input, error) {
			return c.Input(ctx, keep.InputID(args[0]))
		}, a.printInput)
	show.ValidArgsFunction = a.byPosition(inputIDs)
	return noun("inputs", list, show, a.skipInputsCmd())
}

// printInput prints an input and the chain of events and mutations behind it.
func (a *app) printInput(ctx context.Context, c *api.Client, in api.Input) error {
	var s sheet
	s.add("input", "%s", in.ID)
	s.add("title", "%s", clean(in.Title))
	s.add("workflow", "%s", in.Workflow)
	s.add("is", "%s %s of %s", in.Type, clean(in.ExternalID), clean(in.Source))
	s.add("status", "%s", in.Status)
	s.add("created", "%s", a.at(in.CreatedAt))
	events, err := c.Events(ctx, in.Workflow, api.EventQuery{Input: in.ID}, api.Paging{})
	if err != nil {
		return err
	}
	for _, e := range events.Items {
		s.add("event", "%s %s, %s", e.Topic, clean(string(e.MessageID)), e.Status)
	}
	for _, key := range in.Outputs {
		m, err := c.Mutation(ctx, key)
		if err != nil {
			return err
		}
		s.add("output", "%s %s, %s (%s)", m.Tool, clean(m.Target), m.State, m.Key)
	}
	return s.print(a.out, a.outInk)
}
