package api

import (
	"context"

	"github.com/keep-run/keep"
)

// EventQuery selects events of a workflow.
type EventQuery struct {
	Topic  keep.TopicName   `query:"topic"`
	Status keep.EventStatus `query:"status"`
	Input  keep.InputID     `query:"input" doc:"caused by it"`
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
		e, err := s.cfg.Store.Event(ctx, in.Workflow, in.Topic, in.ID)
		return EventOf(e), err
	})
}

func (s *Server) topics(ctx context.Context, w keep.WorkflowName) (Page[Topic], error) {
	all, err := s.cfg.Store.TopicCounts(ctx, w)
	return paged(each(all, TopicOf), "", err)
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
			return TopicShown{TopicOf(c), each(oldest, EventOf)}, err
		}
	}
	return TopicShown{}, &keep.NotFoundError{What: "topic", ID: string(w) + "/" + string(name)}
}

func (s *Server) events(ctx context.Context, w keep.WorkflowName, q EventQuery, p Paging) (Page[Event], error) {
	events, next, err := s.cfg.Store.Events(ctx, keep.EventFilter{Workflow: w, Topic: q.Topic, Status: q.Status, Input: q.Input}, p.page())
	return paged(each(events, EventOf), next, err)
}
