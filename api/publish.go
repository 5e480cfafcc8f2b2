package api

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/operator"
)

// MaxPublish is the longest payload of an event that a person publishes, in bytes.
const MaxPublish = 256 << 10

// A PublishRequest is an event that a person adds to a topic.
type PublishRequest struct {
	MessageID keep.MessageID  `json:"message_id,omitempty" maxLength:"512" doc:"what makes it the same event when it is published again; if it is left out, each request is an event of its own"`
	Payload   json.RawMessage `json:"payload" doc:"what scripts get; at most 256 KiB"`
}

// UnmarshalJSON refuses a message id that is there and is none. If it was taken for one that was left
// out, a request that is sent again would be another event.
func (p *PublishRequest) UnmarshalJSON(text []byte) error {
	type plain PublishRequest
	var sent struct {
		ID json.RawMessage `json:"message_id"`
	}
	if err := errors.Join(json.Unmarshal(text, (*plain)(p)), json.Unmarshal(text, &sent)); err != nil {
		return err
	}
	if sent.ID != nil && p.MessageID == "" {
		return fmt.Errorf("message_id is %s; leave it out for an event of its own", sent.ID)
	}
	return nil
}

// A publish is a request to add an event.
type publish struct {
	WorkflowPath
	Topic keep.TopicName `path:"topic"`
	Body  PublishRequest
}

// A published event, and whether it is new.
type published struct {
	Status int
	Body   Event
}

// publishes registers what adds events.
func (s *Server) publishes() {
	op := s.operation(http.MethodPost, "/workflows/{workflow}/topics/{topic}/events", "publish",
		"Add an event to a topic; 200 if the topic has its message id already, and then nothing changes", access.Operator)
	op.DefaultStatus = http.StatusCreated
	register(s, op, func(ctx context.Context, in *publish) (*published, error) {
		out, err := s.publish(ctx, in)
		if err != nil {
			return nil, s.problem(ctx, err)
		}
		return out, nil
	}, answers(map[int]any{http.StatusOK: Event{}, http.StatusCreated: Event{}}))
}

func (s *Server) publish(ctx context.Context, in *publish) (*published, error) {
	who, _ := access.From(ctx)
	p := operator.Publication{
		Workflow: in.Workflow, Topic: in.Topic, MessageID: in.Body.MessageID, Payload: in.Body.Payload, By: keep.PersonPublisher(who.Name),
	}
	if p.MessageID == "" {
		p.MessageID = keep.MessageID(rand.Text())
	}
	switch err := p.MessageID.Validate(); {
	case err != nil:
		return nil, problemOf(http.StatusUnprocessableEntity, KindBadEvent, err.Error())
	case p.MessageID == "." || p.MessageID == "..":
		return nil, problemOf(http.StatusUnprocessableEntity, KindBadEvent,
			fmt.Sprintf("message id %q has a meaning in an address: most clients could not ask for the event; use another id", string(p.MessageID)))
	case len(p.Payload) > MaxPublish:
		return nil, problemOf(http.StatusRequestEntityTooLarge, KindTooLarge,
			fmt.Sprintf("payload of %d bytes: at most %d; publish a reference instead", len(p.Payload), MaxPublish))
	}
	ev, created, err := s.cfg.Actor.Publish(ctx, p)
	if err != nil {
		return nil, err
	}
	out := &published{Status: http.StatusOK, Body: EventOf(ev)}
	if created {
		out.Status = http.StatusCreated
	}
	return out, nil
}
