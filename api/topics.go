package api

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/view"
)

// EventQuery selects events of a workflow.
type EventQuery struct {
	Topic  keep.TopicName   `query:"topic"`
	Status keep.EventStatus `query:"status" enum:"pending,reserved,consumed,skipped"`
	Input  keep.InputID     `query:"input" doc:"caused by it"`
	Made
	Text string `query:"q" maxLength:"200" doc:"beginnings of words of the message id"`
}

// A TopicShown is a topic with what a consumer would be given next.
type TopicShown struct {
	Topic
	Oldest []Event `json:"oldest" doc:"the free events that wait longest, without payloads; at most ten"`
}

// readTopics registers what is about topics and events.
func (s *Server) readTopics() {
	get(s, "/topics", "list-topics", "How many events topics have", func(ctx context.Context, in *struct {
		Workflow keep.WorkflowName `query:"workflow"`
	}) (Page[Topic], error) {
		return s.topics(ctx, in.Workflow)
	})
	get(s, "/topics/events", "list-events", "Events of all topics", func(ctx context.Context, in *struct {
		Workflow keep.WorkflowName `query:"workflow"`
		EventQuery
		Paging
	}) (Page[Event], error) {
		return s.events(ctx, in.Workflow, in.EventQuery, in.Paging)
	})
	get(s, "/workflows/{workflow}/topics", "list-topics-of", "How many events the topics of a workflow have", func(ctx context.Context, in *WorkflowPath) (Page[Topic], error) {
		return s.topics(ctx, in.Workflow)
	})
	get(s, "/workflows/{workflow}/topics/{topic}", "show-topic", "One topic, with the events that wait longest", func(ctx context.Context, in *struct {
		WorkflowPath
		Topic keep.TopicName `path:"topic"`
	}) (TopicShown, error) {
		return s.topic(ctx, in.Workflow, in.Topic)
	})
	get(s, "/workflows/{workflow}/events", "list-events-of", "Events of a workflow", func(ctx context.Context, in *struct {
		WorkflowPath
		EventQuery
		Paging
	}) (Page[Event], error) {
		return s.events(ctx, in.Workflow, in.EventQuery, in.Paging)
	})
	get(s, "/workflows/{workflow}/topics/{topic}/events/{event}", "show-event", "One event", func(ctx context.Context, in *struct {
		WorkflowPath
		Topic keep.TopicName `path:"topic"`
		ID    keep.MessageID `path:"event"`
	}) (Event, error) {
		return ShowEvent(ctx, s.cfg.Store, in.Workflow, in.Topic, in.ID)
	})
}

func (s *Server) topics(ctx context.Context, w keep.WorkflowName) (Page[Topic], error) {
	all, err := s.cfg.Store.TopicCounts(ctx, w)
	if err != nil {
		return Page[Topic]{}, err
	}
	readers, err := s.readers(ctx)
	return paged(each(all, func(c keep.TopicCount) Topic { return TopicOf(c, readers(c)) }), "", err)
}

// readers returns which consumers subscribe to a topic now.
func (s *Server) readers(ctx context.Context) (func(keep.TopicCount) []keep.HandlerName, error) {
	current, err := s.cfg.Store.Current(ctx)
	definitions := make(map[keep.WorkflowName]keep.Definition, len(current))
	for _, d := range current {
		definitions[d.Workflow] = d.Definition
	}
	return func(c keep.TopicCount) []keep.HandlerName { return view.ReadersOf(definitions[c.Workflow], c.Topic) }, err
}

func (s *Server) topic(ctx context.Context, w keep.WorkflowName, name keep.TopicName) (TopicShown, error) {
	counts, err := s.cfg.Store.TopicCounts(ctx, w)
	if err != nil {
		return TopicShown{}, err
	}
	for _, c := range counts {
		if c.Topic == name {
			oldest, err := s.cfg.Store.Peek(ctx, w, name, 10)
			for i := range oldest {
				oldest[i].Payload = nil
			}
			if err != nil {
				return TopicShown{}, err
			}
			readers, err := s.readers(ctx)
			return TopicShown{TopicOf(c, readers(c)), each(oldest, EventOf)}, err
		}
	}
	return TopicShown{}, &keep.NotFoundError{What: "topic", ID: string(w) + "/" + string(name)}
}

func (s *Server) events(ctx context.Context, w keep.WorkflowName, q EventQuery, p Paging) (Page[Event], error) {
	made, err := q.in(s.cfg.Clock())
	if err != nil {
		return Page[Event]{}, err
	}
	f := keep.EventFilter{Workflow: w, Topic: q.Topic, Status: q.Status, Input: q.Input, Made: made, Text: q.Text}
	return paged(bounded(p.page(), func(p keep.Page) ([]Event, string, error) {
		events, next, err := s.cfg.Store.Events(ctx, f, p)
		return each(events, EventOf), next, err
	}))
}
