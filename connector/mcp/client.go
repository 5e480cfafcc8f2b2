package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// A Client is for whom requests are sent: what it can do, and how it is told and asked meanwhile.
// The zero Client can do nothing, and speaks a version with a handshake.
type Client struct {
	Modern       bool            // it speaks the version of 2026-07-28
	Alone        bool            // a server that is a process is of this client alone
	Capabilities json.RawMessage // as the client declares them; nil: none
	LogLevel     string          // of a client of 2026-07-28; empty: it wants no log
	Cancels      bool            // the end of the context is passed on: the request changes nothing

	// Tell is called with what the server says about a request while it works on it. Nil: it is
	// dropped. It does not block.
	Tell func(Message)

	// Ask answers a request that the server makes while it works on one. Nil: it is refused.
	Ask func(context.Context, Message) Message

	// Tool is what Inputs and Input are for: other calls under the same context have neither.
	Tool   string
	Inputs Inputs // of the first request

	// Input returns what a server needs before it can complete a call, from its result that
	// says so. Nil: that result is the answer.
	Input func(ctx context.Context, result json.RawMessage) (Inputs, error)
}

// Inputs are what a client adds to a request that needed more.
type Inputs struct {
	Responses json.RawMessage `json:"inputResponses,omitempty"`
	State     json.RawMessage `json:"requestState,omitempty"`
}

// IsZero reports whether there are none.
func (i Inputs) IsZero() bool { return i.Responses == nil && i.State == nil }

// Equal reports whether both are the same.
func (i Inputs) Equal(o Inputs) bool {
	return !i.IsZero() && bytes.Equal(i.Responses, o.Responses) && bytes.Equal(i.State, o.State)
}

type clientKey struct{}

// WithClient returns a context in which requests are sent for a client.
func WithClient(ctx context.Context, c *Client) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

func clientOf(ctx context.Context) *Client {
	if c, ok := ctx.Value(clientKey{}).(*Client); ok && c != nil {
		return c
	}
	return new(Client)
}

// handshake returns the capabilities that are declared to a server with a handshake, in one form. What a
// server asks outside of a call can be answered only if there is one client.
func (c *Client) handshake(process bool) string {
	var all map[string]json.RawMessage
	_ = json.Unmarshal(c.Capabilities, &all)
	var names []string
	for _, name := range []string{"elicitation", "roots", "sampling"} {
		if all[name] != nil && !c.Modern && (c.Alone || name != "roots" && !process) {
			names = append(names, name)
		}
	}
	text := "{"
	for i, name := range names {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf("%q:{}", name)
	}
	return text + "}"
}

// maxRounds is how often a server may need more for one request.
const maxRounds = 32

// NeedsInput reports whether a result says that the server needs more before it can complete.
func NeedsInput(result json.RawMessage) bool {
	var r struct {
		ResultType string `json:"resultType"`
	}
	return json.Unmarshal(result, &r) == nil && r.ResultType == "input_required"
}

// rounds sends a request, and again with what the server needs for it, until it is complete.
func (c *Client) rounds(ctx context.Context, method string, params json.RawMessage, send func(json.RawMessage) (Message, error)) (Message, error) {
	var p struct {
		Name string `json:"name"`
	}
	if !slices.Contains([]string{"tools/call", "prompts/get", "resources/read"}, method) || json.Unmarshal(params, &p) != nil || c.Tool != p.Name {
		return send(params)
	}
	inputs := c.Inputs
	for round := range maxRounds {
		with, err := inputs.add(params)
		if err != nil {
			return Message{}, err
		}
		ans, err := send(with)
		if err != nil && round > 0 && method == "tools/call" { // it is begun, so this is no error of a call that was not sent
			err = fmt.Errorf("the call was begun, and what the server needed did not get there: %s", err.Error())
		}
		if err != nil || ans.Error != nil || c.Input == nil || !NeedsInput(ans.Result) {
			return ans, err
		}
		if inputs, err = c.Input(ctx, ans.Result); err != nil {
			return Message{}, err
		}
	}
	return Message{}, fmt.Errorf("the server asked for more %d times, and did not complete", maxRounds)
}

// add returns params with the inputs.
func (i Inputs) add(params json.RawMessage) (json.RawMessage, error) {
	if i.IsZero() {
		return params, nil
	}
	all := make(map[string]json.RawMessage)
	if err := json.Unmarshal(params, &all); err != nil {
		return nil, err
	}
	if i.Responses != nil {
		all["inputResponses"] = i.Responses
	}
	if i.State != nil {
		all["requestState"] = i.State
	}
	return json.Marshal(all)
}
