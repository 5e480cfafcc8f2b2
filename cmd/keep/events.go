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

// eventsCmd lists the messages of all topics, and shows one with its payload.
func (a *app) eventsCmd() *cobra.Command {
	list := func() *cobra.Command {
		var topic string
		return listCmd(a, "", "Events: the messages of all topics", listing[api.Event]{
			header:   []string{"WORKFLOW", "TOPIC", "MESSAGE", "STATUS", "RESERVED BY", "CREATED"},
			statuses: words(keep.ListedEventStatuses()),
			flags: func(cmd *cobra.Command) {
				cmd.Flags().StringVar(&topic, "topic", "", "only of the topic of this `name`")
			},
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Event], error) {
				return c.Events(ctx, keep.WorkflowName(f.workflow), api.EventQuery{Topic: keep.TopicName(topic), Status: keep.EventStatus(f.status), Made: f.made(), Text: f.text}, p)
			},
			words: "message ids",
			key: func(e api.Event) string {
				return string(e.Workflow) + " " + string(e.Topic) + " " + string(e.MessageID)
			}, kinds: []feed.Kind{feed.Event},
			row: func(e api.Event) []string {
				return []string{string(e.Workflow), string(e.Topic), string(e.MessageID), string(e.Status),
					terminal.OrDash(e.ReservedBy), a.At(e.CreatedAt)}
			},
		})
	}
	show := showCmd(a, "show [WORKFLOW TOPIC] ID", "Show one event with its payload", 3, shownEvent, a.printEvent)
	show.Long = "Show prints everything about an event. Its ID is enough if nothing else has it. Six or more characters\nthat it begins or ends with stand for it; last is the newest, of a topic or of all."
	show.Args = placedOrAlone(3)
	show.ValidArgsFunction = a.byPosition(workflowNames, topicNames)
	return noun("events", list, show, a.skipEventsCmd(), a.unskipEventsCmd(), a.redoEventsCmd())
}

// shownEvent reads the event that the arguments name. Scripts and senders choose message ids, so
// one may be called last: then that one is meant, and not the newest.
func shownEvent(ctx context.Context, c *api.Client, args []string) (api.Event, error) {
	show := func(w keep.WorkflowName, t keep.TopicName, id keep.MessageID) (api.Event, error) {
		return c.Event(ctx, w, t, id)
	}
	newest := func(w keep.WorkflowName, t keep.TopicName) (api.Event, error) {
		page, err := c.Events(ctx, w, api.EventQuery{Topic: t}, api.Paging{Limit: 1})
		e, err := firstOf("event", page, err)
		if err != nil {
			return e, err
		}
		return show(e.Workflow, e.Topic, e.MessageID)
	}
	if len(args) == 1 {
		return orNewest(args[0], func() (e api.Event, err error) {
			w, err := byIDAlone(ctx, c, view.IsEvent, args[0])
			if err != nil {
				return e, err
			}
			return show(w.Workflow, w.Events[0].Topic, w.Events[0].MessageID)
		}, func() (api.Event, error) { return newest("", "") })
	}
	w, t := keep.WorkflowName(args[0]), keep.TopicName(args[1])
	return orNewest(args[2], func() (api.Event, error) {
		return byName(ctx, c, w, t, args[2], func(id string) (api.Event, error) { return show(w, t, keep.MessageID(id)) })
	}, func() (api.Event, error) { return newest(w, t) })
}

// addActs adds what people did with something.
func (a *app) addActs(s *terminal.Sheet, acts []api.Act) {
	for _, h := range acts {
		with := ""
		if h.Input != nil {
			with = ", with input " + string(*h.Input)
		}
		if h.Handler != nil {
			with = " of " + string(*h.Handler)
		}
		s.Add(string(h.What), "%s by %s%s%s", a.At(h.At), terminal.Clean(h.By), with, terminal.Clean(noted(h.Note)))
	}
}

// printEvent shows an event, where it came from and who has it.
func (a *app) printEvent(_ context.Context, _ *api.Client, e api.Event) error {
	var s terminal.Sheet
	s.Add("event", "%s", terminal.Clean(string(e.MessageID)))
	s.Add("topic", "%s of workflow %s", e.Topic, e.Workflow)
	s.Add("status", "%s", e.Status)
	s.Add("attempt", "%d", e.Attempt)
	s.Add("reserved by", "%s", terminal.OrEmpty(e.ReservedBy))
	for _, r := range e.Runs {
		s.Add("run", "%s, %s, attempt %d", r.Run, r.Status, r.Attempt)
	}
	a.addActs(&s, e.History)
	s.Add("created by", "%s", terminal.OrEmpty(e.CreatedBy))
	for _, in := range e.CausedBy {
		s.Add("caused by", "%s", in)
	}
	s.Add("created", "%s", a.At(e.CreatedAt))
	s.Add("payload", "%s", indented(e.Payload))
	return s.Print(a.Out, a.OutInk)
}
