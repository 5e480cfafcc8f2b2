package mcp_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mcp"
)

// Law doubt-is-not-failure, and its other side: a result that says itself that it failed is no success of a change for a script, unless the
// owner says what it means. An agent gets what the server said, and the owner's word holds there, too.
func TestResultThatSaysThatItFailed(t *testing.T) {
	t.Parallel()
	refused := []mcp.Condition{
		{Path: "$.error", In: []any{"ratelimited"}, Class: keep.ClassTransient},
		{Path: "$.error", Equals: "internal_error", Class: keep.ClassUnknown},
		{Path: "$.ok", Equals: false},
	}
	applied := []mcp.Condition{{Path: "$.id"}}
	text := func(s string) string { return fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, s) }
	failed := func(s string) string { return strings.Replace(text(s), `{`, `{"isError":true,`, 1) }
	const made = keep.Class("")
	for name, c := range map[string]struct {
		knows          mcp.Knowledge
		result         string
		script, passed keep.Class
	}{
		"a success":                           {mcp.Knowledge{}, text(`{"ok":true,"id":7}`), made, made},
		"a text":                              {mcp.Knowledge{}, text("success: false"), made, made},
		"success is false":                    {mcp.Knowledge{}, text(`{"success":false}`), keep.ClassUnknown, made},
		"an error":                            {mcp.Knowledge{}, text(`{"error":"not_in_channel"}`), keep.ClassUnknown, made},
		"no error":                            {mcp.Knowledge{}, text(`{"error":null,"id":7}`), made, made},
		"an error in structured content":      {mcp.Knowledge{}, `{"content":[],"structuredContent":{"errors":["no"]}}`, keep.ClassUnknown, made},
		"refused":                             {mcp.Knowledge{RefusedIf: refused}, text(`{"ok":false,"error":"not_in_channel"}`), keep.ClassLogic, keep.ClassLogic},
		"refused for now":                     {mcp.Knowledge{RefusedIf: refused}, text(`{"ok":false,"error":"ratelimited"}`), keep.ClassTransient, keep.ClassTransient},
		"not known":                           {mcp.Knowledge{RefusedIf: refused}, text(`{"ok":false,"error":"internal_error"}`), keep.ClassUnknown, keep.ClassUnknown},
		"nothing that refused_if names":       {mcp.Knowledge{RefusedIf: refused}, text(`{"ok":true}`), made, made},
		"refused, with isError":               {mcp.Knowledge{RefusedIf: refused}, failed(`{"ok":false,"error":"x"}`), keep.ClassLogic, keep.ClassLogic},
		"isError says something else":         {mcp.Knowledge{RefusedIf: refused}, failed(`{"error":"x"}`), keep.ClassUnknown, keep.ClassUnknown},
		"isError is a refusal":                {mcp.Knowledge{Errors: "refused"}, failed("no such channel"), keep.ClassLogic, keep.ClassLogic},
		"a refusal only with isError":         {mcp.Knowledge{Errors: "refused"}, text(`{"ok":false}`), keep.ClassUnknown, made},
		"applied":                             {mcp.Knowledge{AppliedIf: applied}, text(`{"id":7,"error":"a warning"}`), made, made},
		"nothing that applied_if names":       {mcp.Knowledge{AppliedIf: applied}, text(`{"queued":true}`), keep.ClassUnknown, keep.ClassUnknown},
		"a text where applied_if looks":       {mcp.Knowledge{AppliedIf: applied}, text("done"), keep.ClassUnknown, keep.ClassUnknown},
		"an image where applied_if looks":     {mcp.Knowledge{AppliedIf: applied}, `{"content":[{"type":"image","data":"","mimeType":"image/png"}]}`, keep.ClassUnknown, keep.ClassUnknown},
		"isError that applied_if would allow": {mcp.Knowledge{AppliedIf: applied}, failed(`{"id":7}`), keep.ClassUnknown, keep.ClassUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serve(t, func(w http.ResponseWriter, r said) bool {
				if r.Method == "tools/call" {
					fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, c.result)
				}
				return r.Method == "tools/call"
			})
			class := func(tool connector.Tool) keep.Class {
				_, err := tool.(connector.Mutator).Mutate(t.Context(), keep.Mutation{Token: "tok_1", Payload: []byte(`{"title":"a"}`)})
				if f, ok := errors.AsType[*keep.Failure](err); ok {
					return f.Class
				}
				if err != nil {
					t.Error(err)
				}
				return made
			}
			conn, err := mcp.New("desk", mcp.Config{Place: mcp.Place{URL: url}, Tools: map[string]mcp.ToolConfig{
				"add": {Effect: connector.Mutate, Knowledge: withIdentity(c.knows)}}})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if got := class(conn.Tools[0]); got != c.script {
				t.Errorf("a script gets %q, want %q", got, c.script)
			}
			p, err := c.knows.Pairing("add")
			if err != nil {
				t.Fatal(err)
			}
			s := mcp.NewServer(mcp.ServerConfig{Name: "desk", URL: url})
			defer s.Close()
			if got := class(s.Tool(p, 0)); got != c.passed {
				t.Errorf("an agent gets %q, want %q", got, c.passed)
			}
		})
	}
}

func withIdentity(k mcp.Knowledge) mcp.Knowledge {
	k.Identity = []string{"title"}
	return k
}

// What cannot be meant in refused_if and applied_if is refused where it is written.
func TestConditionsOfResults(t *testing.T) {
	t.Parallel()
	no := false
	for name, c := range map[string]struct {
		knows mcp.Knowledge
		want  string
	}{
		"no path":                  {mcp.Knowledge{RefusedIf: []mcp.Condition{{Equals: 1}}}, "refused_if[0].path: "},
		"a path that is none":      {mcp.Knowledge{AppliedIf: []mcp.Condition{{Path: "$.id"}, {Path: "id"}}}, "applied_if[1].path: "},
		"a class that is none":     {mcp.Knowledge{RefusedIf: []mcp.Condition{{Path: "$.error", Class: "x"}}}, `refused_if[0].class: is "x", want one of logic, `},
		"a class of what happened": {mcp.Knowledge{AppliedIf: []mcp.Condition{{Path: "$.id", Class: keep.ClassLogic}}}, "applied_if[0].class: is for refused_if only"},
		"two things at once":       {mcp.Knowledge{RefusedIf: []mcp.Condition{{Path: "$.id", Equals: 1, Exists: &no}}}, "exists contradicts equals and in"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := c.knows.Pairing("add"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
