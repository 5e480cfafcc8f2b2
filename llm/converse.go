package llm

import (
	"context"
	"errors"
	"fmt"
)

// A Conversation is one with a model that calls tools, until a call ends it or a limit does.
type Conversation struct {
	// Model answers; a *Client does. Required.
	Model interface {
		Ask(ctx context.Context, q Request) (Answer, Usage, error)
	}

	// Turns is how many answers there are at most. Required.
	Turns int

	// Stop says before each question why the model is not asked any more, a sentence without
	// its end; empty: it is. Required.
	Stop func(used Usage) string

	// Call does what the model asks for. With done the conversation is over, and the result is
	// not looked at. Required.
	Call func(ctx context.Context, c Call) (r Result, done bool, err error)
}

// An End says how a conversation ended.
type End struct {
	Turns int
	Used  Usage
	Why   string // a sentence without its end; empty: a call ended it
}

// Run has the conversation. What goes wrong with the model is in the End; an error is that of
// Call, or of ctx.
func (c Conversation) Run(ctx context.Context, q Request) (end End, err error) {
	for end.Turns < c.Turns {
		if end.Why = c.Stop(end.Used); end.Why != "" {
			return end, nil
		}
		end.Turns++
		answer, used, err := c.Model.Ask(ctx, q)
		end.Used = end.Used.Plus(used)
		if ctx.Err() != nil {
			return end, ctx.Err()
		}
		if why, ok := errors.AsType[*Error](err); ok {
			end.Why = "the model did not answer: " + why.Why
			return end, nil
		}
		if err != nil {
			return end, err
		}
		if len(answer.Calls) == 0 {
			end.Why = "the model answered without a proposal"
			return end, nil
		}
		reply := Message{}
		for _, call := range answer.Calls {
			result, done, err := c.Call(ctx, call)
			if err != nil || done {
				return end, err
			}
			result.ID = call.ID
			reply.Results = append(reply.Results, result)
		}
		q.Messages = append(q.Messages, answer.Message(), reply)
	}
	end.Why = fmt.Sprintf("the model proposed nothing in %d answers", end.Turns)
	return end, nil
}
