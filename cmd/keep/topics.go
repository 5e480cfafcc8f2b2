package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// topicsCmd lists topics with their counts, which the store keeps exact.
func (a *app) topicsCmd() *cobra.Command {
	list := func() *cobra.Command {
		return listCmd(a, "", "Topics: how many events wait, and how many are done", listing[api.Topic]{
			header: []string{"WORKFLOW", "TOPIC", "PENDING", "RESERVED", "CONSUMED", "SKIPPED"},
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Topic], error) {
				all, err := c.Topics(ctx, keep.WorkflowName(f.workflow))
				return inMemory(all, p, func(t api.Topic) string { return string(t.Workflow) + "/" + string(t.Topic) }, err)
			},
			row: func(t api.Topic) []string {
				return []string{string(t.Workflow), string(t.Topic), terminal.Number(t.Pending), terminal.Number(t.Reserved),
					terminal.Number(t.Consumed), terminal.Number(t.Skipped)}
			},
		})
	}
	show := showCmd(a, "show WORKFLOW TOPIC", "Show one topic with its oldest pending events", 2,
		func(ctx context.Context, c *api.Client, args []string) (api.TopicShown, error) {
			return c.Topic(ctx, keep.WorkflowName(args[0]), keep.TopicName(args[1]))
		}, a.printTopic)
	show.ValidArgsFunction = a.byPosition(workflowNames, topicNames)
	return noun("topics", list, show)
}

// printTopic shows the counts and what a consumer would be given next.
func (a *app) printTopic(_ context.Context, _ *api.Client, t api.TopicShown) error {
	var s terminal.Sheet
	s.Add("topic", "%s of workflow %s", t.Topic.Topic, t.Workflow)
	s.Add("pending", "%d", t.Pending)
	s.Add("reserved", "%d", t.Reserved)
	s.Add("consumed", "%d", t.Consumed)
	s.Add("skipped", "%d", t.Skipped)
	for _, e := range t.Oldest {
		s.Add("next", "%s, %s", terminal.Clean(string(e.MessageID)), a.At(e.CreatedAt))
	}
	return s.Print(a.Out, a.OutInk)
}
