package operator

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/keep-run/keep"
)

// A Publication is an event that somebody outside of the scripts asks for.
type Publication struct {
	Workflow  keep.WorkflowName
	Topic     keep.TopicName
	MessageID keep.MessageID
	Payload   json.RawMessage // in UTF-8
	By        keep.Publisher
}

// Publish makes an event that a person or a service asks for, once for each message id:
// if the topic has that id already, the event stays as it is, whatever the payload, and
// created is false. When it returns without an error, the event is durable. A workflow or
// a topic that is not deployed is a *keep.NotFoundError.
func (o *Operator) Publish(ctx context.Context, p Publication) (ev keep.Event, created bool, err error) {
	if err := p.MessageID.Validate(); err != nil {
		return ev, false, err
	}
	if !utf8.Valid(p.Payload) || len(p.Payload) > 0 && !json.Valid(p.Payload) {
		return ev, false, fmt.Errorf("the payload of event %q is not JSON in UTF-8", p.MessageID)
	}
	if p.Topic, err = o.topicOf(ctx, p.Workflow, p.Topic); err != nil {
		return ev, false, err
	}
	for n := 1; ; n++ {
		ev, err = o.store.Event(ctx, p.Workflow, p.Topic, p.MessageID)
		if !isNotFound(err) {
			return ev, false, err
		}
		err = o.publish(ctx, p)
		if err == nil {
			ev, err = o.store.Event(ctx, p.Workflow, p.Topic, p.MessageID)
			return ev, err == nil, err
		}
		if !errors.Is(err, keep.ErrStale) || ctx.Err() != nil || n == maxTries {
			return ev, false, err // another publisher of the id was faster, or of its input
		}
	}
}

// topicOf returns the name by which the database has a topic, and refuses one that the current
// version does not declare.
func (o *Operator) topicOf(ctx context.Context, w keep.WorkflowName, topic keep.TopicName) (keep.TopicName, error) {
	def, err := o.definition(ctx, w)
	if err != nil {
		return "", err
	}
	stored := def.TopicOf(topic)
	if !def.HasTopic(stored) {
		return "", &keep.NotFoundError{What: "topic", ID: string(w) + "/" + string(topic)}
	}
	return stored, nil
}

// publish commits a new event and the input that it comes from: what people look for
// when they ask what became of something that arrived.
func (o *Operator) publish(ctx context.Context, p Publication) error {
	now := o.now()
	in, err := o.store.InputByKey(ctx, p.Workflow, string(p.Topic), "event", string(p.MessageID))
	var changes []keep.Change
	switch {
	case isNotFound(err):
		in = keep.Input{
			ID: newInputID(now), Workflow: p.Workflow, Source: string(p.Topic), Type: "event",
			ExternalID: string(p.MessageID), Title: keep.CutTitle(string(p.MessageID)), Status: keep.InputPending, CreatedAt: now,
		}
		changes = append(changes, keep.PutInput{Input: in})
	case err != nil:
		return fmt.Errorf("look for the input of event %q: %w", p.MessageID, err)
	}
	changes = append(changes, keep.Publish{New: true, Event: keep.Event{
		Workflow: p.Workflow, Topic: p.Topic, MessageID: p.MessageID, Payload: p.Payload, Status: keep.EventPending,
		CreatedBy: p.By, CausedBy: []keep.InputID{in.ID}, CreatedAt: now, UpdatedAt: now,
	}})
	return o.decided(ctx, p.Workflow, now, changes...)
}

func newInputID(now time.Time) keep.InputID {
	var entropy [10]byte
	_, _ = rand.Read(entropy[:]) // never fails
	return keep.InputID(keep.NewID("in", now, entropy))
}
