package llm

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	Final bool   // another conversation would end so, too
}

// maxUnread is how many answers in a row may have no call whose arguments are JSON: a model that cannot write them does not
// learn it.
const maxUnread = 3

// cutOff is what a model is told whose answer was cut.
const cutOff = "Your answer was cut at its length, so nothing of it was done. Write less at a time."

// Run has the conversation. What goes wrong with the model is in the End; an error is that of
// Call, or of ctx.
func (c Conversation) Run(ctx context.Context, q Request) (end End, err error) {
	unread := 0
	for end.Turns < c.Turns {
		if end.Why = c.Stop(end.Used); end.Why != "" {
			return end, nil
		}
		end.Turns++
		before := end.Used
		q.Stop = func(u Usage) string { return c.Stop(before.Plus(u)) }
		answer, used, err := c.Model.Ask(ctx, q)
		end.Used = end.Used.Plus(used)
		if ctx.Err() != nil {
			return end, ctx.Err()
		}
		if why, ok := errors.AsType[*Error](err); ok {
			end.Why, end.Final = "the model did not answer: "+why.Why, !why.Again && why.Status != 0
			return end, nil
		}
		if err != nil {
			return end, err
		}
		if len(answer.Calls) == 0 && !answer.Cut {
			end.Why = "the model answered without a proposal"
			return end, nil
		}
		if unread++; len(answer.Calls) == 0 || slices.ContainsFunc(answer.Calls, Call.readable) {
			unread = 0
		}
		if unread == maxUnread {
			end.Why = fmt.Sprintf("the model called its tools with arguments that are no JSON, %d times in a row", unread)
			return end, nil
		}
		reply, done, err := c.do(ctx, answer)
		if err != nil || done {
			return end, err
		}
		q.Messages = append(q.Messages, answer.Message(), reply)
	}
	end.Why = fmt.Sprintf("the model proposed nothing in %d answers", end.Turns)
	return end, nil
}

// do does what an answer asks for, and returns what the model is told. With done the conversation is over.
func (c Conversation) do(ctx context.Context, a Answer) (reply Message, done bool, err error) {
	if len(a.Calls) == 0 {
		return Message{Text: cutOff}, false, nil
	}
	for _, call := range a.Calls {
		result := Result{Text: cutOff, Wrong: true}
		if !a.Cut {
			result, done, err = c.Call(ctx, call)
		}
		if err != nil || done {
			return reply, done, err
		}
		result.ID = call.ID
		reply.Results = append(reply.Results, result)
	}
	return reply, false, nil
}

// readable reports whether the model wrote arguments that are JSON.
func (c Call) readable() bool { return string(c.Arguments) != "null" }
