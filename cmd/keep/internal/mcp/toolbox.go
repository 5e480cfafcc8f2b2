package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/keep-run/keep/llm"
)

// A Toolbox has some tools of a server for a model that this process asks itself: they are the
// tools that agents have, called as agents call them.
type Toolbox struct {
	session *sdk.ClientSession
	server  *sdk.ServerSession
	tools   []llm.Tool
}

// OpenToolbox returns the tools of these names. The caller closes it.
//
// Server and client speak the protocol in memory, so that a model of ours is held by the same schemas, roles
// and gate as an agent that comes from outside.
func OpenToolbox(ctx context.Context, cfg Config, names ...string) (_ *Toolbox, err error) {
	here, there := sdk.NewInMemoryTransports()
	b := new(Toolbox)
	if b.server, err = New(cfg).Connect(ctx, there, nil); err != nil {
		return nil, err
	}
	c := sdk.NewClient(&sdk.Implementation{Name: "keep", Version: cfg.Version}, nil)
	if b.session, err = c.Connect(ctx, here, nil); err != nil {
		return nil, errors.Join(err, b.server.Close())
	}
	list, err := b.session.ListTools(ctx, nil)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	for _, t := range list.Tools {
		if !slices.Contains(names, t.Name) {
			continue
		}
		params, err := json.Marshal(t.InputSchema)
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
		b.tools = append(b.tools, llm.Tool{Name: t.Name, Description: t.Description, Params: params})
	}
	return b, nil
}

// Tools returns what can be called.
func (b *Toolbox) Tools() []llm.Tool { return slices.Clone(b.tools) }

// Call calls a tool. What is wrong with a call is in the result.
func (b *Toolbox) Call(ctx context.Context, c llm.Call) (llm.Result, error) {
	if !slices.ContainsFunc(b.tools, func(t llm.Tool) bool { return t.Name == c.Name }) {
		return llm.Result{Text: "There is no such tool here.", Wrong: true}, nil
	}
	args := c.Arguments
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	res, err := b.session.CallTool(ctx, &sdk.CallToolParams{Name: c.Name, Arguments: args})
	if ctx.Err() != nil {
		return llm.Result{}, ctx.Err()
	}
	if err != nil { // the arguments do not fit the schema; it quotes them
		return answer{said: "The call was refused.", data: map[string]any{"error": err.Error()}, wrong: true}.forModel()
	}
	var text strings.Builder
	for _, part := range res.Content {
		if t, ok := part.(*sdk.TextContent); ok {
			text.WriteString(t.Text)
		}
	}
	return llm.Result{Text: text.String(), Wrong: res.IsError}, nil
}

// forModel frames what came from outside, as for an agent.
func (a answer) forModel() (llm.Result, error) {
	res, err := a.result()
	if err != nil {
		return llm.Result{}, fmt.Errorf("answer a model: %w", err)
	}
	return llm.Result{Text: res.Content[0].(*sdk.TextContent).Text, Wrong: a.wrong}, nil
}

// Close ends it.
func (b *Toolbox) Close() error { return errors.Join(b.session.Close(), b.server.Wait()) }
