package main

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/spf13/cobra"
)

// topicsCmd lists topics with their counts, which the store keeps exact.
func (a *app) topicsCmd() *cobra.Command {
	list := func() *cobra.Command {
		return listCmd(a, "", "Topics: how many events wait, and how many are done", listing[api.Topic]{
			header: []string{"WORKFLOW", "TOPIC", "PENDING", "RESERVED", "CONSUMED", "SKIPPED"},
			fetch: func(ctx context.Context, db database, f listFlags, p keep.Page) ([]api.Topic, string, error) {
				counts, err := db.TopicCounts(ctx, keep.WorkflowName(f.workflow))
				out := make([]api.Topic, 0, len(counts))
				for _, c := range counts {
					out = append(out, api.TopicOf(c))
				}
				return inMemory(out, p, func(t api.Topic) string { return string(t.Workflow) + "/" + string(t.Topic) }, err)
			},
			row: func(t api.Topic) []string {
				return []string{string(t.Workflow), string(t.Topic), number(t.Pending), number(t.Reserved),
					number(t.Consumed), number(t.Skipped)}
			},
		})
	}
	show := showCmd(a, "show WORKFLOW TOPIC", "Show one topic with its oldest pending events", 2,
		func(ctx context.Context, db database, args []string) (api.Topic, error) {
			counts, err := db.TopicCounts(ctx, keep.WorkflowName(args[0]))
			if err != nil {
				return api.Topic{}, err
			}
			for _, c := range counts {
				if string(c.Topic) == args[1] {
					return api.TopicOf(c), nil
				}
			}
			return api.Topic{}, &keep.NotFoundError{What: "topic", ID: args[0] + "/" + args[1]}
		}, a.printTopic)
	show.ValidArgsFunction = a.byPosition(workflowNames, topicNames)
	return noun("topics", list, show)
}

// printTopic shows the counts and what a consumer would be given next.
func (a *app) printTopic(ctx context.Context, db database, t api.Topic) error {
	var s sheet
	s.add("topic", "%s of workflow %s", t.Topic, t.Workflow)
	s.add("pending", "%d", t.Pending)
	s.add("reserved", "%d", t.Reserved)
	s.add("consumed", "%d", t.Consumed)
	s.add("skipped", "%d", t.Skipped)
	events, err := db.Peek(ctx, t.Workflow, t.Topic, 10)
	if err != nil {
		return err
	}
	for _, e := range events {
		s.add("next", "%s, %s", clean(string(e.MessageID)), a.when(e.CreatedAt))
	}
	return s.print(a.out, a.outInk)
}
