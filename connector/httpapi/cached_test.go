package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keep-run/keep/connector"
)

// TestAnswerOfACache asks by lookups to which a cache between us and the service answers as the service answered it before the call was
// made. Only what is there shows something: that there is nothing is of before, and so is a known effect that is to show that the
// lookup works. Laws: witnessed, once.
func TestAnswerOfACache(t *testing.T) {
	t.Parallel()
	age, status, body := "", 200, ""
	conn := openTools(t, lookups+`
[tools.paged]
effect = "mutate"
path = "/payments"
identity = ["id"]
token = { metadata = "keep_id" }
reconcile = { path = "/payments", items = "$.data", complete = true, match = { "metadata.keep_id" = "{token}" }, pages = { style = "cursor", param = "after", next = "$.next" } }

[tools.send]
effect = "mutate"
path = "/drafts/{start}/send"
identity = ["id"]
start = { path = "/drafts", id = "$.id", gone_means = "applied", gone = { path = "/drafts/{start}", absent_if = { path = "$.error", equals = "no_such_draft" } } }
`, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Cache-Control"); got != "no-cache" {
			t.Errorf("%s %s asks a cache with %q, want no-cache", r.Method, r.URL, got)
		}
		if age != "" {
			w.Header().Set("Age", age)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})
	m := mutation(`{"id":17,"email":"ada@x"}`)
	m.Pin = json.RawMessage(`{"claim":"d-7"}`)
	for _, c := range []struct {
		tool   string
		status int
		body   string
		want   connector.Verdict // of the service itself
	}{
		{"complete", 200, `{"data":[]}`, connector.Absent},
		{"complete", 200, `{"data":[{"metadata":{"keep_id":"tok-0"}}]}`, connector.Absent},
		{"complete", 200, `{"data":[{"metadata":{"keep_id":"tok-1"}}]}`, connector.Happened},
		{"paged", 200, `{"data":[{"metadata":{"keep_id":"tok-0"}}]}`, connector.Absent},
		{"paged", 200, `{"data":[]}`, connector.Absent},
		{"paged", 200, `{"data":[{"metadata":{"keep_id":"tok-1"}}]}`, connector.Happened},
		{"byID", 404, `{}`, connector.Unwitnessed},
		{"byToken", 200, `[]`, connector.Unwitnessed},
		{"known", 404, `{"error":{"type":"not_found"}}`, connector.Absent},
		{"send", 200, `{"id":"d-7"}`, connector.Absent},
		{"send", 404, `{"error":"no_such_draft"}`, connector.Happened},
	} {
		status, body = c.status, c.body
		for _, held := range []string{"", "0", "odd", "1", "86400", "99999999999999999999"} {
			age = held
			want := c.want
			cached := held != "" && held != "0" && held != "odd"
			if cached && (want != connector.Happened || c.tool == "send") {
				want = connector.Retry
			}
			a, err := tool(t, conn, c.tool).(connector.Reconciler).Reconcile(t.Context(), m)
			if err != nil || a.Verdict != want || cached && want == connector.Retry && !strings.Contains(a.Detail, "cache") {
				t.Errorf("%s answered %d %s of age %q: %q%s, %v; want %q", c.tool, c.status, c.body, held, a.Verdict, a.Detail, err, want)
			}
			if c.tool == "send" {
				continue
			}
			found, err := tool(t, conn, c.tool).(connector.Controller).Control(t.Context(), m)
			if found != (c.want == connector.Happened && !cached) {
				t.Errorf("%s answered %d %s of age %q: the lookup works is %t, %v", c.tool, c.status, c.body, held, found, err)
			}
		}
	}
}
