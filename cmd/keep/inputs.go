package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/view"
)

// inputsCmd is the main view for people: what came in, and what became of it.
func (a *app) inputsCmd() *cobra.Command {
	list := func() *cobra.Command {
		return listCmd(a, "", "Inputs: what came in, and what became of it", listing[api.Input]{
			header:   []string{"INPUT", "WORKFLOW", "STATUS", "OUTPUTS", "CREATED", "TITLE"},
			statuses: words(keep.InputStatuses()),
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Input], error) {
				return c.Inputs(ctx, api.InputQuery{Workflow: keep.WorkflowName(f.workflow), Status: keep.InputStatus(f.status), Made: f.made(), Text: f.text}, p)
			},
			words: "titles and external ids",
			key:   func(in api.Input) string { return string(in.ID) }, kinds: []feed.Kind{feed.Input, feed.Event, feed.Mutation},
			row: func(in api.Input) []string {
				return []string{string(in.ID), string(in.Workflow), view.InputState(in.Status, in.Skipped), terminal.Number(len(in.Outputs)),
					a.At(in.CreatedAt), terminal.CutTo(terminal.Clean(in.Title), terminal.MaxTitle)}
			},
		})
	}
	show := showCmd(a, "show ID", "Show one input with its outputs", 1,
		func(ctx context.Context, c *api.Client, args []string) (api.Input, error) {
			id, err := fullID[keep.InputID](ctx, c, keep.NounInput, args[0])
			if err != nil {
				return api.Input{}, err
			}
			return c.Input(ctx, id)
		}, a.printInput)
	show.Long = "Show prints an input and what became of it.\n\n" + shortHelp
	show.ValidArgsFunction = a.byPosition(inputIDs)
	return noun("inputs", list, show, a.skipInputsCmd(), a.unskipInputsCmd(), a.redoInputsCmd())
}

// printInput prints an input and the chain of events and mutations behind it.
func (a *app) printInput(ctx context.Context, c *api.Client, in api.Input) error {
	var s terminal.Sheet
	s.Add("input", "%s", in.ID)
	s.Add("title", "%s", terminal.Clean(in.Title))
	s.Add("workflow", "%s", in.Workflow)
	s.Add("is", "%s %s of %s", in.Type, terminal.Clean(in.ExternalID), terminal.Clean(in.Source))
	s.Add("status", "%s", view.InputState(in.Status, in.Skipped))
	s.Add("created", "%s", a.At(in.CreatedAt))
	a.addActs(&s, in.History)
	events, err := c.Events(ctx, in.Workflow, api.EventQuery{Input: in.ID}, api.Paging{Limit: pageSize})
	if err != nil {
		return err
	}
	for _, e := range events.Items {
		s.Add("event", "%s %s, %s", e.Topic, terminal.Clean(string(e.MessageID)), e.Status)
	}
	if events.Next != nil {
		s.Add("", "older events are not shown: these are the newest %d", len(events.Items))
	}
	for _, key := range in.Outputs {
		m, err := c.Mutation(ctx, key)
		if err != nil {
			return err
		}
		s.Add("output", "%s %s, %s (%s)", m.Tool, terminal.Clean(m.Target), m.State, m.Key)
	}
	for _, id := range in.Runs {
		s.Add("run", "%s", id)
	}
	return s.Print(a.Out, a.OutInk)
}
