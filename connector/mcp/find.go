package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/jsonval"
)

// Find asks by a lookup of which nobody knows where its rows are, and returns the path to them: that of
// the list in which the token of m is, or of the value that has it; empty: the answer does not have it.
func (s *Server) Find(ctx context.Context, l Lookup, m keep.Mutation) (string, error) {
	params, err := l.params(m)
	if err != nil {
		return "", err
	}
	ans, err := s.read(ctx, params)
	if f := s.failure(l.Tool, ans, err); f != nil {
		return "", fmt.Errorf("%s: %s", l.Tool, f.Message)
	}
	body, err := bodyOf(ans.Result)
	if err != nil {
		return "", fmt.Errorf("%s: %w", l.Tool, err)
	}
	v, err := jsonval.Decode(body)
	if err != nil {
		return "", err
	}
	if m.Token == "" {
		return "", errors.New("the call has no token")
	}
	return pathTo(v, m.Token), nil
}

// pathTo returns the path to the first list of v with a text that has s in one of its elements, or to
// the value that has it; empty: there is none.
func pathTo(v any, s string) string {
	if !hasText(v, s) {
		return ""
	}
	path := "$"
	for {
		all, ok := v.(map[string]any)
		if !ok {
			return path
		}
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return !hasText(all[name], s) })
		switch all[names[0]].(type) {
		case string: // the object is what shows it
			return path
		}
		if names[0] == "" || strings.ContainsAny(names[0], ".[") { // no path says it
			return path
		}
		path, v = path+"."+names[0], all[names[0]]
	}
}

// InputOf returns the schema of a tool's arguments as it lists it; null: it lists none.
func (t ToolInfo) InputOf() json.RawMessage {
	var entry struct {
		InputSchema json.RawMessage `json:"inputSchema"`
	}
	if json.Unmarshal(t.Raw, &entry) != nil || entry.InputSchema == nil {
		return json.RawMessage(`null`)
	}
	return entry.InputSchema
}
