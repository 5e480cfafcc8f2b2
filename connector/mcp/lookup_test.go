package mcp_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mcp"
)

// TestLookup says what the rows of a server show of a call: an effect, an absence, or neither.
func TestLookup(t *testing.T) {
	t.Parallel()
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	mark, byToken := [2]string{"body", " [{token}]"}, map[string]json.RawMessage{"q": raw(`"{token}"`)}
	for name, c := range map[string]struct {
		match   []string
		args    map[string]json.RawMessage
		token   [2]string // its param, and what is appended
		payload string
		rows    string
		found   string // empty: $.rows
		want    connector.Verdict
		detail  string
		asked   string // what is in the request; empty: anything
	}{
		"ours":                                      {match: []string{"title", "body"}, payload: `{"title":"a","body":"b"}`, rows: `[{"title":"a","body":"b"}]`, want: connector.Happened},
		"others":                                    {match: []string{"title", "body"}, payload: `{"title":"a","body":"b"}`, rows: `[{"title":"a","body":"c"},{"title":"d"}]`, want: connector.Absent},
		"none":                                      {match: []string{"title", "body"}, payload: `{"title":"a","body":"b"}`, rows: `[]`, want: connector.Absent},
		"a text in place of rows":                   {token: [2]string{"title", ""}, payload: `{"title":"a"}`, rows: `"backend unavailable"`, want: connector.Unwitnessed, detail: "no list"},
		"an object in place of rows":                {token: [2]string{"title", ""}, payload: `{"title":"a"}`, rows: `{}`, want: connector.Unwitnessed, detail: "no list"},
		"one row in place of rows":                  {token: [2]string{"title", ""}, payload: `{"title":"a"}`, rows: `{"title":"tok"}`, want: connector.Happened},
		"rows in groups, ours":                      {match: []string{"title"}, found: "$.rows[*].of", payload: `{"title":"a"}`, rows: `[{"of":[{"title":"b"}]},{"of":[{"title":"a"}]}]`, want: connector.Happened},
		"rows in groups, others":                    {match: []string{"title"}, found: "$.rows[*].of", payload: `{"title":"a"}`, rows: `[{"of":[{"title":"b"}]},{"of":[]}]`, want: connector.Absent},
		"a text in place of a group":                {token: [2]string{"title", ""}, found: "$.rows[*].of", payload: `{"title":"a"}`, rows: `[{"of":[{"title":"b"}]},{"of":"gone"}]`, want: connector.Unwitnessed, detail: "no list"},
		"rows within rows, others":                  {match: []string{"title"}, found: "$.rows[*].of", payload: `{"title":"a"}`, rows: `[{"of":{"title":"b"}}]`, want: connector.Absent},
		"a param that is compared missing":          {match: []string{"title", "body"}, payload: `{"body":"b"}`, rows: `[{"title":"untitled","body":"b"}]`, want: connector.Unwitnessed, detail: "the call has no title"},
		"a param that is compared null":             {match: []string{"title", "body"}, payload: `{"title":null,"body":"b"}`, rows: `[{"title":"untitled","body":"b"}]`, want: connector.Unwitnessed, detail: "the call has no title"},
		"a param that is asked by missing":          {match: []string{"title"}, args: map[string]json.RawMessage{"of": raw(`"id {body}"`)}, payload: `{"title":"a"}`, rows: `[{"title":"a"}]`, want: connector.Unwitnessed, detail: "the call has no body"},
		"a param größe that is asked by missing":    {match: []string{"title"}, args: map[string]json.RawMessage{"of": raw(`"{größe}"`)}, payload: `{"title":"a"}`, rows: `[]`, want: connector.Unwitnessed, detail: "the call has no größe"},
		"a param $filter that is asked by missing":  {match: []string{"title"}, args: map[string]json.RawMessage{"of": raw(`"{$filter}"`)}, payload: `{"title":"a"}`, rows: `[]`, want: connector.Unwitnessed, detail: "the call has no $filter"},
		"a param due date that is asked by missing": {match: []string{"title"}, args: map[string]json.RawMessage{"of": raw(`"{due date}"`)}, payload: `{"title":"a"}`, rows: `[]`, want: connector.Unwitnessed, detail: "the call has no due date"},
		"a param größe that is asked by":            {match: []string{"title"}, args: map[string]json.RawMessage{"of": raw(`"{größe}"`)}, payload: `{"title":"a","größe":7}`, rows: `[]`, want: connector.Absent, asked: `"of":7`},
		"a field that no row has":                   {match: []string{"title", "body"}, payload: `{"title":"a","body":"b"}`, rows: `[{"name":"a","body":"b"}]`, want: connector.Unwitnessed, detail: "none has the field title of match"},
		"a param within a filter": {match: []string{"title"}, args: map[string]json.RawMessage{"filter": raw(`{"and":[{"body":"{body}"},{"since":"after {sent_at}"}]}`)},
			payload: `{"title":"a","body":{"n":1.50}}`, rows: `[]`, want: connector.Absent, asked: `{"filter":{"and":[{"body":{"n":1.50}},{"since":"after 2026-05-04T03:01:01Z"}]}}`},
		"a param that is the token": {token: [2]string{"id", ""}, args: map[string]json.RawMessage{"of": raw(`"{id}"`)}, payload: `{"id":"mine"}`, rows: `[{"id":"tok"}]`,
			want: connector.Happened, asked: `"of":"tok"`},
		"a text that the token is appended to": {match: []string{"body"}, token: [2]string{"body", " [{token}]"}, payload: `{"body":"b"}`, rows: `[{"body":"b [tok]"}]`, want: connector.Happened},
		// what may only repeat the question
		"a text without a result":              {token: mark, args: byToken, payload: `{"body":"b"}`, rows: `"No notes for tok"`, want: connector.Retry, detail: "repeat"},
		"a text within an object":              {token: mark, args: byToken, payload: `{"body":"b"}`, rows: `{"result":"No notes for tok."}`, want: connector.Retry, detail: "repeat"},
		"the question beside an empty list":    {token: mark, args: byToken, payload: `{"body":"b"}`, rows: `{"query":"tok","hits":[]}`, want: connector.Retry, detail: "repeat"},
		"the question in rows":                 {token: mark, args: byToken, payload: `{"body":"b"}`, rows: `[{"url":"/search?q=tok","body":"c"}]`, want: connector.Retry, detail: "repeat"},
		"the question in rows, and ours":       {token: mark, args: byToken, payload: `{"body":"b"}`, rows: `[{"url":"/search?q=tok","body":"c"},{"body":"b [tok]"}]`, want: connector.Happened},
		"a text with our mark":                 {token: mark, args: byToken, payload: `{"body":"b"}`, rows: `"1 note for tok: b [tok]"`, want: connector.Happened},
		"an object with our mark":              {token: mark, args: byToken, payload: `{"body":"b"}`, rows: `{"note":{"body":"b [tok]"}}`, want: connector.Happened},
		"a text where the mark was asked for":  {token: mark, args: map[string]json.RawMessage{"q": raw(`"[{token}]"`)}, payload: `{"body":"b"}`, rows: `"No notes for [tok]"`, want: connector.Retry, detail: "repeat"},
		"an object with our key":               {token: [2]string{"id", ""}, args: byToken, payload: `{}`, rows: `{"id":"tok","state":"paid"}`, want: connector.Happened},
		"a text where our param was asked for": {token: mark, args: map[string]json.RawMessage{"q": raw(`"{body}"`)}, payload: `{"body":"b"}`, rows: `"No notes for b [tok]"`, want: connector.Retry, detail: "repeat"},
		"rows whose address is our param":      {token: [2]string{"url", "#{token}"}, args: byToken, payload: `{"url":"/x"}`, rows: `[{"url":"/x#tok"}]`, want: connector.Happened},
		"an object that denies our key":        {token: [2]string{"id", ""}, args: byToken, payload: `{}`, rows: `{"id":"tok","found":false}`, want: connector.Retry, detail: "repeat"},
		"a text with our key":                  {token: [2]string{"id", ""}, args: byToken, payload: `{}`, rows: `"tok is unknown"`, want: connector.Retry, detail: "repeat"},
		"a text that was not asked for":        {token: mark, payload: `{"body":"b"}`, rows: `"1 note: b tok"`, want: connector.Happened},

		"a secret":                     {match: []string{"title"}, payload: `{"title":"acme-organisation"}`, rows: `[{"title":"other-organisation"}]`, want: connector.Retry, detail: "a secret is hidden"},
		"a secret, and rows of others": {match: []string{"title"}, payload: `{"title":"acme-organisation"}`, rows: `[{"title":"a"}]`, want: connector.Absent},
		"a secret in another param":    {match: []string{"title"}, payload: `{"title":"a","key":"acme-organisation"}`, rows: `[{"title":"a"}]`, want: connector.Happened},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked json.RawMessage
			s := mcp.NewServer(mcp.ServerConfig{Name: "desk", Secrets: []string{"acme-organisation", "other-organisation"}, URL: serve(t, func(w http.ResponseWriter, r said) bool {
				if r.Method != "tools/call" {
					return false
				}
				asked = r.Params
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"rows":%s}}}`, r.ID, c.rows)
				return true
			})})
			defer s.Close()
			p := mcp.Pairing{Tool: "add", Identity: c.match, TokenParam: c.token[0], TokenAppend: c.token[1], Lookup: &mcp.Lookup{Tool: "list", Found: cmp.Or(c.found, "$.rows"), Match: c.match, Args: c.args, Complete: true}}
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
			m := keep.Mutation{Token: "tok", Payload: raw(c.payload), CreatedAt: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)}
			got, err := s.Tool(p, 0).(connector.Reconciler).Reconcile(t.Context(), m)
			if err != nil || got.Verdict != c.want || !strings.Contains(got.Detail, c.detail) {
				t.Errorf("%s, %s: %v; want %s, %q", got.Verdict, got.Detail, err, c.want, c.detail)
			}
			if !strings.Contains(string(asked), c.asked) {
				t.Errorf("the server was asked %s, want %s", asked, c.asked)
			}
		})
	}
}

// TestLookupOfAllParams has calls of which all params say what they change, since no identity is named: a row that has what is
// compared may be another call's. Law: witnessed.
func TestLookupOfAllParams(t *testing.T) {
	t.Parallel()
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	for name, c := range map[string]struct {
		match   []string
		args    map[string]json.RawMessage
		token   [2]string
		payload string
		rows    string
		want    connector.Verdict
	}{
		"all are compared":            {match: []string{"title", "body"}, payload: `{"title":"a","body":"b"}`, rows: `[{"title":"a","body":"b"}]`, want: connector.Happened},
		"one is not":                  {match: []string{"title"}, payload: `{"title":"a","body":"b"}`, rows: `[{"title":"a","body":"c"}]`, want: connector.Retry},
		"one is not, and none is":     {match: []string{"title"}, payload: `{"title":"a","body":"b"}`, rows: `[{"title":"c"}]`, want: connector.Absent},
		"one is not, and is null":     {match: []string{"title"}, payload: `{"title":"a","body":null}`, rows: `[{"title":"a"}]`, want: connector.Retry},
		"the call has no others":      {match: []string{"title"}, payload: `{"title":"a"}`, rows: `[{"title":"a","body":"c"}]`, want: connector.Happened},
		"it is asked by the other":    {match: []string{"title"}, args: map[string]json.RawMessage{"q": raw(`"{body}"`)}, payload: `{"title":"a","body":"b"}`, rows: `[{"title":"a"}]`, want: connector.Happened},
		"what is compared is marked":  {match: []string{"body"}, token: [2]string{"body", " [{token}]"}, payload: `{"title":"a","body":"b"}`, rows: `[{"body":"b [tok]"}]`, want: connector.Happened},
		"what it is asked by is":      {match: []string{"title"}, token: [2]string{"id", ""}, args: map[string]json.RawMessage{"q": raw(`"{token}"`)}, payload: `{"title":"a","body":"b"}`, rows: `[{"title":"a"}]`, want: connector.Happened},
		"only another param has mark": {match: []string{"title"}, token: [2]string{"note", "{token}"}, payload: `{"title":"a","note":"n"}`, rows: `[{"title":"a"}]`, want: connector.Retry},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := mcp.NewServer(mcp.ServerConfig{Name: "desk", URL: serve(t, func(w http.ResponseWriter, r said) bool {
				if r.Method != "tools/call" {
					return false
				}
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"rows":%s}}}`, r.ID, c.rows)
				return true
			})})
			defer s.Close()
			p := mcp.Pairing{Tool: "add", TokenParam: c.token[0], TokenAppend: c.token[1], Lookup: &mcp.Lookup{Tool: "list", Found: "$.rows", Match: c.match, Args: c.args, Complete: true}}
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
			got, err := s.Tool(p, 0).(connector.Reconciler).Reconcile(t.Context(), keep.Mutation{Token: "tok", Payload: raw(c.payload)})
			if err != nil || got.Verdict != c.want {
				t.Errorf("%s, %s: %v; want %s", got.Verdict, got.Detail, err, c.want)
			}
		})
	}
}
