package api

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/operator"
)

// A RedoActor has events and inputs done again.
type RedoActor interface {
	PlanRedo(ctx context.Context, r operator.RedoRequest) (operator.RedoPlan, error)
	Redo(ctx context.Context, r operator.RedoRequest, d keep.Decision) (operator.RedoPlan, error)
}

// A RedoBody says how something is done again.
type RedoBody struct {
	Preview bool   `json:"preview,omitempty" doc:"only look what that would cause"`
	Mark    string `json:"mark,omitempty" maxLength:"64" doc:"of the preview that was seen; a redo is for what that showed, once"`
	Note    string `json:"note,omitempty" maxLength:"2000" doc:"why"`
}

// A RedoDone says what doing events again caused, or would cause.
type RedoDone struct {
	Preview bool        `json:"preview"`
	Mark    string      `json:"mark" doc:"confirms what is shown here"`
	Events  []RedoEvent `json:"events"`
}

// A RedoEvent is what doing an event again causes.
type RedoEvent struct {
	Topic      keep.TopicName     `json:"topic"`
	MessageID  keep.MessageID     `json:"message_id"`
	Status     keep.EventStatus   `json:"status" doc:"before"`
	Attempt    int                `json:"attempt" doc:"before; the new one is one more"`
	Readers    []keep.HandlerName `json:"readers" doc:"consumers that get it"`
	Calls      []RedoCall         `json:"calls" doc:"of the attempts before, newest first"`
	Forgotten  int                `json:"forgotten" doc:"attempts before of which the records were deleted"`
	Published  []RedoPublished    `json:"published" doc:"by the attempts before"`
	Below      []RedoCall         `json:"below" doc:"calls that followed from what was published, at most 100"`
	BelowTotal int                `json:"below_total"`
	Refused    *string            `json:"refused" doc:"why it cannot be done again; null: it can"`
}

// A RedoCall is a call that an attempt before made.
type RedoCall struct {
	Mutation keep.MutationKey   `json:"mutation"`
	Tool     keep.ToolName      `json:"tool"`
	Target   string             `json:"target"`
	State    keep.MutationState `json:"state"`
	Repeat   lifecycle.Repeat   `json:"repeat" enum:"second-time,unknown,not-before" doc:"what an equal call of the new attempt would be"`
}

// A RedoPublished is an event that an attempt before published.
type RedoPublished struct {
	Topic     keep.TopicName `json:"topic"`
	MessageID keep.MessageID `json:"message_id"`
	Again     bool           `json:"again" doc:"its id is made by the host, so the new attempt publishes another event; else it stays one event"`
}

// maxRedoBelow is how many calls a RedoEvent lists that followed.
const maxRedoBelow = 100

// RedoDoneOf returns the object of a plan.
func RedoDoneOf(p operator.RedoPlan) RedoDone {
	call := func(m keep.Mutation) RedoCall {
		return RedoCall{m.Key, m.Tool, m.Target, m.State, lifecycle.RepeatOf(m)}
	}
	return RedoDone{Preview: !p.Done, Mark: p.Mark, Events: each(p.Events, func(e operator.RedoEvent) RedoEvent {
		return RedoEvent{
			Topic: e.Topic, MessageID: e.MessageID, Status: e.Status, Attempt: e.Attempt(), Readers: list(e.Readers),
			Calls: each(e.Calls, call), Forgotten: e.Forgotten, BelowTotal: len(e.Below), Below: each(e.Below[:min(len(e.Below), maxRedoBelow)], call),
			Published: each(e.Published, func(p operator.RedoPublished) RedoPublished { return RedoPublished{p.Topic, p.MessageID, p.Made} }),
			Refused:   orNull(e.Refused),
		}
	})}
}

func (s *Server) redoEvents(ctx context.Context, in *struct {
	WorkflowPath
	Topic keep.TopicName `path:"topic"`
	Body  struct {
		IDs []keep.MessageID `json:"ids" minItems:"1" maxItems:"1000"`
		RedoBody
	}
}) (RedoDone, error) {
	return s.redo(ctx, operator.RedoRequest{Workflow: in.Workflow, Topic: in.Topic, IDs: in.Body.IDs}, in.Body.RedoBody)
}

func (s *Server) redoInput(ctx context.Context, in *struct {
	ID   keep.InputID `path:"input"`
	Body RedoBody
}) (RedoDone, error) {
	input, err := s.cfg.Store.Input(ctx, in.ID)
	if err != nil {
		return RedoDone{}, err
	}
	return s.redo(ctx, operator.RedoRequest{Workflow: input.Workflow, Input: in.ID}, in.Body)
}

// redo shows what a redo causes, or does it if what was shown is confirmed.
func (s *Server) redo(ctx context.Context, r operator.RedoRequest, in RedoBody) (RedoDone, error) {
	if in.Preview {
		p, err := s.cfg.Actor.PlanRedo(ctx, r)
		return RedoDoneOf(p), err
	}
	if r.Mark = in.Mark; r.Mark == "" {
		return RedoDone{}, problemOf(422, KindConfirm,
			`a redo may do a second time what was done; nothing was changed. Look with "preview": true, and repeat the request with the "mark" of what you saw`)
	}
	p, err := s.cfg.Actor.Redo(ctx, r, decision(ctx, "", in.Note))
	return RedoDoneOf(p), err
}

// RedoEvents has events of a topic done again, at most 1000: all of them or none; or looks
// what that would cause.
func (c *Client) RedoEvents(ctx context.Context, w keep.WorkflowName, t keep.TopicName, ids []keep.MessageID, in RedoBody) (RedoDone, error) {
	body := map[string]any{"ids": ids, "preview": in.Preview, "mark": in.Mark, "note": in.Note}
	return act[RedoDone](ctx, c, body, "workflows", string(w), "topics", string(t), "redo")
}

// RedoInput has the events of an input done again that came from outside, or looks what that
// would cause.
func (c *Client) RedoInput(ctx context.Context, id keep.InputID, in RedoBody) (RedoDone, error) {
	return act[RedoDone](ctx, c, in, "inputs", string(id), "redo")
}
