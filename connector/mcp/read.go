package mcp

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
)

// A reader is a tool of a server that changes nothing.
type reader struct {
	server *Server
	tool   string // as the server names it
	spec   connector.Spec
}

// Spec implements connector.Tool.
func (r *reader) Spec() connector.Spec { return r.spec }

// Read implements connector.Reader. An answer that is lost is one to ask for again; an error in a
// result is none: the server has said what it has to say.
func (r *reader) Read(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	if _, err := jsonval.Fields(params); err != nil {
		return nil, r.failf(keep.ClassLogic, "bad-params", "%v", err)
	}
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	call, err := json.Marshal(map[string]any{"name": r.tool, "arguments": params})
	if err != nil {
		return nil, r.failf(keep.ClassLogic, "bad-params", "%v", err)
	}
	ans, err := r.server.read(ctx, call)
	if f := r.server.failure(r.tool, ans, err); f != nil {
		switch {
		case f.Code == CodeToolError, f.Code == codeNeedsInput:
			f.Class = keep.ClassPrecondition
		case ans.Error != nil && slices.Contains(refusals, ans.Error.Code), f.Code == "http-400", f.Code == "http-422":
			f.Class = keep.ClassLogic
		case f.Class == keep.ClassUnknown:
			f.Class = keep.ClassTransient
		}
		f.Tool = keep.ToolName(r.server.Name() + "." + r.spec.Name)
		return nil, f
	}
	value, err := scriptValue(ans.Result)
	if err != nil {
		return nil, r.failf(keep.ClassPrecondition, "not-json", "%v", err)
	}
	if len(value) > DefaultResultLimit {
		return nil, r.failf(keep.ClassLogic, "answer-too-large", "the result has %d bytes, more than %s; ask for less at a time", len(value), bytesText(DefaultResultLimit))
	}
	return value, nil
}

func (r *reader) failf(class keep.Class, code, format string, args ...any) *keep.Failure {
	f := keep.Failf(class, code, format, args...)
	f.Tool = keep.ToolName(r.server.Name() + "." + r.spec.Name)
	return f
}
