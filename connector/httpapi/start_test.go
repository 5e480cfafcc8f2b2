package httpapi_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// TestGoneMeansApplied is a service without a lookup, which nothing but the call lets use up a
// draft: that the draft is gone is all that is known of the call, if the service says it itself.
func TestGoneMeansApplied(t *testing.T) {
	t.Parallel()
	answer := &reply{header: http.Header{}}
	calls := map[string]int{}
	conn := openTools(t, `
[tools.send]
effect = "mutate"
path = "/drafts/{start}/send"
identity = ["to"]
start = { path = "/drafts", id = "$.id", gone_means = "applied", gone = { path = "/drafts/{start}", absent_if = { path = "$.error", equals = "no_such_draft" } } }
`, func(w http.ResponseWriter, r *http.Request) {
		calls[r.Method+" "+r.URL.Path]++
		if r.Method == http.MethodGet {
			answer.ServeHTTP(w, r)
			return
		}
		(&reply{status: 200, body: `{"id":"d-7"}`}).ServeHTTP(w, r)
	})
	m := mutation(`{"to":"ada@example.com"}`)
	claim, err := tool(t, conn, "send").(connector.Claimer).Claim(t.Context(), m)
	if err != nil || claim != "d-7" {
		t.Fatalf("Claim = %q, %v", claim, err)
	}
	if m.Pin, err = json.Marshal(map[string]string{"claim": claim}); err != nil {
		t.Fatal(err)
	}
	if _, err := tool(t, conn, "send").(connector.Mutator).Mutate(t.Context(), m); err != nil || calls["POST /drafts/d-7/send"] != 1 {
		t.Errorf("Mutate: %v, requests %v", err, calls)
	}
	for _, c := range []struct {
		status int
		body   string
		want   connector.Verdict
		code   string // of the failure
	}{
		{404, `{"error":"no_such_draft"}`, connector.Happened, ""},
		{200, `{"id":"d-7"}`, connector.Absent, ""},
		{404, `{"error":"no_such_route"}`, connector.Retry, ""},
		{404, `<html>`, connector.Retry, ""},
		{200, `{"id":"d-8"}`, connector.Retry, ""},
		{200, `{}`, connector.Retry, ""},
		{410, `{"error":"no_such_draft"}`, "", "http-410"}, // a status that is not named
		{503, ``, "", "http-503"},
		{401, `{}`, "", keep.CodeUnauthenticated}, // a person is asked for the credential, and not whether the call was made
		{403, `{}`, "", keep.CodeForbidden},
	} {
		answer.status, answer.body = c.status, c.body
		a, err := tool(t, conn, "send").(connector.Reconciler).Reconcile(t.Context(), m)
		code := ""
		if f, ok := errors.AsType[*keep.Failure](err); ok {
			code = f.Code
		}
		if code != c.code || a.Verdict != c.want || (a.Verdict == connector.Happened) != (a.Receipt.Warning != "") || a.Result != nil {
			t.Errorf("%d %s: %q %q, %v; want %q", c.status, c.body, a.Verdict, a.Receipt.Warning, err, c.want)
		}
	}
}
