package web_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/memory"
)

// A question is found, read and answered on the pages whatever is in its id: that about the calls of a tool which are stopped has the
// name of the tool, and an MCP server calls its tools as it likes.
func TestQuestionAboutAToolOfAnyName(t *testing.T) {
	for _, tool := range []string{"repos/create", "what?", "a#1", "100%", "é b", "../../workflows", "a\u200bb"} {
		t.Run(tool, func(t *testing.T) {
			db := memory.New()
			now := keepNow()
			id := keep.EscalationID("esc_breaker_github." + tool + "_1")
			commit(t, db, "gateway", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "gateway", Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: now}},
				keep.OpenEscalation{Escalation: keep.Escalation{ID: id, Kind: keep.AskBreaker, Workflow: "gateway", Question: "Calls fail alike: may they be made?", CreatedAt: now,
					Choices: []keep.Choice{{Action: keep.Retry, Label: "Retry"}}}})
			ask := pagesWith(t, db)
			find := func(body, pattern string) string {
				t.Helper()
				m := regexp.MustCompile(pattern + `="([^"]*/inbox/[^"]*)"`).FindStringSubmatch(body)
				if m == nil {
					t.Fatalf("no %s leads to the question:\n%s", pattern, body)
				}
				return html.UnescapeString(m[1])
			}
			for _, list := range []string{"/", "/inbox"} {
				ask("GET", find(ask("GET", list, nil).body, `<a class="title" href`), nil).want(t, http.StatusOK, "Calls fail alike", `value="retry"`)
			}
			for list, field := range map[string]string{"/inbox": "on", "/inbox/together?cause=" + url.QueryEscape("breaker  "): "id"} {
				m := regexp.MustCompile(`name="` + field + `" value="([^"]*)"`).FindStringSubmatch(ask("GET", list, nil).body)
				if m == nil || html.UnescapeString(m[1]) != string(id) {
					t.Errorf("%s names the question %q", list, m)
				}
			}
			page := ask("GET", find(ask("GET", "/inbox", nil).body, `<a class="title" href`), nil)
			ask("POST", find(page.body, `<form method="post" action`), url.Values{"action": {"retry"}, "from": {"question"}}).want(t, http.StatusSeeOther)
			if q, err := db.Escalation(t.Context(), id); err != nil || q.Decision == nil {
				t.Errorf("it was not decided: %v", err)
			}
		})
	}
}
