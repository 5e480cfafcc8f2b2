// Package agent is a small agent: a model that calls the tools of an MCP server, in a loop. Its
// client obeys the protocol: when a stream breaks before the answer, it issues the request again.
package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/keep-run/keep/llm"
)

// An Agent is a model with tools.
type Agent struct {
	Model *llm.Client
	Name  string // of the model
	Tools string // address of the MCP server, which may be a gateway
	Token string // with which the agent comes there
	Out   io.Writer

	session *mcp.ClientSession
	request llm.Request // the conversation so far
}

// turns bounds the answers of the model to one task.
const turns = 10

// Do works on a task, and remembers it for the next one.
func (a *Agent) Do(ctx context.Context, task string) error {
	if a.session == nil {
		if err := a.begin(ctx); err != nil {
			return err
		}
	}
	a.request.Messages = append(a.request.Messages, llm.Message{Text: task})
	for range turns {
		answer, _, err := a.Model.Ask(ctx, a.request)
		if err != nil {
			return err
		}
		a.request.Messages = append(a.request.Messages, answer.Message())
		if len(answer.Calls) == 0 {
			fmt.Fprintln(a.Out, "  agent:", answer.Text)
			return nil
		}
		var results llm.Message
		for _, c := range answer.Calls {
			fmt.Fprintf(a.Out, "  agent: %s %s\n", c.Name, c.Arguments)
			r, err := a.call(ctx, c)
			if err != nil {
				return err
			}
			results.Results = append(results.Results, r)
		}
		a.request.Messages = append(a.request.Messages, results)
	}
	return fmt.Errorf("the model did not end in %d answers", turns)
}

// Close ends the session.
func (a *Agent) Close() error {
	if a.session == nil {
		return nil
	}
	return a.session.Close()
}

// begin connects, and offers the model what the server lists.
func (a *Agent) begin(ctx context.Context) error {
	if err := a.connect(ctx); err != nil {
		return err
	}
	list, err := a.session.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	a.request.Model = a.Name
	for _, t := range list.Tools {
		schema, err := json.Marshal(t.InputSchema)
		if err != nil {
			return err
		}
		a.request.Tools = append(a.request.Tools, llm.Tool{Name: t.Name, Description: t.Description, Params: schema})
	}
	return nil
}

// connect begins a session with the server.
func (a *Agent) connect(ctx context.Context) (err error) {
	a.session, err = mcp.NewClient(&mcp.Implementation{Name: "example", Version: "1"}, nil).Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: a.Tools, HTTPClient: &http.Client{Transport: bearer(a.Token)}, DisableStandaloneSSE: true, MaxRetries: -1,
	}, nil)
	return err
}

// call calls a tool. A request whose stream breaks is issued again, as the protocol says.
func (a *Agent) call(ctx context.Context, c llm.Call) (llm.Result, error) {
	const tries = 3
	for n := 1; ; n++ {
		r, err := a.session.CallTool(ctx, &mcp.CallToolParams{Name: c.Name, Arguments: c.Arguments})
		if err == nil {
			return a.result(c, r), nil
		}
		if n == tries || ctx.Err() != nil {
			return llm.Result{}, fmt.Errorf("%s: %w", c.Name, err)
		}
		fmt.Fprintln(a.Out, "  the stream broke before the answer; the client makes the same call again")
		_ = a.session.Close() // it is broken, whatever this says
		if err := a.connect(ctx); err != nil {
			return llm.Result{}, err
		}
	}
}

// result shows a result, and returns it as the model gets it.
func (a *Agent) result(c llm.Call, r *mcp.CallToolResult) llm.Result {
	var text strings.Builder
	for _, part := range r.Content {
		if t, ok := part.(*mcp.TextContent); ok {
			text.WriteString(t.Text)
		}
	}
	fmt.Fprintln(a.Out, "  tool: ", text.String())
	return llm.Result{ID: c.ID, Text: text.String(), Wrong: r.IsError}
}

// bearer sends a token with each request.
type bearer string

// RoundTrip implements http.RoundTripper.
func (token bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultTransport.RoundTrip(r)
}
