package web_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
)

var empty = regexp.MustCompile(`(?s)<p class="empty">(.*?)</p>`)

// Where there is nothing, the page says what to do next: a link, or a command.
func TestEmptyStates(t *testing.T) {
	w := newWorld(t)
	c := w.as("ada", access.Admin)
	for _, path := range []string{"/", "/inputs", "/inbox", "/inbox?show=decided", "/runs", "/workflows", "/events", "/items", "/mutations", "/keys",
		"/inputs?q=nothing", "/runs?q=nothing", "/events?workflow=nobody", "/items?q=nothing", "/mutations?q=nothing", "/keys?q=nothing", "/skip-inputs?q=nothing"} {
		a := c.get(path)
		a.want(t, http.StatusOK)
		found := empty.FindAllStringSubmatch(a.body, -1)
		if len(found) == 0 {
			t.Errorf("%s says nothing about being empty", path)
		}
		for _, m := range found {
			if path == "/inbox?show=decided" {
				continue // what could be done is in the inbox
			}
			if !strings.Contains(m[1], "<a ") && !strings.Contains(m[1], "<code>") {
				t.Errorf("%s does not say what to do next: %s", path, m[1])
			}
			if strings.Contains(path, "?") && !strings.Contains(m[1], "<a href=\"/") {
				t.Errorf("%s does not lead back: %s", path, m[1])
			}
		}
	}
}

// A run that is under way is shown with its attempt, since when, and what went wrong
// before; no page says that something runs, and nothing more (law: explained).
func TestNeverABareRunning(t *testing.T) {
	w := newWorld(t, "counter.js")
	w.began("counter", "count")
	w.stopHost()
	now := keepNow()
	first := keep.Run{ID: "run_first", Chain: "run_first", Workflow: "counter", Version: w.version("counter").Version, Handler: "take", Kind: keep.Consumer,
		Phase: keep.Preparing, Status: keep.StatusTransient, Closed: true, Error: keep.Failf(keep.ClassTransient, "http-503", "the desk was closed"),
		CreatedAt: now.Add(-2 * time.Hour), UpdatedAt: now.Add(-time.Hour)}
	second := first
	second.ID, second.RetryOf, second.Status, second.Closed, second.Error, second.CreatedAt = "run_second", "run_first", keep.StatusActive, false, nil, now.Add(-time.Hour)
	w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "counter", At: now, Changes: []keep.Change{keep.PutRun{Run: first}, keep.PutRun{Run: second}}}))
	c := w.as("vera", access.Viewer)
	for _, path := range []string{"/", "/workflows", "/workflows/counter", "/runs", "/runs?open=1", "/runs/run_second"} {
		a := c.get(path)
		a.want(t, http.StatusOK, "the desk was closed")
		text := strings.ToLower(a.body)
		if !strings.Contains(text, "attempt 2") || !strings.Contains(a.body, second.UpdatedAt.Format("2006-01-02 15:04:05")) {
			t.Errorf("%s does not say which attempt it is, or since when", path)
		}
		if regexp.MustCompile(`>\s*running\s*<`).MatchString(text) {
			t.Errorf("%s has a bare \"running\"", path)
		}
	}
	second.Rev, second.Status, second.Phase, second.Closed = 1, keep.StatusCommitted, keep.Committed, true
	w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "counter", At: now, Changes: []keep.Change{keep.PutRun{Run: second}}}))
}

// The page of a run whose script failed shows the line, and the run what it was about.
func TestErrorAtItsLine(t *testing.T) {
	w := newWorld(t, "broken.js")
	q := w.question("broken")
	a := w.as("vera", access.Viewer).get("/runs/" + string(q.Run))
	a.want(t, http.StatusOK, "broken.js:8:23", "cannot read property", `class="hit"`, "for (const t of things.list.entries) {")
	hit := regexp.MustCompile(`<span class="hit">(?:<i>)?\s*(\d+)`).FindStringSubmatch(a.body)
	if hit == nil || hit[1] != "8" {
		t.Errorf("the line that is marked is %v, want 8", hit)
	}
}
