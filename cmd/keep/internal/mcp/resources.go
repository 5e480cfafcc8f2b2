package mcp

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/guide"
)

// Addresses of resources.
const (
	guideURI    = "keep://guide"
	schemaURI   = "keep://schema/keep.toml"
	packURI     = "keep://schema/pack.toml"
	workflowURI = "keep://workflows/"
)

// resources adds what an agent may read as a whole, and the prompt.
func (s *server) resources(to *sdk.Server) {
	text := func(uri, name, about, kind string, text func() string) {
		to.AddResource(&sdk.Resource{URI: uri, Name: name, Description: about, MIMEType: kind},
			func(_ context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
				return contents(req.Params.URI, kind, text()), nil
			})
	}
	schema := func(name string) func() string {
		return func() string { raw, _ := guide.Schema(name); return string(raw) }
	}
	text(guideURI, "guide", "How to write workflows", "text/markdown", learn)
	text(schemaURI, "keep.toml", "JSON Schema of keep.toml", "application/schema+json", schema("keep"))
	text(packURI, "pack.toml", "JSON Schema of the file of a pack", "application/schema+json", schema("pack"))
	to.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: workflowURI + "{name}", Name: "workflow", MIMEType: "text/plain",
		Description: "A workflow with the script of its current version, as it was bundled"}, s.script)
	if s.Role.Covers(access.Author) {
		to.AddPrompt(&sdk.Prompt{Name: "write-workflow", Description: "Write, test and propose a workflow",
			Arguments: []*sdk.PromptArgument{{Name: "intent", Description: "what is wanted, in a sentence", Required: true}}}, writePrompt)
	}
}

// contents is the answer to a read of one resource.
func contents(uri, kind, text string) *sdk.ReadResourceResult {
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: uri, MIMEType: kind, Text: text}}}
}

// script returns a workflow and its script.
//
// The workflow is read by the API, which knows what this role may see; its code is in the database, which
// the bench has if there is one.
func (s *server) script(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	name, err := url.PathUnescape(strings.TrimPrefix(req.Params.URI, workflowURI))
	if err != nil || name == "" {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	out := map[string]any{"script": nil}
	err = s.call(ctx, func(c *api.Client) (err error) {
		out["workflow"], err = c.Workflow(ctx, keep.WorkflowName(name))
		return err
	})
	if err != nil {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	err = s.with(ctx, false, func(b Bench) error {
		if b.Base == nil {
			return nil
		}
		w, err := b.Base.Workflow(ctx, keep.WorkflowName(name))
		if err != nil {
			return err
		}
		d, err := b.Base.Deployment(ctx, w.Name, w.Version)
		out["script"] = string(d.Code)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the script of %s cannot be read", name)
	}
	a, err := answer{data: out}.result()
	if err != nil {
		return nil, err
	}
	return contents(req.Params.URI, "text/plain", a.Content[0].(*sdk.TextContent).Text), nil
}

// writePrompt says how an agent comes from an intent to a proposal.
func writePrompt(_ context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
	const steps = `Write a workflow of Keep for this intent:

%s

1. Call guide, then types. Use only tools that types shows.
2. Ask at most three questions, if the intent leaves open what would change outside.
3. Write the script and its tests, with a test for a lost answer. Call check and test until both are clean.
4. Call plan, and show which changes it would make.
5. Call propose. It waits for a person: say where to look (keep inbox), and decide nothing yourself.`
	return &sdk.GetPromptResult{Description: "Write, test and propose a workflow", Messages: []*sdk.PromptMessage{
		{Role: "user", Content: &sdk.TextContent{Text: fmt.Sprintf(steps, req.Params.Arguments["intent"])}},
	}}, nil
}
