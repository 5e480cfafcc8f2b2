package mcp_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mcp"
)

// Law witnessed: an owner's word that a list holds all that there can be does not count for an answer that says otherwise itself: that
// something of it failed, or that there is more. Nor does it where a row has what was sent in another spelling.
func TestAbsenceThatTheAnswerDenies(t *testing.T) {
	t.Parallel()
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	title, id := mcp.Lookup{Match: []string{"title"}}, mcp.Lookup{}
	for name, c := range map[string]struct {
		lookup mcp.Lookup
		sent   string
		answer string
		want   connector.Verdict
	}{
		"all there is":                         {title, `"a"`, `{"rows":[]}`, connector.Absent},
		"others":                               {title, `"a"`, `{"rows":[{"title":"ab"},{"title":"b"}]}`, connector.Absent},
		"it has more":                          {title, `"a"`, `{"rows":[],"has_more":true}`, connector.Unwitnessed},
		"it has more, as GraphQL says it":      {title, `"a"`, `{"rows":[],"pageInfo":{"hasNextPage":true,"endCursor":"x"}}`, connector.Unwitnessed},
		"it was cut":                           {title, `"a"`, `{"rows":[],"truncated":true}`, connector.Unwitnessed},
		"it says where there is more":          {title, `"a"`, `{"rows":[],"next_cursor":"x"}`, connector.Unwitnessed},
		"it says that this is the end":         {title, `"a"`, `{"rows":[],"has_more":false,"next":"/rows?from=9"}`, connector.Absent},
		"it says that there is no more":        {title, `"a"`, `{"rows":[],"response_metadata":{"next_cursor":""}}`, connector.Absent},
		"the owner says what says it":          {mcp.Lookup{Match: []string{"title"}, More: "$.more"}, `"a"`, `{"rows":[],"more":false,"next":"/rows?from=9"}`, connector.Absent},
		"a page that is not full has more":     {mcp.Lookup{Match: []string{"title"}, Page: 9}, `"a"`, `{"rows":[],"has_more":true}`, connector.Unwitnessed},
		"it has more, and ours":                {title, `"a"`, `{"rows":[{"title":"a"}],"has_more":true}`, connector.Happened},
		"it failed":                            {title, `"a"`, `{"rows":[],"error":"the index is away"}`, connector.Retry},
		"it took too long":                     {title, `"a"`, `{"rows":[],"timed_out":true}`, connector.Retry},
		"it says that it did not fail":         {title, `"a"`, `{"rows":[],"error":null,"ok":true}`, connector.Absent},
		"another case, and other spaces":       {title, `"Pay Ann"`, `{"rows":[{"title":"b"},{"title":"pay  ann "}]}`, connector.Unwitnessed},
		"a number that became a text":          {title, `7`, `{"rows":[{"title":"7.0"}]}`, connector.Unwitnessed},
		"a time that became another time zone": {title, `"2026-05-04T03:02:01Z"`, `{"rows":[{"title":"2026-05-04T05:02:01+02:00"}]}`, connector.Unwitnessed},
		"the mark in capitals":                 {id, `"a"`, `{"rows":[{"id":"TOK_1"}]}`, connector.Unwitnessed},
		"the mark":                             {id, `"a"`, `{"rows":[{"id":"tok_1"}]}`, connector.Happened},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := mcp.NewServer(mcp.ServerConfig{Name: "desk", URL: serve(t, func(w http.ResponseWriter, r said) bool {
				if r.Method == "tools/call" {
					fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":%s}}`, r.ID, c.answer)
				}
				return r.Method == "tools/call"
			})})
			defer s.Close()
			l := c.lookup
			l.Tool, l.Found, l.Complete = "list", "$.rows", true
			p := mcp.Pairing{Tool: "add", Identity: l.Match, Lookup: &l}
			if len(l.Match) == 0 {
				p.TokenParam = "id"
			}
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
			m := keep.Mutation{Token: "tok_1", Payload: raw(`{"title":` + c.sent + `}`)}
			got, err := s.Tool(p, 0).(connector.Reconciler).Reconcile(t.Context(), m)
			if err != nil || got.Verdict != c.want {
				t.Errorf("%s, %s: %v; want %s", got.Verdict, got.Detail, err, c.want)
			}
		})
	}
}
