package api

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
)

// An Unskipped is what undoing skips did.
type Unskipped struct {
	Input     *keep.InputID `json:"input" doc:"null: events were named"`
	Unskipped int           `json:"unskipped" doc:"events that are pending again"`
	Pending   int           `json:"pending" doc:"events that were not skipped, and are pending"`
	Kept      []KeptEvent   `json:"kept" doc:"events of the input that stay skipped"`
	Refused   *string       `json:"refused" doc:"why nothing was changed"`
}

// A KeptEvent is an event that stays skipped.
type KeptEvent struct {
	Topic keep.TopicName `json:"topic"`
	ID    keep.MessageID `json:"id"`
	Why   string         `json:"why"`
}

func unskippedOf(r operator.UnskipResult) Unskipped {
	return Unskipped{Unskipped: r.Unskipped, Pending: r.Pending,
		Kept: each(r.Kept, func(k operator.SkipKept) KeptEvent { return KeptEvent{k.Topic, k.ID, k.Why} })}
}

// unskipInputs undoes the skip of each input that allows it. All of them exist, or
// nothing is done.
func (s *Server) unskipInputs(ctx context.Context, in *struct {
	Body struct {
		IDs  []keep.InputID `json:"ids" minItems:"1" maxItems:"1000"`
		Note string         `json:"note,omitempty" maxLength:"4000"`
	}
}) (Page[Unskipped], error) {
	var inputs []keep.Input
	for _, id := range in.Body.IDs {
		input, err := s.cfg.Store.Input(ctx, id)
		if err != nil {
			return Page[Unskipped]{}, err
		}
		inputs = append(inputs, input)
	}
	results := make([]Unskipped, 0, len(inputs))
	for _, input := range inputs {
		done, err := s.cfg.Actor.UnskipInput(ctx, input.Workflow, input.ID, decision(ctx, keep.Unskip, in.Body.Note))
		if err != nil && !isRefusal(err) {
			return Page[Unskipped]{}, s.partly(ctx, len(results), err)
		}
		res := unskippedOf(done)
		if res.Input = &input.ID; err != nil {
			res.Refused = orNull(err.Error())
		}
		results = append(results, res)
	}
	return Page[Unskipped]{Items: results}, nil
}

func (s *Server) unskipEvents(ctx context.Context, in *struct {
	WorkflowPath
	Topic keep.TopicName `path:"topic"`
	Body  struct {
		IDs  []keep.MessageID `json:"ids" minItems:"1" maxItems:"1000"`
		Note string           `json:"note,omitempty" maxLength:"4000"`
	}
}) (Unskipped, error) {
	res, err := s.cfg.Actor.UnskipEvents(ctx, in.Workflow, in.Topic, in.Body.IDs, decision(ctx, keep.Unskip, in.Body.Note))
	return unskippedOf(res), err
}

func (s *Server) unskipItems(ctx context.Context, in *itemsAction) (Page[ItemDone], error) {
	return s.doItems(ctx, in, keep.Unskip, s.cfg.Actor.UnskipItem)
}

// UnskipInputs undoes the skip of inputs, at most 1000: all of them exist, or nothing is
// done.
func (c *Client) UnskipInputs(ctx context.Context, ids []keep.InputID, note string) ([]Unskipped, error) {
	p, err := act[Page[Unskipped]](ctx, c, named(ids, note), "inputs", "unskip")
	return p.Items, err
}

// UnskipEvents undoes the skip of events of a topic, at most 1000: of all of them, or of
// none.
func (c *Client) UnskipEvents(ctx context.Context, w keep.WorkflowName, t keep.TopicName, ids []keep.MessageID, note string) (Unskipped, error) {
	return act[Unskipped](ctx, c, named(ids, note), "workflows", string(w), "topics", string(t), "unskip")
}
